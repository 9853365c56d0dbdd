"""Seeds one bug after another into the package and lets the campaign look for it.

    python -m tests.programs.reliability.teeth [--seconds S] [--only NUMBER…] [--every N] [--json]

Each bug runs in a process of its own. Exits with 0 only if every bug is found, including a canary
that no check can miss, and nothing is found without a bug.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.programs.reliability import machine
from tests.programs.reliability.bugs.catalogue import BUGS, FAKE, NO_BUG, TROUBLE, Bug
from tests.programs.reliability.bugs.patching import install

SECONDS: Final = 20.0  # limit per bug; most take one second
PROCESSES: Final = 2
SEED: Final = 1
DEATHS: Final = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL}
ROOT: Final = Path(__file__).parents[3]


class Hunt(NamedTuple):
    """The outcome of the search for one bug."""

    name: str
    is_found: bool
    cases: int  # up to and including the first finding
    seconds: float
    sign: str  # the violated invariant


def main() -> int:
    arguments = parse()
    if arguments.bug:
        print(json.dumps(look_for(_named(arguments.bug), arguments.seconds)._asdict()))
        return 0
    wanted = [each for each in BUGS if not arguments.only or each.name.split()[0] in arguments.only]
    wanted = wanted[:: arguments.every]
    if arguments.json:
        print(json.dumps(machine.facts()), flush=True)
    names = [NO_BUG, FAKE.name, *(each.name for each in wanted)]
    hunts = []
    with ThreadPoolExecutor(PROCESSES) as pool:
        for each in pool.map(lambda name: hunt(name, arguments.seconds), names):
            hunts.append(each)
            print(json.dumps(each._asdict()) if arguments.json else _line(each), flush=True)
    sound, canary, *hunts = hunts
    found = sum(each.is_found for each in hunts)
    is_good = found == len(hunts) and canary.is_found and not sound.is_found
    cases = sorted(each.cases for each in hunts if each.is_found) or [0]
    print(
        f"found {found} of {len(hunts)}, median {cases[len(cases) // 2]} cases until found;"
        f" canary {'found' if canary.is_found else 'NOT FOUND'},"
        f" {'something' if sound.is_found else 'nothing'} found without a bug",
        file=sys.stderr if arguments.json else sys.stdout,
    )
    return 0 if is_good else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.reliability.teeth", description=__doc__
    )
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--only", nargs="+", metavar="NUMBER")
    parser.add_argument("--every", type=int, default=1, help="only every Nth bug; 3 in CI")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bug", help=argparse.SUPPRESS)  # the bug that a child process looks for
    return parser.parse_args()


def hunt(name: str, seconds: float) -> Hunt:
    """Look for a bug in a separate process; death by a signal such as SIGSEGV counts as found."""
    bug = _named(name)
    environment = dict(os.environ)
    if bug is not None and not bug.compiles:
        environment["NUMBA_DISABLE_JIT"] = "1"
    start = time.monotonic()
    command = [sys.executable, "-m", "tests.programs.reliability.teeth", "--bug", name]
    done = subprocess.run(
        [*command, "--seconds", str(seconds)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60 * seconds,
        check=False,
    )
    seconds = round(time.monotonic() - start, 1)
    if -done.returncode in DEATHS:
        return Hunt(
            name, is_found=True, cases=1, seconds=seconds, sign=f"signal {-done.returncode}"
        )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr}")
    return Hunt(**json.loads(done.stdout.splitlines()[-1]))._replace(seconds=seconds)


def _named(name: str) -> Bug | None:
    """Return a bug, or None for `NO_BUG`."""
    return next((each for each in (*BUGS, FAKE) if each.name == name), None)


def look_for(bug: Bug | None, seconds: float) -> Hunt:
    """Seed a bug and look for it; with None, look for false alarms."""
    if bug is None:
        return _look_everywhere(seconds)
    install(bug.edits)
    if bug.kind == "pytest":
        return _by_pytest(bug)
    return _run(bug.name, bug.kind, bug.operations, seconds)


def _look_everywhere(seconds: float) -> Hunt:
    """Run every workload that finds a bug on the unchanged package."""
    asked = sorted({(each.kind, each.operations) for each in BUGS if each.kind != "pytest"})
    hunts = [_run(NO_BUG, kind, todo, seconds / len(asked)) for kind, todo in asked]
    bad = next((each for each in hunts if each.is_found), hunts[0])
    return bad._replace(cases=sum(each.cases for each in hunts))


def _run(name: str, kind: str, operations: Sequence[str], seconds: float) -> Hunt:
    """Run one workload, with faults after `TROUBLE`; run all named workloads if it is empty."""
    import logging

    from tests.programs.reliability.campaign import run_kind
    from tests.programs.reliability.workloads import NAMED, Workload

    logging.disable(logging.CRITICAL)
    unbroken = operations.index(TROUBLE) if TROUBLE in operations else 0
    plain = tuple(each for each in operations if each != TROUBLE)
    chosen = [Workload(", ".join(plain), plain, unbroken=unbroken)] if plain else NAMED
    tally = run_kind(
        kind,
        _again(chosen),
        seed=SEED,
        seconds=seconds,
        clock=time.process_time,  # CPU time, so that a busy machine gets the same verdict
        most_findings=1,
    )
    sign = tally.findings[0].violations[0].invariant if tally.findings else ""
    return Hunt(name, bool(tally.findings), tally.cases, tally.seconds, sign)


def _again(workloads: Sequence[Any]) -> Iterator[Any]:
    """Yield the workloads in an endless loop; random choices differ in each round."""
    while True:
        yield from workloads


def _by_pytest(bug: Bug) -> Hunt:
    import contextlib
    import io

    import pytest

    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *bug.operations])
    return Hunt(bug.name, code == pytest.ExitCode.TESTS_FAILED, 1, 0.0, "a test fails")


def _line(each: Hunt) -> str:
    verdict = f"found after {each.cases:>6,} cases" if each.is_found else f"NOT in {each.cases:,}"
    return f"{each.name:<72} {verdict:<26} {each.seconds:>6.1f} s  {each.sign}"


if __name__ == "__main__":
    sys.exit(main())
