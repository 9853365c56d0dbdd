"""The full run executes all phases that fit its time, enforces limits and records failures."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.programs.reliability import full
from tests.programs.reliability.full import Part, campaign, phases, run
from tests.programs.reliability.kinds import KINDS

QUIET = ("timeit", "-n1", "-r1")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "campaign.jsonl"


def part(output: Path, statement: str, *, most_s: float = 60.0) -> Part:
    return Part("flips", (*QUIET, statement), output, most_s)


def notes(output: Path) -> list[dict[str, str]]:
    lines = output.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_parts_that_complete_are_good(output: Path) -> None:
    assert run([part(output, "pass"), part(output, "pass"), part(output, "pass")])
    assert notes(output) == []


def test_a_part_over_its_time_is_stopped_and_noted(output: Path) -> None:
    start = time.monotonic()
    assert not run([part(output, "import time; time.sleep(60)", most_s=0.5)])
    assert time.monotonic() - start < 30
    (note,) = notes(output)
    assert (note["part"], note["how"]) == ("flips", "was stopped after 0 seconds")


def test_a_part_that_dies_is_noted_and_the_others_continue(output: Path) -> None:
    dies = part(output, "import os; os.kill(os.getpid(), 11)")
    assert not run([dies, part(output, "print('{}')")])
    assert sorted(each.get("how", "") for each in notes(output)) == ["", "ended with -11"]


def test_kinds_share_the_time_of_two_processes_beside_the_pipelines(output: Path) -> None:
    parts = campaign(output, 3600, seed=7)
    assert [each.name for each in parts][:2] == ["pipelines", "errors"]
    assert {each.name for each in parts} == {*KINDS}
    given = sum(float(each.arguments[each.arguments.index("--seconds") + 1]) for each in parts)
    assert given == pytest.approx(2 * 3600, abs=len(parts))


def test_a_short_run_omits_the_phases_with_a_fixed_time(output: Path) -> None:
    (only,) = phases(output.parent, 180, seed=7)
    assert {each.name for each in only} == {*KINDS} - {"pipelines"}
    whole = phases(output.parent, 75 * 60, seed=7)
    assert [each[0].name for each in whole] == ["pipelines", "bugs", "disk"]


def test_a_killed_run_ends_its_parts(output: Path) -> None:
    arguments = (*QUIET, "import time; time.sleep(60)")
    script = (
        "from pathlib import Path; from tests.programs.reliability.full import Part, run;"
        f"run([Part('flips', {arguments}, Path({str(output)!r}), 60)])"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=full.ROOT)
    while not children(parent.pid):
        assert parent.poll() is None
        time.sleep(0.01)
    (child,) = children(parent.pid)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 30
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
