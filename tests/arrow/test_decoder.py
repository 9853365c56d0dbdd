"""Records as Arrow: the exact types Spark expects, values as they were, bounded batches."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.schema import COLUMN_NAMES, arrow_schema, spark_schema
from streamlog.errors import InvalidTimestampError
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.read import FetchInfo
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.columns import RecordColumns
from streamlog.records.record import CompressionType, Header, Record
from streamlog.topic import TopicPartition

PARTITION = TopicPartition("orders", 3)
BYTES = st.none() | st.binary(max_size=12)
HEADERS = st.lists(st.builds(Header, st.text(max_size=4), BYTES), max_size=3).map(tuple)
FIELDS = st.tuples(BYTES, BYTES, HEADERS, st.integers(-1, 2**52))
RECORDS = st.lists(FIELDS.map(lambda fields: Record(*fields)), min_size=1, max_size=30)


def fetch_of(batches, compression=CompressionType.NONE):
    """Return batches of records as a fetch would."""
    buffer, offset = b"", 0
    for records in batches:
        builder = BatchBuilder(base_offset=offset, compression=compression)
        for record in records:
            builder.append(record)
        buffer += builder.build()
        offset += len(records)
    return FetchInfo(
        offset=0,
        buffer=buffer,
        table=scan_batches(buffer).table,
        next_offset=offset,
        end_offset=2**63 - 1,
        offsets=LogOffsets.of_one_replica(0, offset),
        last_stable_offset=offset,
    )


def rows_of(batches):
    return pa.Table.from_batches(batches).to_pylist()


def expected_row(record, offset):
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": 0,
        "headers": [header._asdict() for header in record.headers] or None,
    }


@settings(deadline=None)  # kernels are compiled at first use
@given(st.lists(RECORDS, min_size=1, max_size=3), st.sampled_from(CompressionType))
def test_arrow_has_every_record_as_it_was_written(batches, compression):
    decoder = ArrowDecoder(COLUMN_NAMES)
    decoded = list(decoder.decode(fetch_of(batches, compression), PARTITION))
    for batch in decoded:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(COLUMN_NAMES))
    table = pa.Table.from_batches(decoded)
    times = table.schema.get_field_index("timestamp")
    table = table.set_column(times, "timestamp", table["timestamp"].cast(pa.int64()))
    flat = [record for records in batches for record in records]
    assert table.to_pylist() == [expected_row(record, at) for at, record in enumerate(flat)]


@pytest.mark.parametrize("name", COLUMN_NAMES)
def test_single_column_has_the_same_values_as_among_all(name):
    records = [Record(b"k", None, (Header("h", b"x"),), 5), Record(None, b"v", (), 6)]
    everything = rows_of(ArrowDecoder(COLUMN_NAMES).decode(fetch_of([records]), PARTITION))
    alone = rows_of(ArrowDecoder((name,)).decode(fetch_of([records]), PARTITION))
    assert alone == [{name: row[name]} for row in everything]


@pytest.mark.parametrize("columns", [COLUMN_NAMES, COLUMN_NAMES[:-1], ("value", "offset")])
def test_schema_is_the_one_spark_derives(columns):
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    arrow_types = arrow_schema(columns)
    assert to_arrow_schema(from_arrow_schema(arrow_types), timezone="UTC").equals(arrow_types)
    types = {"bigint": "bigint", "int": "int"}
    described = ", ".join(
        f"{field.name} {types.get(field.dataType.simpleString(), field.dataType.simpleString())}"
        for field in from_arrow_schema(arrow_types).fields
    )
    assert described == spark_schema(columns)


# ---- timestamps ---------------------------------------------------------------------------------
LIMIT = (2**63 - 1) // 1000


def timestamps(values, rule):
    records = RecordColumns(
        count=len(values),
        offset=np.arange(len(values)),
        timestamp=np.array(values, np.int64),
        timestamp_type=np.zeros(len(values), np.int32),
    )
    batch = ArrowDecoder(("timestamp",), invalid_timestamps=rule).to_arrow(records, PARTITION)
    batch.validate(full=True)
    return batch["timestamp"].cast(pa.int64()).to_pylist()


def test_no_timestamp_reads_as_one_millisecond_before_1970():
    assert timestamps([-1, 0, 1], "error") == [-1000, 0, 1000]


def test_timestamps_up_to_the_limit_fit():
    assert timestamps([LIMIT, -LIMIT], "error") == [LIMIT * 1000, -LIMIT * 1000]


@pytest.mark.parametrize("value", [LIMIT + 1, -LIMIT - 1, 2**63 - 1, -(2**63)])
def test_timestamp_that_does_not_fit_names_its_offset_or_is_null(value):
    with pytest.raises(InvalidTimestampError, match=r"orders-3.*at offset 1") as caught:
        timestamps([7, value], "error")
    assert caught.value.got == f"{value} ms"
    assert timestamps([7, value, 8], "null") == [7000, None, 8000]


def test_topic_and_partition_are_those_of_each_fetch():
    decoder = ArrowDecoder(("topic", "partition"))
    orders, other = PARTITION, TopicPartition("other", 4)
    for partition, count in ((orders, 3), (orders, 5), (orders, 2), (other, 2), (orders, 9)):
        fetch = fetch_of([[Record(b"k", b"v", (), 1)] * count])
        [batch] = decoder.decode(fetch, partition)
        batch.validate(full=True)
        row = {"topic": partition.topic, "partition": partition.partition}
        assert batch.to_pylist() == [row] * count


# ---- bounds -------------------------------------------------------------------------------------
def test_batches_are_joined_up_to_the_bound_of_rows():
    fetch = fetch_of([[Record(b"k", b"v", (), 1)] * 4] * 5)
    decoder = ArrowDecoder(("value",), max_rows=10)
    assert [batch.num_rows for batch in decoder.decode(fetch, PARTITION)] == [8, 8, 4]


def test_one_large_batch_is_handed_on_in_slices():
    fetch = fetch_of([[Record(None, bytes([n]), (), n) for n in range(40)]])
    decoder = ArrowDecoder(("value", "offset"), max_rows=16)
    batches = list(decoder.decode(fetch, PARTITION))
    assert [batch.num_rows for batch in batches] == [16, 16, 8]
    assert [row["offset"] for row in rows_of(batches)] == list(range(40))


def test_compressed_batches_are_joined_only_as_far_as_they_unfold():
    fetch = fetch_of([[Record(None, bytes(1000), (), 1)] * 4] * 6, CompressionType.ZSTD)
    decoder = ArrowDecoder(("value",), max_bytes=8000)
    assert [batch.num_rows for batch in decoder.decode(fetch, PARTITION)] == [8, 8, 8]


def test_tiny_rows_do_not_let_large_ones_behind_them_grow_into_one_batch():
    tiny, large = [Record(b"k", b"", (), 1)] * 500, [Record(b"k", bytes(1 << 20), (), 1)]
    fetch = fetch_of([tiny, *[large] * 40], CompressionType.ZSTD)
    decoder = ArrowDecoder(("key", "value"), max_bytes=4 << 20)
    batches = list(decoder.decode(fetch, PARTITION))
    assert sum(batch.num_rows for batch in batches) == 540
    assert max(batch.nbytes for batch in batches) < 6 << 20


def test_fetch_of_nothing_yields_nothing():
    fetch = fetch_of([[Record(b"k", b"v", (), 1)]])
    assert list(ArrowDecoder(("value",)).decode(fetch_of([]), PARTITION)) == []
    assert len(fetch.table) == 1


def test_decoding_loads_neither_pandas_nor_pyspark():
    program = """
import sys, numpy
from streamlog.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.record import Header
from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.schema import COLUMN_NAMES
from streamlog.topic import TopicPartition
one = numpy.zeros(1, numpy.int64)
columns = RecordColumns(
    count=1, offset=one, timestamp=one, timestamp_type=one.astype("i4"),
    key=BinaryColumn.from_values([b"k"]),
    headers=HeaderColumn.from_values([(Header("a", b"b"),)]),
)
batch = ArrowDecoder(COLUMN_NAMES).to_arrow(columns, TopicPartition("t", 0))
assert batch.num_rows == 1
print([name for name in ("pandas", "pyspark") if name in sys.modules])
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
