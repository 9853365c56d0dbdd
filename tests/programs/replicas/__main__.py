"""Real faults: `python -m tests.programs.replicas [--rounds N] [--only CASE] [--seed N]`.

Runs every case of `tests.programs.replicas.faults` in each round, then cuts the power of all disks
at once, and then runs the cases of `tests.programs.replicas.streams`, which need Java. Exits with 0
only if every promise held.
"""

import argparse
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from random import Random

from tests.programs.reliability import scratch
from tests.programs.reliability.kinds.disks import missing
from tests.programs.replicas import streams
from tests.programs.replicas.faults import CASES, POLICIES, BrokenError, Report, power_failure, run


def main() -> int:
    """Run and print one line a case."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.replicas", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--only", help="cases whose name begins with this text, or matches it as a pattern"
    )
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    arguments = parser.parse_args()
    if (lack := missing("ext4")) is not None:
        parser.error(f"this machine lacks {lack}")
    scratch.end_in_order()
    wanted = arguments.only or ""
    broken = 0
    for number in range(arguments.rounds):
        random = Random(arguments.seed + number)
        for case in CASES:
            if is_wanted(str(case), wanted):
                broken += _report(str(case), lambda: run(case, random))  # noqa: B023 - called now
        for name, configs in POLICIES.items():
            if is_wanted(name, wanted):
                broken += _report(name, lambda: power_failure(random, configs))  # noqa: B023
        for stream in streams.CASES:
            if is_wanted(str(stream), wanted):
                broken += _report(str(stream), lambda: streams.run(stream, random))  # noqa: B023
    print(f"seed {arguments.seed}, {broken} broken", flush=True)
    return 1 if broken else 0


def is_wanted(name: str, wanted: str) -> bool:
    """Whether `--only` names a case: `power-` does not name `spark-power-leader-back-runs`."""
    return fnmatchcase(name, f"{wanted}*")


def _report(name: str, action: Callable[[], Report | streams.StreamReport]) -> bool:
    start = time.monotonic()
    try:
        result = str(action())
    except BrokenError as error:
        result = f"BROKEN: {error}"
    print(f"{name:32} {time.monotonic() - start:6.1f} s  {result}", flush=True)
    return result.startswith("BROKEN")


if __name__ == "__main__":
    sys.exit(main())
