"""Appends on a replicated partition: what is acknowledged is on all replicas in sync."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from threading import Event

import pytest

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InconsistentTopicIdError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    UnknownOutcomeError,
)
from streamlog.partition.partition_metadata import new_topic_id
from streamlog.replication.copies import IDLE_MS, InThreads, OneByOne
from streamlog.replication.election import ElectionType
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.roots import check_epoch
from tests.support.replicas import (
    PARTITION,
    Disks,
    Process,
    abort_transaction,
    records,
    values_of,
)


def test_an_append_is_on_all_replicas_and_committed_when_it_returns() -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log:
        for number in range(5):
            info = log.append(records(f"a{number}", f"b{number}"))
            assert log.high_watermark == log.log_end_offset == info.last_offset + 1
        assert values_of(log) == [f"{x}{n}" for n in range(5) for x in "ab"]
    assert disks.log_bytes(1) == disks.log_bytes(2) == disks.log_bytes(3) != b""


def test_a_follower_learns_the_high_watermark_one_append_later() -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        with disks.writer().open_follower(2, log.topic_partition) as follower:
            assert (follower.high_watermark, follower.log_end_offset) == (0, 1)
        log.append(records("b"))
        with disks.writer().open_follower(2, log.topic_partition) as follower:
            assert (follower.high_watermark, follower.log_end_offset) == (1, 2)


@pytest.mark.parametrize("how", ["flush", "sync", "close"])
def test_flush_and_close_let_the_followers_learn_the_high_watermark(how: str) -> None:
    disks = Disks()
    log = disks.writer().lead(1)
    log.append(records("a"))
    log.append(records("b"))
    getattr(log, how)()
    for node in (2, 3):
        with disks.writer().open_follower(node, log.topic_partition) as follower:
            assert (follower.high_watermark, follower.log_end_offset) == (2, 2)
    log.close()


def test_records_are_deleted_through_the_leader_on_each_replica() -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        log.append(records("b"))
        log.flush()
        assert log.delete_records(1) == 1
        for node in (2, 3):
            with disks.writer().open_follower(node, log.topic_partition) as follower:
                assert follower.log_start_offset == 1
                with pytest.raises(NotLeaderError, match="append through the partition's leader"):
                    follower.delete_records(2)


def test_a_high_watermark_is_shared_once_and_not_with_each_append() -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        before = [process.writes(node) for node in (2, 3)]
        log.append(records("b"))
        per_append = [process.writes(node) - was for node, was in zip((2, 3), before, strict=True)]
        before = [process.writes(node) for node in (2, 3)]
        log.append(records("c"))
        assert [process.writes(node) for node in (2, 3)] == [
            was + each for was, each in zip(before, per_append, strict=True)
        ]
        log.flush()
        before = [process.writes(node) for node in (2, 3)]
        log.flush()
        log.sync()
        assert [process.writes(node) for node in (2, 3)] == before


def test_a_follower_whose_lock_is_held_does_not_fail_the_flush_and_learns_it_later() -> None:
    disks = Disks()
    process, other = disks.writer(), disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        with other.open_follower(3, log.topic_partition) as follower, follower.locked():
            log.flush()
        assert process.state().isr == (1, 2, 3)
    for node in (2, 3):
        with disks.writer().open_follower(node, log.topic_partition) as follower:
            assert follower.high_watermark == 1


class Idle(OneByOne):
    """Keeps what a timer would call."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], bool]] = []

    def when_idle(self, action: Callable[[], bool]) -> None:
        self.actions.append(action)


def test_an_idle_handle_lets_the_followers_learn_the_high_watermark() -> None:
    disks = Disks()
    process = disks.writer()
    process.copies = copies = Idle()
    with process.lead(1) as log:
        log.append(records("a"))
        assert not copies.actions[0]()  # the append was just now
        disks.clock.advance(IDLE_MS)
        assert copies.actions[0]()
        with disks.writer().open_follower(2, log.topic_partition) as follower:
            assert follower.high_watermark == 1


def test_a_timer_asks_until_the_handle_is_idle() -> None:
    copies, asked = InThreads(), Event()
    answers = iter([False, True])

    def is_idle() -> bool:
        answer = next(answers)
        if answer:
            asked.set()
        return answer

    copies.when_idle(is_idle)
    copies.when_idle(is_idle)
    assert asked.wait(10)
    copies.close()


