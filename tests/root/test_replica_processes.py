"""Replicas written by real processes that are stopped and killed, over roots that come and go.

A child appends and notes each value that is acknowledged; the test kills it, or stops it, has
another process elect a leader, and lets it go on. At the end every acknowledged value is there
once, in order for each writer, and the replicas hold the same bytes.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from streamlog.errors import StreamLogError
from streamlog.fs.log_root import LogRoot
from streamlog.partition.locks import look_at_state
from streamlog.records.record import Record
from streamlog.replication.fetcher_lock import FetcherLocks, has_replica_fetcher
from streamlog.root.manager import LogManager
from streamlog.root.replica_roots import add_root
from streamlog.root.replica_set import ReplicaSet
from streamlog.topic import TopicPartition

LOCK_TIMEOUT_MS = 500


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"r{number}" for number in range(1, 4)]
    with LogManager.open(paths[0], create=True) as manager:
        manager.create_topic("first")
    for path in paths[1:]:
        add_root(LogRoot.at(paths[0]), path)
    with LogManager.open(paths[0]) as manager:
        manager.create_topic("orders", 1, {"min.insync.replicas": "2"}, replication_factor=3)
    return paths


class Child:
    """A process that appends values `NAME-0`, `NAME-1` … and notes the acknowledged ones."""

    def __init__(
        self, roots: list[Path], notes: Path, name: str, *, acks: Sequence[str] = ("all",)
    ) -> None:
        self.name, self.notes = name, notes
        notes.touch()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _write(roots, notes, name, acks)
            finally:
                os._exit(1)

    def acknowledged(self) -> list[str]:
        return self.notes.read_text().split()

    def wait_for(self, count: int, *, seconds: float = 30) -> None:
        _wait(lambda: len(self.acknowledged()) >= count, seconds)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing was acknowledged for too long"
        time.sleep(0.002)


def _write(roots: list[Path], notes: Path, name: str, acks: Sequence[str]) -> None:
    """Append for ever; a value whose outcome is unknown is not appended again."""
    with notes.open("a", buffering=1) as file:
        number = 0
        while True:
            try:
                with ReplicaSet.open(roots, lock_timeout_ms=LOCK_TIMEOUT_MS) as replicas:
                    log = replicas.log("orders", 0)
                    while True:
                        value = f"{name}-{number}"
                        number += 1
                        log.append(
                            [Record(None, value.encode(), (), 1)], acks=acks[number % len(acks)]
                        )
                        file.write(f"{value}\n")
            except StreamLogError:
                time.sleep(0.005)


def final_values(roots: list[Path]) -> list[str]:
    with ReplicaSet.open(roots) as replicas:
        log = replicas.log("orders", 0)
        log.append([Record(None, b"end", (), 1)])
        assert replicas.replicate_once() == {}
        log.append([Record(None, b"end", (), 1)])
        with log.writing():
            assert set(log.partition_state.isr) == {1, 2, 3}
        values = [(record.value or b"").decode() for record in log.records()]
    files = [
        {file.name: file.read_bytes() for file in (root / "orders-0").glob("*.log")}
        for root in roots
    ]
    assert files[0] == files[1] == files[2]
    return values


def check(values: list[str], *children: Child) -> None:
    assert len(values) - values.count("end") == len(set(values) - {"end"}), "a value is there twice"
    for child in children:
        theirs = [value for value in values if value.startswith(f"{child.name}-")]
        numbers = [int(value.rpartition("-")[2]) for value in theirs]
        assert numbers == sorted(numbers)
        lost = [value for value in child.acknowledged() if value not in set(theirs)]
        assert not lost, f"acknowledged and lost: {lost}"


def test_writers_killed_at_any_moment_lose_nothing(roots: list[Path], tmp_path: Path) -> None:
    children: list[Child] = []
    for number in range(8):
        child = Child(roots, tmp_path / f"notes-{number}", f"c{number}")
        children.append(child)
        child.wait_for(1 + 3 * number)
        time.sleep(0.003 * number)
        child.kill()
    check(final_values(roots), *children)


def test_a_writer_that_slept_through_an_election_writes_nothing_to_the_old_leader(
    roots: list[Path], tmp_path: Path
) -> None:
    child = Child(roots, tmp_path / "notes", "zombie")
    other = Child(roots, tmp_path / "other-notes", "other")
    away = tmp_path / "away"
    try:
        for number in range(4):
            child.wait_for(5 * (number + 1))
            child.stop()
            leader = roots[0] if number % 2 == 0 else roots[1]
            leader.rename(away)  # the stopped writer still has its files open
            seen = len(other.acknowledged())
            time.sleep(0.5)  # the other one writes through a new leader, unless a lock is held
            child.go_on()
            other.wait_for(seen + 3)
            away.rename(leader)
    finally:
        child.go_on()
        child.kill()
        other.kill()
    check(final_values(roots), child, other)


class Fetcher:
    """A process of `streamlog replicate --follow`."""

    def __init__(self, roots: list[Path]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                with ReplicaSet.open(roots, lock_timeout_ms=LOCK_TIMEOUT_MS) as replicas:
                    replicas.follow(threading.Event())
            finally:
                os._exit(1)

    def wait_until_it_copies(self, root: Path) -> None:
        _wait(lambda: has_replica_fetcher(LogRoot.at(root)), 30)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def high_watermark_and_end(root: Path) -> tuple[int, int]:
    state = None
    while state is None:  # missing, or being written
        state = look_at_state(LogRoot.at(root), TopicPartition("orders", 0))
    return state.offsets.high_watermark, state.offsets.end


def wait_until_committed(root: Path) -> None:
    """Wait until what is in the leader's log now is committed."""
    _, end = high_watermark_and_end(root)
    _wait(lambda: high_watermark_and_end(root)[0] >= end, 30)


