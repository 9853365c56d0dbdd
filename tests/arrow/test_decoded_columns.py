"""Decoded keys and values, and `_error`, without Spark."""

import pickle

import pyarrow as pa
import pytest

from streamlog.arrow.decoded_columns import ERROR_TYPE, DecodedColumns, Decoding, OnBadRecord
from streamlog.arrow.schema import arrow_schema, choose_columns
from streamlog.decoding.decoder import DecoderSpec, Format
from streamlog.errors import InvalidOptionError, InvalidRecordError

KEY = DecoderSpec(format=Format.JSON, schema="k INT").resolve()
VALUE = DecoderSpec(format=Format.JSON, schema="id INT").resolve()
RECORDS = [
    (b'{"k":1}', b'{"id":1}'),
    (b"x", b'{"id":2}'),
    (b'{"k":3}', b"x"),
    (b"x", b"y"),
    (None, b"\0\0\0\0\7no"),
    (None, None),
    (b'{"k":7}', b"\0\0\0\0\7" + b'{"id":7}'),
]


def decoded(decoding, columns, records=RECORDS):
    """Return what becomes of records, after the decoding went to another process."""
    step = DecodedColumns(pickle.loads(pickle.dumps(decoding)), columns)
    keys, values = zip(*records, strict=True)
    count = len(records)
    stored = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["orders"] * count),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(100, 100 + count), pa.int64()),
    }
    schema = arrow_schema(step.raw)
    raw = pa.RecordBatch.from_arrays([stored[name] for name in step.raw], schema=schema)
    (batch,) = step.decode([raw])
    assert batch.schema.equals(step.schema)
    batch.validate(full=True)
    return batch


def test_each_bad_record_has_its_bytes_and_the_reason() -> None:
    batch = decoded(Decoding(key=KEY, value=VALUE), ("key", "value", "_error"))

    assert batch.column("key").to_pylist() == [
        {"k": 1},
        None,
        {"k": 3},
        None,
        None,
        None,
        {"k": 7},
    ]
    assert batch.column("value").to_pylist() == [
        {"id": 1},
        {"id": 2},
        None,
        None,
        None,
        None,
        {"id": 7},
    ]
    errors = batch.column("_error").to_pylist()
    assert [error and error["field"] for error in errors] == [
        None,
        "key",
        "value",
        "key, value",
        "value",
        None,
        None,
    ]
    assert [error and (error["key"], error["value"], error["schemaId"]) for error in errors] == [
        None,
        (b"x", b'{"id":2}', None),
        (b'{"k":3}', b"x", None),
        (b"x", b"y", None),
        (None, b"\0\0\0\0\7no", 7),
        None,
        None,
    ]
    assert errors[1]["message"].startswith("invalid JSON")
    assert errors[3]["message"].startswith("key: invalid JSON")
    assert "; value: invalid JSON" in errors[3]["message"]


def test_one_format_leaves_the_other_field_as_bytes() -> None:
    batch = decoded(Decoding(value=VALUE), ("key", "value", "_error"))

    assert batch.column("key").to_pylist() == [key for key, _ in RECORDS]
    errors = batch.column("_error")
    assert errors.type == ERROR_TYPE
    assert errors.null_count == len(RECORDS) - 3
    assert errors[4].as_py()["key"] is None


@pytest.mark.parametrize(
    ("columns", "raw"),
    [
        (("offset",), ("offset",)),
        (("value", "offset"), ("value", "offset")),
        (("_error",), ("key", "value")),
        (("topic", "_error"), ("key", "value", "topic")),
    ],
)
def test_no_more_is_read_than_the_columns_need(columns, raw) -> None:
    assert DecodedColumns(Decoding(value=VALUE), columns).raw == raw
    assert decoded(Decoding(value=VALUE), columns).schema.names == list(columns)


def test_a_batch_without_errors_and_an_empty_one() -> None:
    good = decoded(Decoding(value=VALUE), ("value", "_error"), RECORDS[:2])
    assert good.column("_error").null_count == 2
    step = DecodedColumns(Decoding(value=VALUE), ("value", "_error"))
    nothing = pa.RecordBatch.from_pylist([], schema=arrow_schema(step.raw))
    assert next(step.decode([nothing])).num_rows == 0


def test_fail_fast_names_the_first_bad_record() -> None:
    decoding = Decoding(value=VALUE, on_bad_record=OnBadRecord.FAILFAST)
    with pytest.raises(InvalidRecordError, match="the value of a record of orders-3") as raised:
        decoded(decoding, ("value",))
    assert raised.value.offset == 102
    assert decoded(decoding, ("value",), RECORDS[:2]).num_rows == 2


def test_the_column_of_errors_is_known_only_where_something_is_decoded() -> None:
    assert choose_columns("_error,value", include_headers=False, has_errors=True) == (
        "value",
        "_error",
    )
    with pytest.raises(InvalidOptionError, match="unknown column"):
        choose_columns("_error", include_headers=False)