def test_a_former_leader_meets_a_follower_whose_root_missed_the_election() -> None:
    disks = Disks(nodes=5)
    old = disks.writer()
    with old.lead(1) as log:
        log.append(records("a"))
        process = disks.writer()
        process.offline = {1, 3}  # their registers miss the election
        assert process.leadership().elect(ElectionType.ONLINE, LogConfig).leader == 2
        process.offline = {1}
        with process.open() as new:
            new.append(records("b", "c"))
        before = {node: disks.log_bytes(node) for node in (2, 3)}
        with pytest.raises(UnknownOutcomeError, match="another replica was elected"):
            log.append(records("x"))
        assert {node: disks.log_bytes(node) for node in (2, 3)} == before
        assert process.state().isr == (2, 3, 4, 5)


def propose_at(process: Process, state: PartitionState, *, promised: set[int], accepted: set[int]):
    """Leave a round that died: some roots promised its ballot, fewer accepted its state."""
    files = process.register_files(PARTITION)
    ballot = max(each.acceptor().promised for each in files.values()).above(7)
    for node in promised:
        files[node].prepare(ballot)
    for node in accepted:
        files[node].accept(replace(files[node].read(), ballot=ballot, state=state))


def test_an_isr_that_an_unreachable_root_alone_accepted_never_counts_later() -> None:
    disks = Disks()
    first = disks.writer()
    first.lead(1).close()
    first.fail(3)
    with first.lead(1) as log:
        log.append(records("a"))
    shrunk = first.state()
    assert shrunk.isr == (1, 2)
    # A writer wanted node 3 back in the ISR, and died when only node 3 had accepted that.
    propose_at(disks.writer(), shrunk.with_isr((1, 2, 3)), promised={1, 2, 3}, accepted={3})
    second = disks.writer()
    second.offline = {3}
    with second.lead(1) as log:
        log.append(records("b"))  # committed by nodes 1 and 2
    third = disks.writer()
    third.offline = {2}
    assert third.state().isr == (1, 2)


def test_an_isr_that_only_the_own_root_shows_is_decided_before_it_counts() -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        before = process.state()
        propose_at(disks.writer(), before.with_isr((1,)), promised={1, 2}, accepted={1})
        log.append(records("b"))
        files = process.register_files(PARTITION)
        assert len({files[node].read() for node in (1, 2, 3)}) == 1
        assert process.state().partition_epoch > before.partition_epoch


def test_only_the_leader_appends() -> None:
    disks = Disks()
    with pytest.raises(NotLeaderError, match="node 1, which leads in epoch 0"):
        disks.writer().lead(2)


@pytest.mark.parametrize("operation", [None, "pwrite", "sync"])
def test_a_follower_whose_disk_fails_leaves_the_isr_and_returns(operation: str | None) -> None:
    disks = Disks(**{"flush.messages": "1"})
    process = disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        process.fail(3, operation=operation)
        log.append(records("b"))
        assert log.high_watermark == 2
        assert process.state().isr == (1, 2)
        process.mend(3)
        log.append(records("c"))
        assert process.state().isr == (1, 2)  # tried again after a second
        disks.clock.advance(1001)
        log.append(records("d"))
        assert process.state().isr == (1, 2, 3)
        assert log.high_watermark == 4
    assert disks.log_bytes(1) == disks.log_bytes(2) == disks.log_bytes(3)


def test_too_few_replicas_in_sync_refuse_an_append_before_or_after_it() -> None:
    disks = Disks(**{"min.insync.replicas": "2"})
    process = disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        process.fail(2, "pwrite", ".log")
        process.fail(3, "pwrite", ".log")
        with pytest.raises(NotEnoughReplicasAfterAppendError, match="too few replicas in sync"):
            log.append(records("b"))
        assert (log.log_end_offset, log.high_watermark) == (2, 1)
        assert values_of(log) == ["a"]
        state = process.state()
        assert (state.isr, state.elr) == ((1,), (3,))
        with pytest.raises(NotEnoughReplicasError, match=r"min\.insync\.replicas"):
            log.append(records("c"))
        assert log.log_end_offset == 2
        log.append(records("d"), acks=1)
        assert (log.log_end_offset, log.high_watermark) == (3, 1)
        process.mend(2)
        process.mend(3)
        disks.clock.advance(5000)
        log.append(records("e"))
        assert values_of(log) == ["a", "b", "d", "e"]
        log.append(records("f"))
        assert process.state().isr == (1, 2, 3)
    assert disks.log_bytes(1) == disks.log_bytes(2) == disks.log_bytes(3)


