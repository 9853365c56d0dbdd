"""Which replica leads: elections over directories, and replicas that lost records."""

import pytest

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    NoQuorumError,
    NoReplicaOnlineError,
    NotLeaderError,
    UnknownOutcomeError,
)
from streamlog.fs.api import OpenMode
from streamlog.records.batch import read_batches
from streamlog.replication.abandoned import read_abandoned
from streamlog.replication.election import ElectionType
from tests.support.replicas import Disks, records, try_close, values_of


def same_bytes(disks: Disks, *nodes: int) -> bool:
    return len({disks.log_bytes(node) for node in nodes}) == 1


def test_the_partition_goes_on_when_the_root_of_its_leader_is_gone() -> None:
    disks = Disks()
    with disks.writer().open() as log:
        log.append(records("a", "b"))
    process = disks.writer()
    process.offline.add(1)
    with process.open() as log:
        assert log.root == "/r2"
        log.append(records("c"))
        assert values_of(log) == ["a", "b", "c"]
        state = process.state()
        assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))
        process.offline.clear()
        disks.clock.advance(2000)
        log.append(records("d"))
        log.append(records("e"))
        assert process.state().isr == (1, 2, 3)
    assert same_bytes(disks, 1, 2, 3)


def test_the_preferred_replica_leads_again() -> None:
    disks = Disks()
    process = disks.writer()
    process.offline.add(1)
    with process.open() as log:
        log.append(records("a"))
        process.offline.clear()
        disks.clock.advance(2000)
        log.append(records("b"))
    state = process.leadership().elect(ElectionType.PREFERRED, LogConfig)
    assert (state.leader, state.leader_epoch) == (1, 2)
    with process.open() as log:
        assert log.root == "/r1"
        log.append(records("c"))
        assert values_of(log) == ["a", "b", "c"]
        assert [entry.epoch for entry in log.leader_epochs.entries] == [1, 2]


@pytest.mark.parametrize("node", [1, 2])
def test_an_older_copy_of_a_root_never_leads_and_is_caught_up(node: int) -> None:
    disks = Disks()
    with disks.writer().open() as log:
        log.append(records("a"))
    older = disks.copy(node)
    with disks.writer().open() as log:
        log.append(records("b"))
        log.append(records("c"))
    disks.disks[node] = older
    process = disks.writer()
    with process.open() as log:
        assert log.root == ("/r2" if node == 1 else "/r1")
        assert values_of(log) == ["a", "b", "c"]
        log.append(records("d"))
        log.append(records("e"))
        assert process.state().isr == (1, 2, 3)
    assert same_bytes(disks, 1, 2, 3)


def test_a_leader_that_lost_its_tail_in_a_power_cut_follows_a_longer_replica() -> None:
    disks = Disks(**{"flush.messages": "1000"})
    with disks.writer().open() as log:
        log.append(records("a"))
    with disks.writer().open() as log:
        log.append(records("b"))
        disks.after_power_cut(1)
        process = disks.writer()
        with process.open() as again:
            assert again.root == "/r2"
            assert values_of(again) == ["a", "b"]
            again.append(records("c"))
            again.append(records("d"))
            assert process.state().isr == (1, 2, 3)
    assert same_bytes(disks, 1, 2, 3)


def test_a_power_cut_of_all_replicas_starts_a_new_leader_epoch() -> None:
    disks = Disks(**{"flush.messages": "1"})
    with disks.writer().open() as log:
        log.append(records("a"))
        disks.after_power_cut(1, 2, 3)
    process = disks.writer()
    with process.open() as log:
        assert values_of(log) == ["a"]
        log.append(records("b"))
        assert values_of(log) == ["a", "b"]
        assert process.state().leader_epoch == 1
        assert process.state().isr == (1, 2, 3)
    assert same_bytes(disks, 1, 2, 3)


def test_with_one_root_of_three_only_an_unclean_election_goes_on() -> None:
    disks = Disks()
    process = disks.writer()
    with process.open() as log:
        log.append(records("a"))
        process.fail(2)
        log.append(records("b"))
        assert process.state().isr == (1, 3)
    other = disks.writer()
    other.offline = {1, 3}
    with pytest.raises(NoQuorumError, match=r"node 1 .*; node 3 "):
        other.open()
    assert other.leadership().force(LogConfig).leader == 2
    with other.open() as log:
        log.append(records("x"))
        assert values_of(log) == ["a", "x"]
    other.offline.clear()
    disks.clock.advance(2000)
    with other.open() as log:
        log.append(records("y"))
        log.append(records("z"))
        assert values_of(log) == ["a", "x", "y", "z"]
        assert other.state().isr == (1, 2, 3)
    assert same_bytes(disks, 1, 2, 3)


