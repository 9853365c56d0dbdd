"""The soak: `python -m tests.programs.soak [--minutes 30] [--seed N] [--keep DIRECTORY]`.

Producers, two Spark queries, two maintenance processes and a reader share one root. All are killed
with SIGKILL at random moments. Exits with 0 only if every guarantee held.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.programs.soak.checks import BrokenError
from tests.programs.soak.run import Soak, bounds


def main() -> int:
    """Run once and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--keep", type=Path, help="work in this empty directory and keep it")
    arguments = parser.parse_args()
    again = f"python -m tests.programs.soak --minutes {arguments.minutes:g} --seed {arguments.seed}"
    print(f"seed {arguments.seed}; again: {again}", flush=True)
    with tempfile.TemporaryDirectory(prefix="streamlog-soak-") as temporary:
        directory = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            report = Soak(directory, arguments.seed).run(60 * arguments.minutes)
        except (BrokenError, AssertionError) as error:
            print(f"BROKEN: {error}\nagain: {again}", file=sys.stderr)
            return 1
    for name, value in asdict(report).items():
        print(f"{name:12} {value:>14,}")
    print(f"{'bounds':12} {bounds()[0]:>14,} while running, {bounds()[1]:,} at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