def test_without_a_majority_of_registers_nothing_is_acknowledged() -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        process.fail(2)
        process.fail(3)
        with pytest.raises(NotEnoughReplicasAfterAppendError):
            log.append(records("b"))
        assert log.high_watermark == 1
        process.mend(2)
        process.mend(3)
        disks.clock.advance(5000)
        log.append(records("c"))
        assert log.high_watermark == 3
        assert process.state().isr == (1, 2, 3)


def test_a_follower_whose_lock_is_held_leaves_after_the_lag_time() -> None:
    disks = Disks()
    process, other = disks.writer(), disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        with other.open_follower(2, log.topic_partition) as follower:
            before = disks.clock.monotonic_ms()
            with follower.locked():
                log.append(records("b"))
            assert 1000 <= disks.clock.monotonic_ms() - before < 3000
        assert process.state().isr == (1, 3)
        disks.clock.advance(2000)
        log.append(records("c"))
        assert process.state().isr == (1, 2, 3)
    assert disks.log_bytes(1) == disks.log_bytes(2) == disks.log_bytes(3)


@pytest.mark.parametrize("lags", [False, True])
def test_an_aborted_transaction_is_in_the_index_of_each_replica(lags: bool) -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log:
        if lags:
            process.fail(3, "pwrite", ".log")
        abort_transaction(log)
        if lags:
            process.mend(3)
            disks.clock.advance(2000)
        log.append(records("a"))
    indexes = [disks.log_bytes(node, ".txnindex") for node in (1, 2, 3)]
    assert indexes[0] == indexes[1] == indexes[2] != b""


def test_two_writers_take_turns_through_the_same_leader() -> None:
    disks = Disks()
    with disks.writer().lead(1) as log, disks.writer().lead(1) as other:
        for number in range(4):
            log.append(records(f"a{number}"))
            other.append(records(f"b{number}"))
            assert other.high_watermark == 2 * number + 2
    assert disks.log_bytes(1) == disks.log_bytes(2) == disks.log_bytes(3)


def test_an_append_of_a_leader_that_was_replaced_meanwhile_is_never_visible() -> None:
    disks = Disks()
    old = disks.writer()
    with old.lead(1) as log:
        log.append(records("a"))
        with disks.writer().open_follower(2, log.topic_partition):
            pass
        new = disks.writer()
        new.offline.add(1)  # as this process sees it
        state = new.state()
        new.register().change(lambda before: before.with_leader(2), state.partition_epoch)
        with pytest.raises(UnknownOutcomeError, match="another replica was elected"):
            log.append(records("zombie"))
        assert values_of(log) == ["a"]
        with pytest.raises(NotLeaderError):
            log.append(records("zombie"))
        with new.lead(2) as leader:
            leader.append(records("b"))
            assert values_of(leader) == ["a", "b"]
            new.offline.clear()
            disks.clock.advance(2000)
            leader.append(records("c"))
    assert disks.log_bytes(1) == disks.log_bytes(2) == disks.log_bytes(3)


def test_a_writer_of_a_deleted_topic_appends_nothing_to_the_one_created_again() -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        before = process.state()
        process.register().delete()
        again = PartitionState.created(new_topic_id(Random(1)), (1, 2, 3))
        disks.writer().register().create(again)  # its epochs are those of the deleted topic
        files = [disks.log_bytes(node) for node in (1, 2, 3)]
        with pytest.raises(InconsistentTopicIdError, match="another topic of the same name"):
            log.append(records("zombie"))
        assert [disks.log_bytes(node) for node in (1, 2, 3)] == files
        with pytest.raises(InconsistentTopicIdError, match="the log root has another topic"):
            check_epoch(process.register_files(PARTITION)[2], before)


def test_a_replaced_leader_writes_nothing_where_the_new_one_has_begun() -> None:
    disks = Disks(nodes=5)
    with disks.writer().lead(1) as log:
        log.append(records("a"))
        new = disks.writer()
        new.offline.update({1, 2})  # their registers miss the change
        state = new.state()
        new.register().change(lambda before: before.with_leader(2), state.partition_epoch)
        new.offline = {1}
        with new.lead(2) as leader:
            before = disks.log_bytes(2)
            with pytest.raises(UnknownOutcomeError, match="another replica was elected"):
                log.append(records("zombie"))
            assert disks.log_bytes(2) == before
            assert values_of(leader) == ["a"]
