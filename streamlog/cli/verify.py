"""`streamlog verify` reports damage, `streamlog repair` corrects what can be corrected."""

import contextlib
import os
import random
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import click

from streamlog.cli.output import (
    EXIT_FINDING,
    PARTITION_COLUMNS,
    Column,
    Findings,
    Kind,
    Output,
    Progress,
    counted,
    remark,
)
from streamlog.cli.roots import bucket_url
from streamlog.cli.sources import contents_of
from streamlog.cli.verb import Settings
from streamlog.cli.verify_bucket import verify_bucket
from streamlog.clock import SystemClock
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import LOG_DAMAGE, Finding, Severity, as_error
from streamlog.health.repair import Repair, RepairStep, how_to_repair
from streamlog.health.repair import repair as repair_logs
from streamlog.health.replica_repair import repair_from_replicas
from streamlog.health.replicas import verify_replicas
from streamlog.health.verify import size_of_logs
from streamlog.health.verify import verify as look
from streamlog.partition.tiered import with_remote_segments
from streamlog.root.read_roots import parse_roots
from streamlog.root.replica_status import replica_set_at
from streamlog.root.roots import is_our_root
from streamlog.topic import TopicPartition

__all__ = ["repair", "verify"]


def verify(
    settings: Settings,
    *,
    paths: tuple[str, ...],
    deep: bool,
    replicas: bool,
    max_decompressed_bytes: int | None,
) -> None:
    """Print findings, and notes and summaries on stderr."""
    findings: list[Finding] = []
    errors: list[StreamLogError] = []
    summaries: list[str] = []
    paths = tuple(each for path in paths or (settings.root,) for each in _split(path))
    for url in filter(None, map(bucket_url, paths)):
        _verify_url(settings, url, deep, max_decompressed_bytes, errors, summaries)
    paths = tuple(path for path in paths if bucket_url(path) is None)
    fs, paths = with_remote_segments(LocalFileSystem(), paths)
    if replicas:
        paths = _without_offline(paths)
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
                summaries.append(_sound(fs, path))
    if replicas:
        _verify_replicas(settings, paths, findings, errors, summaries)
    wrong = [each for each in findings if each.severity is not Severity.NOTE]
    for note in findings:
        if note.severity is Severity.NOTE:
            got = "" if note.got is None else f": {note.got}"
            remark(settings, f"{note.path}: {note.what}{got}")
    Output(settings).rows([_finding_row(finding) for finding in wrong], _columns())
    for summary in summaries:
        remark(settings, summary)
    _remark_next_step(settings, wrong)
    if errors:
        raise Findings(errors)
    if wrong:
        raise click.exceptions.Exit(EXIT_FINDING)


def _verify_url(
    settings: Settings,
    url: str,
    is_deep: bool,  # noqa: FBT001 - as the options of the command
    max_decompressed_bytes: int | None,
    errors: list[StreamLogError],
    summaries: list[str],
) -> None:
    found = [*verify_bucket(settings, url, is_deep, max_decompressed_bytes)]
    errors += found
    summaries += [] if found else [_sound(LocalFileSystem(), url)]


def _sound(fs: FileSystem, path: str) -> str:
    return f"{path}: sound; checked {contents_of(fs, path)}"


def _split(path: str) -> tuple[str, ...]:
    is_several = "," in path and bucket_url(path) is None
    return parse_roots(path, LocalFileSystem()) if is_several else (path,)


