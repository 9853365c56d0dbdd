"""Damage is found, named, and told apart from what a crash or a running broker leaves."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog.errors import InvalidRequestError, UnknownTopicError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.health.findings import Finding, FindingKind, Severity
from streamlog.health.verify import verify
from streamlog.partition.producer_snapshot import encode_snapshot
from streamlog.partition.producer_state import BatchMetadata, ProducerState
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.layout import BASE_SEQUENCE_OFFSET, CRC_OFFSET, RECORD_BATCH_OVERHEAD
from streamlog.records.record import Record
from tests.support.segments import BatchPlan, make_batches, with_crc

Copied = Callable[[str], Path]

TXN = "clean-log.dir/txn-0"
SEGMENT = f"{137:020}"  # in the middle, with all of its indexes
LAST = f"{348:020}"


def findings(path: Path, *, fs: FileSystem | None = None, is_deep: bool = False) -> list[Finding]:
    """Return what is wrong below a path."""
    told = all_that_is_told(path, fs=fs, is_deep=is_deep)
    return [each for each in told if each.severity is not Severity.NOTE]


def all_that_is_told(
    path: Path, *, fs: FileSystem | None = None, is_deep: bool = False
) -> list[Finding]:
    """Return what is wrong below a path, and the notes."""
    found: list[Finding] = []
    verify(fs or LocalFileSystem(), str(path), found.append, is_deep=is_deep)
    return found


def kinds(path: Path) -> set[FindingKind]:
    return {finding.kind for finding in findings(path)}


def flip(path: Path, position: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)


# ---- one bit in each kind of file ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "position", "kind"),
    [
        (f"{SEGMENT}.log", 70, FindingKind.BAD_CHECKSUM),
        (f"{SEGMENT}.log", CRC_OFFSET, FindingKind.BAD_CHECKSUM),
        (f"{SEGMENT}.log", 10, FindingKind.BAD_CHECKSUM),  # length
        (f"{SEGMENT}.log", 8, FindingKind.BAD_BATCH),  # length, beyond the file
        (f"{SEGMENT}.log", 16, FindingKind.BAD_BATCH),  # magic
        (f"{SEGMENT}.log", 7, FindingKind.OFFSET_ORDER),  # base offset of the first batch
        (f"{SEGMENT}.log", 15, FindingKind.EPOCH_ORDER),  # leader epoch
        (f"{SEGMENT}.index", 3, FindingKind.OFFSET_INDEX),
        (f"{SEGMENT}.index", 7, FindingKind.OFFSET_INDEX),
        (f"{SEGMENT}.timeindex", 7, FindingKind.TIME_INDEX),
        (f"{SEGMENT}.timeindex", 11, FindingKind.TIME_INDEX),
        (f"{SEGMENT}.txnindex", 1, FindingKind.TXN_INDEX),
        (f"{SEGMENT}.txnindex", 17, FindingKind.TXN_INDEX),
        (f"{SEGMENT}.txnindex", 33, FindingKind.TXN_INDEX),
        (f"{SEGMENT}.snapshot", 30, FindingKind.SNAPSHOT),
        ("leader-epoch-checkpoint", 8, FindingKind.EPOCHS),
        ("partition.metadata", 0, FindingKind.METADATA),
    ],
)
def test_a_flipped_bit_is_found(
    copied: Copied, name: str, position: int, kind: FindingKind
) -> None:
    directory = copied(TXN)
    flip(directory / name, position)
    found = findings(directory)
    assert kind in {finding.kind for finding in found}
    assert {Path(finding.path).name for finding in found} >= {name}


def test_flipped_bits_anywhere_in_logs_and_indexes_are_found(copied: Copied) -> None:
    """Where a bit changes nothing that a reader would notice is left out: see the index's rule."""
    directory = copied(TXN)
    seeded = random.Random(4)
    files = sorted(
        path
        for path in directory.iterdir()
        if path.suffix in (".log", ".timeindex", ".snapshot") and path.stat().st_size
    )
    for _ in range(60):
        path = seeded.choice(files)
        position, bits = seeded.randrange(path.stat().st_size), 1 << seeded.randrange(8)
        flip(path, position, bits)
        assert findings(directory), (path.name, position, bits)
        flip(path, position, bits)
    assert findings(directory) == []


