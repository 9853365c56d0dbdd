"""The kinds of trouble: each breaks a workload in every way it knows and asks the checker.

A kind yields one `Case` for each state it has brought about, with what the checker says of it, so
that whoever runs it can stop at any time. Exhaustive means: each operation of the file system.
"""

import errno
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from streamlog.errors import StreamLogError
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment
from streamlog.fs.memory import MemoryFileSystem
from tests.reliability.history import Crashed, Event, History, Outcome, Raised, Wrote
from tests.reliability.invariants import Harm, Violation, check
from tests.reliability.subject import APP, Subject
from tests.reliability.workloads import Workload
from tests.support.crash import CrashState, crash_states

FIRST_LIFE, SECOND_LIFE, THIRD_LIFE = 1, 2, 3


class Case(NamedTuple):
    """One state, and what does not hold there."""

    description: str
    violations: list[Violation]


@functools.cache
def _prepared_root() -> MemoryFileSystem:
    memory = MemoryFileSystem()
    Subject(memory, []).manager.close()
    return memory


def ground(workload: Workload) -> MemoryFileSystem:
    """Return a copy of what a workload starts from."""
    prepared = MemoryFileSystem() if workload.on_nothing else _prepared_root()
    return prepared.crash_clone(Random(0), power=False)


def perform(workload: Workload, fs: FileSystem, history: list[Any]) -> None:
    """Do the operations of a workload."""
    subject = Subject(fs, history, life=FIRST_LIFE)
    for operation in workload.operations:
        subject.perform(operation)


def survive(fs: FileSystem, before: Sequence[Event], *, life: int) -> list[Violation]:
    """Let another process look at what is left, go on as Spark would, and look again.

    Returns:
        What does not hold; that nothing can be opened, or that nothing more can be written, is a
        violation like any other.
    """
    history: History = list(before)
    raised = len([each for each in history if isinstance(each, Raised)])
    try:
        subject = Subject(fs, history, life=life)
        subject.see()
        if any(_is_open_commit(each) for each in history):
            subject.perform("commit again")
        for operation in ("append", "append other", "commit"):
            subject.perform(operation)
        subject.see()
    except StreamLogError as error:
        history.append(Raised("opening", repr(error), is_typed=True))
    except Exception as error:  # noqa: BLE001 - any error that is not ours is a finding
        history.append(Raised("opening", repr(error), is_typed=False))
    later = [each for each in history if isinstance(each, Raised)][raised:]
    return check(history) + [
        Violation("it_goes_on", Harm.OTHER, f"{each.operation}: {each.error}") for each in later
    ]


def _is_open_commit(event: Event) -> bool:
    return isinstance(event, Wrote) and event.writer == APP and event.outcome is Outcome.UNKNOWN


# ---- crashes ---------------------------------------------------------------------------------
def crashes(workload: Workload, random: Random) -> Iterator[Case]:
    """The process dies, or the power fails, before and in each operation on the disk."""
    seeds = [random.randrange(1 << 30)]
    for state in _crashes_of(workload, seeds):
        before = [*state.acknowledged, Crashed(state.lost_power)]
        yield Case(state.description, survive(state.fs, before, life=SECOND_LIFE))


def _crashes_of(workload: Workload, seeds: Sequence[int]) -> Iterator[CrashState]:
    return crash_states(
        lambda fs, history: perform(workload, fs, history),
        prepared=ground(workload),
        seeds=seeds,
    )


def double_crashes(workload: Workload, random: Random) -> Iterator[Case]:
    """It crashes again while it recovers from a crash."""
    seeds = [random.randrange(1 << 30)]
    first = [*_crashes_of(workload, seeds)]
    for state in random.sample(first, min(6, len(first))):
        yield from _crashes_again(state, random)


