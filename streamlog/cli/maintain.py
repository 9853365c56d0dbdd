"""`streamlog maintain`: retention and compaction, now or every so often."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from streamlog.cli.settings import JSON_SHAPES, Settings, reading_verb

if TYPE_CHECKING:
    from streamlog.maintenance.runner import MaintenanceReport
    from streamlog.root.holds import Held

__all__ = ["maintain"]

_SHORTEST_MS: Final = 1_000  # a number without a unit is of milliseconds, and rarely meant so
_LONGEST_MS: Final = 365 * 86_400_000


@click.command(short_help="Delete and compact what is due.", epilog=JSON_SHAPES)
@click.option("--once", is_flag=True, help="Do what there is to do, and end; so it is unless told.")
@click.option("--every", metavar="DURATION", help="Go on until Ctrl-C, each 30s, 5m, 1h …")
@click.option("--dry-run", is_flag=True, help="Only say what would go; nothing is changed.")
@reading_verb
def maintain(settings: Settings, *, once: bool, every: str | None, dry_run: bool) -> None:
    """Delete and compact what the topics' settings let go, and say what and why.

    Recorded readers keep what they have not finished: see streamlog readers.

    \b
    Examples:
      streamlog --path /tmp/log maintain --dry-run
      streamlog --path /tmp/log maintain --every 5m
    """
    if every is not None and (once or dry_run):
        raise click.UsageError("--every goes with neither --once nor --dry-run")
    from streamlog.clock import SystemClock
    from streamlog.maintenance.runner import Maintenance
    from streamlog.spark.options import parse_duration_ms

    with Maintenance(settings.root) as maintenance:
        if every is None:
            _tell(settings, maintenance.plan() if dry_run else maintenance.run())
            return
        interval_ms = parse_duration_ms({"--every": every}, "--every", default=every)
        if not _SHORTEST_MS <= interval_ms <= _LONGEST_MS:
            raise click.BadParameter(f"{every!r} is not 1s to 365d", param_hint="--every")
        while True:
            _tell(settings, maintenance.run())
            SystemClock().sleep_ms(interval_ms)


def _tell(settings: Settings, report: "MaintenanceReport") -> None:
    from streamlog.cli.failures import Findings
    from streamlog.cli.looked_at import looked_at
    from streamlog.cli.output import Column, Kind, Output, remark
    from streamlog.fs.local import LocalFileSystem

    columns = (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", Kind.NUMBER),
        Column("action", "ACTION"),
        Column("reason", "REASON"),
        Column("segments", "SEGMENTS", Kind.NUMBER),
        Column("bytes", "SIZE", Kind.SIZE),
        Column("logStartOffset", "LOG START", Kind.NUMBER),
    )
    Output(settings).rows([deed.to_json() for deed in report.deeds], columns)
    for line in held_lines(report.held):
        remark(settings, line)
    if report.is_elsewhere:
        remark(settings, "nothing was done: another process is maintaining this root")
    elif not report.deeds and not report.errors:
        seen = looked_at(LocalFileSystem(), settings.root)
        remark(settings, f"nothing is due; looked at {seen}")
    if report.errors:
        raise Findings(report.errors)


def held_lines(held: Sequence["Held"]) -> list[str]:
    """Return a line for each thing that a reader keeps."""
    from streamlog.cli.output import human_size

    lines = []
    for each in held:
        if each.bytes or each.kept_from > each.offset:
            line = f"reader {each.reader} keeps {human_size(each.bytes)} of {each.partition}"
            line += f" from offset {each.offset} on"
            if each.kept_from > each.offset:
                line += f", but only from {each.kept_from} by streamlog.readers.max.bytes"
            lines.append(line)
    return lines