def test_the_place_of_damage_is_named_and_what_comes_behind_is_found_too(copied: Copied) -> None:
    path = copied(TXN) / f"{SEGMENT}.log"
    table = scan_batches(path.read_bytes()).table
    for row in (2, 5):
        flip(path, int(table.position[row] + RECORD_BATCH_OVERHEAD))
    found = [each for each in findings(path.parent) if each.kind is FindingKind.BAD_CHECKSUM]
    assert [each.position for each in found] == table.position[[2, 5]].tolist()
    assert [each.offset for each in found] == table.base_offset[[2, 5]].tolist()
    assert all(each.path == str(path) and each.severity is Severity.DAMAGE for each in found)


def test_lost_bytes_in_the_middle_are_told_with_their_extent(copied: Copied) -> None:
    path = copied(TXN) / f"{SEGMENT}.log"
    data = path.read_bytes()
    table = scan_batches(data).table
    start, end = int(table.position[3]), int(table.position[6])
    path.write_bytes(data[:start] + bytes(end - start) + data[end:])
    [found] = findings(path.parent)
    assert (found.kind, found.position) == (FindingKind.BAD_BATCH, start)
    assert str(found.got).startswith(f"{end - start} bytes")


# ---- the end of the log -------------------------------------------------------------------------
@pytest.mark.parametrize("tail", [b"\0" * 5000, b"half a batch", b"\x7f" * 300])
def test_a_torn_tail_is_no_damage(copied: Copied, tail: bytes) -> None:
    path = copied(TXN) / f"{LAST}.log"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + tail)
    [found] = findings(path.parent)
    assert (found.kind, found.severity) == (FindingKind.TORN_TAIL, Severity.REPAIRABLE)
    assert found.position == size


def test_half_a_batch_at_the_end_is_a_torn_tail(copied: Copied) -> None:
    directory = copied("local/001-mixed-small-segments/t-mixed-small-segments-0")
    path = max(directory.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-7])
    assert FindingKind.TORN_TAIL in kinds(directory)


def test_the_same_bytes_in_front_of_a_later_segment_are_damage(copied: Copied) -> None:
    path = copied(TXN) / f"{SEGMENT}.log"
    path.write_bytes(path.read_bytes()[:-7])
    assert {each.severity for each in findings(path.parent)} == {Severity.DAMAGE}


class BrokersDisk(LocalFileSystem):
    """A disk whose broker is running."""

    def broker_lock_is_held(self, path: str) -> bool:
        return path.endswith("/.lock")


def test_the_tail_that_a_running_broker_writes_is_no_finding(copied: Copied) -> None:
    path = copied(TXN) / f"{LAST}.log"
    path.write_bytes(path.read_bytes() + b"\0\0\0\0\0\0\1\1\0\0\1\0 half a batch")
    (path.parent / f"{5:020}.log.cleaned").touch()
    assert findings(path.parent, fs=BrokersDisk()) == []


def test_synced_records_that_are_gone_are_damage(copied: Copied) -> None:
    root = copied("clean-log.dir")
    path = max((root / "codec-none-0").glob("*.log"))
    table = scan_batches(path.read_bytes()).table
    path.write_bytes(path.read_bytes()[: int(table.position[len(table) - 1])])
    found = [each for each in findings(root) if each.kind is FindingKind.LOST_RECORDS]
    assert [each.offset for each in found] == [int(table.base_offset[len(table) - 1])]
    assert "recovery point" in str(found[0].expected)


# ---- offsets and epochs -------------------------------------------------------------------------
def written(directory: Path, segments: dict[int, list[BatchPlan]]) -> Path:
    directory.mkdir()
    for base, plans in segments.items():
        (directory / f"{base:020}.log").write_bytes(make_batches(plans))
    return directory


