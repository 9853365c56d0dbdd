"""The table of the lock file's flags: every event in every state."""

from collections.abc import Iterable
from itertools import product

import pytest

from streamlog.partition.lock_states import (
    AFTER,
    CLEAN,
    DISTRUSTED,
    KNOWN_FLAGS,
    MUST_LOOK,
    RULES,
    IllegalTransitionError,
    LockEvent,
    StateFlag,
)

STATES = range(KNOWN_FLAGS + 1)
BITS = (StateFlag.DIRTY, StateFlag.PENDING, StateFlag.DISTRUSTED, StateFlag.EPOCH_DUE)


def after(event: LockEvent, state: int) -> int | None:
    try:
        return AFTER[event][state]
    except IllegalTransitionError:
        return None


LEGAL = [
    (event, state, to)
    for event, state in product(LockEvent, STATES)
    if (to := after(event, state)) is not None
]


def events(steps: Iterable[tuple[LockEvent, int, int]]) -> set[LockEvent]:
    return {event for event, _, _ in steps}


def reachable() -> set[int]:
    found, new = set[int](), {StateFlag.NONE}
    while new:
        found |= new
        new = {to for _, state, to in LEGAL if state in found} - found
    return found


def test_each_event_has_a_row_and_each_row_its_states() -> None:
    assert set(RULES) == set(AFTER) == set(LockEvent)
    assert sum(BITS) == KNOWN_FLAGS
    for event, state in product(LockEvent, STATES):
        rule = RULES[event]
        may_happen = state & rule.needs == rule.needs and state & rule.forbids == 0
        assert (after(event, state) is not None) == may_happen
        if may_happen:
            for bit in BITS:
                stands = bool(state & bit) and not rule.clears & bit
                assert bool(AFTER[event][state] & bit) == (bool(rule.sets & bit) or stands)


def test_an_illegal_event_names_itself_and_the_state() -> None:
    with pytest.raises(IllegalTransitionError, match="CHANGE_ENDS in state 0b1010"):
        AFTER[LockEvent.CHANGE_ENDS][StateFlag.PENDING | StateFlag.EPOCH_DUE]


def test_a_distrusted_log_is_always_dirty_too() -> None:
    for state in reachable():
        assert state not in DISTRUSTED or state & StateFlag.DIRTY
    assert {state for state in reachable() if state in CLEAN} == {0, 2, 8, 10}


def test_only_a_known_end_or_a_scan_makes_a_log_clean() -> None:
    cleans = [step for step in LEGAL if step[1] not in CLEAN and step[2] in CLEAN]
    assert events(cleans) == {LockEvent.CHANGE_ENDS, LockEvent.RECOVERED}


def test_what_is_not_clean_is_never_adopted_and_always_looked_at() -> None:
    for state in STATES:
        assert (after(LockEvent.ADOPTED, state) is None) == (state not in CLEAN)
        if state in reachable() and state not in CLEAN:
            assert state in MUST_LOOK


def test_after_a_scan_decisions_are_looked_at() -> None:
    assert all(AFTER[LockEvent.RECOVERED][state] & StateFlag.PENDING for state in STATES)


def test_an_epoch_that_is_due_stays_due_until_it_is_raised() -> None:
    due = StateFlag.EPOCH_DUE
    ends = [step for step in LEGAL if step[1] & due and not step[2] & due]
    assert ends == [(LockEvent.EPOCH_RAISED, due, StateFlag.NONE)]


def test_pending_ends_with_the_decisions_applied_only() -> None:
    pending = StateFlag.PENDING
    ends = [step for step in LEGAL if step[1] & pending and not step[2] & pending]
    assert events(ends) == {LockEvent.DECISIONS_APPLIED}


def test_a_change_begins_in_a_clean_log_only() -> None:
    for state in STATES:
        assert (after(LockEvent.CHANGE_BEGINS, state) is None) == (state not in CLEAN)
