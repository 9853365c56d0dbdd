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
    command = gate.tool(
        "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(test)
    )
    monkeypatch.setattr(gate, "PARTS", (gate.Part("bad", (command,)), part("good", "pass")))
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
