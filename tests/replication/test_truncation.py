"""The reaction table of a follower to (E, O), and the rules of truncation."""

import pytest

from streamlog.partition.epochs import EpochEndOffset
from streamlog.replication.truncation import (
    RULES,
    Reaction,
    TruncationRule,
    diverging_epoch,
    end_of_epoch,
    epoch_to_ask,
    reaction_to,
    truncation_for,
)
from tests.replication.logs import Log

OWN = ((1, 0), (2, 11), (5, 14))  # epochs of the follower, which ends at 16
UNKNOWN = EpochEndOffset(-1, -1)

REACTIONS = [
    # answer (E, O), own epochs, reaction, truncate to, final?
    (UNKNOWN, OWN, Reaction.HIGH_WATERMARK, 4, True),
    (EpochEndOffset(1, 21), (), Reaction.HIGH_WATERMARK, 4, True),
    (EpochEndOffset(-1, 13), OWN, Reaction.OFFSET, 13, True),
    (EpochEndOffset(-1, 21), OWN, Reaction.OFFSET, 16, True),
    (EpochEndOffset(0, 9), OWN, Reaction.HIGHER_EPOCH, 0, True),
    (EpochEndOffset(0, 9), ((1, 3), (2, 11)), Reaction.HIGHER_EPOCH, 3, True),
    (EpochEndOffset(0, 2), ((1, 3), (2, 11)), Reaction.HIGHER_EPOCH, 2, True),
    (EpochEndOffset(1, 21), OWN, Reaction.OWN_EPOCH, 11, True),
    (EpochEndOffset(1, 7), OWN, Reaction.OWN_EPOCH, 7, True),
    (EpochEndOffset(2, 12), OWN, Reaction.OWN_EPOCH, 12, True),
    (EpochEndOffset(5, 15), OWN, Reaction.OWN_EPOCH, 15, True),
    (EpochEndOffset(5, 99), OWN, Reaction.OWN_EPOCH, 16, True),
    (EpochEndOffset(4, 13), OWN, Reaction.LOWER_EPOCH, 14, False),
    (EpochEndOffset(3, 99), OWN, Reaction.LOWER_EPOCH, 14, False),
    (EpochEndOffset(6, 99), OWN, Reaction.LOWER_EPOCH, 16, False),
]


@pytest.mark.parametrize(("answer", "own", "reaction", "offset", "is_final"), REACTIONS)
def test_where_a_follower_truncates(answer, own, reaction, offset, is_final):
    log = Log.ending_at(16, *own)
    assert reaction_to(answer, log.epochs) is reaction
    assert truncation_for(answer, log, high_watermark=4) == (offset, is_final)


def test_each_reaction_is_in_the_table():
    assert {row[2] for row in REACTIONS} == set(Reaction)


def test_the_high_watermark_of_a_shorter_log_is_its_end():
    assert truncation_for(UNKNOWN, Log.ending_at(3), high_watermark=4).offset == 3


LEADER = ((1, 0), (3, 21))  # epochs of the leader, which ends at 31

ANSWERS = [
    # rule, epoch asked for, answer
    (TruncationRule.KIP_101, 1, (-1, 21)),
    (TruncationRule.KIP_101, 2, (-1, 21)),
    (TruncationRule.KIP_101, 3, (-1, 31)),
    (TruncationRule.KIP_101, 4, (-1, -1)),
    (TruncationRule.KIP_279, 1, (1, 21)),
    (TruncationRule.KIP_279, 2, (1, 21)),
    (TruncationRule.KIP_320, 2, (1, 21)),
    (TruncationRule.KIP_320, 3, (3, 31)),
    (TruncationRule.KIP_320, 0, (0, 0)),
    (TruncationRule.KIP_320, 4, (-1, -1)),
    (TruncationRule.KIP_320, -1, (-1, -1)),
]


@pytest.mark.parametrize(("rule", "epoch", "answer"), ANSWERS)
def test_where_a_leader_says_that_an_epoch_ends(rule, epoch, answer):
    assert end_of_epoch(rule, Log.ending_at(31, *LEADER), epoch) == answer


@pytest.mark.parametrize(
    ("last_fetched_epoch", "fetch_offset", "diverges"),
    [
        (3, 31, None),
        (3, 25, None),
        (3, 32, (3, 31)),
        (1, 21, None),
        (1, 22, (1, 21)),
        (2, 15, (1, 21)),
        (4, 31, (-1, -1)),
        (-1, 31, None),
    ],
)
def test_a_fetch_of_a_diverging_log_is_answered_with_the_last_shared_epoch(
    last_fetched_epoch, fetch_offset, diverges
):
    log = Log.ending_at(31, *LEADER)
    found = diverging_epoch(TruncationRule.KIP_320, log, last_fetched_epoch, fetch_offset)
    assert found == diverges
    unchecked = diverging_epoch(TruncationRule.KIP_279, log, last_fetched_epoch, fetch_offset)
    assert unchecked is None


def test_a_leader_whose_last_records_have_no_epoch_finds_no_divergence():
    """Else a follower with epochs would truncate to its high watermark with each fetch."""
    log = Log.ending_at(31)
    assert end_of_epoch(TruncationRule.KIP_320, log, 1) == UNKNOWN
    assert diverging_epoch(TruncationRule.KIP_320, log, 1, 25) is None


def test_rules_without_epochs_ask_for_none():
    log = Log.ending_at(16, *OWN)
    asked = {rule: epoch_to_ask(rule, log.epochs) for rule in TruncationRule}
    assert asked == {
        TruncationRule.TRUNCATE_TO_HIGH_WATERMARK: -1,
        TruncationRule.KIP_101: 5,
        TruncationRule.KIP_279: 5,
        TruncationRule.KIP_320_FIRST_TRY: -1,
        TruncationRule.KIP_320: 5,
    }
    assert epoch_to_ask(TruncationRule.KIP_320, Log().epochs) == -1


def test_only_the_rule_in_use_has_all_properties():
    assert [rule for rule, properties in RULES.items() if all(properties)] == [
        TruncationRule.KIP_320
    ]
