"""The lock of the replica fetcher, and what writers leave to it."""

from random import Random

from streamlog.clock import ManualClock
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.replication.fetcher_lock import (
    FETCHER_PATIENCE_MS,
    LOOK_MS,
    FetcherLocks,
    FetcherWatch,
    has_replica_fetcher,
)
from streamlog.root.roots import make_root


def root_at(fs: MemoryFileSystem, path: str = "/r") -> LogRoot:
    root = LogRoot.at(path, fs=fs, clock=ManualClock(), random=Random(1))
    make_root(root)
    return root


def test_the_lock_is_seen_while_it_is_held() -> None:
    root, locks = root_at(MemoryFileSystem()), FetcherLocks()
    assert not has_replica_fetcher(root)
    locks.hold([root])
    locks.hold([root])
    assert has_replica_fetcher(root)
    locks.release()
    assert not has_replica_fetcher(root)


def test_a_second_fetcher_takes_over_when_the_first_ends() -> None:
    root, first, second = root_at(MemoryFileSystem()), FetcherLocks(), FetcherLocks()
    first.hold([root])
    second.hold([root])
    first.release()
    assert not has_replica_fetcher(root)
    second.hold([root])
    assert has_replica_fetcher(root)


def test_a_root_that_left_is_released_and_one_in_its_place_is_locked() -> None:
    fs = MemoryFileSystem()
    root, other, locks = root_at(fs), root_at(fs, "/s"), FetcherLocks()
    locks.hold([root, other])
    locks.hold([other])
    assert not has_replica_fetcher(root)
    assert has_replica_fetcher(other)
    fs.remove(other.replica_fetcher_lock)  # another disk is mounted there
    assert not has_replica_fetcher(other)
    locks.hold([other])
    assert has_replica_fetcher(other)


class Life:
    """Whether the fetcher lives, and how often that was looked at."""

    def __init__(self) -> None:
        self.looks, self.is_alive = 0, True

    def __call__(self) -> bool:
        self.looks += 1
        return self.is_alive


def test_a_fetcher_that_commits_nothing_gets_no_more_copies() -> None:
    clock, life = ManualClock(), Life()
    watch = FetcherWatch(life, clock)
    assert watch.copies(10)
    watch.left(20)
    clock.advance(FETCHER_PATIENCE_MS)
    assert watch.copies(10)
    clock.advance(1)
    assert not watch.copies(10)
    assert watch.copies(11)  # it moves
    clock.advance(FETCHER_PATIENCE_MS + 1)
    assert not watch.copies(11)
    assert watch.copies(20)  # all is committed


def test_one_look_counts_for_a_while_unless_another_is_asked_for() -> None:
    clock, life = ManualClock(), Life()
    watch = FetcherWatch(life, clock)
    clock.advance(LOOK_MS)
    assert watch.copies(0)
    life.is_alive = False
    assert watch.copies(0)
    assert not watch.copies(0, looks_again=True)
    life.is_alive = True
    clock.advance(LOOK_MS - 1)
    assert not watch.copies(0)
    clock.advance(1)
    assert watch.copies(0)
    assert life.looks == 3


def test_records_are_behind_until_they_are_committed() -> None:
    watch = FetcherWatch(Life(), ManualClock())
    assert not watch.is_behind(0)
    watch.left(5)
    assert watch.is_behind(4)
    assert not watch.is_behind(5)
    watch.left(-1)
    assert not watch.is_behind(0)
