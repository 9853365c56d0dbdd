"""Enumerates the states that a crash of a workload may leave, and checks each.

The workload runs once on a `MemoryFileSystem`. Before each modifying operation, the file system is
copied. Each copy yields the death of the process at that point, its death in the middle of a write,
and several power cuts. The check gets each of these file systems with what the workload had
acknowledged by then.

A crash *after* an operation leaves the same files as a crash *before* the next one, with the same
or fewer acknowledgements. The latter is the stricter check, so the former is not repeated. Many
other states are equal, too: power cuts that take the same from different points, deaths before
operations that changed nothing. Only the first of equal ones is checked. A workload's `finally`
never runs in a copy, just as it never runs in a killed process.

    def workload(fs, acknowledged):
        write_file_atomically(fs, "/logs/state", b"new")
        acknowledged.append(b"new")

    def check(fs, acknowledged):
        assert read_file(fs, "/logs/state", max_size=9) in (acknowledged or [b"old", b"new"])

    every_crash_point(workload, check, prepared=prepared)
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from streamlog.fs.api import Buffer, FileSystem, OpenMode
from streamlog.fs.faults import FaultyFileSystem, Operation
from streamlog.fs.memory import MemoryFileSystem

Workload = Callable[[FileSystem, list[Any]], None]
Check = Callable[[MemoryFileSystem, Sequence[Any]], None]


class CrashCheckError(AssertionError):
    """A check failed; the message describes the crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """The coverage of `every_crash_point`; `states` counts different ones."""

    operations: list[Operation]
    states: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashState:
    """One state: its description, the files, and what was acknowledged by then."""

    description: str
    fs: MemoryFileSystem
    acknowledged: tuple[Any, ...]
    lost_power: bool
    operations: list[Operation]  # of the whole workload

    def __str__(self) -> str:
        return f"{self.description}, acknowledged {list(self.acknowledged)}"


@dataclass(slots=True)
class _Point:
    """The file system before an operation (None: after the last), and the data it would write."""

    operation: Operation | None
    fs: MemoryFileSystem
    acknowledged: list[Any]
    source: bytes = b""


@dataclass(slots=True)
class _Recorder:
    inner: MemoryFileSystem
    acknowledged: list[Any] = field(default_factory=list)
    points: list[_Point] = field(default_factory=list)

    def observe(self, operation: Operation | None, source: Buffer) -> None:
        clone = self.inner.crash_clone(Random(0), power=False)
        self.points.append(_Point(operation, clone, list(self.acknowledged), bytes(source)))


def every_crash_point(
    workload: Workload,
    check: Check,
    *,
    prepared: MemoryFileSystem | None = None,
    seeds: Iterable[int] = range(3),
    select: Callable[[Operation], bool] = lambda operation: True,
) -> CrashReport:
    """Run `check` on every state that a crash of `workload` may leave.

    Args:
        workload: Works on the given file system and appends each acknowledgement to the given list
            at once.
        check: Raises if the given file system does not hold what the given list promises. It may
            write: each call gets its own file system.
        prepared: The initial state, which is not changed; empty by default.
        seeds: One random power cut for each at each point, besides the two extremes (nothing
            unsynced is lost, and everything).
        select: Which operations to crash before and in; by default all. The end of the workload is
            always a crash point.

    Returns:
        The operations of the workload and the number of checked states, all different.

    Raises:
        CrashCheckError: A check failed; `__cause__` has its error.
    """
    operations: list[Operation] = []
    states = 0
    for state in crash_states(workload, prepared=prepared, seeds=seeds, select=select):
        states += 1
        operations = state.operations
        try:
            check(state.fs, state.acknowledged)
        except Exception as error:
            raise CrashCheckError(f"{state}: {error!r}") from error
    return CrashReport(operations=operations, states=states)


def crash_states(
    workload: Workload,
    *,
    prepared: MemoryFileSystem | None = None,
    seeds: Iterable[int] = range(3),
    select: Callable[[Operation], bool] = lambda operation: True,
) -> Iterator[CrashState]:
    """Yield the different states themselves; the arguments are those of `every_crash_point`."""
    inner = (prepared or MemoryFileSystem()).crash_clone(Random(0), power=False)
    recorder = _Recorder(inner)
    fs = FaultyFileSystem(
        inner,
        observe=lambda operation, source: (
            recorder.observe(operation, source) if select(operation) else None
        ),
    )
    workload(fs, recorder.acknowledged)
    recorder.observe(None, b"")
    chosen_seeds = tuple(seeds)
    seen = set[tuple[Any, str]]()
    for point in recorder.points:
        acknowledged = repr(point.acknowledged)
        for description, state in _states(point, chosen_seeds):
            facts = state.facts(), acknowledged
            if facts in seen:
                continue
            seen.add(facts)
            yield CrashState(
                description=f"{description}, {point.operation or 'the end of the workload'}",
                fs=state,
                acknowledged=tuple(point.acknowledged),
                lost_power=state.boot_id() != inner.boot_id(),
                operations=fs.operations,
            )


def _states(point: _Point, seeds: Sequence[int]) -> Iterable[tuple[str, MemoryFileSystem]]:
    yield "process killed before", point.fs.crash_clone(Random(0), power=False)
    yield from _power_cuts("before", point.fs, seeds, point)
    torn = _torn(point)
    if torn is not None:
        yield "process killed in", torn.crash_clone(Random(0), power=False)
        yield from _power_cuts("in", torn, seeds[:1], point)


def _power_cuts(
    when: str, fs: MemoryFileSystem, seeds: Sequence[int], point: _Point
) -> Iterable[tuple[str, MemoryFileSystem]]:
    if not fs.unsynced():
        # Nothing is unsynced: one cut shows the new boot id, and all others would be equal to it.
        yield f"power cut {when}", fs.crash_clone(Random(0), power=True)
        return
    for loss in ("nothing", "everything"):
        yield (
            f"power cut that took {loss} {when}",
            fs.crash_clone(Random(0), power=True, loss=loss),
        )
    number = point.operation.number if point.operation else 0
    for seed in seeds:
        random = Random(seed * 1_000_003 + number)
        yield f"power cut (seed {seed}) {when}", fs.crash_clone(random, power=True)


def _torn(point: _Point) -> MemoryFileSystem | None:
    """Return the file system with a part of the write done; the cut varies from call to call."""
    operation = point.operation
    if operation is None or len(point.source) < 2 or point.fs.stat(operation.path) is None:
        return None
    torn = point.fs.crash_clone(Random(0), power=False)
    cut = Random(operation.number).randrange(1, len(point.source))
    with torn.open(operation.path, OpenMode.WRITE) as file:
        file.pwrite(point.source[:cut], operation.position)
    return torn