def test_an_incomplete_replica_leads_only_after_an_unclean_election() -> None:
    disks = Disks()
    process = disks.writer()
    with process.open() as log:
        log.append(records("a"))
        process.fail(2)
        log.append(records("b"))
    other = disks.writer()
    other.offline = {1}
    other.fail(2, "pwrite", ".log")
    with other.open() as log:
        log.append(records("c"))
        assert log.root == "/r3"
        assert other.state().isr == (3,)
    third = disks.writer()
    third.offline = {3}
    with pytest.raises(NoReplicaOnlineError, match=r"expected one of the ISR \[3\]"):
        third.open()
    state = third.leadership().elect(ElectionType.UNCLEAN, LogConfig)
    assert (state.leader, state.isr) == (1, (1,))
    with third.open() as log:
        log.append(records("x"))
        assert values_of(log) == ["a", "b", "x"]
        third.offline.clear()
        disks.clock.advance(2000)
        log.append(records("y"))
        log.append(records("z"))
        assert third.state().isr == (1, 2, 3)
        (noted,) = read_abandoned(third.roots[3], log.topic_partition)
        assert (noted.start_offset, noted.end_offset, noted.lost) == (2, 3, 1)
        kept = third.roots[3].abandoned_records(log.topic_partition, "2-3")
        with third.views[3].open(kept, OpenMode.READ) as file:
            batch = next(read_batches(file.pread(1 << 20, 0)))
        assert [record.value for record in batch.records()] == [b"c"]
    assert same_bytes(disks, 1, 2, 3)


def test_two_elections_at_once_have_one_winner() -> None:
    disks = Disks()
    with disks.writer().open() as log:
        log.append(records("a"))
    one, two = disks.writer(), disks.writer()
    one.offline.add(1)
    two.offline.add(1)
    with one.open() as log, two.open() as other:
        assert log.root == other.root == "/r2"
        log.append(records("b"))
        other.append(records("c"))
        assert one.state() == two.state()
        assert one.state().leader_epoch == 1


def test_a_forced_election_fences_the_open_handle_of_another_writer() -> None:
    disks = Disks()
    old = disks.writer()
    with old.open() as stale:
        stale.append(records("a"))
        other = disks.writer()
        other.offline = {1, 3}
        assert other.leadership().force(LogConfig).leader == 2
        with other.open() as log:
            log.append(records("x"))
            with pytest.raises(UnknownOutcomeError, match="another replica was elected"):
                stale.append(records("tail 1", "tail 2"))
            assert stale.log_end_offset == 3, "in the old leader's log only"
            with pytest.raises(NotLeaderError):
                stale.append(records("never"))
            other.offline.clear()
            other.register().align((1, 2, 3))
            disks.clock.advance(2000)
            log.append(records("y"))
            log.append(records("z"))
            assert values_of(log) == ["a", "x", "y", "z"]
            (noted,) = read_abandoned(other.roots[1], log.topic_partition)
            assert (noted.start_offset, noted.end_offset, noted.lost) == (1, 3, 0)
        with pytest.raises(NotLeaderError):
            stale.append(records("never"))
        try_close(stale)
    assert same_bytes(disks, 1, 2, 3)


def test_the_later_epoch_of_an_overruled_election_does_not_keep_its_records() -> None:
    disks = Disks()
    with disks.writer().open() as log:
        log.append(records("a"))
    loser, winner = disks.writer(), disks.writer()
    loser.offline, winner.offline = {1, 3}, {1, 2}
    loser.leadership().force(LogConfig)
    assert winner.leadership().force(LogConfig).leader == 3
    register = loser.register()
    register.change(lambda state: state.with_leader(2), register.read().partition_epoch)
    register = winner.register()
    for _ in range(5):  # the later rounds of one generation win
        register.change(lambda state: state.with_isr((3,)), register.read().partition_epoch)
    assert winner.state().leader_epoch < loser.state().leader_epoch
    with loser.open() as stale, winner.open() as log:
        stale.append(records("lost 1", "lost 2"))
        assert values_of(stale) == ["a", "lost 1", "lost 2"]
        log.append(records("x"))
        winner.offline.clear()
        loser.offline.clear()
        winner.register().align((1, 2, 3))
        disks.clock.advance(2000)
        for value in ("y", "z", "u", "v", "w"):
            log.append(records(value))
        assert winner.state().isr == (1, 2, 3)
        assert values_of(log) == ["a", "x", "y", "z", "u", "v", "w"]
        (noted,) = read_abandoned(winner.roots[2], log.topic_partition)
        assert (noted.start_offset, noted.end_offset, noted.lost) == (1, 3, 2)
        with pytest.raises(NotLeaderError):
            stale.append(records("never"))
        try_close(stale)
    assert same_bytes(disks, 1, 2, 3)
