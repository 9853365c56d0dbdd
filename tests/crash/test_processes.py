"""Real processes, killed at random moments; see `tests.crash.processes` for the guarantees."""

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_killed_writers_lose_and_duplicate_nothing_and_readers_see_no_torn_batch() -> None:
    command = [sys.executable, "-m", "tests.crash.processes", "--seconds", "12"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", done.stdout)}
    assert counts["kills"] > 8
    assert min(counts["commits"], counts["appends"]) > 8, "no process made progress"
