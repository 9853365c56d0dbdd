"""The report says what the run said, and what it did not do."""

from tests.reliability.report import report

FACTS = {
    "commit": "abc",
    "kernel": "Linux 6",
    "python": "3.11",
    "cpus": "2",
    "seed": 7,
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
}
LOSS = {
    "table": "losses",
    "what": "flush.messages=1, ext4",
    "figures": {"power cuts": 4, "records told": 500, "most lost": 0},
}
COST = {"table": "flush policies", "what": "flush.ms=100", "figures": {"records/s": 33084.9}}
BUG = {"name": "01 data is not synced", "is_found": True, "cases": 9, "seconds": 1.0, "sign": "x"}


def test_a_run_without_findings_says_how_sure_that_is() -> None:
    text = "\n".join(report(FACTS, [GOOD], [BUG], [LOSS, COST]))
    assert "**3,000 cases: 0 lost" in text
    assert "below 1.0e-03 a case" in text
    assert "Found 1 of 1." in text


def test_findings_are_told_with_the_lines_that_show_them_again() -> None:
    bad = {**GOOD, "findings": ["python -m tests.reliability --seed 7"], "harms": {"lost": 2}}
    text = "\n".join(report(FACTS, [bad], [{**BUG, "is_found": False}], []))
    assert "2 lost" in text and "    python -m tests.reliability --seed 7" in text
    assert "95 %" not in text
    assert "Found 0 of 1." in text and "NOT FOUND" in text


def test_what_was_not_done_is_told() -> None:
    lacking = {**GOOD, "kind": "power cuts of xfs", "cases": 0, "missing": "mkfs.xfs"}
    text = "\n".join(report(FACTS, [GOOD, lacking], [BUG], [LOSS, COST]))
    assert "- power cuts of xfs: the machine lacked mkfs.xfs" in text
    assert "- flips: not part of this run" in text


def test_each_promise_stands_beside_what_was_measured() -> None:
    text = "\n".join(report(FACTS, [GOOD], [BUG], [LOSS, COST]))
    assert "| all that was answered | nothing | 0 in 4 cuts (500) |" in text
    assert "| flush.ms=100 | 33,085 |" in text
    assert "| crashes | 1 | 2 | 3,000 |" in text
