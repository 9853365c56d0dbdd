"""The long run: as many cases as there is time for.

    python -m tests.programs.compat.differential --cases 100000 --seed 1

Ends with 1 where anything differs; each difference is shown with the line to replay it.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.programs.compat.differential.case import Outcome, compare
from tests.programs.compat.kafka import Kafka, KafkaUnavailableError

PROGRESS_S = 10
AT_ONCE = 2  # one asks Kafka, the other one works
IN_ADVANCE = 100
MEMORY = Path("/dev/shm")  # where the machine has it: nothing here must outlive a power cut


class Tally:
    """What came of the cases so far, shown now and then."""

    def __init__(self, cases: int) -> None:
        self._cases = cases
        self._start = self._shown = time.monotonic()
        self.compared = self.differing = self.kept_more = 0

    def __str__(self) -> str:
        rate = self.compared / max(time.monotonic() - self._start, 1e-9)
        return (
            f"compared {self.compared}, differing {self.differing}"
            f" ({self.kept_more} damaged directories of which we keep more; {rate:.1f} cases/s)"
        )

    def show(self) -> None:
        """Print how far it is, unless that was done a moment ago."""
        if time.monotonic() - self._shown > PROGRESS_S:
            self._shown = time.monotonic()
            print(f"{self} of {self._cases}", file=sys.stderr, flush=True)


def run(kafka: Kafka, seeds: range, scratch: Path) -> Tally:
    """Compare the cases of these numbers."""
    tally = Tally(len(seeds))
    for seed, outcome in _outcomes(kafka, seeds, scratch):
        tally.compared += 1
        tally.kept_more += outcome.kept_more
        if outcome.differences:
            tally.differing += 1
            print(f"python -m tests.programs.compat.differential --cases 1 --seed {seed}")
            print(*(f"    {each}" for each in outcome.differences), sep="\n", flush=True)
        tally.show()
    return tally


def _outcomes(kafka: Kafka, seeds: range, scratch: Path) -> Iterator[tuple[int, Outcome]]:
    """Yield what comes of each case, in order; some are under way at a time."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for start in range(0, len(seeds), IN_ADVANCE):
            some = seeds[start : start + IN_ADVANCE]
            paths = [scratch / str(seed) for seed in some]
            yield from zip(
                some, threads.map(compare, [kafka] * len(some), some, paths), strict=True
            )


def main() -> int:
    """Read the command line, compare, print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.compat.differential")
    parser.add_argument("--cases", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first (0)")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # each damaged directory is worth a warning
    place = MEMORY if MEMORY.is_dir() else None
    try:
        with Kafka.start() as kafka, tempfile.TemporaryDirectory(dir=place) as scratch:
            tally = run(kafka, range(given.seed, given.seed + given.cases), Path(scratch))
    except KafkaUnavailableError as error:
        print(f"real Kafka cannot be asked: {error}", file=sys.stderr)
        return 2
    print(tally)
    return 1 if tally.differing else 0


if __name__ == "__main__":
    sys.exit(main())
