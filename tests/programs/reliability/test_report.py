"""The report states the results of a run, and what the run omitted."""

from typing import Any

from tests.programs.reliability.bugs.catalogue import BUGS
from tests.programs.reliability.report import report

FACTS = {
    "commit": "abc",
    "kernel": "Linux 6",
    "python": "3.11",
    "cpus": "2",
    "seed": 7,
    "began": "2026-01-01 10:00 UTC",
    "budget": "full",
    "budget_seconds": 60.0,
}
GOOD = {
    "kind": "crashes",
    "workloads": 2,
    "cases": 3000,
    "seconds": 1.0,
    "findings": [],
    "harms": {},
    "missing": None,
    "ended": "2026-01-01 11:00 UTC",
}
LOSS = {
    "table": "losses",
    "what": "flush.messages=1, ext4",
    "figures": {"power cuts": 4, "records told": 500, "most lost": 0},
}
COST = {"table": "flush policies", "what": "flush.ms=100", "figures": {"records/s": 33084.9}}
BUG = {"name": BUGS[0].name, "is_found": True, "cases": 9, "seconds": 1.0, "sign": "x"}
Line = dict[str, Any]


def text_of(campaign: list[Line], bugs: list[Line], disk: list[Line]) -> str:
    return "\n".join(report(campaign, bugs, disk))


def test_a_run_without_findings_states_the_confidence() -> None:
    text = text_of([FACTS, GOOD], [FACTS, BUG], [FACTS, LOSS, COST])
    assert "**3,000 cases: 0 lost" in text
    assert "below 1.0e-03 per case" in text
    assert "Found 1 of 1." in text


def test_commit_machine_and_time_are_stated() -> None:
    later = {**FACTS, "commit": "def", "began": "2026-01-01 12:00 UTC"}
    text = text_of([FACTS, GOOD, FACTS], [later, BUG], [])
    assert "Commit abc, Linux 6, Python 3.11, 2 CPUs, seed 7." in text
    assert "full, 120 seconds of work, from 2026-01-01 10:00 UTC to 2026-01-01 11:00 UTC." in text
    assert "Commit def, 2026-01-01 12:00 UTC." in text
    assert "Commit abc, def, Linux" in text_of([FACTS, GOOD, later], [], [])


def test_findings_are_listed_with_their_commands() -> None:
    again = "python -m tests.reliability --seed 7"
    found = {"again": again, "what": "a case", "violations": ["in_order: 2 before\n1"]}
    bad = {**GOOD, "findings": [found], "harms": {"lost": 2}}
    text = text_of([FACTS, bad], [FACTS, {**BUG, "is_found": False}], [])
    assert "2 lost, 0 duplicated, 0 torn, 0 untyped errors, 1 findings" in text
    assert f"    {again}\n        in_order: 2 before\n        1\n" in text
    assert "95 %" not in text
    assert "Found 0 of 1." in text and "NOT FOUND" in text


def test_omissions_are_listed() -> None:
    lacking = {**GOOD, "kind": "power cuts of xfs", "cases": 0, "missing": "mkfs.xfs"}
    text = text_of([FACTS, GOOD, lacking], [FACTS, BUG], [FACTS, LOSS, COST])
    assert "- power cuts of xfs: the machine lacked mkfs.xfs" in text
    assert "- flips: not part of this run" in text
    assert f"Not tested: {BUGS[1].name}." in text


def test_a_part_that_stopped_or_died_is_listed_and_no_rate_is_claimed() -> None:
    died = {"part": "flips", "how": "ended with -11", "at": "2026-01-01 10:30 UTC"}
    text = text_of([FACTS, GOOD, died], [], [])
    assert "**flips ended with -11.**" in text
    assert "- flips: it ended with -11" in text
    assert "flips: not part" not in text and "95 %" not in text


def test_empty_files_are_reported_as_parts_that_did_not_run() -> None:
    text = text_of([], [], [])
    assert "No campaign was run." in text
    assert "95 %" not in text
    assert text.count("Not part of this run.") == 2
    assert "Losses in power cuts, which this run did not measure" in text


def test_each_promise_is_listed_beside_its_measured_losses() -> None:
    text = text_of([FACTS, GOOD], [FACTS, BUG], [FACTS, LOSS, COST])
    assert "| all acknowledged records | nothing | 0 in 4 cuts (500) |" in text
    assert "| flush.ms=100 | 33,085 |" in text
    assert "| crashes | 1 | 2 | 3,000 |" in text
