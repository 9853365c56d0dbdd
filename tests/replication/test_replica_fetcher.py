"""Appends whose copies are left to a replica fetcher, and what it copies."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamlog.replication.copies import IDLE_MS
from streamlog.replication.fetcher_lock import FETCHER_PATIENCE_MS, LOOK_MS, FetcherLocks
from streamlog.replication.replica_fetcher import ReplicaFetcher
from tests.replication.test_replicas import Idle
from tests.support.replicas import LAG_MS, PARTITION, Disks, records, values_of


@contextmanager
def fetcher_lock(disks: Disks, node: int = 1) -> Iterator[None]:
    """Hold the lock that a replica fetcher holds, but copy nothing."""
    locks = FetcherLocks()
    locks.hold([disks.writer().roots[node]])
    try:
        yield
    finally:
        locks.release()
        disks.clock.advance(LOOK_MS)


def ends(disks: Disks) -> list[int]:
    return [len(disks.log_bytes(node)) for node in (1, 2, 3)]


@pytest.mark.parametrize("acks", [0, 1])
def test_copies_are_left_to_the_fetcher_unless_the_append_waits_for_them(acks: int) -> None:
    disks = Disks()
    with disks.writer().lead(1) as log:
        with fetcher_lock(disks):
            log.append(records("a"), acks=acks)
            one, *others = ends(disks)
            assert one > 0
            assert others == [0, 0]
            assert log.high_watermark == 0
            log.append(records("b"), acks="all")
            assert log.high_watermark == 2
            assert len({*ends(disks)}) == 1
        log.append(records("c"), acks=acks)  # nobody else copies now
        assert log.high_watermark == 3


def test_the_lock_of_a_root_that_does_not_lead_says_nothing() -> None:
    disks = Disks()
    with disks.writer().lead(1) as log, fetcher_lock(disks, 2):
        log.append(records("a"), acks=1)
        assert log.high_watermark == 1


def test_a_fetcher_that_is_stuck_stops_the_high_watermark_for_two_seconds_only() -> None:
    disks = Disks()
    with disks.writer().lead(1) as log, fetcher_lock(disks):
        log.append(records("a"), acks=1)
        for _ in range(10):
            disks.clock.advance(FETCHER_PATIENCE_MS // 10)
            log.append(records("b"), acks=1)
            assert log.high_watermark == 0
        disks.clock.advance(1)
        log.append(records("c"), acks=1)
        assert log.high_watermark == 12


@pytest.mark.parametrize("how", ["flush", "close"])
def test_flush_and_close_make_the_copies_of_a_fetcher_that_died(how: str) -> None:
    disks = Disks()
    log = disks.writer().lead(1)
    locks = FetcherLocks()
    locks.hold([disks.writer().roots[1]])
    log.append(records("a"), acks=1)
    log.flush()
    assert ends(disks)[1:] == [0, 0]
    locks.release()  # no time passes
    getattr(log, how)()
    assert len({*ends(disks)}) == 1
    for node in (2, 3):
        with disks.writer().open_follower(node, PARTITION) as follower:
            assert follower.high_watermark == 1
    log.close()


def test_an_idle_handle_makes_the_copies_of_a_fetcher_that_died() -> None:
    disks = Disks()
    process = disks.writer()
    process.copies = copies = Idle()
    with process.lead(1) as log:
        with fetcher_lock(disks):
            log.append(records("a"), acks=1)
            disks.clock.advance(IDLE_MS)
            assert not copies.actions[0]()  # the fetcher lives
            assert log.high_watermark == 0
        assert copies.actions[0]()
        assert log.high_watermark == 1
        assert len({*ends(disks)}) == 1


def test_a_follower_is_not_out_of_sync_because_the_fetcher_copied_for_long() -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log:
        log.append(records("a"))
        with fetcher_lock(disks):
            for _ in range(20):
                log.append(records("b"), acks=1)
                disks.clock.advance(LAG_MS // 5)
        with process.open_follower(3, PARTITION) as follower, follower.locked():
            log.append(records("c"), acks=1)  # node 3 lags, as of now
        assert process.state().isr == (1, 2, 3)


def test_commits_are_secured_on_the_followers_whoever_copies() -> None:
    disks = Disks()
    process = disks.writer()
    with process.lead(1) as log, fetcher_lock(disks), log.writing():
        log.append(records("a"), acks=1)
        assert ends(disks)[1:] == [0, 0]
        log._replicated.secure(log)
        assert len({*ends(disks)}) == 1
        with disks.writer().open_follower(2, PARTITION) as follower:
            assert follower.recovery_point == 1


def test_a_fetcher_copies_without_the_leaders_lock_and_keeps_the_high_watermark() -> None:
    disks = Disks()
    writer, other = disks.writer(), disks.writer().placement()
    with writer.lead(1) as log, fetcher_lock(disks):
        log.append(records("a"))
        with ReplicaFetcher(PARTITION, other, clock=disks.clock, is_durable=False) as fetcher:
            for value in ("b", "c"):
                with log.writing():
                    log.append(records(value), acks=1)
                    fetcher.fetch(writer.state())
                assert len({*ends(disks)}) == 1
            assert log.high_watermark == 1
            assert values_of(log) == ["a"]
            with disks.writer().open_follower(2, PARTITION) as follower:
                assert follower.log_end_offset == 3
                assert follower.recovery_point < 3  # flush.messages does not ask for a sync
    other.close()
