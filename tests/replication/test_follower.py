"""The follower: what it asks, and what it does with the answers."""

import pytest

from streamlog.errors import NotLeaderError
from streamlog.partition.epochs import EpochEndOffset
from streamlog.replication.follower import Follower, FollowerStep, OutOfRange, out_of_range
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.messages import (
    Errors,
    Fetch,
    FetchResponse,
    OffsetsForLeaderEpoch,
    OffsetsForLeaderEpochResponse,
)
from streamlog.replication.truncation import TruncationRule
from tests.replication.logs import Log, leading, state_of


def following(log, *, epoch=0, high_watermark=0, is_truncated=True, rule=TruncationRule.KIP_320):
    settings = ReplicationSettings(rule=rule)
    state = state_of((0, 1), epoch=epoch)
    follower = Follower(1, state, log, settings, high_watermark=high_watermark)
    follower.is_truncated = is_truncated or follower.is_truncated
    return follower


def answer(offset, end, *, high_watermark=0, start=0, epoch=0, **rest):
    return FetchResponse(
        fetch_offset=offset,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        log_start_offset=start,
        end_offset=end,
        **rest,
    )


def test_it_truncates_before_it_fetches():
    log = Log.of("a@0", "b@1")
    follower = following(log, epoch=3, is_truncated=False)
    assert follower.request() == OffsetsForLeaderEpoch(
        replica=1, current_leader_epoch=3, leader_epoch=1
    )
    assert follower.fetched(answer(2, 3, epoch=3)) == FollowerStep(high_watermark=0)
    reply = OffsetsForLeaderEpochResponse(
        current_leader_epoch=3, leader_epoch=1, end=EpochEndOffset(0, 2)
    )
    step = follower.epoch_answered(reply)
    assert (step.truncate_to, follower.is_truncated) == (1, True)
    log.carry_out(step, log)
    assert follower.request() == Fetch(
        replica=1, current_leader_epoch=3, fetch_offset=1, last_fetched_epoch=0
    )


def test_it_asks_until_the_leader_knows_the_epoch():  # KIP-279
    leader_log = Log.ending_at(30, (1, 0), (6, 20))
    log = Log.ending_at(40, (1, 0), (3, 10), (5, 25))
    leader = leading(leader_log, epoch=7)
    follower = following(log, epoch=7, is_truncated=False)
    asked = []
    while not follower.is_truncated:
        request = follower.request()
        asked.append(request.leader_epoch)
        log.carry_out(follower.epoch_answered(leader.offsets_for_leader_epoch(request)), log)
    assert asked == [5]
    assert log.epoch_entries() == [(1, 0)]
    assert log.log_end_offset == 10


def test_it_does_not_follow_a_leader_that_was_replaced():
    with pytest.raises(NotLeaderError, match="later leader epoch"):
        following(Log.of("a@0", "b@2"), epoch=1)


def followed(log, leader_log, *, epoch, rule=TruncationRule.KIP_320, high_watermark=0):
    """Follow the leader until its log is truncated and nothing is left to fetch."""
    leader = leading(leader_log, (0,), epoch=epoch, settings=ReplicationSettings(rule=rule))
    follower = following(
        log, epoch=epoch, rule=rule, high_watermark=high_watermark, is_truncated=False
    )
    for _ in range(20):
        request = follower.request()
        if isinstance(request, OffsetsForLeaderEpoch):
            step = follower.epoch_answered(leader.offsets_for_leader_epoch(request))
        elif (answered := leader.fetch(request, 0)) is not None:
            step = follower.fetched(answered)
        else:
            return leader
        log.carry_out(step, leader_log)
    raise AssertionError("it asks for ever")


@pytest.mark.parametrize(
    ("rule", "equal"),
    [
        (TruncationRule.KIP_101, False),
        (TruncationRule.KIP_279, True),
        (TruncationRule.KIP_320, True),
    ],
)
def test_a_fast_double_failover(rule, equal):  # S3, KAFKA-6361
    leader_log = Log.ending_at(31, (1, 0), (3, 21))
    log = Log.ending_at(16, (1, 0), (2, 11))
    followed(log, leader_log, epoch=3, rule=rule, high_watermark=11)
    assert (log.texts() == leader_log.texts()) == equal
    assert log.log_end_offset == 31


def test_a_follower_with_only_higher_epochs_keeps_nothing_of_them():
    leader_log = Log.of("a@0", "c@2")
    log = Log.of("b@1")
    followed(log, leader_log, epoch=2)
    assert log.texts() == leader_log.texts()


def test_epoch_0_is_an_epoch():  # KAFKA-10432
    log = Log.of("a@0", "b@0")
    followed(log, Log.of("a@0", "b@0"), epoch=1, high_watermark=1)
    assert log.texts() == ["a@0", "b@0"]
    request = following(log, epoch=1, is_truncated=False).request()
    assert isinstance(request, OffsetsForLeaderEpoch) and request.leader_epoch == 0