@pytest.mark.parametrize(
    ("segments", "kind"),
    [
        ({0: [BatchPlan(0, 3), BatchPlan(3), BatchPlan(3)]}, FindingKind.OFFSET_ORDER),
        ({0: [BatchPlan(0, 3), BatchPlan(2, 4)]}, FindingKind.OFFSET_ORDER),
        ({0: [BatchPlan(0)], 5: [BatchPlan(3), BatchPlan(5)]}, FindingKind.WRONG_SEGMENT),
        ({0: [BatchPlan(0, 9)], 5: [BatchPlan(9)]}, FindingKind.OVERLAP),
        ({0: [BatchPlan(0, 9)], 5: [BatchPlan(5)]}, FindingKind.OFFSET_ORDER),
        (
            {0: [BatchPlan(0, leader_epoch=3), BatchPlan(1, leader_epoch=2)]},
            FindingKind.EPOCH_ORDER,
        ),
        (
            {0: [BatchPlan(0, leader_epoch=3)], 1: [BatchPlan(1, leader_epoch=1)]},
            FindingKind.EPOCH_ORDER,
        ),
        ({0: [BatchPlan(0, 5, last_offset=2)]}, FindingKind.BAD_BATCH),
        ({0: [BatchPlan(0, attributes=6)]}, FindingKind.BAD_BATCH),
    ],
)
def test_batches_that_contradict_each_other_are_found(
    tmp_path: Path, segments: dict[int, list[BatchPlan]], kind: FindingKind
) -> None:
    assert kind in kinds(written(tmp_path / "t-0", segments))


@pytest.mark.parametrize(
    "segments",
    [
        {0: [BatchPlan(0, 3, last_offset=9), BatchPlan(40)]},  # compacted
        {0: [BatchPlan(0, 0, last_offset=4), BatchPlan(5)]},  # emptied
        {0: [], 7: [BatchPlan(9)], 20: []},  # segments of 0 bytes
        {0: [BatchPlan(0, leader_epoch=2), BatchPlan(1, leader_epoch=-1), BatchPlan(2)]},
    ],
)
def test_what_compaction_does_to_offsets_is_sound(
    tmp_path: Path, segments: dict[int, list[BatchPlan]]
) -> None:
    segments = {
        base: [plan._replace(leader_epoch=max(plan.leader_epoch, -1)) for plan in plans]
        for base, plans in segments.items()
    }
    directory = written(tmp_path / "t-0", segments)
    if segments.get(0) and segments[0][0].leader_epoch == 2:
        assert kinds(directory) == {FindingKind.EPOCH_ORDER}  # 2, none, 0
    else:
        assert findings(directory) == []


def test_a_record_of_right_checksum_that_cannot_be_decoded_is_found_deep(copied: Copied) -> None:
    path = max(copied("clean-log.dir/codec-none-0").glob("*.log"))
    data = path.read_bytes()
    size = int(scan_batches(data).table.size[0])
    first = bytearray(data[:size])
    first[RECORD_BATCH_OVERHEAD] ^= 0x20  # the length of its first record
    path.write_bytes(with_crc(first) + data[size:])
    assert findings(path.parent) == []
    [found] = findings(path.parent, is_deep=True)
    assert (found.kind, found.position) == (FindingKind.BAD_RECORD, 0)


def test_a_control_record_that_makes_no_sense_is_found(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / f"{0:020}.log"
    builder = BatchBuilder(base_offset=0, producer_id=1, producer_epoch=0, is_control=True)
    builder.append(Record(b"?", None, timestamp=5))
    path.write_bytes(builder.build())
    [found] = findings(directory)
    assert (found.kind, found.path, found.offset) == (FindingKind.BAD_RECORD, str(path), 0)


# ---- indexes, snapshots -------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_of_another_segment_is_found(copied: Copied, suffix: str) -> None:
    directory = copied(TXN)
    (directory / f"{SEGMENT}{suffix}").write_bytes((directory / f"{67:020}{suffix}").read_bytes())
    found = findings(directory)
    assert found and {each.path for each in found} == {f"{directory}/{SEGMENT}{suffix}"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{SEGMENT}.index", FindingKind.MISSING_FILE),
        (f"{SEGMENT}.timeindex", FindingKind.MISSING_FILE),
        (f"{SEGMENT}.txnindex", FindingKind.TXN_INDEX),
        ("leader-epoch-checkpoint", FindingKind.MISSING_FILE),
    ],
)
def test_a_missing_file_is_found(copied: Copied, name: str, kind: FindingKind) -> None:
    directory = copied(TXN)
    (directory / name).unlink()
    assert kinds(directory) == {kind}


