"""The leader: fencing, parked fetches, high watermark, acks and ISR."""

import pytest

from streamlog.errors import NotLeaderError
from streamlog.records.acks import Acks
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.leader import Leader
from streamlog.replication.messages import Errors, Fetch, OffsetsForLeaderEpoch
from tests.replication.logs import Log, leading, state_of

TWO = ReplicationSettings(min_insync_replicas=2)
LAG_MS = 30_000


def fetch(node: int, offset: int, *, epoch: int = 0, last: int = -1) -> Fetch:
    return Fetch(
        replica=node, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last
    )


def test_another_node_cannot_lead():
    with pytest.raises(NotLeaderError, match="another node leads"):
        Leader(1, state_of((0, 1)), Log(), TWO, high_watermark=0, now_ms=0)


def test_a_new_epoch_starts_at_the_log_end_even_without_records():  # KAFKA-7415, S4
    log = Log.of("a@0", "b@0")
    leader = leading(log, epoch=1)
    assert log.epoch_entries() == [(0, 0), (1, 2)]
    assert leader.epoch_start_offset == 2
    asked = OffsetsForLeaderEpoch(replica=1, current_leader_epoch=1, leader_epoch=1)
    assert leader.offsets_for_leader_epoch(asked).end == (1, 2)


FENCED = [
    (0, Errors.FENCED_LEADER_EPOCH),
    (1, Errors.NONE),
    (2, Errors.UNKNOWN_LEADER_EPOCH),
    (-1, Errors.NONE),
]


@pytest.mark.parametrize(("epoch", "error"), FENCED)
def test_requests_of_another_epoch_are_fenced(epoch, error):
    leader = leading(Log.of("a@0"), epoch=1)
    answer = leader.fetch(fetch(1, 0, epoch=epoch), 5)
    assert answer is not None and answer.error is error
    asked = OffsetsForLeaderEpoch(replica=1, current_leader_epoch=epoch, leader_epoch=0)
    assert leader.offsets_for_leader_epoch(asked).error is error
    is_noted = leader.followers[1].log_end_offset == 0
    assert is_noted == (error is Errors.NONE)


def test_a_node_that_is_no_replica_gets_no_records():
    answer = leading(Log.of("a@0")).fetch(fetch(7, 0), 5)
    assert answer is not None and answer.error is Errors.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("offset", [4, 8])
def test_an_offset_that_the_log_does_not_have_is_out_of_range(offset):
    leader = leading(Log.ending_at(7, (0, 0), start=5))
    answer = leader.fetch(fetch(1, offset), 5)
    assert answer is not None
    assert (answer.error, answer.log_start_offset, answer.end_offset) == (
        Errors.OFFSET_OUT_OF_RANGE,
        5,
        7,
    )
    assert leader.followers[1].log_end_offset == -1


def test_a_diverging_fetch_counts_for_nothing():
    leader = leading(Log.of("a@0", "b@2"), (0, 1), epoch=2)
    answer = leader.fetch(fetch(1, 2, epoch=2, last=1), 5)
    assert answer is not None
    assert (answer.diverging_epoch, answer.end_offset) == ((0, 1), 2)
    assert leader.high_watermark == 0


def test_a_fetch_that_finds_nothing_waits_for_records():
    log = Log()
    leader = leading(log)
    assert leader.fetch(fetch(1, 0), 10) is None
    assert leader.released(509) == []
    log.append("a", 0)
    leader.appended(100)
    ((node, answer),) = leader.released(100)
    assert (node, answer.fetch_offset, answer.end_offset, answer.high_watermark) == (1, 0, 1, 0)
    assert leader.released(10_000) == []


def test_a_fetch_that_finds_nothing_is_answered_after_its_wait():
    leader = leading(Log.of("a@0"), (0, 1))
    assert leader.fetch(fetch(1, 1), 10) is None
    assert leader.released(509) == []
    ((node, answer),) = leader.released(510)
    assert (node, answer.end_offset, answer.high_watermark) == (1, 1, 1)


def test_the_high_watermark_is_the_lowest_end_of_the_isr_and_never_goes_back():
    log = Log.of("a@0", "b@0", "c@0")
    leader = leading(log)
    leader.follower_at(1, 3, 5)
    assert leader.high_watermark == 0  # nothing known of 2
    leader.follower_at(2, 2, 5)
    assert leader.high_watermark == 2
    leader.follower_at(1, 1, 6)
    assert leader.high_watermark == 2


def test_a_single_replica_commits_at_once():
    log = Log.of("a@0")
    leader = leading(log, (0,))
    assert leader.high_watermark == 1
    log.append("b", 0)
    leader.appended(5)
    assert leader.high_watermark == 2
    assert leader.outcome(2, Acks.ALL) is Errors.NONE


def test_a_follower_about_to_join_is_waited_for():
    log = Log.of("a@0")
    leader = leading(log, (0,))
    leader.follower_at(1, 1, 5)
    assert leader.proposal is not None
    log.append("b", 0)
    leader.appended(6)
    assert leader.high_watermark == 1  # its joining is in flight
    leader.refused()
    leader.appended(7)
    assert leader.high_watermark == 1  # still caught up
    leader.appended(6 + LAG_MS)
    assert leader.high_watermark == 2


