"""What is sound is called sound, whoever wrote it, and is left as it was."""

import hashlib
import shutil
import threading
from pathlib import Path

import pytest

from streamlog.fs.local import LocalFileSystem
from streamlog.health.findings import Finding, Severity
from streamlog.health.verify import size_of_logs, verify
from streamlog.partition.producer_snapshot import encode_snapshot
from streamlog.partition.producer_state import BatchMetadata, ProducerState
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from tests.support.child import child_that_stays
from tests.support.golden import GOLDEN


def findings(path: Path, *, is_deep: bool = False) -> list[Finding]:
    """Return what is wrong below a path."""
    found: list[Finding] = []
    verify(LocalFileSystem(), str(path), found.append, is_deep=is_deep)
    return [each for each in found if each.severity is not Severity.NOTE]


def test_a_brokers_disk_cleanly_stopped_is_sound(kafkas: Path) -> None:
    assert findings(kafkas / "clean-log.dir", is_deep=True) == []


def test_the_disk_of_a_killed_broker_is_sound(kafkas: Path) -> None:
    """Index files are padded with zeros, transactions open, checkpoints old."""
    assert findings(kafkas / "killed-log.dir", is_deep=True) == []


def test_every_partition_of_it_is_sound_by_itself(kafkas: Path) -> None:
    for directory in sorted((kafkas / "clean-log.dir").glob("*-[0-9]")):
        assert findings(directory) == [], directory.name


def test_what_compaction_leaves_is_sound(kafkas: Path, tmp_path: Path) -> None:
    directories = sorted((kafkas / "compaction").glob("*/*-[0-9]"))
    assert len(directories) > 20
    for at, directory in enumerate(directories):
        copy = tmp_path / f"compacted-{at}"
        shutil.copytree(directory, copy)
        assert findings(copy, is_deep=True) == [], directory


@pytest.mark.parametrize("number", range(1, 15))
def test_a_local_log_is_sound(kafkas: Path, number: int) -> None:
    [directory] = (kafkas / "local").glob(f"{number:03}-*/*-0")
    assert findings(directory, is_deep=True) == []


def test_indexes_by_the_rule_before_4_0_are_sound(kafkas: Path) -> None:
    assert findings(kafkas / "042-2.8.2-log-dir" / "old28-0", is_deep=True) == []


@pytest.mark.parametrize("name", ["017-0.8.2.2-log-dir", "040-0.10.2.2-log-dir-createtime"])
def test_directories_of_old_formats_are_sound(name: str) -> None:
    [directory] = (GOLDEN / "B-legacy" / name).glob("old*")
    assert findings(directory, is_deep=True) == []


def test_our_own_root_is_sound_while_it_is_written_and_after(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 2, {"internal.segment.bytes": "2000"})
        log = manager.log("orders", 1)
        for _ in range(20):
            log.append([Record(key=b"k", value=b"v" * 100), Record(value=None)])
        assert findings(root, is_deep=True) == []
        assert len(log.segments) > 1
    assert findings(root, is_deep=True) == []


def digest(path: Path) -> str:
    whole = hashlib.sha256()
    for each in sorted(path.rglob("*")):
        whole.update(f"{each.relative_to(path)} {each.stat().st_mtime_ns}".encode())
        if each.is_file():
            whole.update(each.read_bytes())
    return whole.hexdigest()


def test_nothing_is_created_or_changed(kafkas: Path) -> None:
    before = digest(kafkas / "killed-log.dir")
    findings(kafkas / "killed-log.dir", is_deep=True)
    assert digest(kafkas / "killed-log.dir") == before


def test_files_that_wait_to_be_removed_are_a_note(kafkas: Path) -> None:
    found: list[Finding] = []
    verify(LocalFileSystem(), str(kafkas / "clean-log.dir" / "retained-0"), found.append)
    assert [(each.severity, each.count) for each in found] == [(Severity.NOTE, 35)]


def test_progress_counts_every_byte_of_the_logs(kafkas: Path) -> None:
    fs, path, counted = LocalFileSystem(), str(kafkas / "clean-log.dir"), [0]
    verify(fs, path, lambda _: None, on_progress=counted.append)
    assert sum(counted) == size_of_logs(fs, path) > 1 << 20


SEGMENTS = 40


def test_a_log_that_is_being_written_is_sound_at_any_moment(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 1, {"internal.segment.bytes": "20000"})
    with child_that_stays(lambda: write_segments(root)):
        while len(list((root / "orders-0").glob("*.log"))) < SEGMENTS:
            assert findings(root) == []
    verify(LocalFileSystem(), str(root), lambda _: None)


def write_segments(root: Path) -> object:
    def write() -> None:
        manager = LogManager.open(root)
        log = manager.log("orders", 0)
        while len(log.segments) < SEGMENTS:
            log.append([Record(key=b"k" * 10, value=b"v" * 1000) for _ in range(5)])

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    return writer


@pytest.mark.parametrize(("last_offset", "is_sound"), [(1, True), (2, True), (3, False)])
def test_a_snapshot_that_counts_the_marker_as_the_last_batch_is_sound(
    tmp_path: Path, last_offset: int, is_sound: bool
) -> None:
    """Kafka 0.11 writes the marker's offset, later releases that of the last data."""
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(Record(None, b"a"))
    builder.append(Record(None, b"b"))
    ending = EndTransactionMarker(ControlRecordType.COMMIT, coordinator_epoch=0)
    marker = build_marker(ending, producer_id=7, producer_epoch=0, timestamp=1)
    with PartitionLog.open(tmp_path / "root" / "t-0") as log:
        log.append_as_leader(builder.build())
        log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)
        log.roll()
        log.append([Record(None, b"c")])
    stored = ProducerState(
        7, producer_epoch=0, batches=(BatchMetadata(1, last_offset, 1, 1),), coordinator_epoch=0
    )
    snapshot = tmp_path / "root" / "t-0" / f"{3:020}.snapshot"
    snapshot.write_bytes(encode_snapshot([stored]))
    assert (findings(snapshot.parent) == []) == is_sound