@pytest.mark.parametrize(
    ("stored", "is_sound"),
    [
        ([ProducerState(7, batches=(BatchMetadata(1, 4, 1, 5),))], True),
        ([ProducerState(7)], True),  # forgotten for being idle, then a marker came
        ([], True),  # forgotten for being idle
        ([ProducerState(7, batches=(BatchMetadata(2, 4, 1, 5),))], False),
        ([ProducerState(7, batches=(BatchMetadata(1, 3, 0, 5),))], False),
        ([ProducerState(7, producer_epoch=3, batches=(BatchMetadata(1, 4, 1, 5),))], False),
        ([ProducerState(7, current_txn_first_offset=3)], False),
        ([ProducerState(8, batches=(BatchMetadata(0, 2, 0, 5),))], False),
    ],
)
def test_a_snapshot_beside_a_log_that_has_everything(
    tmp_path: Path, stored: list[ProducerState], is_sound: bool
) -> None:
    plans = [BatchPlan(0, 3), BatchPlan(3, 2, producer_id=7)]
    directory = written(tmp_path / "t-0", {0: plans, 5: [BatchPlan(5)]})
    path = directory / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100 + BASE_SEQUENCE_OFFSET : 100 + BASE_SEQUENCE_OFFSET + 4] = bytes(4)
    path.write_bytes(data[:100] + with_crc(data[100:]))
    (directory / f"{5:020}.snapshot").write_bytes(encode_snapshot(stored))
    assert (findings(directory) == []) == is_sound


def test_snapshots_are_missed_where_none_is_left(copied: Copied) -> None:
    directory = copied(TXN)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    [found] = findings(directory)
    assert (found.kind, found.severity) == (FindingKind.MISSING_FILE, Severity.REPAIRABLE)
    assert "no producer snapshot" in found.what


def test_a_bare_copy_of_the_logs_is_sound(copied: Copied) -> None:
    directory = copied("clean-log.dir/codec-none-0")
    for path in directory.iterdir():
        if path.suffix != ".log":
            path.unlink()
    assert findings(directory) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_half_an_entry_is_found(copied: Copied, suffix: str) -> None:
    path = copied(TXN) / f"{SEGMENT}{suffix}"
    path.write_bytes(path.read_bytes()[:-1])
    assert {each.path for each in findings(path.parent)} == {str(path)}


def test_a_cut_time_index_misses_the_largest_timestamp(copied: Copied) -> None:
    path = copied(TXN) / f"{SEGMENT}.timeindex"
    path.write_bytes(path.read_bytes()[:-12])
    [found] = findings(path.parent)
    assert "largest timestamp" in found.what


def test_a_snapshot_of_another_offset_is_found(copied: Copied) -> None:
    directory = copied(TXN)
    (directory / f"{SEGMENT}.snapshot").write_bytes((directory / f"{64:020}.snapshot").read_bytes())
    found = findings(directory)
    assert found and {each.kind for each in found} == {FindingKind.SNAPSHOT}


def test_a_snapshot_behind_the_log_end_is_found(copied: Copied) -> None:
    directory = copied(TXN)
    (directory / f"{354:020}.snapshot").rename(directory / f"{400:020}.snapshot")
    assert [each.offset for each in findings(directory)] == [400]


# ---- names --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{SEGMENT}.log.cleaned", FindingKind.LEFTOVER),
        (f"{SEGMENT}.log.swap", FindingKind.LEFTOVER),
        (f"{9:020}.index", FindingKind.LEFTOVER),
        ("5.log", FindingKind.FOREIGN_FILE),
        ("notes.log", FindingKind.FOREIGN_FILE),
    ],
)
def test_files_that_do_not_belong_there_are_found(
    copied: Copied, name: str, kind: FindingKind
) -> None:
    directory = copied(TXN)
    (directory / name).touch()
    assert [(each.kind, Path(each.path).name) for each in findings(directory)] == [(kind, name)]


def test_a_pipe_called_like_a_segment_is_found_and_blocks_nothing(copied: Copied) -> None:
    directory = copied(TXN)
    os.mkfifo(directory / f"{1000:020}.log")
    assert kinds(directory) == {FindingKind.FOREIGN_FILE}


# ---- the root -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "row", "kind"),
    [
        ("recovery-point-offset-checkpoint", "gone 0 5", FindingKind.CHECKPOINT),
        ("log-start-offset-checkpoint", "txn 0 999", FindingKind.CHECKPOINT),
        ("replication-offset-checkpoint", "txn 0 999", FindingKind.CHECKPOINT),
        ("cleaner-offset-checkpoint", "txn 0 999", FindingKind.CHECKPOINT),
        ("cleaner-offset-checkpoint", "no row at all", FindingKind.CHECKPOINT),
        ("recovery-point-offset-checkpoint", "txn 0 999", FindingKind.LOST_RECORDS),
    ],
)
def test_checkpoints_that_the_logs_do_not_bear_out_are_found(
    copied: Copied, name: str, row: str, kind: FindingKind
) -> None:
    root = copied("clean-log.dir")
    (root / name).write_text(f"0\n1\n{row}\n")
    assert kind in kinds(root)


