"""Copies that die at any request or file operation: the same command again completes them.

`STREAMLOG_CRASH_SEEDS=3` crashes at every file operation instead of every third one, with three
random power cuts each besides the two extremes.
"""

import contextlib
import itertools
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest

from streamlog.bucket.root import BucketRoot
from streamlog.clock import ManualClock
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import Moment, Operation, SimulatedCrash
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.health.findings import Finding, FindingKind
from streamlog.health.verify import verify
from streamlog.maintenance.bucket_runner import BucketMaintenance
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.store.api import ObjectStore
from streamlog.store.faults import FaultyStore, StoreFault
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition
from streamlog.transfer import bucket_target
from streamlog.transfer.bucket_source import BucketSource
from streamlog.transfer.bucket_target import BucketTarget
from streamlog.transfer.copying import CopyRequest, TopicCopier
from streamlog.transfer.directory_source import DirectorySource
from streamlog.transfer.directory_target import DirectoryTarget
from streamlog.transfer.ends import CopySource, CopyTarget, SourcePartition
from tests.bucket.staged import commit, stage
from tests.support.crash import every_crash_point

SEEDS = range(int(os.environ.get("STREAMLOG_CRASH_SEEDS", "0")))
NOW = 1_700_000_000_000
CLOCK = ManualClock(NOW)
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
Rows = list[tuple[int, ...]]


def root_at(path: str, fs: FileSystem, seed: int = 0) -> LogRoot:
    return LogRoot.at(path, fs=fs, clock=CLOCK, random=random.Random(seed))


def fill(fs: FileSystem, first: int, count: int) -> None:
    with LogManager.open("/source", create=True, fs=fs, clock=CLOCK) as manager:
        if not manager.topics():
            manager.create_topic("orders", 2, {"internal.segment.bytes": 600})
        for number in (0, 1):
            log = manager.log("orders", number)
            for at in range(first, first + count, 3):
                log.append([Record(None, b"%d" % n, timestamp=NOW + n) for n in range(at, at + 3)])


def made_source(count: int) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/source")
    fill(fs, 0, count)
    with LogManager.open("/source", fs=fs, clock=CLOCK) as manager:
        manager.delete_records("orders", 1, 4)
    return fs


def rows_of(partition: SourcePartition) -> Rows:
    found: Rows = []
    for piece in partition.pieces(partition.log_start_offset, partition.end_offset):
        table = piece.table
        columns = (table.base_offset, table.last_offset, table.leader_epoch, table.crc)
        found += zip(*(column.tolist() for column in columns), strict=True)
    return found


def content(source: CopySource) -> dict[TopicPartition, Rows]:
    """Return the batches of all partitions of the topics that can be seen."""
    return {
        TopicPartition(name, number): rows_of(source.open(TopicPartition(name, number)))
        for name, topic in source.topics().items()
        for number in topic.partitions
    }


def copy(source: CopySource, target: CopyTarget) -> None:
    list(TopicCopier(source, target, CopyRequest()).run())
    target.close()


# ---- into an object store ---------------------------------------------------------------------
def bucket_at(store: ObjectStore, seed: int) -> BucketRoot:
    return BucketRoot(store, clock=CLOCK, random=random.Random(seed))


def copy_into(store: ObjectStore, fs: FileSystem, seed: int) -> None:
    root = bucket_at(store, seed)
    root.create()
    root.refresh()
    scratch = MemoryFileSystem()
    target = BucketTarget(root, random=random.Random(-seed), fs=scratch, scratch="/scratch")
    copy(DirectorySource(root_at("/source", fs)), target)


def seen_in(store: ObjectStore) -> dict[TopicPartition, Rows]:
    root = bucket_at(store, 1)
    try:
        root.refresh()
    except StreamLogError:
        return {}  # there is no root yet
    return content(BucketSource(root))


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_crash_at_any_request_is_mended_by_the_same_command(
    moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_target, "PLACED_BYTES", 1)  # an entry for each segment
    fs = made_source(24)
    first = content(DirectorySource(root_at("/source", fs)))
    for number in itertools.count(1):
        store = open_store("memory:///")
        dying = FaultyStore(store, [StoreFault(first=number, moment=moment, is_crash=True)])
        with contextlib.suppress(SimulatedCrash):
            copy_into(dying, fs, number)
        assert seen_in(store) in ({}, first)  # all partitions, or none
        copy_into(store, fs, number + 1000)
        assert seen_in(store) == first
        if number > len(dying.requests):
            assert number > 40
            return


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_crash_while_new_records_are_copied_leaves_a_beginning_of_them(
    moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_target, "PLACED_BYTES", 1)
    fs = made_source(12)
    for number in itertools.count(1):
        store, grown = open_store("memory:///"), fs.crash_clone(random.Random(0), power=False)
        copy_into(store, grown, 1)
        fill(grown, 12, 12)
        whole = content(DirectorySource(root_at("/source", grown)))
        dying = FaultyStore(store, [StoreFault(first=number, moment=moment, is_crash=True)])
        with contextlib.suppress(SimulatedCrash):
            copy_into(dying, grown, 2)
        for partition, rows in seen_in(store).items():
            assert rows == whole[partition][: len(rows)] and len(rows) >= 3
        copy_into(store, grown, 3)
        assert seen_in(store) == whole
        if number > len(dying.requests):
            assert number > 15
            return


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_crash_while_staged_rows_become_segments(
    moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_target, "PLACED_BYTES", 1)
    here = bucket_at(open_store("memory:///"), 0)
    here.create()
    here.create_topic("orders", partitions=2, configs={"internal.segment.bytes": 600})
    for version in range(3):
        rows = {each: [b"%d" % number * 9 for number in range(30)] for each in PARTITIONS}
        commit(here, "q", version, stage(here, "q", version, rows))
    wanted = content(BucketSource(here))

    def copy_rows(store: ObjectStore, seed: int) -> None:
        root = bucket_at(store, seed)
        root.create()
        root.refresh()
        target = BucketTarget(
            root, random=random.Random(-seed), fs=MemoryFileSystem(), scratch="/scratch"
        )
        copy(BucketSource(here), target)

    for number in itertools.count(1, 2):
        store = open_store("memory:///")
        dying = FaultyStore(store, [StoreFault(first=number, moment=moment, is_crash=True)])
        with contextlib.suppress(SimulatedCrash):
            copy_rows(dying, number)
        assert seen_in(store) in ({}, wanted)
        copy_rows(store, number + 1000)
        assert seen_in(store) == wanted
        if number > len(dying.requests):
            assert number > 40
            return


