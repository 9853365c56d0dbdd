"""Runs the campaign: kinds of faults applied to workloads within a time budget.

Each kind gets its share of the time. It runs the named workloads first, then all short sequences of
operations, then random ones, until its time is up. More time adds cases; it never changes the
rules.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from tests.programs.reliability.invariants import Harm, Violation
from tests.programs.reliability.kinds import CI, KINDS
from tests.programs.reliability.workloads import NAMED, Workload, drawn, short

BUDGETS: Final = {"ci": 110.0, "full": 3600.0, "night": 8 * 3600.0}  # seconds
SHORT_LENGTH: Final = 3


def chosen_kinds(budget: str) -> list[str]:
    """Return the kinds that fit the time and the privileges of a budget."""
    return list(CI if budget == "ci" else KINDS)


class Finding(NamedTuple):
    """A case that violates an invariant, with the command that reproduces it."""

    kind: str
    workload: Workload
    seed: int
    description: str
    violations: list[Violation]

    @property
    def command(self) -> str:
        """The command that replays the workload under this kind of fault."""
        operations = ", ".join(self.workload.operations)
        return (
            f'python -m tests.reliability --only "{self.kind}" --seed {self.seed}'
            f' --operations "{operations}"{" --on-nothing" if self.workload.on_nothing else ""}'
        )


@dataclass
class Tally:
    """Counts and findings of one kind."""

    kind: str
    workloads: int = 0
    cases: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    missing: str | None = None  # what the kind needs and this machine lacks

    @property
    def harms(self) -> Counter[Harm]:
        """The number of violations by harm."""
        return Counter(each.harm for found in self.findings for each in found.violations)


def workloads(random: Random) -> Iterator[Workload]:
    """Yield the workloads in order of execution, without end."""
    yield from NAMED
    yield from short(SHORT_LENGTH)
    while True:
        yield drawn(random)


def run_kind(
    kind: str,
    chosen: Iterator[Workload],
    *,
    seed: int,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    most_findings: int = 3,
) -> Tally:
    """Run workloads until the time is up or enough cases failed.

    Args:
        kind: A name in `KINDS`.
        chosen: The workloads. Each run of one has its own random generator.
        seed: The seed of those generators.
        seconds: The time limit.
        clock: Returns a monotonic time in seconds.
        most_findings: The number of failed cases that ends the run.
    """
    tally = Tally(kind)
    start = clock()
    times: Counter[str] = Counter()  # runs per workload: a replay repeats the first
    for workload in chosen:
        if tally.seconds > seconds:
            return tally
        name = ", ".join(workload.operations)
        times[name] += 1
        tally.workloads += 1
        for case in KINDS[kind].run(workload, Random(f"{seed} {name} {times[name]}")):
            tally.cases += case.count
            tally.seconds = clock() - start
            if case.violations:
                found = Finding(kind, workload, seed, case.description, case.violations)
                tally.findings.append(found)
            if len(tally.findings) >= most_findings:
                return tally
            if tally.seconds > seconds and tally.workloads > KINDS[kind].least:
                return tally
    return tally


def run(
    kinds: list[str],
    *,
    seed: int,
    seconds: float,
    only: Workload | None = None,
) -> Iterator[Tally]:
    """Run kinds in sequence, each for its share of the time."""
    lacks = {kind: KINDS[kind].missing() for kind in kinds}
    whole = sum(KINDS[kind].share for kind in kinds if lacks[kind] is None)
    for kind in kinds:
        if lacks[kind] is not None:
            yield Tally(kind, missing=lacks[kind])
            continue
        chosen = iter([only]) if only else workloads(Random(seed))
        share = seconds * KINDS[kind].share / whole
        yield run_kind(kind, chosen, seed=seed, seconds=share)