def test_a_fetcher_copies_for_a_writer_that_does_not_wait(
    roots: list[Path], tmp_path: Path
) -> None:
    fetcher = Fetcher(roots)
    try:
        fetcher.wait_until_it_copies(roots[0])
        child = Child(roots, tmp_path / "notes", "c", acks=("1",))
        child.wait_for(20)
        child.kill()  # nobody else copies what it has left
        wait_until_committed(roots[0])
    finally:
        fetcher.kill()
    check(final_values(roots), child)


def test_a_writer_waits_two_seconds_for_a_fetcher_that_does_nothing(
    roots: list[Path], tmp_path: Path
) -> None:
    locks = FetcherLocks()
    locks.hold([LogRoot.at(roots[0])])
    child = Child(roots, tmp_path / "notes", "c", acks=("1",))
    try:
        for _ in range(2):
            _wait(lambda: lag(roots[0]) >= 5, 30)
            wait_until_committed(roots[0])
    finally:
        child.kill()
        locks.release()
    check(final_values(roots), child)


def lag(root: Path) -> int:
    high_watermark, end = high_watermark_and_end(root)
    return end - high_watermark


def test_fetchers_and_writers_killed_at_any_moment_lose_nothing(
    roots: list[Path], tmp_path: Path
) -> None:
    children = [Child(roots, tmp_path / "notes", "c", acks=("all", "1", "1", "0"))]
    for number in range(10):
        fetcher = Fetcher(roots)
        fetcher.wait_until_it_copies(roots[0])
        children[-1].wait_for(len(children[-1].acknowledged()) + 5 * number)
        time.sleep(0.003 * number)
        if number % 3 == 2:
            children[-1].kill()
            name = f"c{number}"
            children.append(Child(roots, tmp_path / f"notes-{name}", name, acks=("1", "all")))
        fetcher.kill()
        wait_until_committed(roots[0])  # the writer copies again
    children[-1].kill()
    check(final_values(roots), *children)