def _crashes_again(first: CrashState, random: Random) -> Iterator[Case]:
    before = [*first.acknowledged, Crashed(first.lost_power)]

    def recover(fs: FileSystem, history: list[Any]) -> None:
        history += before
        Subject(fs, history, life=SECOND_LIFE).see()

    seeds = [random.randrange(1 << 30)]
    for state in crash_states(recover, prepared=first.fs, seeds=seeds):
        again = [*(state.acknowledged or before), Crashed(state.lost_power)]
        description = f"{first.description}; then {state.description}"
        yield Case(description, survive(state.fs, again, life=THIRD_LIFE))


# ---- errors ----------------------------------------------------------------------------------
ERRORS: Final = (errno.EIO, errno.ENOSPC)


def errors(workload: Workload, random: Random) -> Iterator[Case]:
    """Each operation on the disk fails, once or from then on, with nothing, a part or all done."""
    counting = FaultyFileSystem(ground(workload))
    perform(workload, counting, [])
    for number in range(1, len(counting.operations) + 1):
        for code, moment in ((code, moment) for code in ERRORS for moment in Moment):
            lasting = random.random() < 0.5
            fault = Fault(at=number, errno=code, moment=moment, is_lasting=lasting)
            yield from _fails(workload, fault, str(counting.operations[number - 1]))


def _fails(workload: Workload, fault: Fault, operation: str) -> Iterator[Case]:
    memory = ground(workload)
    history: History = []
    try:
        perform(workload, FaultyFileSystem(memory, fault), history)
    except StreamLogError as error:
        history.append(Raised("opening", repr(error), is_typed=True))
    what = f"{errno.errorcode[fault.errno or 0]} {fault.moment.value} {operation}"
    what += ", and from then on" if fault.is_lasting else ""
    for lost_power in (False, True):
        loss = {"loss": "everything"} if lost_power else {}
        left = memory.crash_clone(Random(0), power=lost_power, **loss)  # the process is gone
        before = [*history, Crashed(lost_power)]
        ending = ", then a power cut" if lost_power else ""
        yield Case(what + ending, survive(left, before, life=SECOND_LIFE))


# ---- flipped bits ----------------------------------------------------------------------------
FLIPS: Final = 12  # of each workload


def flips(workload: Workload, random: Random) -> Iterator[Case]:
    """A bit of a file is another one: what was not written is never shown, and nobody dies."""
    memory = ground(workload)
    history: History = []
    perform(workload, memory, history)
    for _ in range(FLIPS):
        damaged = memory.crash_clone(Random(0), power=False)
        where = _flip(damaged, random)
        found = survive(damaged, [*history, Crashed(lost_power=False)], life=SECOND_LIFE)
        yield Case(where, [each for each in found if each.invariant in PROMISED_DESPITE_DAMAGE])


PROMISED_DESPITE_DAMAGE: Final = {"errors_are_typed", "batches_are_sound"}


def _flip(fs: MemoryFileSystem, random: Random) -> str:
    paths = [path for path in _files(fs, "/") if (fs.stat(path) or _EMPTY).size]
    path = random.choice(paths)
    with fs.open(path, OpenMode.WRITE) as file:
        position = random.randrange(file.stat().size)
        bit = random.randrange(8)
        file.pwrite(bytes([file.pread(1, position)[0] ^ 1 << bit]), position)
    return f"bit {bit} of byte {position} of {path} flipped"


class _Empty(NamedTuple):
    size: int = 0


_EMPTY: Final = _Empty()


def _files(fs: FileSystem, directory: str) -> Iterator[str]:
    for name in fs.list(directory):
        path = f"{directory.rstrip('/')}/{name}"
        found = fs.stat(path)
        if found is not None and found.kind is FileKind.DIRECTORY:
            yield from _files(fs, path)
        elif found is not None:
            yield path


Kind = Callable[[Workload, Random], Iterable[Case]]

KINDS: Final[dict[str, Kind]] = {
    "crashes": crashes,
    "double crashes": double_crashes,
    "errors": errors,
    "flips": flips,
}
