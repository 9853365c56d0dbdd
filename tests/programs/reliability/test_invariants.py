"""The checker accepts good histories; each mutation violates the expected invariant."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from streamlog.fs.memory import MemoryFileSystem
from tests.programs.reliability.content import NOW, key_of
from tests.programs.reliability.history import (
    Began,
    Cleaned,
    Crashed,
    History,
    Outcome,
    Raised,
    Retained,
    Seen,
    View,
    Wrote,
)
from tests.programs.reliability.invariants import RETENTION_MS, check
from tests.programs.reliability.query_writer import APP
from tests.programs.reliability.subject import OPERATIONS, Subject
from tests.programs.reliability.workloads import NAMED, drawn

GOOD = ("append", "commit", "append batches", "append other", "commit", "repeat", "flush")


def history_of(operations: tuple[str, ...]) -> History:
    history: History = []
    subject = Subject(MemoryFileSystem(), history)
    for operation in operations:
        subject.perform(operation)
    subject.see()
    return history


@pytest.fixture(scope="module")
def good() -> History:
    return history_of(GOOD)


@pytest.mark.parametrize("workload", NAMED, ids=[each.name for each in NAMED])
def test_histories_of_named_workloads_are_accepted(workload: Any) -> None:
    assert check(history_of(workload.operations)) == []


@pytest.mark.parametrize("seed", range(20))
def test_histories_of_random_workloads_are_accepted(seed: int) -> None:
    history = history_of(drawn(Random(seed)).operations)
    assert check(history) == []


def test_every_operation_is_in_a_named_workload() -> None:
    assert {each for workload in NAMED for each in workload.operations} == set(OPERATIONS)


def without_row(view: View, at: int) -> View:
    return view._replace(rows=view.rows[:at] + view.rows[at + 1 :])


def changed_batch(view: View, at: int, **change: object) -> View:
    batches = list(view.batches)
    batches[at] = batches[at]._replace(**change)
    return view._replace(batches=tuple(batches))


def swapped(view: View) -> View:
    (first, one), (second, other) = view.rows[0], view.rows[-1]
    return view._replace(rows=((first, other), *view.rows[1:-1], (second, one)))


MUTATIONS: dict[str, tuple[str, Callable[[View], View]]] = {
    "an acknowledged batch is gone": (
        "acknowledged_records_exist",
        lambda view: view._replace(rows=view.rows[2:]),
    ),
    "half of a batch is gone": ("batches_are_whole", lambda view: without_row(view, 0)),
    "a record is there twice": (
        "one_offset_per_record",
        lambda view: view._replace(rows=(*view.rows, (view.end, view.rows[0][1]))),
    ),
    "a record has moved": ("one_offset_per_record", swapped),
    "two records swapped places": ("writers_keep_their_order", swapped),
    "a foreign payload": (
        "only_written_records_exist",
        lambda view: view._replace(rows=(*view.rows, (view.end, None))),
    ),
    "an id that was never written": (
        "only_written_records_exist",
        lambda view: view._replace(rows=(*view.rows, (view.end, 999_999))),
    ),
    "a batch fails its checksum": (
        "batches_are_sound",
        lambda view: changed_batch(view, 1, is_sound=False),
    ),
    "an epoch falls": (
        "epochs_never_decrease",
        lambda view: changed_batch(view, 0, leader_epoch=7),
    ),
    "a batch is missing in the middle": (
        "offsets_have_no_gap",
        lambda view: view._replace(batches=view.batches[:1] + view.batches[2:]),
    ),
    "the end lies after the last batch": (
        "offsets_have_no_gap",
        lambda view: view._replace(end=view.end + 1),
    ),
    "two readers differ": ("readers_agree", lambda view: without_row(view, 0)),
    "a torn tail was not truncated": (
        "no_torn_tail",
        lambda view: view._replace(torn_size=7),
    ),
    "the start is higher than any request": (
        "log_start_is_allowed",
        lambda view: view._replace(start=2),
    ),
    "the epoch file has another epoch": (
        "epochs_are_known",
        lambda view: view._replace(epochs=((7, 0),)),
    ),
    "an epoch starts above the end": (
        "epochs_are_known",
        lambda view: view._replace(epochs=(*view.epochs, (9, view.end + 1))),
    ),
    "a search by time finds another record": (
        "time_search_matches_scan",
        lambda view: view._replace(by_time=((view.by_time[0][0], view.end - 1),)),
    ),
    "the recovery point is above the end": (
        "recovery_point_is_in_range",
        lambda view: view._replace(recovery_point=view.end + 1),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_bad_view_violates_its_invariant(good: History, name: str) -> None:
    invariant, mutate = MUTATIONS[name]
    seen = good[-1]
    assert isinstance(seen, Seen)
    bad = Seen({**seen.views, 0: mutate(seen.views[0])})
    assert invariant in {each.invariant for each in check([*good[:-1], bad])}


def test_a_commit_in_one_partition_only_is_found(good: History) -> None:
    seen = good[-1]
    assert isinstance(seen, Seen)
    rows = tuple(row for row in seen.views[1].rows if row[0] > 2)
    bad = Seen({**seen.views, 1: seen.views[1]._replace(rows=rows)})
    assert "commits_are_atomic" in {each.invariant for each in check([*good[:-1], bad])}


def test_unflushed_records_may_be_lost_in_a_power_cut_but_not_in_a_crash() -> None:
    history = history_of(("append", "flush", "append"))
    seen = history[-1]
    assert isinstance(seen, Seen)
    view = seen.views[0]
    shorter = view._replace(
        end=2, rows=view.rows[:2], rows_again=view.rows[:2], batches=view.batches[:1]
    )
    after = Seen({**seen.views, 0: shorter})
    before = history[:-1]
    assert check([*before, Crashed(lost_power=True), after]) == []
    names = {each.invariant for each in check([*before, Crashed(lost_power=False), after])}
    assert "acknowledged_records_exist" in names
    nothing = shorter._replace(end=0, rows=(), rows_again=(), batches=(), recovery_point=0)
    lost = Seen({**seen.views, 0: nothing})
    names = {each.invariant for each in check([*before, Crashed(lost_power=True), lost])}
    assert "acknowledged_records_exist" in names, "it was flushed"


def test_a_compaction_may_remove_superseded_records_and_nothing_else() -> None:
    history = history_of(("append batches", "append", "roll", "append"))
    seen = history[-1]
    assert isinstance(seen, Seen)
    rows = seen.views[0].rows
    for number in range(len(rows)):
        fewer = without_row(seen.views[0], number)._replace(by_time=())
        after = Seen({**seen.views, 0: fewer._replace(rows_again=fewer.rows)})
        is_superseded = any(key_of(rows[number][1]) == key_of(row[1]) for row in rows[number + 1 :])
        cleaned = [*history[:-1], Cleaned(0, 8, NOW)]
        assert (check([*cleaned, after]) == []) == (is_superseded and number < 8), number
        assert "acknowledged_records_exist" in {each.invariant for each in check([*history, after])}


def test_records_may_be_deleted_as_far_as_requested_or_as_retention_allows() -> None:
    history = history_of(("append", "append", "append"))
    seen = history[-1]
    assert isinstance(seen, Seen)
    view = seen.views[0]
    later = view._replace(
        start=4, rows=view.rows[4:], rows_again=view.rows[4:], batches=view.batches[2:],
        epochs=((0, 4),), by_time=(),
    )  # fmt: skip
    after = Seen({**seen.views, 0: later})
    before = history[:-1]
    a_week_later = NOW + RETENTION_MS + 100
    assert check([*before, Began(0, 4), after]) == []
    assert check([*before, Retained(0, a_week_later), after]) == []
    for event in (Began(0, 3), Retained(0, NOW)):
        names = {each.invariant for each in check([*before, event, after])}
        assert names == {"log_start_is_allowed"}
    names = {each.invariant for each in check([*before, Began(0, 4, Outcome.DONE), seen])}
    assert names == {"bounds_never_decrease"}, "they are deleted for good"


def test_removed_records_stay_removed_and_the_end_does_not_decrease() -> None:
    history = history_of(("append", "append"))
    seen = history[-1]
    assert isinstance(seen, Seen)
    nothing = seen.views[0]._replace(end=0, rows=(), rows_again=(), batches=(), by_time=())
    empty = Seen({**seen.views, 0: nothing})
    story = [*history[:-1], Crashed(lost_power=True), empty]
    assert check(story) == []
    assert "only_written_records_exist" in {each.invariant for each in check([*story, seen])}
    assert "bounds_never_decrease" in {each.invariant for each in check([*history, empty])}


def test_an_untyped_error_is_a_violation(good: History) -> None:
    bad = Raised("append", "KeyError()", is_typed=False)
    assert [each.invariant for each in check([*good, bad])] == ["errors_are_typed"]


def test_a_refused_repetition_takes_nothing_back() -> None:
    history = history_of(("append", "commit"))
    wrote = next(each for each in history if isinstance(each, Wrote) and each.writer == APP)
    again = wrote._replace(outcome=Outcome.UNKNOWN, base_offset={})
    assert check([*history, again, again._replace(outcome=Outcome.REFUSED), history[-1]]) == []


def test_records_that_were_only_refused_must_not_be_there() -> None:
    history = history_of(("append", "commit"))
    story = [
        each._replace(outcome=Outcome.REFUSED, base_offset={})
        if isinstance(each, Wrote) and each.writer == APP and each.outcome is Outcome.DONE
        else each
        for each in history
    ]
    assert {each.invariant for each in check(story)} >= {"only_written_records_exist"}
