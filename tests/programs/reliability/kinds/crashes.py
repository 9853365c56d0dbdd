"""Crashes at every operation on the disk, and crashes during the recovery from a crash."""

import threading
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from streamlog.fs.api import FileSystem
from tests.programs.reliability.history import Crashed
from tests.programs.reliability.kinds.survival import (
    SECOND_LIFE,
    THIRD_LIFE,
    Case,
    ground,
    perform,
    survive,
    survive_and_lose_power,
)
from tests.programs.reliability.subject import Subject
from tests.programs.reliability.workloads import Workload
from tests.support.crash import CrashState, crash_states


def crashes(workload: Workload, random: Random) -> Iterator[Case]:
    """The process dies, or the power fails, before and during each operation on the disk."""
    seeds = [random.randrange(1 << 30)]
    for state in _crashes_of(workload, seeds):
        before = [*state.acknowledged, Crashed(state.lost_power)]
        yield Case(state.description, survive(state.fs, before, life=SECOND_LIFE))


def kills_and_power_cuts(workload: Workload, random: Random) -> Iterator[Case]:
    """The process dies in each operation, another one continues, then the power fails."""
    for state in _crashes_of(workload, ()):
        if not state.lost_power:
            before = [*state.acknowledged, Crashed(lost_power=False)]
            found = survive_and_lose_power(state.fs, before)
            yield Case(f"{state.description}; another process continues; a power cut", found)


def _crashes_of(workload: Workload, seeds: Sequence[int]) -> Iterator[CrashState]:
    trouble = threading.Event()
    return crash_states(
        lambda fs, history: perform(workload, fs, history, on_trouble=trouble.set),
        prepared=ground(workload),
        seeds=seeds,
        select=lambda _: trouble.is_set(),
    )


def double_crashes(workload: Workload, random: Random) -> Iterator[Case]:
    """A second crash happens during the recovery from the first."""
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
