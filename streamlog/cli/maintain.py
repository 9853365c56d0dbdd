"""`streamlog maintain`: runs retention and compaction once or periodically."""

from typing import Final

import click

from streamlog.cli.output import PARTITION_COLUMNS, Column, Findings, Kind, Output, remark
from streamlog.cli.readers import held_lines
from streamlog.cli.sources import contents_of
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.fs.local import LocalFileSystem
from streamlog.maintenance.runner import Maintenance, MaintenanceReport
from streamlog.root.replica_set import ReplicaSet
from streamlog.root.replica_status import root_set_at
from streamlog.spark.options import parse_duration_ms

__all__ = ["maintain"]


def maintain(settings: Settings, *, once: bool, every: str | None, dry_run: bool) -> None:
    """Run maintenance and print its actions."""
    if every is not None and (once or dry_run):
        raise click.UsageError("--every excludes --once and --dry-run")

    with Maintenance(settings.root) as maintenance:
        if every is None:
            if not dry_run:
                _replicate(settings)
            _print_report(settings, maintenance.plan() if dry_run else maintenance.run())
            return
        interval_ms = parse_duration_ms({"--every": every}, "--every", default=every)
        if not _SHORTEST_MS <= interval_ms <= _LONGEST_MS:
            raise click.BadParameter(f"expected 1s to 365d, got {every!r}", param_hint="--every")
        while True:
            _replicate(settings)
            _print_report(settings, maintenance.run())
            SystemClock().sleep_ms(interval_ms)


def _replicate(settings: Settings) -> None:
    """Bring the replicas of the root's replica set up to date, if it belongs to one."""
    if root_set_at(settings.root) is None:
        return
    with ReplicaSet.open(settings.root) as replica_set:
        for partition, error in replica_set.replicate_once().items():
            remark(settings, f"{partition} is not replicated: {error}")


_SHORTEST_MS: Final = 1_000  # `--every 30` means ms: probably a forgotten unit
_LONGEST_MS: Final = 365 * 86_400_000


def _print_report(settings: Settings, report: MaintenanceReport) -> None:
    columns = (
        *PARTITION_COLUMNS,
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
        remark(settings, "nothing was done: another process is running maintenance on this root")
    elif not report.deeds and not report.errors:
        seen = contents_of(LocalFileSystem(), settings.root)
        remark(settings, f"nothing is due; checked {seen}")
    if report.errors:
        raise Findings(report.errors)
