"""Maintenance with nothing to do, compared with its limits."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

from streamlog.clock import SystemClock
from streamlog.maintenance.runner import Maintenance, MaintenanceReport
from streamlog.root.manager import LogManager
from streamlog.segment.filenames import log_file_name
from tests.programs.performance.comparison import Comparison
from tests.programs.performance.partitions import batch_of

PARTITIONS = 100
SEALED = 4  # segments of a compacted partition
TICK_LIMIT_MS = 5.0
SEGMENTS = 10_000
COLD_LIMIT_MS = 500.0
TIMES = 20


def compare() -> Iterator[Comparison]:
    """Measure ticks over many partitions, and the check of one with many segments."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory:
        root = Path(directory)
        _make(root / "wide", PARTITIONS)
        with Maintenance(root / "wide") as runner:
            runner.run()
            yield _result("maintenance.tick", _tick(runner), TICK_LIMIT_MS)
        _make(root / "compacted", PARTITIONS, compacted=True)
        with Maintenance(root / "compacted") as runner:
            runner.run()
            yield _result("maintenance.tick_compacted", _tick(runner), TICK_LIMIT_MS)
        _make(root / "deep", 1)
        _add_segments(root / "deep" / "orders-0")
        with Maintenance(root / "deep") as runner:
            cold = _cpu_ms(runner.run)
            yield _result("maintenance.cold", cold, COLD_LIMIT_MS)
            yield _result("maintenance.unchanged", _tick(runner), TICK_LIMIT_MS)


def _make(root: Path, partitions: int, *, compacted: bool = False) -> None:
    with LogManager.open(root, create=True) as manager:
        with (root / ".streamlog" / "server.properties").open("a") as settings:
            settings.write("log.retention.check.interval.ms=1\nlog.cleaner.backoff.ms=1\n")
        # Every limit has to be checked, and none is reached.
        limits = {"retention.bytes": 2**62, "retention.ms": 2**62}
        if compacted:
            limits |= {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 1}
        manager.create_topic("orders", partitions, limits)
        for partition in range(partitions):
            log = manager.log("orders", partition)
            for _ in range(SEALED if compacted else 0):
                log.append_as_leader(batch_of(1000))
                log.roll()
            log.append_as_leader(batch_of(1000))


def _add_segments(partition: Path) -> None:
    """Add empty segments after the first: only names and sizes of sealed ones are read."""
    for number in range(1, SEGMENTS):
        (partition / log_file_name(100 * number)).touch()


def _tick(runner: Maintenance) -> float:
    """Return the CPU ms of one pass with every check due."""
    clock, taken_ms = SystemClock(), []
    for _ in range(TIMES):
        clock.sleep_ms(2)
        taken_ms.append(_cpu_ms(lambda: runner.run_due(budget_ms=60_000)))
    return min(taken_ms)


def _cpu_ms(function: Callable[[], MaintenanceReport]) -> float:
    begin = process_time()
    report = function()
    taken_ms = 1000 * (process_time() - begin)
    assert (report.deeds, report.errors, report.is_finished) == ([], [], True)
    return taken_ms


def _result(name: str, taken_ms: float, limit_ms: float) -> Comparison:
    return Comparison(
        bench=name,
        ours=taken_ms,
        peer=limit_ms,
        peer_name="the limit",
        unit="ms",
        higher_is_better=False,
        goal=1.0,
    )
