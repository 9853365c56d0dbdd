"""Copies from and to a Kafka cluster: `streamlog serve`; a broker is in `tests.programs.compat`."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaException, Producer

from streamlog import Header, LogManager, Record, read_table
from streamlog.binary.crc import crc32c
from streamlog.clock import ManualClock
from streamlog.errors import (
    CorruptRecordError,
    DataLossError,
    InconsistentTopicIdError,
    InvalidConfigError,
    InvalidOptionError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    StreamLogError,
    UnavailableError,
    UnknownTopicError,
)
from streamlog.fs.local import LocalFileSystem
from streamlog.gateway import Gateway, GatewaySettings, serve
from streamlog.partition.reader import LogReader
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.columns import BinaryColumn, RecordColumns
from streamlog.records.layout import ATTRIBUTES_OFFSET, CRC_OFFSET
from streamlog.topic import TopicPartition
from streamlog.transfer import kafka_client, kafka_source, kafka_target
from streamlog.transfer.copying import CopiedPartition, CopyRequest, TopicCopier
from streamlog.transfer.ends import CopyTopic
from streamlog.transfer.kafka_client import KafkaClient, client_settings
from streamlog.transfer.kafka_copying import KafkaCopier
from streamlog.transfer.kafka_source import KafkaSource
from streamlog.transfer.kafka_target import KafkaTarget
from streamlog.transfer.places import open_source, open_target
from streamlog.transfer.record_digest import RecordDigest
from tests.support.certificate import make_certificate
from tests.support.cli import streamlog
from tests.support.killed_copy import kill_copy
from tests.transfer.test_copy import findings

A = TopicPartition("orders", 0)
FIELDS = (
    Record(b"k", b"v", (Header("h", b"1"), Header("h", None), Header("é", b"")), 1_000),
    Record(None, b"no key", (), 1_001),
    Record(b"", b"", (), 1_002),
    Record(b"tombstone", None, (), -1),
)


@pytest.fixture(autouse=True)
def _quiet_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for requests of killed copies only where there are some."""
    if "killed" not in request.node.name:
        monkeypatch.setattr(kafka_target, "_QUIET_MS", 100)
        monkeypatch.setattr(kafka_target, "_LOOK_MS", 50)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, Gateway]]:
    """Return a served root, and its server."""
    root = tmp_path / "served"
    with serve(root) as running:
        yield root, running


def url(gateway: Gateway) -> str:
    return f"kafka://{gateway.bootstrap_servers}"


def create(root: Path, partitions: int = 1, **configs: object) -> None:
    with LogManager.open(root, create=True) as manager:
        keys = {key.replace("_", "."): value for key, value in configs.items()}
        manager.create_topic("orders", partitions, keys)


def append(root: Path, records: tuple[Record, ...] | list[Record], partition: int = 0) -> None:
    with LogManager.open(root) as manager:
        manager.log("orders", partition).append(records)


def numbered(first: int, count: int) -> list[Record]:
    return [
        Record(key=b"k%d" % (number % 7), value=b"%d" % number * 9, timestamp=1000 + number)
        for number in range(first, first + count)
    ]


def copy(
    source: str | Path,
    target: str | Path,
    on_progress: Callable[[int], None] = lambda size: None,
    **request: object,
) -> list[CopiedPartition]:
    """Copy from a cluster."""
    here, there = open_source(str(source)), open_target(str(target))
    asked = CopyRequest(**request)  # type: ignore[arg-type]
    try:
        return list(TopicCopier(here, there, asked, on_progress=on_progress).run())
    finally:
        there.close()
        here.close()


def send(
    source: str | Path,
    target: Gateway,
    on_progress: Callable[[int], None] = lambda size: None,
    *,
    new_offsets: bool = False,
    **request: object,
) -> tuple[list[CopiedPartition], list[str]]:
    """Copy to a cluster; return what was copied, and remarks."""
    here, there = open_source(str(source)), KafkaTarget(KafkaClient(url(target)))
    asked = CopyRequest(**request)  # type: ignore[arg-type]
    copier = KafkaCopier(here, there, asked, new_offsets=new_offsets, on_progress=on_progress)
    try:
        return list(copier.run()), copier.remarks
    finally:
        there.close()


def records_of(root: Path, partition: int = 0) -> list[Record]:
    """Return the committed records, without sequence numbers."""
    with LogReader.open(root / f"orders-{partition}") as log:
        found = log.records(isolation="read_committed")
        return [each._replace(sequence=-1) for each in found]


