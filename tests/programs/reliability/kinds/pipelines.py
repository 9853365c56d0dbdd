"""Spark failures: killed processes, repeated attempts, lost checkpoints. Runs existing tests.

Each test builds its own query and checks its own rows; the campaign counts their cases.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final
from xml.etree import ElementTree

from tests.programs.reliability.invariants import Harm, Violation
from tests.programs.reliability.kinds.survival import Case
from tests.programs.reliability.workloads import Workload

ROOT: Final = Path(__file__).parents[4]
TESTS: Final = {
    "the driver's JVM or a Python worker is killed at every step": "test_sink_kill.py",
    "attempts fail, run twice or arrive late": "test_attempts.py",
    "a query dies between any two steps of a batch": "test_crash_after.py",
    "a checkpoint is deleted, restored, or lacks batches": "test_sink_stream.py",
    "a checkpoint is moved elsewhere": "test_sink_remote_checkpoint.py",
    "many queries write at once": "test_sink_many_writers.py",
}


def missing() -> str | None:
    """Return what this machine lacks to run Spark, None for nothing."""
    try:
        subprocess.run(["java", "-version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return "Java"
    return None


def pipelines(workload: Workload, random: Random) -> Iterator[Case]:
    """Every named test, once a round."""
    del workload, random  # the tests have their own
    for what, name in TESTS.items():
        with tempfile.TemporaryDirectory(prefix="pipelines-") as directory:
            report = Path(directory) / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}"]
            done = subprocess.run(
                [*command, f"tests/spark/{name}"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            suites = [*ElementTree.parse(report).iter("testsuite")] if report.exists() else []
        count = sum(int(each.attrib["tests"]) for each in suites)
        detail = _signs(done.stdout) or f"pytest ended with {done.returncode}"
        bad = [Violation("pipelines_hold", Harm.OTHER, detail)] if done.returncode else []
        yield Case(f"{what} ({name})", bad, count=count)


def _signs(output: str) -> str:
    """Return the failed tests and their errors from the output of pytest."""
    reasons = ("E  ", "FAILED ", "ERROR ")
    return "\n".join(line for line in output.splitlines() if line.startswith(reasons))[-2000:]
