"""Concurrent writers, a reader, compaction and deletion, in a schedule drawn from a seed.

Each is a thread with its own handles, as a process would have. Exactly one runs at a time; before
each operation on the disk, the seed selects the next. So every schedule is reproducible.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from streamlog.errors import OffsetOutOfRangeError, StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import FaultyFileSystem
from streamlog.partition.reader import LogReader
from tests.programs.reliability.content import identify
from tests.programs.reliability.history import History, Wrote
from tests.programs.reliability.invariants import Harm, Violation, check
from tests.programs.reliability.kinds.survival import THIRD_LIFE, Case, ground
from tests.programs.reliability.subject import IDS_EACH, ROOT, TOPIC, Subject
from tests.programs.reliability.workloads import Workload

SCHEDULES: Final = 6  # per workload
POLLS: Final = 25
OTHERS: Final[tuple[tuple[str, ...], ...]] = (
    ("append", "append other", "roll", "append"),
    ("clean", "clean", "clean"),
    ("delete records", "retain", "delete records"),
)
NOT_BESIDE_OTHERS: Final = {"truncate", "reopen", "commit other", "append elsewhere", "wait"}


class Turns:
    """Lets one of several threads run at a time."""

    def __init__(self, names: Sequence[str], random: Random) -> None:
        self._names, self._random = list(names), random
        self._changed = threading.Condition()
        self._current = ""

    def take(self, name: str) -> None:
        """Let the seed select the next thread, and wait for the turn to come back."""
        with self._changed:
            if self._current == name:
                self._pass_on()
            self._changed.wait_for(lambda: self._current == name)

    def begin(self) -> None:
        """Start the first thread."""
        with self._changed:
            self._pass_on()

    def end(self, name: str) -> None:
        """Leave the rotation for good."""
        with self._changed:
            self._names.remove(name)
            self._pass_on()

    def _pass_on(self) -> None:
        self._current = self._random.choice(self._names) if self._names else ""
        self._changed.notify_all()


class _Scheduled(FaultyFileSystem):
    """Waits for its turn before each operation."""

    def __init__(self, inner: FileSystem, turns: Turns, name: str) -> None:
        super().__init__(inner)
        self._take_turn = lambda: turns.take(name)

    def check_alive(self) -> None:
        self._take_turn()
        super().check_alive()


def races(workload: Workload, random: Random) -> Iterator[Case]:
    """A workload runs concurrently with another writer, compaction, deletion and a reader."""
    mine = tuple(each for each in workload.operations if each not in NOT_BESIDE_OTHERS)
    for _ in range(SCHEDULES):
        seed = random.randrange(1 << 30)
        yield Case(f"schedule {seed}", _race(workload, [mine, *OTHERS], Random(seed)))


def _race(workload: Workload, actors: Sequence[tuple[str, ...]], random: Random) -> list[Violation]:
    memory = ground(workload)
    Subject(memory, []).close()
    history: History = []
    found: list[Violation] = []
    names = [f"actor {number}" for number in range(len(actors))]
    turns = Turns([*names, "reader"], random)

    def act(number: int, fs: FileSystem) -> None:
        first_id = IDS_EACH * number
        subject = Subject(fs, history, life=10 + number, first_id=first_id)
        for operation in actors[number]:
            subject.perform(operation)

    threads = [
        _thread(names[number], turns, memory, lambda fs, number=number: act(number, fs))
        for number in range(len(actors))
    ]
    threads.append(_thread("reader", turns, memory, lambda fs: found.extend(_poll(fs, history))))
    for thread in threads:
        thread.start()
    turns.begin()
    for thread in threads:
        thread.join()
    Subject(memory, history, life=THIRD_LIFE).see()
    return found + check(history)


def _thread(
    name: str, turns: Turns, inner: FileSystem, work: Callable[[FileSystem], None]
) -> threading.Thread:
    def run() -> None:
        turns.take(name)
        try:
            work(_Scheduled(inner, turns, name))
        finally:
            turns.end(name)

    return threading.Thread(target=run, name=name)


def _poll(fs: FileSystem, history: History) -> list[Violation]:
    """I10: read as a source does; no record is torn, duplicated or out of order."""
    found, at = [], 0
    seen: dict[int, int | None] = {}
    try:
        with LogReader.open(f"{ROOT}/{TOPIC}-0", fs=fs) as reader:
            for _ in range(POLLS):
                try:
                    info = reader.read(at)
                except OffsetOutOfRangeError:
                    reader.refresh()
                    at = max(at, reader.log_start_offset)
                    continue
                for each in info.records():
                    number = identify(each.timestamp, each.key, each.value)
                    if each.offset < at or seen.setdefault(each.offset, number) != number:
                        found.append(f"{number} at {each.offset} after {at}")
                    at = each.offset + 1
                at = max(at, info.next_offset)
    except StreamLogError as error:
        found.append(repr(error))
    written = {
        each
        for event in history
        if isinstance(event, Wrote)
        for groups in event.ids.values()
        for ids in groups
        for each in ids
    }
    found += [f"{number} was never written" for number in seen.values() if number not in written]
    return [Violation("readers_go_on", Harm.TORN, each) for each in found]
