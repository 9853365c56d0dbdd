"""Clocks that jump, and files with wrong times, before any operation of a workload."""

from collections.abc import Iterator
from random import Random
from typing import Final

from streamlog.clock import ManualClock
from streamlog.fs.memory import MemoryFileSystem
from tests.programs.reliability.content import NOW
from tests.programs.reliability.history import Crashed, History
from tests.programs.reliability.kinds.damage import all_files
from tests.programs.reliability.kinds.survival import FIRST_LIFE, SECOND_LIFE, Case, ground, survive
from tests.programs.reliability.subject import Subject
from tests.programs.reliability.workloads import Workload

HOUR_MS: Final = 3_600_000
YEARS_MS: Final = 10 * 365 * 24 * HOUR_MS
JUMPS: Final = (HOUR_MS, -HOUR_MS, YEARS_MS, -YEARS_MS)


def clocks(workload: Workload, random: Random) -> Iterator[Case]:
    """The wall clock jumps by an hour or ten years, or the times of all files do."""
    del random  # all combinations of operation and jump
    for number in range(len(workload.operations)):
        for jump_ms in JUMPS:
            yield _case(workload, number, jump_ms, of_files=False)
            yield _case(workload, number, jump_ms, of_files=True)


def _case(workload: Workload, number: int, jump_ms: int, *, of_files: bool) -> Case:
    memory, clock = ground(workload), ManualClock(NOW)
    history: History = []
    subject = Subject(memory, history, life=FIRST_LIFE, clock=clock)
    for at, operation in enumerate(workload.operations):
        if at == number and of_files:
            _touch(memory, NOW + jump_ms)
        elif at == number:
            clock.set(clock.now_ms() + jump_ms)
        subject.perform(operation)
    what = "the times of all files jump" if of_files else "the clock jumps"
    left = memory.crash_clone(Random(0), power=False)
    found = survive(left, [*history, Crashed(lost_power=False)], life=SECOND_LIFE)
    return Case(f"{what} by {jump_ms:+,} ms before operation {number + 1}", found)


def _touch(memory: MemoryFileSystem, mtime_ms: int) -> None:
    for path in all_files(memory, "/"):
        memory.set_mtime(path, mtime_ms)