def producer(gateway: Gateway, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": gateway.bootstrap_servers, "log_level": 2, **settings})


# ---- from a cluster ----------------------------------------------------------------------------
def test_a_topic_comes_with_every_field_its_id_and_its_settings(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    create(root, 2, retention_ms=-1)
    append(root, FIELDS)
    with LogManager.open(root) as manager:
        log = manager.log("orders", 0)
        with log.locked():
            log.assign_leader_epoch(7)
    append(root, numbered(0, 30))
    targets = [tmp_path / "there", f"file://{tmp_path}/bucket"]
    for target in targets:
        first, second = copy(url(gateway), target, topics=("orders",))
        assert (first.start_offset, first.end_offset) == (0, 34)
        assert (second.start_offset, second.end_offset) == (0, 0)
        assert [each.size for each in copy(url(gateway), target)] == [0, 0]
        table = read_table(str(target), "orders", include_headers=True)
        assert table == read_table(str(root), "orders", include_headers=True)
    there = tmp_path / "there"
    assert records_of(there) == records_of(root)
    ours, theirs = (open_source(str(each)) for each in (there, root))
    assert ours.topics()["orders"] == theirs.topics()["orders"]
    assert ours.open(A).epochs == theirs.open(A).epochs
    assert ours.open(A).epochs[-1][0] == 7
    append(root, numbered(30, 5))
    for target in targets:
        more = copy(url(gateway), target)
        assert [(each.start_offset, each.end_offset) for each in more] == [(34, 39), (0, 0)]
    assert records_of(there) == records_of(root)
    assert findings(there) == []


def test_gaps_of_a_compacted_topic_are_kept(served: tuple[Path, Gateway], tmp_path: Path) -> None:
    root, gateway = served
    configs = {"cleanup_policy": "compact,delete", "retention_ms": -1}
    create(root, min_cleanable_dirty_ratio=0, internal_segment_bytes=900, **configs)
    for first in range(0, 60, 6):
        append(root, [Record(b"once %d" % first, b"kept", (), 1), *numbered(first + 1, 5)])
    with LogManager.open(root) as manager:
        manager.delete_records("orders", 0, 1)
    assert streamlog("--path", root, "maintain").code == 0
    kept = [each.offset for each in records_of(root)]
    assert kept[0] == 6 and len(kept) < 30, "the log starts at 1, and there are gaps"
    for target in (tmp_path / "there", f"file://{tmp_path}/bucket"):
        (copied,) = copy(url(gateway), target)
        assert (copied.start_offset, copied.end_offset) == (1, 60)
        assert read_table(str(target), "orders") == read_table(str(root), "orders")
        (again,) = copy(url(gateway), target)
        assert again.size == 0
    append(root, numbered(60, 6))
    assert streamlog("--path", root, "maintain").code == 0
    copy(url(gateway), tmp_path / "there")  # what the target has is compared with what is left
    assert records_of(tmp_path / "there")[-6:] == records_of(root)[-6:]
    assert findings(tmp_path / "there") == []


def test_only_committed_records_come_up_to_the_first_open_transaction(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    create(root)

    def begun(name: str, count: int) -> Producer:
        made = producer(gateway, **{"transactional.id": name})
        made.init_transactions(30)
        made.begin_transaction()
        for number in range(count):
            made.produce("orders", f"{name}{number}".encode(), partition=0)
        made.flush(30)
        return made

    begun("a", 3).commit_transaction()
    begun("b", 2).abort_transaction()
    (copied,) = copy(url(gateway), tmp_path / "there")
    assert copied.end_offset == 7, "the markers take an offset each"
    still_open = begun("c", 2)
    begun("d", 1).commit_transaction()
    assert copy(url(gateway), tmp_path / "there")[0].size == 0
    still_open.commit_transaction()
    (copied,) = copy(url(gateway), tmp_path / "there")
    assert (copied.start_offset, copied.end_offset) == (7, 12)
    mine = records_of(tmp_path / "there")
    assert mine == records_of(root)
    assert [each.value for each in mine] == [b"a0", b"a1", b"a2", b"c0", b"c1", b"d0"]
    assert [each.offset for each in mine] == [0, 1, 2, 7, 8, 9]
    assert findings(tmp_path / "there") == []


def test_times_that_brokers_set_stay_theirs(served: tuple[Path, Gateway], tmp_path: Path) -> None:
    root, gateway = served
    create(root, message_timestamp_type="LogAppendTime")
    for first in (0, 5):
        append(root, numbered(first, 5))
    copy(url(gateway), tmp_path / "there")
    mine = records_of(tmp_path / "there")
    assert mine == records_of(root)
    assert {each.timestamp_type.label for each in mine} == {"LogAppendTime"}


def test_a_copy_ends_at_a_time_and_begins_at_the_log_start(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    create(root)
    append(root, numbered(0, 30))
    with LogManager.open(root) as manager:
        manager.delete_records("orders", 0, 12)
    (copied,) = copy(url(gateway), tmp_path / "there", to_time=1019)
    assert (copied.start_offset, copied.end_offset) == (12, 20)
    (copied,) = copy(url(gateway), tmp_path / "there")  # no batch was cut: it goes on
    assert (copied.start_offset, copied.end_offset) == (20, 30)
    assert records_of(tmp_path / "there") == records_of(root)
    with LogReader.open(tmp_path / "there" / "orders-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (12, 30)
    with LogManager.open(root) as manager:
        manager.delete_records("orders", 0, 30)
    append(root, numbered(30, 5))
    copy(url(gateway), tmp_path / "there")
    append(root, numbered(35, 5))
    with LogManager.open(root) as manager:
        manager.delete_records("orders", 0, 38)
    with pytest.raises(DataLossError, match="deleted records that were not copied"):
        copy(url(gateway), tmp_path / "there")


def test_batches_are_compressed_as_the_clients_setting_says(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    create(root)
    append(root, numbered(0, 300))
    arguments = ("copy", url(gateway), tmp_path / "there", "-X", "compression.type=zstd")
    ran = streamlog(*arguments, "-X", "client.id=copier")
    assert ran.code == 0, ran.error
    with LogReader.open(tmp_path / "there" / "orders-0") as log:
        assert log.read(0).table.codec.tolist() == [4]
    assert records_of(tmp_path / "there") == records_of(root)


def test_a_copy_that_ends_early_goes_on_and_is_checked_as_a_whole(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    create(root, 2)
    for partition in (0, 1):
        append(root, numbered(0, 200), partition)

    def stop_in_second(size: int) -> None:
        calls.append(size)
        if len(calls) == 4:
            raise KeyboardInterrupt

    calls: list[int] = []
    there = tmp_path / "there"
    with pytest.raises(KeyboardInterrupt):
        copy(url(gateway), there, on_progress=stop_in_second)
    with LogManager.open(there) as manager:
        assert manager.topics() == [], "a new topic is hidden until it is complete"
    append(root, numbered(200, 50))
    copied = copy(url(gateway), there)
    assert (copied[0].start_offset, copied[0].end_offset) == (200, 250)
    for partition in (0, 1):
        assert records_of(there, partition) == records_of(root, partition)


def test_a_target_with_other_records_is_refused(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    create(root)
    append(root, numbered(0, 10))
    there = tmp_path / "there"
    copy(url(gateway), there)
    append(there, numbered(10, 1))
    with pytest.raises(InvalidRequestError, match="ahead of the source"):
        copy(url(gateway), there)
    append(root, numbered(11, 5))
    with pytest.raises(InvalidRequestError, match="other records than the source") as caught:
        copy(url(gateway), there)
    assert caught.value.offset == 10
    with LogManager.open(root) as manager:
        manager.delete_topic("orders")
    create(root)
    with pytest.raises(InconsistentTopicIdError):
        copy(url(gateway), there)


def test_records_that_the_cluster_deletes_meanwhile_are_missed(
    served: tuple[Path, Gateway],
) -> None:
    root, gateway = served
    create(root)
    append(root, numbered(0, 10))
    partition = open_source(url(gateway)).open(A)
    with LogManager.open(root) as manager:
        manager.delete_records("orders", 0, 4)
    with pytest.raises(OffsetOutOfRangeError):
        list(partition.pieces(0, 10))


def test_a_header_that_is_no_text_is_named(served: tuple[Path, Gateway], tmp_path: Path) -> None:
    root, gateway = served
    create(root)
    append(root, numbered(0, 2))
    builder = BatchBuilder(base_offset=2, partition_leader_epoch=0)
    builder.append(Record(b"k", b"v", (Header("é", b"1"),), 5))
    batch = bytearray(builder.build().replace("é".encode(), b"\xff\xfe"))
    batch[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc32c(batch[ATTRIBUTES_OFFSET:]).to_bytes(4, "big")
    with LogManager.open(root) as manager:
        log = manager.local_log("orders", 0)
        with log.locked():
            buffer = np.frombuffer(bytes(batch), np.uint8)
            log.append_copied(buffer, scan_batches(buffer).table)
    with pytest.raises(InvalidRecordError, match="header's key is not UTF-8") as caught:
        copy(url(gateway), tmp_path / "there")
    assert caught.value.offset == 2


# ---- to a cluster ------------------------------------------------------------------------------
@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a root with records from offset 0 on, without gaps."""
    root = tmp_path / "source"
    create(root, 2, retention_ms=-1)
    append(root, FIELDS)
    append(root, numbered(4, 30))
    append(root, numbered(0, 3), partition=1)
    return root


def test_a_topic_goes_to_a_cluster_with_its_offsets(
    source: Path, served: tuple[Path, Gateway]
) -> None:
    root, gateway = served
    (first, second), remarks = send(source, gateway)
    assert (first.start_offset, first.end_offset, first.records) == (0, 34, 34)
    assert (second.end_offset, second.records, second.batches) == (3, 3, None)
    assert remarks == ["orders: the cluster gave it an id of its own"]
    for partition in (0, 1):
        assert records_of(root, partition) == records_of(source, partition)
    with LogManager.open(root) as manager:
        assert manager.topic_config("orders").retention_ms == -1
    copied, remarks = send(source, gateway)
    assert [each.records for each in copied] == [0, 0] and remarks == []
    append(source, numbered(34, 6))
    copied, _ = send(source, gateway, partitions=(0,))
    assert [(each.start_offset, each.end_offset) for each in copied] == [(34, 40)]
    assert records_of(root) == records_of(source)


def test_gaps_are_refused_before_anything_is_created_unless_offsets_may_be_new(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    source = tmp_path / "source"
    create(source)
    append(source, numbered(0, 20))
    with LogManager.open(source) as manager:
        manager.delete_records("orders", 0, 5)
    with pytest.raises(InvalidRequestError, match="leaves no gaps") as caught:
        send(source, gateway)
    assert "--new-offsets" in str(caught.value)
    with LogManager.open(root) as manager:
        assert manager.topics() == []
    (copied,), _ = send(source, gateway, new_offsets=True)
    assert (copied.start_offset, copied.end_offset, copied.records) == (5, 20, 15)
    append(source, numbered(20, 4))
    (copied,), _ = send(source, gateway, new_offsets=True)
    assert (copied.start_offset, copied.records) == (20, 4)
    mine = records_of(root)
    assert [each.offset for each in mine] == list(range(19))
    assert [each.value for each in mine] == [each.value for each in records_of(source)]
    with LogManager.open(source) as manager:
        manager.delete_records("orders", 0, 9)
    append(source, numbered(24, 4))
    with pytest.raises(InvalidRequestError, match="other records than the source"):
        send(source, gateway, new_offsets=True)


def test_committed_records_of_a_served_root_go_to_a_cluster(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    create(root)
    for name in ("commit", "abort", "commit"):
        made = producer(gateway, **{"transactional.id": name})
        made.init_transactions(30)
        made.begin_transaction()
        made.produce("orders", name.encode(), partition=0)
        made.flush(30)
        made.commit_transaction() if name == "commit" else made.abort_transaction()
    with serve(tmp_path / "other") as other:
        with pytest.raises(InvalidRequestError, match="leaves no gaps"):
            send(root, other)
        (copied,), _ = send(root, other, new_offsets=True)
        assert (copied.end_offset, copied.records) == (6, 2)
        with pytest.raises(InvalidRequestError, match="belongs to the cluster itself"):
            send(root, other, topics=("__transaction_state",))
    assert [each.value for each in records_of(tmp_path / "other")] == [b"commit"] * 2


def test_settings_that_a_cluster_does_not_take_are_named(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    source = tmp_path / "source"
    create(source, message_timestamp_type="LogAppendTime", internal_segment_bytes=2000)
    append(source, numbered(0, 5))
    _, remarks = send(source, gateway)
    assert {each.partition(":")[2].split()[0] for each in remarks} == {
        "the",
        "internal.segment.bytes=2000",
        "message.timestamp.type=LogAppendTime",
    }
    mine = records_of(root)
    assert [each.timestamp for each in mine] == [each.timestamp for each in records_of(source)]
    with LogManager.open(root) as manager:
        manager.alter_topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
    append(source, numbered(5, 1))
    with pytest.raises(InvalidRequestError, match="times of its own"):
        send(source, gateway)


def test_another_writer_is_noticed(source: Path, served: tuple[Path, Gateway]) -> None:
    root, gateway = served
    send(source, gateway)
    append(root, numbered(0, 1))
    with pytest.raises(InvalidRequestError, match="later records than are to be copied"):
        send(source, gateway)
    append(source, numbered(34, 20))
    with pytest.raises(InvalidRequestError, match="other records than the source"):
        send(source, gateway)


def test_a_writer_during_the_copy_is_noticed_before_more_is_sent(
    source: Path, served: tuple[Path, Gateway]
) -> None:
    root, gateway = served
    send(source, gateway)
    append(source, numbered(34, 20))

    def intrude(size: int) -> None:
        if size == 34:  # what is there already
            append(root, numbered(0, 1))

    with pytest.raises(InvalidRequestError, match="another process writes to the target"):
        send(source, gateway, intrude)
    assert len(records_of(root)) == 36, "one record of the copy, which was sent alone"


def test_a_target_that_keeps_growing_is_refused(served: tuple[Path, Gateway]) -> None:
    root, gateway = served
    create(root)

    class Growing(ManualClock):
        def sleep_ms(self, duration_ms: float) -> None:
            append(root, numbered(0, 1))
            super().sleep_ms(10_000)

    there = KafkaTarget(KafkaClient(url(gateway)), clock=Growing())
    there.begin(CopyTopic("orders", None, (0,), {}))
    with pytest.raises(InvalidRequestError, match="another process writes to the target"):
        there.settle("orders")
    there.close()


def test_what_a_cluster_removes_meanwhile_is_not_missed(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    source = tmp_path / "source"
    configs = {"cleanup_policy": "compact,delete", "retention_ms": -1}
    for each in (source, root):
        create(each, internal_segment_bytes=900, min_cleanable_dirty_ratio=0, **configs)
    for first in range(0, 60, 6):
        append(source, numbered(first, 6))

    class Removing(KafkaTarget):
        """A cluster that compacts and deletes before the copy is compared."""

        def offsets(self, partition: TopicPartition) -> tuple[int, int]:
            if super().offsets(partition)[1]:
                assert streamlog("--path", root, "maintain").code == 0
                with LogManager.open(root) as manager:
                    manager.delete_records("orders", 0, 5)
            return super().offsets(partition)

    there = Removing(KafkaClient(url(gateway)))
    (copied,) = KafkaCopier(open_source(str(source)), there, CopyRequest()).run()
    there.close()
    assert copied.records == 60 and 0 < len(records_of(root)) < 40
    left = records_of(root)
    assert left == [each for each in records_of(source) if each in left]


def test_what_a_cluster_cannot_hold_is_refused(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    create(root, max_message_bytes=5000)
    source = tmp_path / "source"
    create(source)
    append(source, [*numbered(0, 300), Record(value=b"a" * 9000, timestamp=1)])
    with pytest.raises(MessageTooLargeError, match="larger than the topic takes"):
        send(source, gateway)
    assert records_of(root) == records_of(source)[: len(records_of(root))]
    for each in (source, root):
        with LogManager.open(each) as manager:
            manager.delete_topic("orders")
    create(source)
    append(source, [Record(value=b"a", timestamp=0)])
    with pytest.raises(InvalidTimestampError, match="time 0"):
        send(source, gateway)
    with LogManager.open(source) as manager:
        manager.delete_topic("orders")
    create(source)
    headers = (Header("a", None), Header("a\0b", None))
    append(source, [*FIELDS, Record(value=b"a", timestamp=1, headers=headers)])
    with pytest.raises(InvalidRecordError, match="zero byte") as caught:
        send(source, gateway)
    assert caught.value.offset == len(FIELDS)


def test_copies_that_are_killed_go_on_without_a_record_twice(
    served: tuple[Path, Gateway], tmp_path: Path
) -> None:
    root, gateway = served
    source, back = tmp_path / "source", tmp_path / "back"
    create(source)
    value = os.urandom(1000)
    for first in range(0, 30_000, 5000):
        append(source, [each._replace(value=value) for each in numbered(first, 5000)])
    kill_copy(source, url(gateway), 3)  # the second piece is on its way
    (copied,), _ = send(source, gateway)
    assert 0 < copied.start_offset < 30_000
    kill_copy(url(gateway), back, 4)
    (copied,) = copy(url(gateway), back)
    assert 0 < copied.start_offset < 30_000
    wanted = read_table(str(source), "orders")
    assert read_table(str(root), "orders") == wanted
    assert read_table(str(back), "orders") == wanted


# ---- what is compared --------------------------------------------------------------------------
def columns_of(keys: list[bytes | None], first: int = 0) -> RecordColumns:
    return RecordColumns(
        count=len(keys),
        offset=np.arange(first, first + len(keys)),
        timestamp=np.ones(len(keys), np.int64),
        timestamp_type=np.zeros(len(keys), np.int32),
        key=BinaryColumn.from_values(keys),
        value=BinaryColumn.from_values(keys),
    )


def test_a_digest_does_not_depend_on_reads_but_on_every_field() -> None:
    def digest(*parts: RecordColumns) -> RecordDigest:
        made = RecordDigest()
        for part in parts:
            made.add(part)
        return made

    whole = digest(columns_of([b"ab", b"c", None, b""]))
    assert whole == digest(columns_of([b"ab"]), columns_of([b"c", None, b""], 1))
    for other in ([b"a", b"bc", None, b""], [b"ab", b"c", b"", None], [b"ab", b"c", None]):
        assert whole != digest(columns_of(other))
    assert whole != digest(columns_of([b"ab", b"c", None, b""], 1))


def test_a_copy_that_differs_is_reported(source: Path, served: tuple[Path, Gateway]) -> None:
    _, gateway = served

    class OtherRecords(KafkaTarget):
        """A cluster that loses the keys."""

        def sender(self, partition: TopicPartition, end_offset: int):  # type: ignore[no-untyped-def]
            made = super().sender(partition, end_offset)
            send = made.send
            made.send = lambda records: send(_without_keys(records))  # type: ignore[method-assign]
            return made

    there = OtherRecords(KafkaClient(url(gateway)))
    with pytest.raises(CorruptRecordError, match="does not hold the records that were read"):
        list(KafkaCopier(open_source(str(source)), there, CopyRequest()).run())
    there.close()


def _without_keys(records: RecordColumns) -> RecordColumns:
    from dataclasses import replace

    return replace(records, key=None)


# ---- clusters that do not answer, and settings -------------------------------------------------
def test_a_cluster_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "_PATIENCE_S", 1.0)
    ran = streamlog("copy", "kafka://127.0.0.1:1", tmp_path / "there")
    assert ran.code == 1
    first, second = ran.error.splitlines()
    assert first.startswith("Error: no broker answers in kafka://127.0.0.1:1: got ")
    assert "Connection refused" in first
    assert second.startswith("Try: check the address")
    assert not (tmp_path / "there").exists()


def test_a_cluster_that_stops_answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "_PATIENCE_MS", 500)
    root = tmp_path / "served"
    create(root)
    append(root, numbered(0, 10))
    with serve(root) as gateway:
        client = KafkaClient(url(gateway), {"message.timeout.ms": "500"})
        here, there = KafkaSource(client), KafkaTarget(client)
        partition = here.open(A)
        sender = there.sender(A, 10)
    with pytest.raises(UnavailableError, match="no more records arrive") as caught:
        list(partition.pieces(0, 10))
    assert caught.value.expected == "records up to offset 10"
    with pytest.raises(UnavailableError, match="no broker answers"):
        sender.send(columns_of([b"k"], 1))
    here.close()
    there.close()
    assert len(records_of(root)) == 10


def test_a_topic_that_is_missing(served: tuple[Path, Gateway], tmp_path: Path) -> None:
    root, gateway = served
    create(root)
    with pytest.raises(UnknownTopicError, match="no topic visits to copy") as caught:
        copy(url(gateway), tmp_path / "there", topics=("visits",))
    assert caught.value.expected == "one of orders"
    for number in range(30):
        with LogManager.open(root) as manager:
            manager.create_topic(f"t{number:02}", 1)
    with pytest.raises(UnknownTopicError) as caught:
        copy(url(gateway), tmp_path / "there", topics=("visits",))
    assert str(caught.value.expected).endswith("t17, t18, …")
    with pytest.raises(UnknownTopicError, match="no topic visits to copy"):
        send(root, gateway, topics=("visits",))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["sasl.password=hush"], "secrets do not belong on a command line"),
        (["ssl.key.pem=hush"], "secrets do not belong on a command line"),
        (["enable.idempotence=false"], "is decided by the copy"),
        (["bootstrap.servers=elsewhere:1"], "is decided by the copy"),
        (["compression.type"], "-X takes KEY=VALUE"),
    ],
)
def test_settings_that_are_refused(pairs: list[str], message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        client_settings(pairs, None, LocalFileSystem())
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


def test_settings_of_a_file_are_weaker_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    path.write_text("client.id=a\nsasl.password=hush\nsecurity.protocol=hush or not\n")
    settings = client_settings(["client.id=b"], str(path), LocalFileSystem())
    assert settings["client.id"] == "b"
    with pytest.raises(InvalidConfigError, match=r"security\.protocol") as caught:
        KafkaClient("kafka://127.0.0.1:1", settings)
    assert "hush" not in str(caught.value)
    with pytest.raises(InvalidConfigError, match=r"no\.such"):
        KafkaClient("kafka://127.0.0.1:1", {"no.such": "1"})
    with pytest.raises(InvalidOptionError, match="names no file"):
        client_settings([], str(tmp_path / "missing"), LocalFileSystem())


@pytest.mark.parametrize(
    "address", ["", "localhost", "a:b@host:9092", "host:99999", "host:1,", "host:1/topic"]
)
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(InvalidOptionError, match="invalid address"):
        KafkaClient(f"kafka://{address}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kafka://a:1", "kafka://b:1"), "one end of a copy is a log root"),
        (("here", "there", "--new-offsets"), "--new-offsets is for a copy to a Kafka cluster"),
        (("here", "there", "-X", "a=b"), "no end is one"),
    ],
)
def test_ends_that_do_not_go_together(arguments: tuple[str, ...], message: str) -> None:
    ran = streamlog("copy", *arguments)
    assert ran.code == 2 and message in ran.error


def test_a_client_authenticates_with_the_settings_of_a_file(tmp_path: Path) -> None:
    users, conf = tmp_path / "users", tmp_path / "client.conf"
    users.write_text("alice:wonder\n")
    users.chmod(0o600)
    chain, key = make_certificate(tmp_path)
    lines = ["security.protocol=SASL_SSL", f"ssl.ca.location={chain}"]
    lines += ["sasl.mechanisms=SCRAM-SHA-256", "sasl.username=alice", "sasl.password=wonder"]
    conf.write_text("\n".join(lines))
    root = tmp_path / "served"
    create(root)
    append(root, numbered(0, 5))
    settings = GatewaySettings(sasl_users=str(users), tls_cert=chain, tls_key=key)
    with serve(root, settings) as gateway:
        place = ("copy", url(gateway), tmp_path / "there")
        ran = streamlog(*place, "--command-config", conf)
        assert ran.code == 0, ran.error
        assert records_of(tmp_path / "there") == records_of(root)
        conf.write_text("\n".join(lines).replace("wonder", "blunder"))
        ran = streamlog(*place, "--command-config", conf)
        assert ran.code == 2 and "the broker refuses the connection" in ran.error
        assert "blunder" not in ran.error


def test_without_confluent_kafka_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("confluent_kafka", "confluent_kafka.admin"):
        monkeypatch.setitem(sys.modules, name, None)
    ran = streamlog("copy", "kafka://127.0.0.1:1", tmp_path / "there")
    assert ran.code == 2
    assert ran.error.splitlines()[-1] == "Try: pip install 'pyspark-streamlog[kafka]'"


def test_errors_of_librdkafka_keep_their_kind() -> None:
    from confluent_kafka import KafkaError

    wanted: dict[int, type[StreamLogError]] = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: InvalidRequestError,
        KafkaError._RESOLVE: UnavailableError,
        KafkaError.UNKNOWN_TOPIC_OR_PART: UnknownTopicError,
        KafkaError.NOT_ENOUGH_REPLICAS: UnavailableError,
    }
    for code, kind in wanted.items():
        found = kafka_client.failure_of(
            KafkaException(KafkaError(code)).args[0], path="kafka://a:1"
        )
        assert type(found) is kind and found.path == "kafka://a:1"
