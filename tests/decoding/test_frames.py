"""Schemas that headers of records name: bytes of all kinds, beside Confluent's deserializer."""

import struct
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka.schema_registry import dual_schema_id_deserializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.decoding.arrays import validity_of
from streamlog.decoding.frames import Frames, frames_of, why_unknown
from streamlog.decoding.framing import data_of, ids_of, spans_of
from streamlog.decoding.framing_kernels import find_changes, find_headers, read_ids
from tests.twins.framing import plain_find_changes, plain_find_headers, plain_read_ids

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NAME = "__value_schema_id"
GUIDS = [uuid.UUID(int=number) for number in (1, 2, 1 << 100)]
NAMES = st.sampled_from([NAME, "__key_schema_id", "__value_schema_ie", "_", "", NAME + "s", "ä"])
IDS = (
    st.sampled_from([b"\1" + guid.bytes for guid in GUIDS])
    | st.sampled_from([b"", b"\1", b"\0\0\0\1", b"\0\0\0\0\7", b"\0\xff\xff\xff\xff", b"\2" * 17])
    | st.binary(max_size=20)
    | st.builds(lambda guid, more: b"\1" + guid.bytes + more, st.sampled_from(GUIDS), st.binary())
)
HEADER = st.fixed_dictionaries({"key": NAMES, "value": st.none() | IDS})
RECORDS = st.lists(st.none() | st.lists(HEADER, max_size=4), max_size=8)


def frames(values: list[bytes | None], headers: Any, field: str = "value") -> Frames:
    column = None if headers is None else pa.array(headers, HEADERS)
    return frames_of(pa.array(values, pa.binary()), column, field)


def reference(value: bytes, headers: list[Any]) -> tuple[int | str, bytes] | None:
    """Return the schema and the encoded value that Confluent's client for Python finds."""
    context = SerializationContext("t", MessageField.VALUE, headers)
    found = SchemaId("AVRO")
    try:
        payload = dual_schema_id_deserializer(value, context, found)
    except (struct.error, ValueError, SerializationError):
        return None
    return found.id if found.guid is None else str(found.guid), payload.read()


@given(RECORDS, st.integers(0, 3))
def test_find_headers_agrees_with_its_twin(records: list[Any], skipped: int) -> None:
    column = pa.array(records, HEADERS)[skipped:]
    pairs = column.values
    stored = np.frombuffer(column.buffers()[1] or b"\0" * 4, np.int32).astype(np.int64)
    offsets = stored[column.offset : column.offset + len(column) + 1]
    places = np.empty(len(column), np.int64)
    keys = pairs.field(0)
    found = find_headers(
        (offsets[:-1], offsets[1:]),
        spans_of(keys),
        as_source(data_of(keys)),
        np.ones(len(keys), bool),
        as_source(NAME.encode()),
        places,
    )
    expected = plain_find_headers(records[skipped:], NAME)
    assert found == sum(place >= 0 for place in expected)
    at = np.where(places < 0, -1, places - offsets[: len(places)])
    assert at.tolist() == expected


@given(st.lists(st.none() | IDS))
def test_read_ids_agrees_with_its_twin(values: list[bytes | None]) -> None:
    column = pa.array(values, pa.binary())
    ids = np.empty(len(values), np.int64)
    found = read_ids(as_source(data_of(column)), spans_of(column), validity_of(column), ids)
    assert ids.tolist() == plain_read_ids(values)
    assert found == sum(each >= 0 for each in ids.tolist())
    plain = ids_of(data_of(column), *spans_of(column))  # that of JSON, which loads no numba
    assert np.where(validity_of(column), plain, -1).tolist() == ids.tolist()


@given(st.lists(IDS | st.sampled_from([b"a", b"b"])))
def test_find_changes_agrees_with_its_twin(values: list[bytes]) -> None:
    column = pa.array(values, pa.binary())
    is_new = np.empty(len(values), np.bool_)
    found = find_changes(as_source(data_of(column)), *spans_of(column), is_new)
    assert is_new.tolist() == plain_find_changes(values)
    assert found == is_new.sum()


@given(st.data(), st.lists(IDS | st.just(b"\0\0\0\0\5abc"), min_size=1, max_size=8))
def test_headers_are_read_as_confluents_deserializer_reads_them(
    data: st.DataObject, values: list[bytes]
) -> None:
    """Of several headers it takes the first, the one for Java the last, as ours does."""
    count = len(values)
    headers = data.draw(st.lists(st.lists(HEADER, max_size=3), min_size=count, max_size=count))
    found = frames([*values], headers)
    for row, (value, pairs) in enumerate(zip(values, headers, strict=True)):
        reversed_pairs = [(each["key"], each["value"]) for each in reversed(pairs)]
        writer = int(found.writers[row])
        why = why_unknown(writer, "value")
        payload = bytes(found.values.data[found.values.starts[row] : found.values.ends[row]])
        ours = None if why else (found.schema(writer), payload)
        theirs = reference(value, reversed_pairs)
        of_name = [each for key, each in reversed_pairs if key == NAME]
        if theirs and isinstance(theirs[0], str) and (not of_name or of_name[0] is None):
            theirs = None  # a GUID in front of a value, which no serializer writes
        assert ours == theirs
        assert why is None or (NAME in why) == (writer == -2)


def test_null_lists_slices_and_null_headers() -> None:
    guid = b"\1" + GUIDS[0].bytes
    pairs = pa.array([{"key": NAME, "value": guid}] * 3 + [None], HEADERS.value_type)
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3, 4], pa.int32()), pairs, mask=pa.array([False, True, False, False])
    ).cast(HEADERS)
    values = pa.array([b"x"] * 4, pa.binary())
    assert frames_of(values, hidden, "value").writers.tolist() == [-3, -1, -3, -1]
    assert frames_of(values[1:], hidden[1:], "value").writers.tolist() == [-1, -3, -1]
    assert frames_of(values, hidden, "key").writers.tolist() == [-1] * 4
    empty = frames([], [])
    assert len(empty.writers) == 0
    assert frames([None, b"\0\0\0\0\1x"], [[{"key": NAME, "value": guid}]] * 2).guids
    assert frames([None], [[{"key": NAME, "value": b"bad"}]]).writers.tolist() == [-1]
