"""Each kind of trouble does what it says, finds nothing in what is sound, and finds what is not."""

import itertools
from random import Random

import pytest

from tests.reliability.campaign import run_kind, workloads
from tests.reliability.history import Flushed
from tests.reliability.kinds import KINDS
from tests.reliability.subject import OPERATIONS, Subject
from tests.reliability.workloads import NAMED, Workload, short

APPENDS = Workload("appends", ("append", "flush", "append"))


def invariants(kind: str, seconds: float = 600) -> set[str]:
    """Return the names of what a kind finds in a few appends."""
    tally = run_kind(kind, iter([APPENDS]), seed=1, seconds=seconds)
    assert tally.cases > 10 or tally.findings
    return {each.invariant for found in tally.findings for each in found.violations}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_in_what_is_sound(kind: str) -> None:
    assert invariants(kind, seconds=5) == set()


def test_a_promise_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(subject: Subject) -> None:
        subject.history.append(Flushed(0, 2))

    monkeypatch.setitem(OPERATIONS, "flush", claim)
    assert invariants("crashes") == {"acknowledged_is_there"}


def test_an_error_without_a_type_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(subject: Subject) -> None:
        raise KeyError("x")

    monkeypatch.setitem(OPERATIONS, "flush", fail)
    assert "errors_are_typed" in invariants("crashes")


def test_a_finding_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATIONS, "flush", lambda subject: subject.history.append(Flushed(0, 2)))
    tally = run_kind("crashes", iter([APPENDS]), seed=7, seconds=60, most_findings=1)
    (found,) = tally.findings
    assert found.command == (
        'python -m tests.reliability --only "crashes" --seed 7 --operations "append, flush, append"'
    )


def test_a_kind_stops_when_its_time_is_up() -> None:
    ticks = itertools.count()
    tally = run_kind("flips", workloads(Random(1)), seed=1, seconds=30, clock=lambda: next(ticks))
    assert tally.workloads > 1 and tally.cases < 40


def test_short_sequences_are_all_there_are() -> None:
    every = len(OPERATIONS)
    assert len([*short(2)]) == every + every**2
    assert len({each.operations for each in short(2)}) == every + every**2
    assert len({each.name for each in NAMED}) == len(NAMED)
