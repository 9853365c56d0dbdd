"""Records as JSON: compiled and plain agree, and JSON gives back what went in."""

import base64
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.json_lines import format_records
from streamlog.records.json_objects import ENCODINGS
from streamlog.records.record import Header, Record
from streamlog.topic import TopicPartition
from tests.twins.json_records import plain_format_records

PARTITION = TopicPartition("orders", 3)
INT64 = st.integers(-(2**63), 2**63 - 1)

# Text with everything that needs care, bytes that are almost UTF-8, and any bytes at all.
ODD_TEXT = st.text(
    st.sampled_from('a"\\/\b\f\n\r\t\0\x1b\x7f\x80\x85\x9f\xa0é\u2027\u2028\u2029\u202a€\uffff😀'),
    max_size=12,
)
ALMOST_UTF8 = st.lists(
    st.sampled_from(
        b"\xc0\x80 \xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xf0\x9f\x98 \xe2\x80 \xc2 \x80"
        b" \xf8 \xf4\x8f\xbf\xbf \xee\x80\x80 ok".split(b" ")
    ),
    max_size=3,
).map(b"".join)
BYTES = st.one_of(ODD_TEXT.map(str.encode), ALMOST_UTF8, st.binary(max_size=20))
# Longer than the words that the kernels look at, with something odd anywhere.
LONG = st.lists(
    st.one_of(st.sampled_from(["plain text, ", "0123456", "x"]), ODD_TEXT), max_size=8
).map(lambda parts: "".join(parts).encode())
BYTES = st.one_of(BYTES, LONG, st.tuples(LONG, ALMOST_UTF8, LONG).map(b"".join))
HEADERS = st.lists(st.builds(Header, ODD_TEXT, st.none() | BYTES), max_size=3).map(tuple)
RECORDS = st.lists(
    st.tuples(st.none() | BYTES, st.none() | BYTES, HEADERS, INT64).map(lambda t: Record(*t)),
    max_size=10,
)


def columns_of(records: list[Record], kind: int = 0) -> RecordColumns:
    count = len(records)
    return RecordColumns(
        count=count,
        offset=np.arange(count, dtype=np.int64) * 7,
        timestamp=np.array([record.timestamp for record in records], np.int64),
        timestamp_type=np.full(count, kind, np.int32),
        key=BinaryColumn.from_values(record.key for record in records),
        value=BinaryColumn.from_values(record.value for record in records),
        headers=HeaderColumn.from_values(record.headers for record in records),
    )


def objects(data: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in data.decode().splitlines()]


@given(RECORDS, st.sampled_from(ENCODINGS), st.sampled_from([-1, 0, 1]))
@settings(deadline=None)
def test_compiled_and_plain_write_the_same(records: list[Record], encoding: str, kind: int) -> None:
    columns = columns_of(records, kind)
    compiled = bytes(format_records(columns, PARTITION, encoding=encoding))
    assert compiled == plain_format_records(columns, PARTITION, encoding=encoding)


@given(RECORDS, st.data())
@settings(deadline=None)
def test_fields_that_are_json_already_stay(records: list[Record], data: st.DataObject) -> None:
    values = [b',"value":%d' % number for number in range(len(records))]
    written = [each._replace(value=value) for each, value in zip(records, values, strict=True)]
    endings = data.draw(st.lists(st.sampled_from([b"", b',"error":"x"']), min_size=len(records)))
    rest = BinaryColumn.from_values(endings[: len(records)])
    columns, given = columns_of(written), {"written": ("value",), "rest": rest}
    compiled = bytes(format_records(columns, PARTITION, **given))
    assert compiled == plain_format_records(columns, PARTITION, **given)
    assert [row["value"] for row in objects(compiled)] == list(range(len(records)))


@given(RECORDS)
@settings(deadline=None)
def test_json_gives_back_every_field(records: list[Record]) -> None:
    written = bytes(format_records(columns_of(records), PARTITION))
    found = objects(written)  # splitlines: no character of a record ends a line
    assert len(found) == len(records)
    for got, record in zip(found, records, strict=True):
        assert got["timestamp"] == record.timestamp
        assert field(got, "key") == record.key
        assert field(got, "value") == record.value
        headers = [(h["key"], field(h, "value")) for h in got["headers"]]
        assert headers == list(record.headers)


def field(found: dict[str, object], name: str) -> bytes | None:
    if f"{name}Base64" in found:
        raw = base64.b64decode(str(found[f"{name}Base64"]))
        with pytest.raises(UnicodeDecodeError):
            raw.decode()
        return raw
    return None if found[name] is None else str(found[name]).encode()


def test_keys_stand_in_the_documented_order() -> None:
    record = Record(key=b"k", value=b"v", headers=(Header("a", None),), timestamp=5)
    assert bytes(format_records(columns_of([record]), PARTITION)) == (
        b'{"topic":"orders","partition":3,"offset":0,"timestamp":5,"timestampType":"CreateTime",'
        b'"key":"k","value":"v","headers":[{"key":"a","value":null}]}\n'
    )


def test_missing_columns_read_as_null_and_no_headers() -> None:
    columns = RecordColumns(
        count=9,
        offset=np.arange(9, dtype=np.int64),
        timestamp=np.zeros(9, np.int64),
        timestamp_type=np.zeros(9, np.int32),
    )
    for found in objects(bytes(format_records(columns, PARTITION))):
        assert (found["key"], found["value"], found["headers"]) == (None, None, [])


def test_no_records_are_no_bytes() -> None:
    assert bytes(format_records(columns_of([]), PARTITION)) == b""
