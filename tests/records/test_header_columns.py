"""Gathering headers into columns: two bytes of a log take eight bytes of memory, and no slot."""

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.records import kernels, plain_records
from streamlog.records import slot as s
from streamlog.records.builder import encode_varlong
from streamlog.records.columns import BinaryColumn


def field_of(value: bytes | None) -> bytes:
    return encode_varlong(-1) if value is None else encode_varlong(len(value)) + value


@given(
    st.lists(st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)))),
    st.sampled_from([kernels, plain_records]),
)
def test_copying_headers_gathers_what_was_written(
    records: list[list[tuple[str, bytes | None]]], loops: ModuleType
) -> None:
    flat = [header for headers in records for header in headers]
    parts = [
        b"".join(field_of(key.encode()) + field_of(value) for key, value in one) for one in records
    ]
    source = as_source(b"".join(parts) + bytes(s.SLOT_WIDTH))
    positions = np.cumsum([0, *map(len, parts)])[:-1].astype(np.int64)
    offsets = np.cumsum([0, *map(len, records)]).astype(np.int32)
    places, validity = np.empty((2, len(flat) + 1), np.int32), np.full(len(flat), 0xFF, np.uint8)
    totals, nothing = np.zeros(3, np.int64), np.empty(0, np.uint8)

    none = np.empty((2, 0), np.int32)
    loops.copy_headers(source, positions, offsets, none, nothing, nothing, nothing, totals)
    key, value = np.empty(int(totals[0]), np.uint8), np.empty(int(totals[1]), np.uint8)
    count = loops.copy_headers(
        source, positions, offsets, places, validity, key, value, totals.copy()
    )

    assert count == len(flat)
    assert totals[2] == sum(value is None for _, value in flat)
    keys, values = BinaryColumn(places[0], key), BinaryColumn(places[1], value, validity)
    assert list(zip(keys, values, strict=True)) == [(k.encode(), v) for k, v in flat]


@pytest.mark.parametrize("loops", [kernels, plain_records])
def test_copying_headers_refuses_a_full_column(loops: ModuleType) -> None:
    source = as_source(b"\x04ab\x02v" + bytes(s.SLOT_WIDTH))
    one = np.zeros(1, np.int64), np.array([0, 1], np.int32), np.empty((2, 2), np.int32)
    validity, totals = np.full(1, 0xFF, np.uint8), np.zeros(3, np.int64)
    for sizes in ((1, 1), (2, 0)):
        key, value = (np.empty(size, np.uint8) for size in sizes)
        status = loops.copy_headers(source, *one, validity, key, value, totals)
        assert status == s.OUT_OF_ROOM
