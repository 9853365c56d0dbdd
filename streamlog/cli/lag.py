"""`streamlog lag`: how far readers are behind, once or again and again."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from streamlog.arrow.views import open_read_roots
from streamlog.bucket.places import root_paths
from streamlog.cli.output import (
    EXIT_FINDING,
    PARTITION_COLUMNS,
    Column,
    Kind,
    Output,
    counted,
    explain,
    remark,
)
from streamlog.cli.verb import Settings, load
from streamlog.clock import SystemClock
from streamlog.errors import StreamLogError
from streamlog.fs.local import LocalFileSystem
from streamlog.root.readers import Reader
from streamlog.spark.options import parse_duration_ms
from streamlog.watch.checkpoints import reader_of_checkpoint
from streamlog.watch.lag import LagMeter, PartitionLag, known_readers

if TYPE_CHECKING:
    from streamlog.arrow.views import AnyReadRoots

__all__ = ["lag", "readers_of"]

_SHORTEST_MS: Final = 100
_LONGEST_MS: Final = 86_400_000
_COLUMNS: Final = (
    Column("group", "GROUP"),
    *PARTITION_COLUMNS,
    Column("currentOffset", "CURRENT-OFFSET", Kind.NUMBER),
    Column("logEndOffset", "LOG-END-OFFSET", Kind.NUMBER),
    Column("lag", "LAG", Kind.NUMBER),
    Column("lagMs", "TIME", Kind.DURATION),
)


def lag(
    settings: Settings,
    *,
    checkpoints: tuple[str, ...],
    over: int | None,
    over_time: str | None,
    watch: bool,
    every: str | None,
    count: int | None,
) -> None:
    """Print the lag of readers; exit with 1 if one exceeds a limit."""
    if not watch and (every is not None or count is not None):
        raise click.UsageError("--every and --count need --watch")
    limit_ms = None if over_time is None else _duration("--over-time", over_time, _LONGEST_MS * 365)
    roots = open_read_roots(root_paths(settings.root, LocalFileSystem()))
    with LagMeter(roots) as meter:
        if not watch:
            rows = _measured(roots, meter, checkpoints)
            Output(settings).rows(map(_row, rows), _COLUMNS)
            _remark_none(settings, rows, roots, checkpoints)
            is_over = _exceeds(rows, over, limit_ms)
        else:
            every_ms = _duration("--every", every or "2s", _LONGEST_MS, least=_SHORTEST_MS)
            measurements = _measurements(settings, roots, meter, checkpoints, every_ms, count)
            is_over = False
            with _Screen(settings) as screen:
                for rows in measurements:
                    screen.show(rows)
                    is_over |= _exceeds(rows, over, limit_ms)
    if is_over:
        raise click.exceptions.Exit(EXIT_FINDING)


def readers_of(roots: "AnyReadRoots", checkpoints: tuple[str, ...]) -> list[Reader]:
    """Return the queries at checkpoints as readers, or the recorded readers without any."""
    if not checkpoints:
        return known_readers(roots)
    return [reader_of_checkpoint(each) for each in checkpoints]


def _measured(
    roots: "AnyReadRoots", meter: LagMeter, checkpoints: tuple[str, ...]
) -> list[PartitionLag]:
    return meter.measure(readers_of(roots, checkpoints))


def _measurements(
    settings: Settings,
    roots: "AnyReadRoots",
    meter: LagMeter,
    checkpoints: tuple[str, ...],
    every_ms: int,
    count: int | None,
) -> Iterator[list[PartitionLag]]:
    """Yield one measurement after another; failures after the first one are remarks."""
    clock, done = SystemClock(), 0
    while True:
        try:
            if done:
                meter.refresh()
            yield _measured(roots, meter, checkpoints)
        except StreamLogError as error:
            if not done:
                raise
            remark(settings, str(explain(error)))  # a disk may return, a checkpoint be replaced
        done += 1
        if done == count:
            return
        clock.sleep_ms(every_ms)


def _exceeds(rows: list[PartitionLag], over: int | None, over_ms: int | None) -> bool:
    return any(
        (over is not None and row.lag > over)
        or (over_ms is not None and row.lag_ms is not None and row.lag_ms > over_ms)
        for row in rows
    )


def _duration(option: str, text: str, most: int, *, least: int = 0) -> int:
    found = parse_duration_ms({option: text}, option, default=text)
    if not least <= found <= most:
        raise click.BadParameter(f"expected {least}ms to {most}ms, got {text!r}", param_hint=option)
    return found


def _row(each: PartitionLag) -> dict[str, Any]:
    return {
        "group": each.reader,
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "currentOffset": each.current_offset,
        "logEndOffset": each.log_end_offset,
        "lag": each.lag,
        "lagMs": each.lag_ms,
        "committedMs": each.committed_ms,
    }


def _remark_none(
    settings: Settings,
    rows: list[PartitionLag],
    roots: "AnyReadRoots",
    checkpoints: tuple[str, ...],
) -> None:
    if rows:
        return
    readers = readers_of(roots, checkpoints)
    if not readers:
        remark(settings, "no readers are recorded; pass a query's checkpoint: --checkpoint DIR")
    else:
        seen = counted(len(readers), "reader")
        remark(settings, f"{seen} recorded, none with an offset of a topic in this root")


class _Screen:
    """Where measurements are shown: a table in place on a terminal, lines elsewhere.

    Lines have the time of the measurement: those of one have the same.

    Args:
        settings: The shared options.
    """

    def __init__(self, settings: Settings) -> None:
        self._output = Output(settings)
        self._live: Any = None

    def __enter__(self) -> "_Screen":
        if self._output.is_terminal and self._output.format == "table":
            self._live = load("terminal:LiveTable")(_COLUMNS)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, rows: list[PartitionLag]) -> None:
        """Show a measurement in place of the last one, or after it."""
        now_ms = SystemClock().now_ms()
        objects: list[Mapping[str, Any]] = [{**_row(each), "timeMs": now_ms} for each in rows]
        if self._live is not None:
            self._live.show([[column.text(row) for column in _COLUMNS] for row in objects])
        else:
            self._output.rows(objects, _COLUMNS)
