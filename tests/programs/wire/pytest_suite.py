"""Suites that run under pytest: in a process of their own, with the outcome of each test."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.programs.wire.suites import FAILED, PASSED, SKIPPED, Outcome

_NOTE_LENGTH: Final = 300
_RESULTS: Final = {"failure": FAILED, "error": FAILED, "skipped": SKIPPED}


def run_pytest(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str], *, package: str
) -> tuple[int, list[Outcome]]:
    """Run pytest; return its exit code, and the outcomes.

    Args:
        folder: The directory to run it in.
        arguments: What to run.
        environment: Variables in addition to those of this process.
        package: The package of the tests, which their names leave out.
    """
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        options = ["-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *arguments],
            cwd=folder,
            env=os.environ | environment,
            stdout=sys.stderr,
            check=False,
        )
        text = report.read_text("utf-8") if report.exists() else "<testsuites/>"
    return done.returncode, list(outcomes(text, package))


def outcomes(report: str, package: str) -> Iterator[Outcome]:
    """Yield the outcomes in a JUnit report, one for each test.

    Args:
        report: The report's text.
        package: The package of the tests, which their names leave out.
    """
    found: dict[str, Outcome] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        place = case.get("classname", "").removeprefix(package).lstrip(".")
        outcome = _outcome("::".join(filter(None, (place, case.get("name", "")))), case)
        known = found.get(outcome.test)
        if known is None or known.result == PASSED:  # a failing teardown is a case of its own
            found[outcome.test] = outcome
    yield from found.values()


def _outcome(test: str, case: ElementTree.Element) -> Outcome:
    for child in case:
        if child.tag in _RESULTS:
            note = " ".join(child.get("message", "").split())[:_NOTE_LENGTH]
            return Outcome(test, _RESULTS[child.tag], note)
    return Outcome(test, PASSED)
