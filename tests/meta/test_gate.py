"""The gate runs parts at the same time, keeps what they print apart, and misses no failure."""

import sys
import time
from pathlib import Path

import pytest

from tests import gate

MEET = """
import pathlib, sys, time
mine, other = map(pathlib.Path, sys.argv[1:])
mine.touch()
deadline = time.monotonic() + 60
while not other.exists():
    assert time.monotonic() < deadline, "the other part has not started"
    time.sleep(0.01)
print(f"{mine.name} met {other.name}")
"""


def part(name: str, code: str, *arguments: object) -> gate.Part:
    return gate.Part(name, ((sys.executable, "-c", code, *map(str, arguments)),))


def pytest_of(test: Path) -> tuple[str, ...]:
    return gate.tool("pytest", "-q", f"--rootdir={test.parent}", str(test))


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gate, "REPORTS", tmp_path / "reports")
    return tmp_path / "reports"


def test_parts_run_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    parts = (part("first", MEET, one, two), part("second", MEET, two, one))
    monkeypatch.setattr(gate, "PARTS", parts)
    assert gate.main([]) == 0
    printed = capfd.readouterr().out
    for name, said in (("first", "one met two"), ("second", "two met one")):
        section = printed.split(f"──── {name}\n")[1].split("────")[0]
        assert said in section.splitlines()


def test_a_failure_of_any_part_fails_all(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = part("bad", "raise SystemExit(3)")
    monkeypatch.setattr(gate, "PARTS", (bad, part("good", "print('still run')")))
    assert gate.main([]) == 1
    printed = capfd.readouterr().out
    assert "still run" in printed.splitlines()
    assert [line.split()[:2] for line in printed.splitlines()[-3:-1]] in (
        [["bad", "FAILED"], ["good", "good"]],
        [["good", "good"], ["bad", "FAILED"]],
    )
    assert gate.main(["good"]) == 0
    assert gate.main(["bad"]) == 1


def test_the_time_of_the_processors_is_reported_besides_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = part("busy", "import time\nwhile time.process_time() < 0.3: pass")
    monkeypatch.setattr(gate, "PARTS", (busy,))
    gate.REPORTS.mkdir()
    start = time.monotonic()
    (result,) = gate.run_all([busy])
    assert result.cpu_seconds >= 0.3
    assert 0.3 <= result.seconds <= time.monotonic() - start


def test_failures_of_tests_are_shown_again_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    test = tmp_path / "test_broken.py"
    test.write_text("def test_sum():\n    assert 1 + 1 == 3, 'x' * 9_000 + 'end'\n")
    parts = (gate.Part("bad", (pytest_of(test),)), part("good", "pass"))
    monkeypatch.setattr(gate, "PARTS", parts)
    assert gate.main([]) == 1
    _, again = capfd.readouterr().out.rsplit("FAILED test_broken.test_sum\n", 1)
    message, table = again.split("\nbad ", 1)
    assert "AssertionError: xxx" in message
    assert "\n…\n" in message
    assert len(message) < 3 * gate.SHOWN
    assert table.endswith("tests: 0 passed, 1 failed, 0 skipped\n")


def test_a_report_that_was_cut_off_fails_its_part_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    report = gate.report_of("cut")
    cut = part("cut", "import sys; open(sys.argv[1], 'w').write('<testsuites><testsuite')", report)
    monkeypatch.setattr(gate, "PARTS", (cut, part("good", "print('still run')")))
    assert gate.main([]) == 1
    printed = capfd.readouterr().out
    assert "FAILED cut.xml cannot be read: unclosed token: line 1, column 12;" in printed
    assert "still run" in printed.splitlines()
    assert printed.endswith("tests: 0 passed, 1 failed, 0 skipped\n")


STALLED = """
import pathlib, pytest
@pytest.mark.parametrize("number", range({tests}))
def test_start(number):
    mark = pathlib.Path({directory!r}, f"tried {{number}}")
    is_first, _ = not mark.exists(), mark.touch()
    assert number >= {unsteady} or not is_first, "no answer in time"
    assert number != {broken}
"""


@pytest.mark.parametrize(
    ("unsteady", "broken", "verdict"),
    [
        (2, -1, "tests: 12 passed (2 only when run alone), 0 failed, 0 skipped"),
        (2, 5, "tests: 9 passed, 3 failed, 0 skipped"),
        (gate.MOST_AGAIN + 1, -1, f"tests: 1 passed, {gate.MOST_AGAIN + 1} failed, 0 skipped"),
    ],
)
def test_a_few_failed_tests_run_once_more_alone(
    unsteady: int,
    broken: int,
    verdict: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    test = tmp_path / "test_stalled.py"
    given = {"directory": str(tmp_path), "unsteady": unsteady, "broken": broken}
    test.write_text(STALLED.format(tests=12, **given))
    monkeypatch.setattr(gate, "PARTS", (gate.Part("one", (pytest_of(test),)), part("two", "pass")))
    is_good = unsteady == 2 and broken < 0
    assert gate.main([]) == (0 if is_good else 1)
    printed = capfd.readouterr().out
    assert printed.endswith(f"{verdict}\n")
    shown = "PASSED ALONE, FAILED" if is_good else "\nFAILED"
    assert f"{shown} test_stalled.test_start[0]\n" in printed
    assert "no answer in time" in printed


def test_what_fails_beside_the_tests_of_a_part_is_not_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    test = tmp_path / "test_stalled.py"
    test.write_text(STALLED.format(tests=1, directory=str(tmp_path), unsteady=1, broken=-1))
    (bad,) = part("bad", "raise SystemExit(3)").commands
    monkeypatch.setattr(gate, "PARTS", (gate.Part("both", (bad, pytest_of(test))),))
    assert gate.main([]) == 1
    assert capfd.readouterr().out.endswith("tests: 0 passed, 1 failed, 0 skipped\n")
