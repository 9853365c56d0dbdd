"""Columns as text: compiled and plain agree, and text gives back what went in."""

import base64

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import InvalidRecordError
from streamlog.exchange.text import as_text, decoded, from_milliseconds, quoted
from streamlog.records.json_objects import ENCODINGS
from streamlog.records.record import Header
from tests.records.test_json_records import BYTES, HEADERS, ODD_TEXT
from tests.twins.exported_text import (
    plain_encode_headers,
    plain_encode_values,
    plain_mark_invalid,
    plain_quote_values,
)

PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = st.lists(st.tuples(st.none() | BYTES, HEADERS), max_size=12)


@given(ROWS, st.sampled_from(ENCODINGS), st.integers(0, 3))
@settings(deadline=None)
def test_compiled_and_plain_write_the_same(
    rows: list[tuple[bytes | None, tuple[Header, ...]]], encoding: str, cut: int
) -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([value for value, _ in rows], pa.binary()),
            pa.array([[tuple(each) for each in headers] or None for _, headers in rows], PAIRS),
        ],
        names=["value", "headers"],
    ).slice(cut)
    rows = rows[cut:]
    text = as_text(batch, ("value", "headers"), encoding)
    text.validate(full=True)
    *values, headers = text.columns
    given_values = [value for value, _ in rows]
    if encoding == "utf8":
        marks = list(zip(given_values, plain_mark_invalid(given_values), strict=True))
        texts = [None if bad or value is None else value.decode() for value, bad in marks]
        others = plain_encode_values([value if bad else None for value, bad in marks], "base64")
        assert [each.to_pylist() for each in values] == [texts, others]
    else:
        assert values[0].to_pylist() == plain_encode_values(given_values, encoding)
    assert headers.to_pylist() == plain_encode_headers([each for _, each in rows], encoding)
    if encoding != "utf8":
        assert decoded(values[0], encoding, "value").to_pylist() == [value for value, _ in rows]


@given(st.lists(st.none() | ODD_TEXT, max_size=12), st.integers(0, 3))
@settings(deadline=None)
def test_text_is_quoted_as_json(values: list[str | None], cut: int) -> None:
    column = pa.array(values, pa.string()).slice(cut)
    assert quoted(column).to_pylist() == plain_quote_values(values[cut:])


@given(st.lists(st.none() | st.binary(max_size=9), max_size=9), st.integers(0, 3))
@settings(deadline=None)
def test_base64_and_hex_give_back_the_bytes(values: list[bytes | None], cut: int) -> None:
    for encoding, encode in (("base64", base64.b64encode), ("hex", lambda value: value.hex())):
        texts = [None if value is None else encode(value) for value in values]
        column = pa.array(texts, pa.string()).slice(cut)
        assert decoded(column, encoding, "key").to_pylist() == values[cut:]


@given(st.text("AZaz09+/= \u00e9", max_size=9))
@settings(deadline=None)
def test_what_python_refuses_is_refused(text: str) -> None:
    try:
        wanted = base64.b64decode(text.encode(), validate=True)
    except ValueError:
        wanted = None
    column = pa.array(["", text, None])
    try:
        assert decoded(column, "base64", "key").to_pylist() == [b"", wanted, None]
    except InvalidRecordError as error:
        assert "row 1" in error.what
        # Python 3.11 takes text after the padding of an earlier group.
        assert wanted is None or text.rstrip("=").count("=")


def test_bad_hex_and_times_are_named() -> None:
    for bad in ("0", "0g", "é0"):
        with pytest.raises(InvalidRecordError, match="row 1"):
            decoded(pa.array(["00", bad]), "hex", "key")
    with pytest.raises(InvalidRecordError, match="fit into microseconds"):
        from_milliseconds(pa.array([2**62]))