def _without_offline(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Drop roots that an online root lists as offline: their replicas are reported as such."""
    offline: set[str] = set()
    for path in paths:
        with contextlib.suppress(StreamLogError):
            nodes = replica_set_at(path).nodes().values()
            away = {each.root.path for each in nodes if each.problem is not None}
            if LogRoot.at(path).path not in away:
                offline |= away
    return tuple(each for each in paths if LogRoot.at(each).path not in offline)


def _verify_replicas(
    settings: Settings,
    paths: tuple[str, ...],
    findings: list[Finding],
    errors: list[StreamLogError],
    summaries: list[str],
) -> None:
    """Compare the replicas of the replica sets that paths belong to, each set once."""
    known: set[frozenset[str]] = set()
    for path in paths:
        before = len(findings)
        try:
            nodes = replica_set_at(path).nodes()
            roots = frozenset(each.root.path for each in nodes.values())
            if roots in known:
                continue
            known.add(roots)
            with Progress(settings, "comparing replicas", None) as progress:
                count = verify_replicas(nodes, findings.append, on_progress=progress.advance)
        except StreamLogError as error:
            errors.append(error)
        else:
            if all(each.severity is Severity.NOTE for each in findings[before:]):
                compared = f"compared {counted(count, 'partition')} on {len(roots)} log roots"
                summaries.append(f"{path}: replicas are equal; {compared}")


def _remark_next_step(settings: Settings, wrong: list[Finding]) -> None:
    """Print the next step for each damaged partition, or that the next writer repairs it."""
    damaged = {os.path.dirname(each.path): each.path for each in wrong if each.kind in LOG_DAMAGE}
    for path in damaged.values():
        remark(settings, how_to_repair(LocalFileSystem(), path))
    if any(each.severity is Severity.DEGRADED for each in wrong):
        remark(settings, "bring replicas up to date: streamlog replicate --once")
    repairable = [each for each in wrong if each.severity is Severity.REPAIRABLE]
    if repairable and not damaged:
        where = shlex.quote(os.path.dirname(repairable[0].path))
        remark(settings, f"the next writer repairs this, or: streamlog repair {where}")


def _finding_row(finding: Finding) -> dict[str, Any]:
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


def repair(
    settings: Settings, *, directory: str, dry_run: bool, skip_damage: bool, from_replica: bool
) -> None:
    """Print the steps taken or, with `--dry-run`, due."""
    if from_replica and skip_damage:
        raise click.UsageError("--from-replica excludes --skip-damage")
    if from_replica:
        with Progress(settings, f"copying to {directory}", None) as progress:
            done = list(_refilled(directory, is_dry_run=dry_run, on_progress=progress.advance))
    else:
        done = list(
            repair_logs(
                LocalFileSystem(),
                SystemClock(),
                random.Random(),
                directory,
                is_dry_run=dry_run,
                skips_damage=skip_damage,
            )
        )
    options = " --from-replica" * from_replica + " --skip-damage" * skip_damage
    _print_repairs(settings, directory, done, is_done=not dry_run, options=options)


def _refilled(
    directory: str, *, is_dry_run: bool, on_progress: Callable[[int], None]
) -> Iterator[Repair]:
    """Refill the damaged replicas of a log root, or the one in a partition's directory."""
    path = os.path.abspath(directory)
    root = LogRoot.at(path)
    if not is_our_root(root):
        root = LogRoot.at(os.path.dirname(path))
    return repair_from_replicas(root, path, is_dry_run=is_dry_run, on_progress=on_progress)


def _print_repairs(
    settings: Settings, directory: str, repairs: list[Repair], *, is_done: bool, options: str
) -> None:
    """Print the steps of repairs.

    Args:
        settings: The shared options.
        directory: The path that was repaired.
        repairs: The repairs.
        is_done: Whether it was no dry run.
        options: The options of the command, each after a space.
    """
    rows: list[dict[str, Any]] = []
    errors: list[StreamLogError] = []
    for each in repairs:
        rows += [_step_row(each.partition, step, is_done=is_done) for step in each.steps]
        errors += [as_error(finding) for finding in each.left]
        if each.error is not None:
            errors.append(each.error)
    columns = (
        *PARTITION_COLUMNS,
        Column("action", "ACTION"),
        Column("file", "FILE"),
        Column("target", "TARGET"),
        Column("size", "SIZE", Kind.NUMBER),
        Column("newSize", "NEW SIZE", Kind.NUMBER),
        Column("why", "WHY"),
    )
    Output(settings).rows(rows, columns)
    if not rows and not errors:
        seen = contents_of(LocalFileSystem(), directory)
        remark(settings, f"{directory}: nothing to repair; checked {seen}")
    if rows and not is_done:
        remark(settings, f"nothing was changed; to apply: streamlog repair {directory}{options}")
    if errors:
        raise Findings(errors)


def _step_row(
    partition: TopicPartition | None, step: RepairStep, *, is_done: bool
) -> dict[str, Any]:
    change = step.change
    return {
        "topic": None if partition is None else partition.topic,
        "partition": None if partition is None else partition.partition,
        "action": change.kind.value,
        "file": change.path,
        "target": change.target,
        "size": change.size,
        "newSize": change.new_size,
        "why": step.why,
        "done": is_done,
    }
