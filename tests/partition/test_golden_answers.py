"""Offsets, times, epochs and reads beside what Kafka answered about the same directories.

The one difference that is wanted: to a time search Kafka looks only into the first segment that
may qualify, and takes the time of its file for a segment without timestamps. A segment of 0 bytes
that compaction left, or one of format v0, then hides all later records, and the answer is null.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamlog.errors import OffsetOutOfRangeError
from streamlog.fs.log_root import LOG_START_OFFSET_CHECKPOINT, LogRoot
from streamlog.partition import checkpoints
from streamlog.partition.reader import LogReader
from streamlog.records.record import IsolationLevel
from streamlog.topic import TopicPartition
from tests.support.broker_disk import Disk
from tests.support.cli import ok
from tests.support.golden import unpack

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4  # ListOffsetsRequest
LOCAL = [
    "001-mixed-small-segments",
    "002-default-index-interval",
    "003-index-interval-0",
    "004-log-append-time",
    "005-recompress-zstd",
    "006-recompress-gzip",
    "007-decompress-none",
    "008-preallocate",
    "009-index-full-rolls",
    "010-delete-records-mid-batch",
    "011-truncate-to-mid-batch",
    "012-v0-v1-v2-segments",
    "013-follower-gaps",
    "014-offset-jump-rolls",
]
# Opened again after a truncation with the high watermark at 0; the log.dir had no checkpoint of it.
WITHOUT_HIGH_WATERMARK = "011-truncate-to-mid-batch"

Found = tuple[int, int] | None


class Local(NamedTuple):
    """A partition that Kafka's `UnifiedLog` wrote, and its answers."""

    name: str
    reader: LogReader
    answers: dict[str, Any]


@pytest.fixture(scope="module", params=["clean", "killed"])
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Disk:
    return Disk.unpack(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("local")
    unpack("C-local/directories.tar.gz", target)
    return unpack("C-local/answers.tar.xz", target)


@pytest.fixture(params=LOCAL)
def local(request: pytest.FixtureRequest, unpacked: Path) -> Iterator[Local]:
    directory = unpacked / request.param
    answers = json.loads((directory / "expect.json").read_text())
    [path] = (each for each in directory.iterdir() if each.is_dir())
    if answers["logStartOffset"] > 0:
        write_log_start(path, answers["logStartOffset"])
    with LogReader.open(path) as reader:
        yield Local(request.param, reader, answers)


def write_log_start(path: Path, offset: int) -> None:
    """Write into the root what files of a partition alone do not tell."""
    topic, _, number = path.name.rpartition("-")
    root = LogRoot.at(path.parent)
    file = Path(root.checkpoint(LOG_START_OFFSET_CHECKPOINT))
    file.write_text(f"0\n1\n{topic} {number} {offset}\n")
    assert checkpoints.read_log_start_offsets(root) == {TopicPartition(topic, int(number)): offset}


# ---- where a log starts and ends -----------------------------------------------------------------
def test_a_brokers_partitions_start_and_end_where_it_said(disk: Disk) -> None:
    for name, partition in disk.partitions.items():
        with LogReader.open(partition.path) as reader:
            told = {
                "topicId": reader.topic_id,
                "logStartOffset": reader.log_start_offset,
                "logEndOffset": reader.log_end_offset,
                "highWatermark": reader.high_watermark,
                "lastStableOffset": reader.last_stable_offset,
            }
        assert told == {key: partition.answers[key] for key in told}, name
    assert len(disk.partitions) > 20


def test_local_logs_start_and_end_where_kafka_said(local: Local) -> None:
    reader, answers = local.reader, local.answers
    assert reader.log_start_offset == answers["logStartOffset"]
    assert reader.log_end_offset == answers["logEndOffset"]
    stable = answers["lastStableOffset"]
    if local.name == WITHOUT_HIGH_WATERMARK:
        assert stable == 0
        stable = 22  # the first offset of the oldest transaction without an end
    assert reader.last_stable_offset == stable


def test_epochs_end_where_kafka_said(local: Local) -> None:
    known = {
        each["epoch"]: (each["foundEpoch"], each["endOffset"])
        for each in local.answers["endOffsetForEpoch"]
        if "foundEpoch" in each
    }
    assert known
    assert {epoch: local.reader.end_offset_for_epoch(epoch) for epoch in known} == known


# ---- offsets for times ---------------------------------------------------------------------------
def test_a_brokers_offsets_for_times_are_its_own_or_better(disk: Disk) -> None:
    better = set()
    for name, partition in disk.partitions.items():
        with LogReader.open(partition.path) as reader:
            times = stamps(reader)
            for asked in partition.answers["offsetsForTimes"]:
                found = pair(reader.offset_for_timestamp(asked["timestamp"]))
                assert found == first_from(times, asked["timestamp"]), name
                if found != kafkas(asked):
                    assert kafkas(asked) is None
                    assert reader.segments[0].size == 0
                    better.add(name)
    is_killed = disk.path.name == "killed-log.dir"
    assert better == ({"compacted-0", "compacted-tombstones-gone-0"} if is_killed else set())


def test_a_brokers_largest_timestamps_are_its_own(disk: Disk) -> None:
    for name, partition in disk.partitions.items():
        with LogReader.open(partition.path) as reader:
            found = pair(reader.max_timestamp()) or (-1, -1)
        told = partition.answers["maxTimestamp"]
        assert found == (told["offset"], told["timestamp"]), name


def test_local_offsets_for_times_are_kafkas_or_better(local: Local) -> None:
    reader = local.reader
    times = stamps(reader)
    better = 0
    for asked in local.answers["offsetForTimestamp"]:
        timestamp = asked["timestamp"]
        if timestamp < 0:
            assert special(reader, timestamp) == kafkas(asked)
            continue
        found = pair(reader.offset_for_timestamp(timestamp))
        assert found == first_from(times, timestamp)
        if found != kafkas(asked):
            assert kafkas(asked) is None
            better += 1
    assert (better > 0) == (local.name == "012-v0-v1-v2-segments")


def special(reader: LogReader, timestamp: int) -> Found:
    """Answer what has a number below zero."""
    if timestamp == MAX_TIMESTAMP:
        return pair(reader.max_timestamp())
    assert timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL)
    return (reader.high_watermark if timestamp == LATEST else reader.log_start_offset, -1)


