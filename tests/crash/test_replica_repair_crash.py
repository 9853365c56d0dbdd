"""A damaged replica is refilled; dying at any file operation of that loses nothing."""

import os
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import CorruptRecordError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.health.replica_repair import repair_from_replicas
from streamlog.health.verify import verify
from streamlog.replication.copies import OneByOne
from streamlog.root.manager import LogManager
from streamlog.root.replica_roots import add_root
from streamlog.root.replica_set import ReplicaSet
from tests.support.crash import every_crash_point
from tests.support.replicas import records, values_of

SEEDS = range(int(os.environ.get("STREAMLOG_CRASH_SEEDS", "0")))
CLOCK = ManualClock()
ROOTS = ("/r1", "/r2", "/r3")
LOG = "orders-0/00000000000000000000.log"
VALUES = [str(number) for number in range(6)]


class InTurn(OneByOne):
    """Copies in one thread, so that operations come in one order."""

    def close(self) -> None:
        pass


def root_at(fs: FileSystem, path: str) -> LogRoot:
    return LogRoot.at(path, fs=fs, clock=CLOCK, random=Random(3))


def open_set(fs: FileSystem) -> ReplicaSet:
    return ReplicaSet.open(ROOTS, fs=fs, clock=CLOCK, random=Random(4))


def content(fs: FileSystem, root: str) -> bytes:
    with fs.open(f"{root}/{LOG}", OpenMode.READ) as file:
        return file.pread(file.stat().size, 0)


def prepared(damaged: str) -> MemoryFileSystem:
    """Return three roots with replicas of one partition, of which one is damaged."""
    fs = MemoryFileSystem(clock=CLOCK)
    with LogManager.open(ROOTS[0], create=True, fs=fs, clock=CLOCK, random=Random(1)) as manager:
        for path in ROOTS[1:]:
            add_root(root_at(fs, ROOTS[0]), path)
        manager.create_topic("orders", 1, {"min.insync.replicas": "2"}, replication_factor=3)
    with open_set(fs) as replicas:
        for value in VALUES:
            replicas.log("orders", 0).append(records(value))
    with fs.open(f"{damaged}/{LOG}", OpenMode.WRITE) as file:
        file.pwrite(b"\xff" * 9, 100)
        file.sync()
    return fs


def refill(fs: FileSystem, root: str) -> None:
    """Repair as the command does; raises what it reports."""
    for each in repair_from_replicas(root_at(fs, root), root, is_dry_run=False):
        if each.error is not None:
            raise each.error


def test_a_refill_can_be_resumed_after_any_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = ROOTS[0]  # the leader's: it hands over first
    monkeypatch.setattr("streamlog.root.placement.InThreads", InTurn)
    before = prepared(damaged)
    damage = content(before, damaged)
    sound = content(before, ROOTS[2])
    assert damage != sound

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        refill(fs, damaged)
        acknowledged.append("refilled")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        with suppress(CorruptRecordError), open_set(fs) as replicas:
            replicas.replicate_once()  # continues; a damaged leader cannot be closed in order
        refill(fs, damaged)
        with open_set(fs) as replicas:
            assert replicas.replicate_once() == {}
            assert values_of(replicas.log("orders", 0)) == VALUES
            assert sorted(replicas.describe()[0].state.isr) == [1, 2, 3]
        for root in ROOTS:
            assert content(fs, root) == sound
            assert not _damage(fs, root)
        kept = fs.list(f"{damaged}/.streamlog/damaged")
        assert any(_kept(fs, f"{damaged}/.streamlog/damaged/{each}") == damage for each in kept)

    report = every_crash_point(
        workload,
        check,
        prepared=before,
        seeds=SEEDS,
        select=lambda operation: operation.path.startswith(damaged),
    )
    assert report.states > 50


def _damage(fs: FileSystem, root: str) -> list[Any]:
    found: list[Any] = []
    verify(fs, f"{root}/orders-0", found.append)
    return [each for each in found if each.severity.value == "damage"]


def _kept(fs: FileSystem, directory: str) -> bytes:
    with fs.open(f"{directory}/{os.path.basename(LOG)}", OpenMode.READ) as file:
        return file.pread(file.stat().size, 0)
