"""Simulates one replicated partition: messages, disks, clocks and faults from one seed.

    python -m tests.programs.replication.simulation [--seeds N] [--first S] [--bug NAME] [--json]
    python -m tests.programs.replication.simulation [--seeds N] [--first S] --progress FILE
    python -m tests.programs.replication.simulation --seed S [--bug NAME]
    python -m tests.programs.replication.simulation --teeth

The simulation holds only the world and decides nothing: leader, followers, elections, ISR changes,
truncation and the register run the functions of `streamlog.replication`. `--seed` replays one run
and prints its history; `--teeth` looks for each bug of `bugs.BUGS`. `--progress` notes every 1,000
seeds in a file; the same command continues after them, and adds up what several commands noted for
parts of its seeds. Exits with 0 only if all invariants held, or all bugs were found.
"""

import argparse
import gc
import json
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from tests.programs.reliability import machine
from tests.programs.replication.bugs import BUGS, Bug, seeded
from tests.programs.replication.history import INVARIANTS, ViolationError
from tests.programs.replication.profile import Profile, drawn
from tests.programs.replication.world import World

CI_SEEDS: Final = 2_000
YOUNG_OBJECTS: Final = 50_000
PART: Final = 1_000  # seeds between two lines of progress
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
        self.findings: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0

    def run(self, seeds: range, bug: Bug | None) -> None:
        """Run seeds, until there are too many findings."""
        start = time.monotonic()
        for seed in seeds:
            outcome = simulate(seed, bug)
            self.seeds += 1
            self.counts += outcome.counts
            if outcome.violation is not None:
                self.findings.append(recorded(outcome))
                if len(self.findings) >= MOST_FINDINGS:
                    break
        self.seconds += time.monotonic() - start

    def add(self, facts: dict[str, Any]) -> None:
        """Add what another tally has found."""
        self.seeds += facts["seeds"]
        self.seconds += facts["seconds"]
        self.counts.update(facts["counts"])
        self.findings += facts["findings"]

    def facts(self) -> dict[str, Any]:
        """Return the totals for `--json`."""
        return {
            "seeds": self.seeds,
            "seconds": round(self.seconds, 1),
            "findings": self.findings,
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
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)  # the nodes of a world refer to each other: freed in bulk
    bug = next((each for each in BUGS if each.name == arguments.bug), None)
    if arguments.teeth:
        return teeth(as_json=arguments.json)
    if arguments.seed is not None:
        return replay(arguments.seed, bug)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.progress is None:
        tally = Tally()
        tally.run(seeds, bug)
    else:
        tally = run_in_parts(seeds, bug, arguments.progress)
    if arguments.json:
        print(json.dumps({**machine.facts(), "first": arguments.first, **tally.facts()}))
    else:
        show(tally)
    return 1 if tally.findings else 0


def run_in_parts(seeds: range, bug: Bug | None, progress: Path) -> Tally:
    """Run the parts that a file of progress lacks, and note them there."""
    total = Tally()
    lines = progress.read_text().splitlines() if progress.exists() else []
    noted = {(each["first"], each["seeds"]): each for each in map(json.loads, lines)}
    for first in range(seeds.start, seeds.stop, PART):
        part = range(first, min(first + PART, seeds.stop))
        facts = noted.get((first, len(part)))
        if facts is None:
            tally = Tally()
            tally.run(part, bug)
            facts = {"first": first, **tally.facts()}
            with progress.open("a") as file:
                file.write(json.dumps(facts) + "\n")
        total.add(facts)
    return total


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
    parser.add_argument("--progress", type=Path, help="the file that keeps finished parts")
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
        print(f"seed {each['seed']}, step {each['steps']}: {each['invariant']}: {each['detail']}")
        print(f"  again: {each['again']}")
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
        found = hunt(bug)
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