def test_below_min_isr_nothing_is_committed():  # S6, KIP-966
    log = Log.of("a@0")
    leader = leading(log, (0, 1), settings=TWO)
    leader.follower_at(1, 1, 0)
    assert leader.high_watermark == 1
    leader.follower_failed(1)
    leader.installed(state_of((0,), version=1), 0)
    assert leader.admit(Acks.ALL) is Errors.NOT_ENOUGH_REPLICAS
    assert leader.admit(Acks.LEADER) is leader.admit(Acks.NONE) is Errors.NONE
    log.append("b", 0)
    leader.appended(1)
    assert leader.high_watermark == 1
    assert leader.outcome(2, Acks.LEADER) is Errors.NONE
    assert leader.outcome(2, Acks.ALL) is None
    leader.follower_at(2, 2, 2)
    assert leader.proposal is not None and leader.proposal.isr == (0, 2)
    leader.installed(state_of((0, 2), version=2), 2)
    assert leader.high_watermark == 2
    assert leader.outcome(2, Acks.ALL) is Errors.NONE


def test_records_committed_before_the_isr_fell_have_an_unknown_outcome():
    leader = leading(Log.of("a@0"), (0, 1), settings=TWO)
    leader.follower_at(1, 1, 0)
    leader.follower_failed(1)
    leader.installed(state_of((0,), version=1), 0)
    assert leader.outcome(1, Acks.ALL) is Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_lagging_follower_leaves_after_the_lag_time():
    log = Log.of("a@0")
    leader = leading(log, now_ms=1_000)
    leader.follower_at(1, 1, 1_000)
    leader.check_lag(1_000 + LAG_MS)
    assert leader.proposal is None
    leader.check_lag(1_001 + LAG_MS)
    assert leader.proposal is not None and leader.proposal.isr == (0, 1)  # 1 has everything
    assert leader.high_watermark == 0  # until the change is known to be made
    leader.installed(state_of((0, 1), version=1), 1_001 + LAG_MS)
    assert leader.high_watermark == 1


def test_a_follower_as_fast_as_the_log_grows_stays():
    log = Log()
    leader = leading(log, (0, 1))
    for step in range(100):
        log.append("a", 0)
        leader.follower_at(1, step, step * 1_000)
        leader.check_lag(step * 1_000)
        assert leader.proposal is None


def test_a_follower_joins_at_the_start_of_the_leaders_own_epoch():  # S5, KAFKA-7128
    leader = leading(Log.ending_at(100, (1, 0)), (0,), epoch=2, high_watermark=90)
    leader.high_watermark = 90  # as if others were in sync
    leader.follower_at(1, 95, 5)
    assert leader.proposal is None
    leader.follower_at(1, 100, 6)
    assert leader.proposal is not None and leader.proposal.isr == (0, 1)


def test_below_min_isr_a_follower_joins_only_with_the_whole_log():  # KAFKA-19996
    log = Log.of("a@0")
    leader = leading(log, (0,), settings=TWO)
    log.append("b", 0)
    leader.appended(0)
    leader.follower_at(1, 0, 5)
    assert leader.proposal is None
    leader.follower_at(1, 2, 6)
    assert leader.proposal is not None


def test_one_change_at_a_time():
    leader = leading(Log.of("a@0"), (0,))
    leader.follower_at(1, 1, 5)
    leader.follower_at(2, 1, 5)
    assert leader.proposal is not None
    assert (leader.proposal.isr, leader.proposal.partition_epoch) == ((0, 1), 0)
    leader.installed(state_of((0, 1), version=1), 6)
    assert leader.proposal is None
    leader.follower_at(2, 1, 7)
    assert (leader.proposal.isr, leader.proposal.partition_epoch) == ((0, 1, 2), 1)


def test_installing_an_isr_forgets_nothing_about_followers():  # crabka #308
    log = Log.of("a@0")
    leader = leading(log, (0,))
    leader.follower_at(1, 1, 5)
    leader.installed(state_of((0, 1), version=1), 50_000)
    assert leader.followers[1].log_end_offset == 1
    log.append("b", 0)
    leader.follower_at(1, 2, 50_001)
    assert leader.high_watermark == 2
    leader.check_lag(50_002)
    assert leader.proposal is None


def test_a_state_of_another_epoch_ends_the_leader():
    leader = leading(Log())
    with pytest.raises(NotLeaderError, match="another leader epoch"):
        leader.installed(state_of((0, 1), epoch=1), 5)
    with pytest.raises(NotLeaderError, match="another leader epoch"):
        leader.installed(state_of((0, 1), leader=1), 5)


def test_a_late_state_changes_nothing():
    leader = leading(Log.of("a@0"))
    leader.installed(state_of((0, 1), version=2), 5)
    leader.installed(state_of((0, 1, 2), version=1), 5)
    assert leader.isr.committed == (0, 1)


def test_a_failed_follower_leaves_at_once_and_comes_back():
    log = Log.of("a@0")
    leader = leading(log)
    leader.follower_at(1, 1, 0)
    leader.follower_failed(2)
    assert leader.proposal is not None and leader.proposal.isr == (0, 1)
    leader.follower_failed(1)  # waits for the change in flight
    leader.installed(state_of((0, 1), version=1), 0)
    leader.check_lag(0)
    assert leader.proposal is not None and leader.proposal.isr == (0,)
    leader.installed(state_of((0,), version=2), 0)
    leader.follower_at(2, 1, 1)
    assert leader.proposal is not None and leader.proposal.isr == (0, 2)
