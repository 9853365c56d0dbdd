"""The long run over any number of cases.

    python -m tests.programs.compat.differential --cases 100000 --seed 1

Exits with 1 if anything differs; each difference is printed with the command that replays it.
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
AT_ONCE = 2  # one waits for Kafka, the other computes
IN_ADVANCE = 100
MEMORY = Path("/dev/shm")  # if available: no file here must outlive a power cut


class Tally:
    """The progress so far, printed from time to time."""

    def __init__(self, cases: int) -> None:
        self._cases = cases
        self._start = self._shown = time.monotonic()
        self.compared = self.differing = self.kept_more = 0

    def __str__(self) -> str:
        rate = self.compared / max(time.monotonic() - self._start, 1e-9)
        return (
            f"compared {self.compared}, differing {self.differing}"
            f" (we keep more of {self.kept_more} damaged directories; {rate:.1f} cases/s)"
        )

    def show(self) -> None:
        """Print the progress, unless that happened a moment ago."""
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
    """Yield the result of each case in order; some run concurrently."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for start in range(0, len(seeds), IN_ADVANCE):
            some = seeds[start : start + IN_ADVANCE]
            paths = [scratch / str(seed) for seed in some]
            yield from zip(
                some, threads.map(compare, [kafka] * len(some), some, paths), strict=True
            )


def main() -> int:
    """Parse the command line, compare, print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.compat.differential")
    parser.add_argument("--cases", type=int, default=1000, help="number of cases (1000)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case (0)")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # each damaged directory causes a warning
    place = MEMORY if MEMORY.is_dir() else None
    try:
        with Kafka.start() as kafka, tempfile.TemporaryDirectory(dir=place) as scratch:
            tally = run(kafka, range(given.seed, given.seed + given.cases), Path(scratch))
    except KafkaUnavailableError as error:
        print(f"real Kafka is not available: {error}", file=sys.stderr)
        return 2
    print(tally)
    return 1 if tally.differing else 0


if __name__ == "__main__":
    sys.exit(main())
