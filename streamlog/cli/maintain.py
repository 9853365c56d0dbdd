"""`streamlog maintain`: retention and compaction, now or every so often."""

from typing import Final

import click

from streamlog.cli.output import Column, Findings, Kind, Output, remark
from streamlog.cli.readers import held_lines
from streamlog.cli.sources import looked_at
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.fs.local import LocalFileSystem
from streamlog.maintenance.runner import Maintenance, MaintenanceReport
from streamlog.spark.options import parse_duration_ms

__all__ = ["maintain"]


def maintain(settings: Settings, *, once: bool, every: str | None, dry_run: bool) -> None:
    """Delete and compact what is due."""
    if every is not None and (once or dry_run):
        raise click.UsageError("--every goes with neither --once nor --dry-run")

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


_SHORTEST_MS: Final = 1_000  # a number without a unit is of milliseconds, and rarely meant so


_LONGEST_MS: Final = 365 * 86_400_000


def _tell(settings: Settings, report: MaintenanceReport) -> None:

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
