"""Each kind injects its faults, reports nothing in sound code, and detects violations."""

import itertools
from random import Random

import pytest

from tests.programs.reliability.campaign import run, run_kind, workloads
from tests.programs.reliability.history import Flushed
from tests.programs.reliability.kinds import CI, KINDS
from tests.programs.reliability.subject import OPERATIONS, Subject
from tests.programs.reliability.workloads import NAMED, Workload, short

APPENDS = Workload("appends", ("append", "flush", "append"))


def invariants(kind: str) -> set[str]:
    """Return the invariants that a kind finds violated in a few appends."""
    tally = run_kind(kind, iter([APPENDS]), seed=1, seconds=600)
    assert tally.findings
    return {each.invariant for found in tally.findings for each in found.violations}


@pytest.mark.parametrize("kind", CI)
def test_sound_code_has_no_findings(kind: str) -> None:
    cases = [*itertools.islice(KINDS[kind].run(APPENDS, Random(1)), 15)]
    assert len(cases) >= 3
    assert [each for each in cases if each.violations] == []


def test_a_broken_promise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(subject: Subject) -> None:
        subject.history.append(Flushed(0, 2))

    monkeypatch.setitem(OPERATIONS, "flush", claim)
    assert invariants("crashes") == {"acknowledged_records_exist"}


def test_an_untyped_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(subject: Subject) -> None:
        raise KeyError("x")

    monkeypatch.setitem(OPERATIONS, "flush", fail)
    assert "errors_are_typed" in invariants("crashes")


def test_a_finding_has_a_command_that_reproduces_it(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_truncation_over_segments_is_durable_from_the_end_on() -> None:
    operations = ("append", "append batches", "append batches", "truncate")
    workload = Workload("a truncation over segments", operations, unbroken=3)
    cases = [case for seed in range(3) for case in KINDS["crashes"].run(workload, Random(seed))]
    assert len(cases) > 100
    assert [case for case in cases if case.violations] == []


def test_a_kind_the_machine_cannot_run_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = KINDS["flips"]._replace(missing=lambda: "a soldering iron")
    monkeypatch.setitem(KINDS, "flips", lacking)
    (tally,) = run(["flips"], seed=1, seconds=1)
    assert (tally.missing, tally.cases) == ("a soldering iron", 0)


def test_a_schedule_is_reproducible() -> None:
    first, again = (
        [case.description for case in KINDS["races"].run(APPENDS, Random(5))] for _ in range(2)
    )
    assert first == again


def test_short_sequences_are_complete() -> None:
    every = len(OPERATIONS)
    assert len([*short(2)]) == every + every**2
    assert len({each.operations for each in short(2)}) == every + every**2
    assert len({each.name for each in NAMED}) == len(NAMED)
