"""Run programs that use Kafka against gateways, and print what each one did.

    python -m tests.programs.wire.programs [NAME…]

A name may be the beginning of several. The exit code is 0 if all did what they should.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.programs.wire.programs.table import PROGRAMS
from tests.programs.wire.suites import FAILED, PASSED, Outcome, run_suite

SUITE = "programs that use Kafka"
_NOTE_LENGTH = 2000


def run(names: Sequence[str]) -> tuple[int, list[Outcome]]:
    """Run programs; return the number that failed, and the outcomes."""
    outcomes = []
    for name in names:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="streamlog-program-") as scratch:
            try:
                outcome = Outcome(name, PASSED, PROGRAMS[name](Path(scratch)))
            except Exception as error:  # noqa: BLE001 - whatever a program does is its outcome
                outcome = Outcome(name, FAILED, _note(error))
        print(f"{time.monotonic() - start:6.1f} s  {name}", file=sys.stderr, flush=True)
        outcomes.append(outcome)
    return sum(outcome.result == FAILED for outcome in outcomes), outcomes


def _note(error: Exception) -> str:
    """Return where a program failed, and why."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"line {at.lineno}: {at.line}: {type(error).__name__}: {error}"[:_NOTE_LENGTH]


def main() -> int:
    """Run the programs that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    wanted = tuple(parser.parse_args().names)
    names = [name for name in PROGRAMS if not wanted or name.startswith(wanted)]
    module = "tests.programs.wire.programs"
    return run_suite(SUITE, module, lambda: run(names), is_whole=not wanted)


if __name__ == "__main__":
    sys.exit(main())
