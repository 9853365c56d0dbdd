"""`streamlog maintain`: runs retention and compaction once or periodically."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from streamlog.bucket.places import is_bucket, root_paths
from streamlog.cli.output import PARTITION_COLUMNS, Column, Findings, Kind, Output, explain, remark
from streamlog.cli.readers import held_lines
from streamlog.cli.roots import bucket_url
from streamlog.cli.sources import contents_of
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.errors import StreamLogError
from streamlog.fs.local import LocalFileSystem
from streamlog.maintenance.runner import Maintenance, MaintenanceReport
from streamlog.root.replica_set import ReplicaSet
from streamlog.root.replica_status import root_set_at
from streamlog.spark.options import parse_duration_ms

if TYPE_CHECKING:
    from streamlog.maintenance.bucket_runner import BucketMaintenance

    AnyMaintenance: TypeAlias = Maintenance | BucketMaintenance

__all__ = ["maintain"]


def maintain(settings: Settings, *, once: bool, every: str | None, dry_run: bool) -> None:
    """Run maintenance and print its actions."""
    if every is not None and (once or dry_run):
        raise click.UsageError("--every excludes --once and --dry-run")

    with contextlib.ExitStack() as stack:
        roots = _Roots(settings, stack)
        if every is None:
            if not dry_run:
                _replicate(settings)
            roots.report((lambda each: each.plan()) if dry_run else (lambda each: each.run()))
            return
        interval_ms = parse_duration_ms({"--every": every}, "--every", default=every)
        if not _SHORTEST_MS <= interval_ms <= _LONGEST_MS:
            raise click.BadParameter(f"expected 1s to 365d, got {every!r}", param_hint="--every")
        while True:
            _replicate(settings)
            try:
                roots.report(lambda each: each.run())
            except Findings as found:
                if roots.is_one:
                    raise
                for error in found.errors:  # a root that is offline may return
                    remark(settings, str(explain(error)))
            SystemClock().sleep_ms(interval_ms)


class _Roots:
    """The log roots of `--path`, maintained one after another.

    Args:
        settings: The shared options.
        stack: Closes them.

    Raises:
        StreamLogError: The only root cannot be maintained; of several, `report` reports it.
    """

    def __init__(self, settings: Settings, stack: contextlib.ExitStack) -> None:
        self._settings, self._stack = settings, stack
        self._paths = root_paths(settings.root, LocalFileSystem())
        self._opened: dict[str, AnyMaintenance] = {}
        if self.is_one:
            self._open(self._paths[0])

    @property
    def is_one(self) -> bool:
        """Whether there is one root only."""
        return len(self._paths) == 1

    def _open(self, path: str) -> "AnyMaintenance":
        opened = self._opened.get(path)
        if opened is None:
            opened = self._opened[path] = _maintenance(path)
            self._stack.callback(opened.close)
        return opened

    def report(self, work: "Callable[[AnyMaintenance], MaintenanceReport]") -> None:
        """Maintain each root and print what was done.

        Raises:
            Findings: Something could not be done.
        """
        reports: dict[str, MaintenanceReport] = {}
        errors: list[StreamLogError] = []
        for path in self._paths:
            try:
                reports[path] = work(self._open(path))
            except StreamLogError as error:
                if self.is_one:
                    raise
                errors.append(error)
                self._opened.pop(path, None)  # another disk may be there next time
        _print_reports(self._settings, reports, is_one=self.is_one)
        errors += [error for report in reports.values() for error in report.errors]
        if errors:
            raise Findings(errors)


def _maintenance(path: str) -> "AnyMaintenance":
    if not is_bucket(path):
        return Maintenance(path)
    from streamlog.maintenance.bucket_runner import maintenance_of

    return maintenance_of(path)


def _replicate(settings: Settings) -> None:
    """Bring the replicas of the root's replica set up to date, if it belongs to one."""
    if bucket_url(settings.root) is not None or root_set_at(settings.root) is None:
        return
    with ReplicaSet.open(settings.root) as replica_set:
        for partition, error in replica_set.replicate_once().items():
            remark(settings, f"{partition} is not replicated: {error}")


_SHORTEST_MS: Final = 1_000  # `--every 30` means ms: probably a forgotten unit
_LONGEST_MS: Final = 365 * 86_400_000


def _print_reports(
    settings: Settings, reports: Mapping[str, MaintenanceReport], *, is_one: bool
) -> None:
    """Print the reports of log roots; of several, each row and remark names its root."""
    columns = (
        *([] if is_one else [Column("root", "ROOT")]),
        *PARTITION_COLUMNS,
        Column("action", "ACTION"),
        Column("reason", "REASON"),
        Column("segments", "SEGMENTS", Kind.NUMBER),
        Column("bytes", "SIZE", Kind.SIZE),
        Column("logStartOffset", "LOG START", Kind.NUMBER),
    )
    rows = [
        deed.to_json() if is_one else {"root": root, **deed.to_json()}
        for root, report in reports.items()
        for deed in report.deeds
    ]
    Output(settings).rows(rows, columns)
    for root, report in reports.items():
        for line in _remarks(root, report):
            remark(settings, line if is_one else f"{root}: {line}")


def _remarks(root: str, report: MaintenanceReport) -> Iterator[str]:
    yield from held_lines(report.held)
    if report.is_elsewhere:
        yield "nothing was done: another process is running maintenance on this root"
    elif not report.deeds and not report.errors:
        yield f"nothing is due; checked {contents_of(LocalFileSystem(), root)}"
