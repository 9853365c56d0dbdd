"""The fault campaign.

    python -m tests.reliability [--budget ci|full|night] [--only NAME…] [--seed N] [--json]
                                [--operations "append, roll, …"]

Breaks a small root in every way that the kinds of faults define, lets another process continue on
the remains, and checks the invariants. Exits with 0 only if every guarantee held. A kind that this
machine cannot run is reported and does not change the exit status.
`tests.programs.reliability.report` generates `streamlog/RELIABILITY.md` from the output of
`--json`.
"""

import argparse
import json
import logging
import sys
from collections import Counter
from random import SystemRandom
from typing import Any, Final

from tests.programs.reliability import machine, scratch
from tests.programs.reliability.campaign import BUDGETS, Finding, Tally, chosen_kinds, run
from tests.programs.reliability.invariants import Harm
from tests.programs.reliability.kinds import KINDS
from tests.programs.reliability.subject import OPERATIONS
from tests.programs.reliability.workloads import Workload

SIGNS: Final = 5  # printed per finding; the rest rarely add anything


def main() -> int:
    arguments = parse()
    scratch.end_in_order()
    logging.disable(logging.CRITICAL)  # recovery warns about each truncation, the normal case here
    seed = SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    if not arguments.json:
        print(f"seed {seed}, budget {arguments.budget}")
        print(f"{'kind':<20} {'workloads':>9} {'cases':>9} {'seconds':>8} {'findings':>8}")
    harms: Counter[Harm] = Counter()
    is_good = True
    seconds = arguments.seconds or BUDGETS[arguments.budget]
    kinds = arguments.only or chosen_kinds(arguments.budget)
    if arguments.json:
        facts = {"seed": seed, "budget": arguments.budget, "budget_seconds": seconds}
        print(json.dumps({**facts, **machine.facts()}), flush=True)
    only = arguments.operations and arguments.operations._replace(on_nothing=arguments.on_nothing)
    for tally in run(kinds, seed=seed, seconds=seconds, only=only):
        show(tally, as_json=arguments.json)
        harms += tally.harms
        is_good &= not tally.findings
    if not arguments.json:
        print(
            f"{harms[Harm.LOST]} lost, {harms[Harm.DUPLICATED]} duplicated, "
            f"{harms[Harm.TORN]} torn, {harms[Harm.UNTYPED]} untyped errors"
        )
    return 0 if is_good else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("--budget", choices=BUDGETS, default="ci")
    parser.add_argument("--only", nargs="+", choices=KINDS)
    parser.add_argument("--seconds", type=float, help="overrides the time of the budget")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--operations", type=sequence)
    parser.add_argument("--on-nothing", action="store_true", help="operations create the root")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def sequence(text: str) -> Workload:
    operations = tuple(each.strip() for each in text.split(","))
    unknown = [each for each in operations if each not in OPERATIONS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown operation {unknown[0]!r}; expected {', '.join(OPERATIONS)}"
        )
    return Workload(text, operations)


def show(tally: Tally, *, as_json: bool) -> None:
    if as_json:
        facts = {
            "kind": tally.kind,
            "workloads": tally.workloads,
            "cases": tally.cases,
            "seconds": round(tally.seconds, 1),
            "findings": [recorded(found) for found in tally.findings],
            "harms": {harm.value: count for harm, count in tally.harms.items()},
            "missing": tally.missing,
            "ended": machine.now(),
        }
        print(json.dumps(facts), flush=True)
        return
    if tally.missing is not None:
        print(f"{tally.kind:<20} NOT RUN: this machine lacks {tally.missing}", flush=True)
        return
    print(
        f"{tally.kind:<20} {tally.workloads:>9,} {tally.cases:>9,} {tally.seconds:>8.1f}"
        f" {len(tally.findings):>8}",
        flush=True,
    )
    for found in tally.findings:
        explain(found)


def recorded(found: Finding) -> dict[str, Any]:
    """Return a finding as an object of the JSON output."""
    signs = [f"{each.invariant}: {each.detail}" for each in found.violations[:SIGNS]]
    return {"again": found.command, "what": found.description, "violations": signs}


def explain(found: Finding) -> None:
    print(f"  {found.description}\n    again: {found.command}")
    for violation in found.violations[:SIGNS]:
        print(f"    {violation.invariant}: {violation.detail}")


if __name__ == "__main__":
    sys.exit(main())