def kafkas(answer: dict[str, Any]) -> Found:
    return None if answer["offset"] is None else (answer["offset"], answer["foundTimestamp"])


def pair(found: tuple[int, int] | None) -> Found:
    return None if found is None else (found[0], found[1])


def stamps(reader: LogReader) -> list[tuple[int, int]]:
    """Return offset and timestamp of every record, control records included."""
    found, at = [], reader.log_start_offset
    while at < reader.log_end_offset:
        info = reader.read(at)
        found += [
            (record.offset, record.timestamp)
            for batch in info.batches()
            for record in batch.records()
            if record.offset >= reader.log_start_offset
        ]
        at = info.next_offset
    return found


def first_from(times: list[tuple[int, int]], timestamp: int) -> Found:
    return next((each for each in times if each[1] >= timestamp), None)


@pytest.mark.parametrize("moment", ["earliest", "latest", "max-timestamp"])
def test_the_command_says_of_a_whole_broker_what_admin_said(disk: Disk, moment: str) -> None:
    def expected(answers: dict[str, Any]) -> int | None:
        if moment == "max-timestamp":
            largest: int = answers["maxTimestamp"]["offset"]
            return None if largest < 0 else largest
        offset: int = answers["logStartOffset" if moment == "earliest" else "highWatermark"]
        return offset

    rows = ok("offsets", f"{disk.path}/", "--time", moment).rows
    told = {f"{row['topic']}-{row['partition']}": row["offset"] for row in rows}
    told.pop("__cluster_metadata-0", None)  # no client may ask for it
    assert told == {name: expected(each.answers) for name, each in disk.partitions.items()}


# ---- reads ---------------------------------------------------------------------------------------
def test_reads_begin_where_kafkas_begin_and_go_no_further(local: Local) -> None:
    """Kafka ends a read in the middle of a batch; here the whole batches of it are returned."""
    compared = 0
    for asked in local.answers["reads"]:
        is_committed = asked["isolation"] == "TXN_COMMITTED"
        if local.name == WITHOUT_HIGH_WATERMARK and is_committed:
            continue
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        if "error" in asked:
            assert asked["error"] == "OffsetOutOfRangeException"
            with pytest.raises(OffsetOutOfRangeError):
                local.reader.read(asked["offset"], asked["maxBytes"], isolation=level)
            continue
        info = local.reader.read(asked["offset"], asked["maxBytes"], isolation=level)
        if not asked["sizeInBytes"]:
            # Nothing there, or no room for the first batch, which here comes whole all the same.
            assert not info.buffer or (asked["maxBytes"] == 0 and not asked["minOneMessage"])
            continue
        assert Path(info.path).name == asked["segment"]
        assert info.position == asked["position"]
        first_alone = not asked["minOneMessage"] and len(info.table) == 1
        assert 0 < len(info.buffer) <= asked["sizeInBytes"] or first_alone
        if is_committed and len(info.buffer) == asked["sizeInBytes"]:
            told = {(txn.producer_id, txn.first_offset) for txn in info.aborted}
            assert told <= {tuple(each) for each in asked["abortedTransactions"]}
        compared += 1
    assert compared > 10


def test_a_directory_that_was_copied_away_from_its_root_starts_at_its_first_batch(
    unpacked: Path, tmp_path: Path
) -> None:
    """Records deleted in the middle of a batch are there again: the checkpoint is the root's."""
    shutil.copytree(unpacked / "010-delete-records-mid-batch" / "t-del-0", tmp_path / "t-del-0")
    with LogReader.open(tmp_path / "t-del-0") as reader:
        assert reader.log_start_offset == 74