def test_a_fetch_across_an_unknown_epoch_truncates_to_the_old_high_watermark():  # KAFKA-14704
    unknown = answer(2, 2, high_watermark=2, epoch=2, diverging_epoch=EpochEndOffset(-1, -1))
    follower = following(Log.of("a@0", "b@1"), epoch=2, high_watermark=1)
    assert follower.fetched(unknown).truncate_to == 1


def test_an_epoch_without_records_is_not_asked_for_again():  # KAFKA-10706
    leader_log = Log.ending_at(10, (0, 0), (2, 6))
    log = Log.ending_at(8, (0, 0), (3, 8))  # epoch 3 has no records, the leader knows only 2
    followed(log, leader_log, epoch=5)
    assert log.texts() == leader_log.texts()


@pytest.mark.parametrize(
    ("epoch", "asked", "error"),
    [(0, 0, Errors.FENCED_LEADER_EPOCH), (1, 0, Errors.NONE), (0, 1, Errors.NONE)],
)
def test_an_error_or_a_late_answer_truncates_nothing(epoch, asked, error):
    follower = following(Log.of("a@0"), is_truncated=False)
    reply = OffsetsForLeaderEpochResponse(
        current_leader_epoch=epoch, leader_epoch=asked, end=EpochEndOffset(0, 0), error=error
    )
    assert follower.epoch_answered(reply) == FollowerStep(high_watermark=0, error=error)
    assert not follower.is_truncated


def test_the_high_watermark_is_bounded_by_the_own_end():
    follower = following(Log.of("a@0"))
    step = follower.fetched(answer(1, 2, high_watermark=9))
    assert step == FollowerStep(append_to=2, high_watermark=2, log_start_offset=0)


def test_the_high_watermark_does_not_go_back_with_a_new_leader():
    follower = following(Log.of("a@0", "b@0"), high_watermark=2)
    assert follower.fetched(answer(2, 2, high_watermark=1)).high_watermark == 2


def test_a_log_start_raises_the_high_watermark():
    follower = following(Log.of("a@0", "b@0"))
    step = follower.fetched(answer(2, 2, high_watermark=2, start=2))
    assert (step.log_start_offset, step.high_watermark) == (2, 2)


@pytest.mark.parametrize(
    "reply",
    [answer(0, 5, high_watermark=1), answer(2, 5, high_watermark=1), answer(1, 5, epoch=1)],
)
def test_an_answer_to_an_older_fetch_is_ignored(reply):
    follower = following(Log.of("a@0"))
    assert follower.fetched(reply) == FollowerStep(high_watermark=0)


def test_a_fencing_error_is_passed_on():
    follower = following(Log.of("a@0"))
    step = follower.fetched(answer(1, 1, high_watermark=1, error=Errors.FENCED_LEADER_EPOCH))
    assert step == FollowerStep(high_watermark=0, error=Errors.FENCED_LEADER_EPOCH)


def test_a_diverging_log_is_truncated_before_the_high_watermark_moves():  # KAFKA-14704
    follower = following(Log.of("a@0", "b@1"), epoch=2)
    diverging = EpochEndOffset(0, 1)
    step = follower.fetched(answer(2, 2, high_watermark=2, epoch=2, diverging_epoch=diverging))
    assert step == FollowerStep(truncate_to=1, high_watermark=0)


OUT_OF_RANGE = [
    # own end, leader's start, leader's end
    (10, 0, 7, OutOfRange(truncate_to=7)),
    (10, 12, 20, OutOfRange(restart_at=12)),
    (10, 10, 20, OutOfRange()),
    (10, 5, 10, OutOfRange()),
    (0, 0, 20, OutOfRange()),  # never "restart at 0" (KAFKA-2143)
]


@pytest.mark.parametrize(("end", "start", "leader_end", "expected"), OUT_OF_RANGE)
def test_out_of_range(end, start, leader_end, expected):
    assert out_of_range(end, start, leader_end) == expected
    follower = following(Log.ending_at(end, (0, 0)), high_watermark=min(end, 8))
    step = follower.fetched(answer(end, leader_end, start=start, error=Errors.OFFSET_OUT_OF_RANGE))
    assert (step.truncate_to, step.restart_at) == (expected.truncate_to, expected.restart_at)
    assert step.error is Errors.NONE  # the follower goes on (KAFKA-7414)
    if expected.restart_at is not None:
        assert step.high_watermark == expected.restart_at  # KAFKA-9491


def test_without_epochs_it_truncates_to_the_high_watermark():
    log = Log.ending_at(5)
    follower = following(log, high_watermark=3, is_truncated=False)
    reply = leading(Log.ending_at(9)).offsets_for_leader_epoch(follower.request())
    assert follower.epoch_answered(reply).truncate_to == 3


def test_the_first_try_of_kip_320_fetches_at_once():
    follower = following(Log.of("a@0"), is_truncated=False, rule=TruncationRule.KIP_320_FIRST_TRY)
    assert isinstance(follower.request(), Fetch)
