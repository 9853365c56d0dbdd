"""`streamlog verify`: is it sound?"""

import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from streamlog.cli.settings import JSON_SHAPES, Settings, decompressing, reading_verb

if TYPE_CHECKING:
    from streamlog.cli.output import Column
    from streamlog.health.findings import Finding

__all__ = ["verify"]


@click.command(short_help="Look for damage.", epilog=JSON_SHAPES)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option("--deep", is_flag=True, help="Decode every record, too.")
@decompressing
@reading_verb
def verify(
    settings: Settings, *, paths: tuple[str, ...], deep: bool, max_decompressed_bytes: int | None
) -> None:
    """Look for damage in a log root, in partitions' directories, in single files.

    Every batch is read and its checksum compared; indexes, producer snapshots, epochs and
    checkpoints are held against the log; of a log root made by streamlog also settings, pending
    commits, ledgers and readers. Nothing is changed, whoever wrote it. Beside writers what seems
    wrong is looked at again, and reported only if it stays.
    Prints what it finds and exits with 1 where that is anything; 0 means sound. Things that are
    no damage (files waiting to be removed, what is only in progress) go to stderr.

    \b
    Examples:
      streamlog verify /var/lib/kafka
      streamlog verify /tmp/log/orders-0 --deep
      streamlog verify /tmp/log/orders-0/00000000000000000000.index --format json
    """
    from streamlog.cli.failures import EXIT_FINDING, Findings
    from streamlog.cli.looked_at import looked_at
    from streamlog.cli.output import Output, remark
    from streamlog.cli.progress import Progress
    from streamlog.errors import StreamLogError
    from streamlog.fs.local import LocalFileSystem
    from streamlog.health.findings import Severity
    from streamlog.health.verify import size_of_logs
    from streamlog.health.verify import verify as look

    fs = LocalFileSystem()
    findings: list[Finding] = []
    errors: list[StreamLogError] = []
    summaries: list[str] = []
    for path in paths:
        before = len(findings)
        try:
            with Progress(settings, f"verifying {path}", size_of_logs(fs, path)) as progress:
                look(
                    fs,
                    path,
                    findings.append,
                    is_deep=deep,
                    max_decompressed_bytes=max_decompressed_bytes,
                    on_progress=progress.advance,
                )
        except StreamLogError as error:
            errors.append(error)
        else:
            if all(each.severity is Severity.NOTE for each in findings[before:]):
                summaries.append(f"{path}: sound; looked at {looked_at(fs, path)}")
    wrong = [each for each in findings if each.severity is not Severity.NOTE]
    for note in findings:
        if note.severity is Severity.NOTE:
            got = "" if note.got is None else f": {note.got}"
            remark(settings, f"{note.path}: {note.what}{got}")
    Output(settings).rows([_row(finding) for finding in wrong], _columns())
    for summary in summaries:
        remark(settings, summary)
    _say_what_to_do(settings, wrong)
    if errors:
        raise Findings(errors)
    if wrong:
        raise click.exceptions.Exit(EXIT_FINDING)


def _say_what_to_do(settings: Settings, wrong: "list[Finding]") -> None:
    """Name the next step for each partition with damage, or that none is needed."""
    from streamlog.cli.output import remark
    from streamlog.health.findings import LOG_DAMAGE, Severity
    from streamlog.segment.walk import how_to_go_on

    damaged = {os.path.dirname(each.path): each.path for each in wrong if each.kind in LOG_DAMAGE}
    for path in damaged.values():
        remark(settings, how_to_go_on(path))
    repairable = [each for each in wrong if each.severity is Severity.REPAIRABLE]
    if repairable and not damaged:
        where = shlex.quote(os.path.dirname(repairable[0].path))
        remark(settings, f"whoever writes next puts that right, or: streamlog repair {where}")


def _row(finding: "Finding") -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "severity": finding.severity.value,
        "file": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "lastOffset": finding.last_offset,
        "what": finding.what,
        "got": None if finding.got is None else str(finding.got),
        "expected": None if finding.expected is None else str(finding.expected),
        "count": finding.count,
    }


def _columns() -> "tuple[Column, ...]":
    from streamlog.cli.output import Column, Kind

    return (
        Column("severity", "SEVERITY"),
        Column("kind", "KIND"),
        Column("file", "FILE"),
        Column("position", "POSITION", Kind.NUMBER),
        Column("offset", "OFFSET", Kind.NUMBER),
        Column("what", "WHAT"),
        Column("got", "GOT"),
        Column("expected", "EXPECTED"),
        Column("count", "COUNT", Kind.NUMBER),
    )
