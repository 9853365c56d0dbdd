"""What all kinds share: perform a workload, leave a state, let another process continue on it.

After a crash, the next process reads what is left, continues as Spark would, and reads again. All
guarantees must hold then, and nothing may prevent further writes.
"""

import functools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import CLEAN_SHUTDOWN, LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition import checkpoints
from streamlog.topic import TopicPartition
from tests.programs.reliability.history import Crashed, Event, History, Outcome, Raised, Wrote
from tests.programs.reliability.independent import read_partition
from tests.programs.reliability.invariants import Harm, Violation, check
from tests.programs.reliability.query_writer import APP, PARTITIONS
from tests.programs.reliability.subject import ROOT, TOPIC, Subject
from tests.programs.reliability.workloads import Workload

FIRST_LIFE, SECOND_LIFE, THIRD_LIFE = 1, 2, 3


class Case(NamedTuple):
    """One state, or several of the same sort, and the violations found there."""

    description: str
    violations: list[Violation]
    count: int = 1


@functools.cache
def _prepared_root() -> MemoryFileSystem:
    memory = MemoryFileSystem()
    Subject(memory, []).close()
    return memory


def ground(workload: Workload) -> MemoryFileSystem:
    """Return a copy of the initial state of a workload."""
    prepared = MemoryFileSystem() if workload.on_nothing else _prepared_root()
    return prepared.crash_clone(Random(0), power=False)


def perform(
    workload: Workload,
    fs: FileSystem,
    history: list[Any],
    *,
    root: str = ROOT,
    on_trouble: Callable[[], None] = lambda: None,
) -> Subject:
    """Perform the operations of a workload.

    Args:
        workload: The workload.
        fs: The file system of the root.
        history: Receives the events.
        root: The path of the root.
        on_trouble: Called after the unbroken operations.

    Returns:
        The subject, still open.
    """
    if not workload.unbroken:
        on_trouble()
    subject = Subject(fs, history, life=FIRST_LIFE, root=root)
    for number, operation in enumerate(workload.operations, 1):
        subject.perform(operation)
        if number == workload.unbroken:
            on_trouble()
    return subject


def survive(
    fs: FileSystem, before: Sequence[Event], *, life: int, root: str = ROOT
) -> list[Violation]:
    """Let another process read what is left, continue as Spark would, and read again.

    Returns:
        The violations. Failing to open the root or to write to it counts as one.
    """
    history: History = list(before)
    return [*clean_mark_is_true(fs, root), *go_on(fs, history, life=life, root=root)]


def go_on(
    fs: FileSystem,
    history: History,
    *,
    life: int,
    root: str = ROOT,
    finally_do: Sequence[str] = (),
) -> list[Violation]:
    """Do the same as `survive`, append the events to `history`, and perform `finally_do`."""
    raised = len([each for each in history if isinstance(each, Raised)])
    try:
        subject = Subject(fs, history, life=life, root=root)
        subject.see()
        if any(_is_open_commit(each) for each in history):
            subject.perform("commit again")
        for operation in ("append", "append other", "commit", *finally_do):
            subject.perform(operation)
        subject.see()
    except StreamLogError as error:
        history.append(Raised("opening", repr(error), is_typed=True))
    except Exception as error:  # noqa: BLE001 - any error that is not ours is a finding
        history.append(Raised("opening", repr(error), is_typed=False))
    later = [each for each in history if isinstance(each, Raised)][raised:]
    return check(history) + [
        Violation("work_continues", Harm.OTHER, f"{each.operation}: {each.error}") for each in later
    ]


def survive_and_lose_power(left: MemoryFileSystem, before: Sequence[Event]) -> list[Violation]:
    """Let another process continue and flush, then lose all unsynced data.

    Data of a failed or unfinished sync is visible to the second process but not on the disk.

    Returns:
        The violations before and after the power cut.
    """
    history: History = list(before)
    found = clean_mark_is_true(left, ROOT)
    found += go_on(left, history, life=SECOND_LIFE, finally_do=("flush",))
    lost = left.crash_clone(Random(0), power=True, loss="everything")
    return found + survive(lost, [*history, Crashed(lost_power=True)], life=THIRD_LIFE)


def _is_open_commit(event: Event) -> bool:
    return isinstance(event, Wrote) and event.writer == APP and event.outcome is Outcome.UNKNOWN


def clean_mark_is_true(fs: FileSystem, root: str) -> list[Violation]:
    """KAFKA-10471: if a mark of a clean shutdown exists, all logs are synced."""
    if fs.stat(f"{root}/{CLEAN_SHUTDOWN}") is None:
        return []
    marks = checkpoints.read_recovery_points(LogRoot.at(root, fs=fs))
    violations = []
    for number in range(PARTITIONS):
        partition = TopicPartition(TOPIC, number)
        directory = f"{root}/{partition}"
        found = [] if fs.stat(directory) is None else [*read_partition(fs, directory)]
        if found and found[-1].last_offset >= marks.get(partition, 0):
            detail = f"{partition} reaches {found[-1].last_offset}, synced: {marks.get(partition)}"
            violations.append(Violation("clean_mark_is_true", Harm.LOST, detail))
    return violations
