"""Simulates one replicated partition: messages, disks, clocks and faults from one seed.

    python -m tests.programs.replication.simulation [--seeds N] [--first S] [--bug NAME] [--json]
    python -m tests.programs.replication.simulation --seed S [--bug NAME]
    python -m tests.programs.replication.simulation --teeth

The simulation holds only the world and decides nothing: leader, followers, elections, ISR changes,
truncation and the register run the functions of `streamlog.replication`. `--seed` replays one run
and prints its history; `--teeth` looks for each bug of `bugs.BUGS`. Exits with 0 only if all
invariants held, or all bugs were found.
"""

import argparse
import json
import sys
import time
from collections import Counter
from random import Random
from typing import Any, Final, NamedTuple

from tests.programs.reliability import machine
from tests.programs.replication.bugs import BUGS, Bug, seeded
from tests.programs.replication.history import INVARIANTS, ViolationError
from tests.programs.replication.profile import Profile, drawn
from tests.programs.replication.world import World

CI_SEEDS: Final = 2_000
LONG_SEEDS: Final = 20_000  # for a rare bug
MOST_FINDINGS: Final = 10


class Outcome(NamedTuple):
    """The outcome of one seed."""

    seed: int
    steps: int
    violation: ViolationError | None
    counts: Counter[str]


def profile_of(random: Random, bug: Bug | None) -> Profile:
    return drawn(random) if bug is None else drawn(random, bug.rule, bug.theme)


def simulate(seed: int, bug: Bug | None = None, *, trace: list[str] | None = None) -> Outcome:
    """Run one seed; the same seed always gives the same outcome."""
    random = Random(seed)
    with seeded(bug):
        return _simulate(seed, World(profile_of(random, bug), random, trace))


def _simulate(seed: int, world: World) -> Outcome:
    violation = None
    try:
        world.run()
    except ViolationError as found:
        violation = found
    return Outcome(seed, world.steps, violation, world.counts())


class Tally:
    """The outcomes of many seeds."""

    def __init__(self) -> None:
        self.seeds = 0
        self.findings: list[Outcome] = []
        self.counts: Counter[str] = Counter()
        self._start = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.counts += outcome.counts
        if outcome.violation is not None:
            self.findings.append(outcome)

    def facts(self) -> dict[str, Any]:
        """Return the totals for `--json`."""
        return {
            "seeds": self.seeds,
            "seconds": round(time.monotonic() - self._start, 1),
            "findings": [recorded(each) for each in self.findings],
            "counts": dict(sorted(self.counts.items())),
        }


def recorded(outcome: Outcome) -> dict[str, Any]:
    assert outcome.violation is not None
    return {
        "seed": outcome.seed,
        "steps": outcome.steps,
        "invariant": outcome.violation.invariant,
        "detail": outcome.violation.detail,
        "again": f"python -m tests.programs.replication.simulation --seed {outcome.seed}",
    }


def main() -> int:
    arguments = parse()
    bug = next((each for each in BUGS if each.name == arguments.bug), None)
    if arguments.teeth:
        return teeth(as_json=arguments.json)
    if arguments.seed is not None:
        return replay(arguments.seed, bug)
    tally = Tally()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        tally.add(simulate(seed, bug))
        if len(tally.findings) >= MOST_FINDINGS:
            break
    if arguments.json:
        print(json.dumps({**machine.facts(), "first": arguments.first, **tally.facts()}))
    else:
        show(tally)
    return 1 if tally.findings else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.replication.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=CI_SEEDS, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="replay this one and print its history")
    parser.add_argument("--bug", choices=[each.name for each in BUGS])
    parser.add_argument("--teeth", action="store_true", help="look for every bug")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def replay(seed: int, bug: Bug | None) -> int:
    """Print the history of one run."""
    trace: list[str] = []
    outcome = simulate(seed, bug, trace=trace)
    profile = profile_of(Random(seed), bug)
    print(f"seed {seed}: {profile.nodes} replicas, {profile.settings}")
    print("\n".join(trace))
    if outcome.violation is None:
        print(f"no violation in {outcome.steps} steps")
        return 0
    print(f"step {outcome.steps} violates {outcome.violation}")
    print(f"  {INVARIANTS[outcome.violation.invariant]}")
    return 1


def show(tally: Tally) -> None:
    for each in tally.findings:
        print(f"seed {each.seed}, step {each.steps}: {each.violation}")
        print(f"  again: {recorded(each)['again']}")
    facts = tally.facts()
    for name, count in facts["counts"].items():
        print(f"{count:>14,} {name}")
    print(f"{tally.seeds:,} seeds in {facts['seconds']} s, {len(tally.findings)} findings")


class Hunt(NamedTuple):
    """The search for one bug: the seed and the step that found it."""

    name: str
    seed: int
    step: int
    steps: int
    invariant: str
    is_found: bool


def hunt(bug: Bug, seeds: int = CI_SEEDS) -> Hunt:
    """Look for a bug in the seeds of CI."""
    steps = 0
    for seed in range(seeds):
        outcome = simulate(seed, bug)
        steps += outcome.steps
        if outcome.violation is not None:
            invariant = outcome.violation.invariant
            return Hunt(bug.name, seed, outcome.steps, steps, invariant, True)
    return Hunt(bug.name, -1, 0, steps, "", False)


def teeth(*, as_json: bool) -> int:
    """Look for all bugs and print the table."""
    is_good = True
    for bug in BUGS:
        found = hunt(bug, LONG_SEEDS if bug.is_rare else CI_SEEDS)
        is_good &= found.is_found
        if as_json:
            print(json.dumps(found._asdict()), flush=True)
        else:
            verdict = (
                f"seed {found.seed:>5}, step {found.step:>5}" if found.is_found else "NOT FOUND"
            )
            print(f"{bug.name:<26} {verdict:<24} {found.invariant:<22} {bug.origin}", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