def test_lost_answers_do_not_matter() -> None:
    fs = made_source(24)
    wanted = content(DirectorySource(root_at("/source", fs)))
    for number in range(1, 60):
        store = open_store("memory:///")
        try:
            copy_into(FaultyStore(store, [StoreFault(first=number, moment=Moment.AFTER)]), fs, 1)
        except StreamLogError:
            assert seen_in(store) in ({}, wanted)
            copy_into(store, fs, 2)
        assert seen_in(store) == wanted


# ---- into a directory -------------------------------------------------------------------------
def with_target(source: MemoryFileSystem) -> MemoryFileSystem:
    fs = source.crash_clone(random.Random(0), power=False)
    fs.make_directory("/target")
    fs.sync_directory("/")
    return fs


def copy_to_directory(fs: FileSystem) -> None:
    copy(DirectorySource(root_at("/source", fs)), DirectoryTarget(root_at("/target", fs, 5)))


def is_chosen(operation: Operation) -> bool:
    """Choose renames, which move topics into place, and some of all others."""
    return bool(SEEDS) or operation.name == "rename" or operation.number % 3 == 0


def seen_in_directory(fs: FileSystem) -> dict[TopicPartition, Rows]:
    try:
        return content(DirectorySource(root_at("/target", fs)))
    except StreamLogError:
        return {}


def check_sound(fs: FileSystem) -> None:
    with LogManager.open("/target", fs=fs, clock=CLOCK) as manager:
        starts = [manager.local_log("orders", number).log_start_offset for number in (0, 1)]
        assert starts == [0, 4]  # and what a crash left of an index is built again
    found: list[Finding] = []
    verify(fs, "/target", found.append)
    faults = [each for each in found if not each.is_note]
    assert [each for each in faults if each.kind is not FindingKind.LEFTOVER] == []


def test_a_crash_at_any_file_operation_is_mended_by_the_same_command() -> None:
    source = made_source(15)
    wanted = content(DirectorySource(root_at("/source", source)))

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        copy_to_directory(fs)
        acknowledged.append("copied")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        assert seen_in_directory(fs) in ([wanted] if acknowledged else [{}, wanted])
        copy_to_directory(fs)
        assert seen_in_directory(fs) == wanted
        check_sound(fs)

    report = every_crash_point(
        workload, check, prepared=with_target(source), seeds=SEEDS, select=is_chosen
    )
    assert report.states > 40


def test_a_crash_while_new_records_are_copied_to_a_directory() -> None:
    source = with_target(made_source(12))
    copy_to_directory(source)
    before = content(DirectorySource(root_at("/source", source)))
    fill(source, 12, 12)
    wanted = content(DirectorySource(root_at("/source", source)))

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        copy_to_directory(fs)
        acknowledged.append("copied")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        for partition, rows in seen_in_directory(fs).items():
            assert len(rows) >= len(before[partition])
            assert rows == wanted[partition][: len(rows)]
        copy_to_directory(fs)
        assert seen_in_directory(fs) == wanted
        check_sound(fs)

    report = every_crash_point(workload, check, prepared=source, seeds=SEEDS, select=is_chosen)
    assert report.states > 20


def test_maintenance_spares_what_an_unfinished_copy_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two days later, what was placed is still there, and what was uploaded in vain is not."""
    monkeypatch.setattr(bucket_target, "PLACED_BYTES", 1)
    fs = made_source(24)
    wanted = content(DirectorySource(root_at("/source", fs)))
    for number in range(8, 60, 6):
        store, clock = open_store("memory:///"), ManualClock(NOW)
        monkeypatch.setattr("tests.transfer.test_copy_crash.CLOCK", clock)
        dying = FaultyStore(store, [StoreFault(first=number, is_crash=True)])
        with contextlib.suppress(SimulatedCrash):
            copy_into(dying, fs, number)
        clock.advance(2 * 24 * 3600 * 1000)
        root = bucket_at(store, 7)
        root.refresh()
        scratch = MemoryFileSystem()
        with BucketMaintenance(root, fs=scratch, scratch="/scratch") as maintenance:
            maintenance.run()
        assert root.state.builds == {}
        named = {*root.state.uses}
        left = {each.key for each in store.list("") if each.key.endswith(".log")}
        assert left == named
        copy_into(store, fs, number + 1000)
        assert seen_in(store) == wanted