def test_a_killed_broker_may_know_of_topics_that_were_deleted(copied: Copied) -> None:
    root = copied("killed-log.dir")
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\ndeleted 0 5\n")
    assert findings(root) == []


def test_what_is_called_like_a_partition_and_is_none_is_found(copied: Copied) -> None:
    root = copied("clean-log.dir")
    (root / "txn-00").mkdir()
    (root / "keyed-7").symlink_to(root / "meta.properties")
    (root / "keyed-8").touch()
    found = findings(root)
    assert {each.kind for each in found} == {FindingKind.FOREIGN_FILE}
    assert [Path(each.path).name for each in found] == ["keyed-7", "keyed-8", "txn-00"]


@pytest.mark.parametrize("name", ["keyed-1.4f-stray", "keyed-0.4f-future"])
def test_what_a_broker_put_aside_is_told(copied: Copied, name: str) -> None:
    root = copied("clean-log.dir")
    before = all_that_is_told(root)
    (root / name).mkdir()
    (found,) = [each for each in all_that_is_told(root) if each not in before]
    assert found.is_note
    assert Path(found.path).name == name
    assert "not read" in found.what


def test_partitions_of_one_topic_with_two_ids_are_found(copied: Copied) -> None:
    root = copied("clean-log.dir")
    other = (root / "keyed-0" / "partition.metadata").read_bytes()
    (root / "txn-1" / "partition.metadata").write_bytes(other)
    assert [Path(each.path).parent.name for each in findings(root)] == ["txn-1"]


def test_a_damaged_meta_properties_is_found(copied: Copied) -> None:
    root = copied("clean-log.dir")
    (root / "meta.properties").write_text("version=7\n")
    assert kinds(root) == {FindingKind.METADATA}


# ---- one file -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "position"),
    [
        (f"{TXN}/{SEGMENT}.log", 1000),
        (f"{TXN}/{SEGMENT}.index", 7),
        (f"{TXN}/{SEGMENT}.timeindex", 7),
        (f"{TXN}/{SEGMENT}.txnindex", 9),
        (f"{TXN}/{SEGMENT}.snapshot", 20),
        (f"{TXN}/leader-epoch-checkpoint", 0),
        (f"{TXN}/partition.metadata", 0),
        ("clean-log.dir/meta.properties", 36),
        ("clean-log.dir/recovery-point-offset-checkpoint", 0),
        ("clean-log.dir/replication-offset-checkpoint", 0),
        ("clean-log.dir/cleaner-offset-checkpoint", 0),
        ("clean-log.dir/log-start-offset-checkpoint", 0),
    ],
)
def test_a_file_by_itself(copied: Copied, name: str, position: int) -> None:
    directory, _, file = name.rpartition("/")
    path = copied(directory) / file
    assert findings(path) == []
    flip(path, position)
    found = findings(path)
    assert found and all(each.path == str(path) for each in found)


@pytest.mark.parametrize(
    "pattern",
    ["retained-0/*.log.deleted", "bootstrap.checkpoint"],
)
def test_batches_that_are_no_live_segments(copied: Copied, pattern: str) -> None:
    path = min(copied("clean-log.dir").glob(pattern))
    assert findings(path, is_deep=True) == []
    flip(path, 70)
    assert {each.kind for each in findings(path)} == {FindingKind.BAD_CHECKSUM}


def test_what_is_not_there_and_what_is_no_file_of_ours_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicError):
        findings(tmp_path / "missing")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InvalidRequestError, match="not a file of a partition"):
        findings(tmp_path / "notes.txt")


def test_a_whole_batch_of_another_format_at_the_end_was_torn_by_nobody(copied: Copied) -> None:
    path = copied(TXN) / f"{LAST}.log"
    table = scan_batches(path.read_bytes()).table
    flip(path, int(table.position[-1]) + 16, 0x20)  # magic, outside of the checksum
    assert {each.kind for each in findings(path)} == {FindingKind.BAD_BATCH}
