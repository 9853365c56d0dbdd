from collections import Counter, defaultdict
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.arrow.encoder import BATCH_SIZE, BUFFER_SIZE, RowEncoder
from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.sink_topics import TopicTarget
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnknownTopicError,
)
from streamlog.records.batch import read_batches
from streamlog.records.builder import EncodedBatches
from streamlog.records.partitioner import murmur2
from streamlog.records.record import CompressionType, Header, Record
from streamlog.records.slots import check_decompressed
from streamlog.records.topic_rules import TopicRules
from streamlog.topic import TopicPartition

SCHEMA = pa.schema(
    [
        ("ignored", pa.int64()),
        ("key", pa.string()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
POSITIONS = SinkSchema(key=1, value=2, headers=3, topic=4, partition=5, timestamp=6)
NOW_MS = 1_700_000_000_000


class CollectedBatches:
    """Keeps what a task encodes, by partition."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[EncodedBatches]] = defaultdict(list)

    def append(self, topic_partition: TopicPartition, batches: EncodedBatches) -> None:
        self.batches[topic_partition].append(batches)

    def records(self, topic: str, partition: int) -> list[Record]:
        return [
            record
            for encoded in self.batches.get(TopicPartition(topic, partition), [])
            for batch in read_batches(encoded.buffer)
            for record in batch.records()
        ]

    def sizes(self) -> list[int]:
        return [
            size
            for parts in self.batches.values()
            for encoded in parts
            for size in encoded.table.size.tolist()
        ]


class Topics:
    """Topics of a root that is not needed here."""

    def __init__(self, **topics: TopicTarget) -> None:
        self._topics = topics

    def find(self, name: str) -> TopicTarget:
        if name not in self._topics:
            raise UnknownTopicError(f"no topic {name!r}")
        return self._topics[name]


def target(topic: str = "orders", partitions: int = 4, **properties: Any) -> TopicTarget:
    config = LogConfig.from_properties({k.replace("_", "."): v for k, v in properties.items()})
    return TopicTarget(topic, partitions, TopicRules.of(config))


def encode(
    *batches: list[dict[str, Any]],
    topics: Topics | None = None,
    topic: str | None = "orders",
    compression: CompressionType = CompressionType.NONE,
    start: int = 0,
) -> CollectedBatches:
    collected = CollectedBatches()
    encoder = RowEncoder(
        collected,
        POSITIONS if topic is None else POSITIONS._replace(topic=None),
        topic=topic,
        find_topic=(topics or Topics(orders=target())).find,
        compression=compression,
        start=start,
        now_ms=NOW_MS,
    )
    for rows in batches:
        encoder.append(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    encoder.flush()
    assert encoder.rows == sum(len(rows) for rows in batches)
    return collected


def row(value: bytes | None = b"v", **fields: Any) -> dict[str, Any]:
    return {"value": value, "headers": [], "topic": "orders"} | fields


def expected_partition(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


# ---- which partition -------------------------------------------------------------------------
def test_rows_with_a_key_go_where_kafkas_client_sends_them() -> None:
    keys = [f"customer-{number}" for number in range(50)]

    collected = encode([row(key.encode(), key=key) for key in keys])

    for partition in range(4):
        found = [record.key for record in collected.records("orders", partition)]
        assert found == [
            key.encode() for key in keys if expected_partition(key.encode(), 4) == partition
        ]


def test_the_partition_column_overrules_the_key_where_it_is_not_null() -> None:
    rows = [row(b"a", key="k", partition=3), row(b"b", key="k"), row(b"c", partition=3)]

    collected = encode(rows)

    by_key = expected_partition(b"k", 4)
    assert [r.value for r in collected.records("orders", 3)][:2] == [b"a", b"c"]
    assert b"b" in [r.value for r in collected.records("orders", by_key)]


def test_an_empty_key_is_a_key() -> None:
    collected = encode([row(key="")])

    assert len(collected.records("orders", expected_partition(b"", 4))) == 1


def test_few_rows_without_a_key_stay_together_and_start_tells_where() -> None:
    for start in range(6):
        collected = encode([row(), row(), row()], start=start)
        assert len(collected.records("orders", start % 4)) == 3


def test_many_rows_without_a_key_fill_a_batch_a_partition() -> None:
    value = b"x" * 10_000

    collected = encode([row(value) for _ in range(210)])

    counts = [len(collected.records("orders", partition)) for partition in range(4)]
    assert sum(counts) == 210
    assert all(count > 40 for count in counts)
    assert len(collected.sizes()) <= 6


def test_rows_without_a_key_go_on_with_the_next_partition_after_a_flush() -> None:
    value = b"x" * (BUFFER_SIZE // 2 + 1000)
    roomy = Topics(orders=target(max_message_bytes=1 << 25))

    collected = encode([row(value)], [row(value)], [row(value)], topics=roomy)

    assert [len(collected.records("orders", partition)) for partition in range(4)] == [1, 1, 1, 0]


# ---- batches ---------------------------------------------------------------------------------
def test_small_arrow_batches_are_joined_into_large_record_batches() -> None:
    batches = [[row(b"x" * 100, key=f"{i}-{j}") for j in range(100)] for i in range(100)]

    collected = encode(*batches)

    assert len(collected.batches) == 4
    assert len(collected.sizes()) == 4  # 10,000 rows of 100 bytes: about 300 KB a partition


def test_batches_are_filled_up_to_their_size_and_not_above() -> None:
    rows = [row(b"x" * 1000, partition=0) for _ in range(2000)]

    sizes = encode(rows).sizes()

    assert len(sizes) == 4
    assert all(BATCH_SIZE * 0.99 < size <= BATCH_SIZE for size in sizes[:-1])


def test_a_small_max_message_bytes_makes_smaller_batches() -> None:
    topics = Topics(orders=target(max_message_bytes=2000))

    sizes = encode([row(b"x" * 100, partition=0) for _ in range(100)], topics=topics).sizes()

    assert all(1500 < size <= 2000 for size in sizes[:-1])


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "value": st.none() | st.binary(max_size=20),
            "key": st.none() | st.text(max_size=3),
            "headers": st.none()
            | st.lists(
                st.fixed_dictionaries(
                    {"key": st.text(max_size=2), "value": st.none() | st.binary(max_size=2)}
                ),
                max_size=2,
            ),
            "topic": st.sampled_from(["orders", "payments", "refunds"]),
            "partition": st.none() | st.integers(0, 1),
            "timestamp": st.none() | st.integers(0, NOW_MS * 1000),
        }
    ),
    max_size=30,
)


@settings(deadline=None)
@given(batches=st.lists(ROWS, max_size=4), compression=st.sampled_from(CompressionType))
def test_every_row_becomes_one_record_of_its_topic_in_order(
    batches: list[list[dict[str, Any]]], compression: CompressionType
) -> None:
    names = {"orders": 2, "payments": 3, "refunds": 2}
    topics = Topics(**{name: target(name, partitions) for name, partitions in names.items()})

    collected = encode(*batches, topics=topics, topic=None, compression=compression)

    rows = [fields for batch in batches for fields in batch]
    for name, partitions in names.items():
        wanted = [as_record(fields) for fields in rows if fields["topic"] == name]
        found = [collected.records(name, partition) for partition in range(partitions)]
        assert Counter(map(content, chain(*found))) == Counter(map(content, wanted))
        for records in found:
            remaining = map(content, wanted)
            assert all(content(record) in remaining for record in records)  # a subsequence


def as_record(fields: dict[str, Any]) -> Record:
    micros = fields["timestamp"]
    return Record(
        key=None if fields["key"] is None else fields["key"].encode(),
        value=fields["value"],
        headers=tuple(Header(h["key"], h["value"]) for h in fields["headers"] or []),
        timestamp=NOW_MS if micros is None else micros // 1000,
    )


def content(record: Record) -> tuple[Any, ...]:
    return record.key, record.value, record.headers, record.timestamp


def test_the_codec_of_the_topic_overrules_the_writers() -> None:
    topics = Topics(orders=target(compression_type="zstd"))
    rows = [row(b"x" * 100, partition=0) for _ in range(100)]

    collected = encode(rows, topics=topics, compression=CompressionType.GZIP)

    (encoded,) = collected.batches[TopicPartition("orders", 0)]
    (batch,) = read_batches(encoded.buffer)
    assert batch.compression_type is CompressionType.ZSTD
    assert len(list(batch.records())) == 100


def test_the_same_rows_give_the_same_bytes() -> None:
    rows = [row(b"%d" % n, key=None if n % 3 else str(n), timestamp=n * 1000) for n in range(500)]

    first, second = encode(rows, start=5), encode(rows, start=5)

    assert first.batches.keys() == second.batches.keys()
    for partition, parts in first.batches.items():
        others = second.batches[partition]
        assert [p.buffer.tobytes() for p in parts] == [p.buffer.tobytes() for p in others]


# ---- refusals --------------------------------------------------------------------------------
def test_a_partition_that_is_not_there_names_row_topic_and_range() -> None:
    with pytest.raises(UnknownTopicError) as caught:
        encode([row(), row(partition=3), row(partition=4)])

    assert str(caught.value).startswith(
        "row 2 of the task names a partition that topic 'orders' does not have: "
        "got 4, expected 0 to 3"
    )
    assert 'df.drop("partition")' in (caught.value.hint or "")
    assert "topics alter orders --partitions 5" in (caught.value.hint or "")


def test_a_partition_of_a_topic_with_one_partition_is_checked_as_well() -> None:
    with pytest.raises(UnknownTopicError, match="row 0 of the task"):
        encode([row(partition=1)], topics=Topics(orders=target(partitions=1)))


def test_an_unknown_topic_in_the_column_is_refused() -> None:
    with pytest.raises(UnknownTopicError, match="nowhere"):
        encode([row(), row(topic="nowhere")], topic=None)


def test_a_row_above_max_message_bytes_is_named_counting_rows_of_earlier_flushes() -> None:
    big = b"x" * (9 << 20)
    topics = Topics(large=target("large", 1, max_message_bytes=1 << 25), small=target("small", 1))
    first = [row(big, topic="large")]
    second = [row(big, topic="large"), row(topic="small"), row(b"y" * (1 << 20), topic="small")]

    with pytest.raises(MessageTooLargeError) as caught:
        encode(first, second, topics=topics, topic=None)

    assert str(caught.value).startswith("row 3 of the task is too large for topic 'small'")
    assert caught.value.expected == "at most 1048588"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_no_batch_is_built_that_decompresses_to_more_than_its_topic_allows(codec: str) -> None:
    limits = {"max_message_bytes": 100_000, "streamlog_max_decompressed_bytes": 200_000}
    config = LogConfig(compression_type=codec, **limits)
    topics = Topics(orders=TopicTarget("orders", 1, TopicRules.of(config)))
    fits = [row(b"x" * 90_000)] * 7 + [row(b"x" * 199_000)]

    batches = encode(fits, topics=topics).batches

    for encoded in chain.from_iterable(batches.values()):
        check_decompressed(encoded.buffer, encoded.table, max_decompressed=200_000)
    with pytest.raises(MessageTooLargeError) as caught:
        encode(fits, [row(b"y"), row(b"x" * 200_001)], topics=topics)
    assert str(caught.value).startswith(
        "row 9 of the task is larger than the decompressed size limit"
    )
    assert "streamlog.max.decompressed.bytes" in str(caught.value)


def test_what_compresses_below_max_message_bytes_is_taken() -> None:
    rows = [row(b"y" * (2 << 20), partition=0)]

    assert len(encode(rows, compression=CompressionType.ZSTD).records("orders", 0)) == 1
    with pytest.raises(MessageTooLargeError):
        encode(rows)


@pytest.mark.parametrize("keys", [[None, None], ["k", None]])
def test_a_compacted_topic_refuses_rows_without_a_key(keys: list[str | None]) -> None:
    topics = Topics(orders=target(cleanup_policy="compact,delete"))
    index = keys.index(None)

    with pytest.raises(InvalidRecordError, match=f"row {index} of the task has no key"):
        encode([row(None, key=key) for key in keys], topics=topics)


def test_a_compacted_topic_takes_tombstones_with_a_key() -> None:
    topics = Topics(orders=target(partitions=1, cleanup_policy="compact"))

    (record,) = encode([row(None, key="k")], topics=topics).records("orders", 0)

    assert (record.key, record.value) == (b"k", None)


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("properties", "timestamp_ms", "is_taken"),
    [
        ({}, NOW_MS + HOUR_MS, True),
        ({}, NOW_MS + HOUR_MS + 1, False),
        ({}, 0, True),
        ({}, -1, True),
        ({}, -2, False),
        ({"message_timestamp_before_max_ms": 2 * NOW_MS}, -2, False),
        ({"message_timestamp_before_max_ms": 1000}, NOW_MS - 1000, True),
        ({"message_timestamp_before_max_ms": 1000}, NOW_MS - 1001, False),
        ({"message_timestamp_before_max_ms": 1000}, -1, True),
        ({"message_timestamp_type": "LogAppendTime"}, NOW_MS + 10 * HOUR_MS, True),
    ],
)
def test_timestamps_must_lie_in_the_bounds_of_a_topic_that_keeps_them(
    properties: dict[str, Any], timestamp_ms: int, *, is_taken: bool
) -> None:
    topics = Topics(orders=target(**properties))
    rows = [row(key="a"), row(key="b", timestamp=timestamp_ms * 1000)]

    if is_taken:
        encode(rows, topics=topics)
    else:
        with pytest.raises(InvalidTimestampError, match=r"row 1 (of the task )?has a timestamp"):
            encode(rows, topics=topics)
