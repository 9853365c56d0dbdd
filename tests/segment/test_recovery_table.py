from itertools import product

import pytest

from streamlog.segment.recovery_table import CASES, Case, Facts, RecoveryVerdict, decide

EVERY_COMBINATION = [Facts(*values) for values in product((False, True), repeat=10)]


def applies(case: Case, facts: Facts) -> bool:
    return all(wanted in (None, fact) for wanted, fact in zip(case.facts, facts, strict=True))


def test_every_combination_matches_exactly_one_case() -> None:
    assert len(EVERY_COMBINATION) == 1024
    for facts in EVERY_COMBINATION:
        assert [case for case in CASES if applies(case, facts)] == [decide(facts)], facts


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_is_reachable(case: Case) -> None:
    assert any(decide(facts) is case for facts in EVERY_COMBINATION)


def test_names_are_in_order_and_unique() -> None:
    assert [case.name for case in CASES] == [f"@{chr(65 + at)}" for at in range(len(CASES))]


def test_synced_batches_and_those_before_sound_ones_are_never_truncated() -> None:
    for facts in EVERY_COMBINATION:
        if decide(facts).verdict is RecoveryVerdict.CUT:
            assert not (facts.is_end or facts.is_below_mark or facts.is_followed), facts


def test_only_bad_bytes_are_overwritten_and_only_by_known_ones() -> None:
    for facts in EVERY_COMBINATION:
        is_bad = not (facts.is_end or (facts.is_whole and facts.is_unharmed))
        assert (decide(facts).verdict is RecoveryVerdict.MEND) == (is_bad and facts.is_known), facts


def test_complete_sound_batches_are_truncated_only_if_they_are_copies() -> None:
    for facts in EVERY_COMBINATION:
        if decide(facts).verdict is RecoveryVerdict.CUT and facts.is_whole and facts.is_unharmed:
            assert facts.is_repeated and not facts.follows, facts


def test_the_walk_and_the_table_agree_on_sound_batches() -> None:
    for facts in EVERY_COMBINATION:
        is_sound = facts.is_whole and facts.is_unharmed and facts.is_readable
        goes_on = is_sound and facts.follows and facts.keeps_epoch and not facts.is_end
        assert (decide(facts).verdict is RecoveryVerdict.KEEP) == goes_on, facts
        assert (decide(facts).verdict is RecoveryVerdict.DONE) <= facts.is_end, facts
