"""The kernels compared with their plain twins, on sound, damaged and arbitrary bytes."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamlog.binary.arrays import as_source, read_only
from streamlog.errors import InvalidRequestError
from streamlog.records import (
    batch_kernels,
    kernels,
    plain_headers,
    plain_records,
    write_kernels,
)
from streamlog.records import slot as s
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder, KeptOffsets, encode_columns
from streamlog.records.columns import BinaryColumn, HeaderColumn, InputColumns
from streamlog.records.decode import decode_columns
from streamlog.records.layout import CONTROL_MASK
from streamlog.records.record import Header, Record
from streamlog.records.table import (
    CRC,
    LAST_OFFSET,
    POSITION,
    SIZE,
    WIDTH,
    BatchTable,
    ScanStop,
)
from tests.twins import records as twins
from tests.twins.binary import plain_write_varlong

BYTES = st.binary(max_size=12) | st.binary(min_size=60, max_size=140)
NULLABLE = st.none() | BYTES
HEADERS = st.lists(st.builds(Header, st.text(max_size=4), st.none() | st.binary(max_size=5)))
TIMESTAMPS = st.integers(-1, 2**63 - 1) | st.integers(0, 300)
RECORDS = st.builds(Record, NULLABLE, NULLABLE, HEADERS.map(tuple), TIMESTAMPS)
INT64 = st.integers(-(2**63), 2**63 - 1)
LOOPS = st.sampled_from([kernels, plain_records])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """One sound, uncompressed batch."""
    base_offset = draw(st.integers(0, 1000) | st.integers(0, 2**62))
    builder = BatchBuilder(
        base_offset=base_offset,
        log_append_time=draw(st.none() | st.integers(0, 2**40)),
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        is_control=draw(st.booleans()),
    )
    for record in draw(st.lists(RECORDS, min_size=1, max_size=5)):
        builder.append(record._replace(offset=-1))
    return builder.build()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Several batches, some with changed or missing bytes; sometimes arbitrary bytes."""
    buffer = bytearray(b"".join(draw(st.lists(batches(), max_size=3))))
    if not buffer:
        return draw(st.binary(max_size=200))
    for _ in range(draw(st.integers(0, 3))):
        buffer[draw(st.integers(0, len(buffer) - 1))] = draw(st.integers(0, 255))
    return bytes(buffer[: draw(st.integers(0, len(buffer)) | st.just(len(buffer)))])


def rows_of(table: BatchTable) -> list[twins.Batch]:
    return [twins.Batch(*row) for row in table.fields.tolist()]


def slots_of(array: NDArray[np.int64]) -> list[twins.Slot]:
    return [
        twins.Slot(
            row[s.SLOT_OFFSET],
            row[s.SLOT_TIMESTAMP],
            twins.Field(row[s.SLOT_KEY], row[s.SLOT_KEY_SIZE]),
            twins.Field(row[s.SLOT_VALUE], row[s.SLOT_VALUE_SIZE]),
            twins.Field(row[s.SLOT_HEADERS], row[s.SLOT_HEADERS_SIZE]),
            row[s.SLOT_HEADER_COUNT],
        )
        for row in array.tolist()
    ]


# ---- batches -----------------------------------------------------------------------------------
@given(damaged())
def test_scanning_agrees_with_the_plain_twin(buffer: bytes) -> None:
    scan = scan_batches(buffer)
    plain = plain_headers.scan_batches(memoryview(buffer))
    assert (rows_of(scan.table), scan.stop, scan.consumed) == plain


@given(batches(), batches())
def test_plain_scanning_stops_at_the_given_end(first: bytes, second: bytes) -> None:
    rows, stop, consumed = plain_headers.scan_batches(memoryview(first + second), most=1)
    assert (len(rows), stop, consumed) == (1, ScanStop.END, len(first))


@given(damaged(), st.integers(0, 2**20), st.booleans())
def test_writing_headers_agrees_with_the_plain_twin(
    buffer: bytes, place: int, are_new: bool
) -> None:
    results = []
    for loops in (batch_kernels, plain_headers):
        fields = scan_batches(buffer).table.fields.copy()
        target = np.frombuffer(buffer, np.uint8)[: len(buffer) - place % 3].copy()
        target[: place % (len(target) + 1)] = 9
        written = loops.write_headers(fields, target, are_new)
        results.append((written, target.tobytes(), fields.tolist()))
    assert results[0] == results[1]


@given(damaged(), st.integers(0, 2))
def test_finding_a_bad_checksum_agrees_with_the_plain_twin(buffer: bytes, missing: int) -> None:
    fields = scan_batches(buffer).table.fields
    source = as_source(buffer)[: len(buffer) - missing]
    bad = batch_kernels.find_bad_checksum(source, fields)
    assert bad == plain_headers.find_bad_checksum(source, fields)


@pytest.mark.parametrize("position, size", [(-1, 61), (0, 60), (0, 101), (40, 61), (2**62, 2**62)])
def test_a_batch_outside_the_buffer_is_neither_read_nor_written(position: int, size: int) -> None:
    fields = np.zeros((1, WIDTH), np.int64)
    fields[0, POSITION], fields[0, SIZE] = position, size
    for loops in (batch_kernels, plain_headers):
        assert loops.find_bad_checksum(as_source(bytes(100)), fields) == 0
        target = np.zeros(100, np.uint8)
        assert loops.write_headers(fields, target, True) == 0
        assert not target.any()


@given(batches())
def test_writing_headers_inverts_scanning(buffer: bytes) -> None:
    target = np.frombuffer(buffer, np.uint8).copy()
    target[:61] = 0
    table = scan_batches(buffer).table
    table.fields[:, CRC] = 0
    assert batch_kernels.write_headers(table.fields, target, False) == 1
    assert target.tobytes() == buffer


# ---- records -----------------------------------------------------------------------------------
Limits = tuple[int, int, int]
EVERYTHING = (-(2**63), 2**63 - 1, 0)
BEHIND = bytes(kernels.SLACK)


@st.composite
def limits_of(draw: st.DrawFn) -> Limits:
    start = draw(st.just(-(2**63)) | st.integers(0, 1010))
    end = draw(st.just(2**63 - 1) | st.integers(0, 1010))
    return start, end, draw(st.sampled_from([0, CONTROL_MASK]))


def locate(buffer: bytes, behind: bytes = b"", *, loops: ModuleType = kernels) -> Any:
    """Return the slots of all records as the loops find them, or the status.

    Args:
        buffer: Batches.
        behind: The bytes after them, which give room to skim the last records, too.
        loops: The kernels, or what stands for them before numba is loaded.
    """
    table = scan_batches(buffer).table
    spans = np.empty((len(table), 2), np.int64)
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    status = loops.choose_batches(table.fields, np.array(EVERYTHING), spans, totals)
    if status != s.OK:
        return status
    slots = np.empty((int(totals[s.TOTAL_ROWS]), s.SLOT_WIDTH), np.int64)
    status = loops.locate_records(as_source(buffer + behind), table.fields, spans, slots, totals)
    return slots_of(slots) if status == s.OK else status


def plain_locate(buffer: bytes, limits: Limits = EVERYTHING) -> Any:
    table = rows_of(scan_batches(buffer).table)
    try:
        spans = twins.choose_batches(table, limits)
        batches = twins.locate_records(buffer, table, spans, limits)
    except twins.BadRecordError as error:
        return error.args[0]
    return [slot for batch in batches for slot in batch]


def without_codec(buffer: bytes) -> bytes:
    """Return the batches with their codec bits cleared, since these tests do not decompress."""
    cleared = bytearray(buffer)
    for batch in rows_of(scan_batches(buffer).table):
        cleared[batch.position + 22] &= 0xF8
    return bytes(cleared)


@given(damaged().map(without_codec))
def test_locating_records_agrees_with_the_plain_twin(buffer: bytes) -> None:
    assert locate(buffer) == plain_locate(buffer) == locate(buffer, BEHIND)
    assert locate(buffer) == locate(buffer, loops=plain_records)


@given(st.lists(batches(), max_size=3), st.integers(0, 2**62), st.integers(-1, 9))
def test_renumbering_agrees_with_the_plain_twin(
    parts: list[bytes], offset: int, epoch: int
) -> None:
    table = scan_batches(b"".join(parts)).table
    plain = table.fields.copy()
    expected = plain_headers.renumber(plain, offset, epoch)
    assert batch_kernels.renumber(table.fields, offset, epoch) == expected
    assert (table.fields == plain).all()
    assert expected == (int(plain[-1, LAST_OFFSET]) + 1 if parts else offset)


@given(st.lists(batches(), max_size=3), st.integers(0, 2**62), st.integers(-1, 9))
def test_placing_batches_agrees_with_the_plain_twin(
    parts: list[bytes], offset: int, epoch: int
) -> None:
    buffer, results = b"".join(parts), []
    for loops in (batch_kernels, plain_headers):
        fields, target = scan_batches(buffer).table.fields, np.frombuffer(buffer, np.uint8).copy()
        assert loops.place_batches(fields, target, offset, epoch) == len(parts)
        assert (scan_batches(target).table.fields == fields).all()
        results.append((target.tobytes(), fields.tolist()))
    assert results[0] == results[1]


def batch_of(records: bytes, count: int) -> bytes:
    """Return a batch of these bytes."""
    builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0)
    builder.append(Record())
    buffer = bytearray(builder.build()[:61] + records)
    buffer[8:12] = (len(buffer) - 12).to_bytes(4, "big")
    buffer[57:61] = count.to_bytes(4, "big")
    return bytes(buffer)


@given(st.binary(max_size=40), st.integers(0, 6))
def test_locating_records_in_any_bytes_agrees_with_the_plain_twin(
    records: bytes, count: int
) -> None:
    buffer = batch_of(records, count)
    assert locate(buffer) == plain_locate(buffer) == locate(buffer, BEHIND)
    assert locate(buffer) == locate(buffer, loops=plain_records)


@st.composite
def numbers(draw: st.DrawFn) -> bytes:
    """A record of any numbers, of any size, and some bytes; its length is right."""
    groups = st.integers(0, 4).flatmap(lambda n: st.binary(min_size=n + 1, max_size=n + 1))
    parts = [draw(groups | st.integers(-2, 300).map(plain_write_varlong)) for _ in range(5)]
    sizes = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    parts[3] = bytes(sizes[0]) + parts[3]
    parts[4] = bytes(sizes[1]) + parts[4]
    body = b"\0" + b"".join(parts)
    return plain_write_varlong(len(body)) + body


@given(st.lists(numbers(), min_size=1, max_size=3))
def test_records_of_odd_numbers_are_read_as_the_plain_twin_reads_them(records: list[bytes]) -> None:
    buffer = batch_of(b"".join(records), len(records))
    assert locate(buffer) == plain_locate(buffer) == locate(buffer, BEHIND)
    assert locate(buffer) == locate(buffer, loops=plain_records)


class Decoded(NamedTuple):
    """Output of `decode_records`, as plain values."""

    longs: list[list[int]]
    types: list[int]
    key: tuple[list[int], bytes, bytes]
    value: tuple[list[int], bytes, bytes]
    headers: list[int]
    totals: list[int]


def decode(
    buffer: bytes, limits: Limits, *, key_room: int = 2**20, loops: ModuleType = kernels
) -> Decoded | int:
    """Return the records as the loops decode them, or their status."""
    table = scan_batches(buffer).table
    spans = np.empty((len(table), 2), np.int64)
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    status = loops.choose_batches(table.fields, np.array(limits), spans, totals)
    if status != s.OK:
        return status
    arguments = as_source(buffer), table.fields, spans, np.array(limits)
    return decoded_by(loops.decode_records, *arguments, totals, key_room=key_room)


def decoded_by(
    decoder: Callable[..., int], *arguments: NDArray[Any], key_room: int = 2**20
) -> Decoded | int:
    """Return the output of a kernel; its last argument holds the upper bounds."""
    totals = arguments[-1]
    rows, room = int(totals[s.TOTAL_ROWS]), int(totals[s.TOTAL_BYTES])
    longs = np.full((s.LONGS_WIDTH, rows), -7, np.int64)  # fields that the kernel skips stand out
    ints = np.full((s.INTS_WIDTH, rows + 1), -7, np.int32)
    validity = np.full((2, -(-rows // 8)), 0xFF, np.uint8)
    key, value = np.empty(min(room, key_room), np.uint8), np.empty(room, np.uint8)
    status = decoder(*arguments[:-1], longs, ints, validity, key, value, totals)
    if status != s.OK:
        return status
    rows = int(totals[s.TOTAL_ROWS])
    bits = np.unpackbits(validity, axis=1, count=rows, bitorder="little")
    packed = [row.tobytes() for row in np.packbits(bits, axis=1, bitorder="little")]
    ends = ints[:, : rows + 1].tolist()
    size, nulls = int(totals[s.TOTAL_KEY_BYTES]), int(totals[s.TOTAL_VALUE_BYTES])
    return Decoded(
        longs[:, :rows].tolist(),
        ints[s.INTS_TYPE, :rows].tolist(),
        (ends[s.INTS_KEY], key[:size].tobytes(), packed[0]),
        (ends[s.INTS_VALUE], value[:nulls].tobytes(), packed[1]),
        ends[s.INTS_HEADERS],
        [int(totals[place]) for place in (s.TOTAL_KEY_NULLS, s.TOTAL_VALUE_NULLS)],
    )


def plain_decode(buffer: bytes, limits: Limits) -> Decoded | int:
    table = rows_of(scan_batches(buffer).table)
    try:
        return Decoded(*twins.decode_records(buffer, table, limits))
    except twins.BadRecordError as error:
        return int(error.args[0])


@given(damaged().map(without_codec), limits_of(), LOOPS)
def test_decoding_records_agrees_with_the_plain_twin(
    buffer: bytes, limits: Limits, loops: ModuleType
) -> None:
    assert decode(buffer, limits, loops=loops) == plain_decode(buffer, limits)


@given(st.binary(max_size=40), st.integers(0, 6), LOOPS)
def test_decoding_records_in_any_bytes_agrees_with_the_plain_twin(
    records: bytes, count: int, loops: ModuleType
) -> None:
    buffer = batch_of(records, count)
    assert decode(buffer, EVERYTHING, loops=loops) == plain_decode(buffer, EVERYTHING)


@pytest.mark.parametrize("loops", [kernels, plain_records])
def test_decoding_refuses_a_full_column(loops: ModuleType) -> None:
    builder = BatchBuilder()
    builder.append(Record(b"12345", b"v"))
    assert decode(builder.build(), EVERYTHING, key_room=4, loops=loops) == s.OUT_OF_ROOM


@pytest.mark.parametrize("loops", [kernels, plain_records])
@pytest.mark.parametrize("span", [(0, 200), (62, 61), (2**62, 2**62 + 9)])
def test_records_outside_their_source_are_refused(span: tuple[int, int], loops: ModuleType) -> None:
    builder = BatchBuilder()
    builder.append(Record(b"k", b"v"))
    buffer = builder.build()
    table = scan_batches(buffer).table
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    slots = np.empty((1, s.SLOT_WIDTH), np.int64)
    status = loops.locate_records(as_source(buffer), table.fields, np.array([span]), slots, totals)
    assert status == s.OUT_OF_ROOM
    status = loops.decode_records(
        as_source(buffer), table.fields, np.array([span]), np.array(EVERYTHING),
        np.empty((3, 1), np.int64), np.empty((4, 2), np.int32), np.full((2, 1), 255, np.uint8),
        np.empty(9, np.uint8), np.empty(9, np.uint8), totals,
    )  # fmt: skip
    assert status == s.OUT_OF_ROOM


# ---- columns -----------------------------------------------------------------------------------
@st.composite
def fields_of(draw: st.DrawFn) -> tuple[bytes, list[twins.Field]]:
    source = draw(st.binary(max_size=50))
    fields = []
    for _ in range(draw(st.integers(0, 20))):
        start = draw(st.integers(0, len(source)))
        size = draw(st.just(-1) | st.integers(0, len(source) - start))
        fields.append(twins.Field(start, size))
    return source, fields


def slots_with(fields: list[twins.Field], place: int) -> NDArray[np.int64]:
    slots = np.zeros((len(fields), s.SLOT_WIDTH), np.int64)
    if fields:
        slots[:, place : place + 2] = fields
    return slots


# ---- writing -----------------------------------------------------------------------------------
def plain_of(record: Record) -> twins.Plain:
    headers = [(header.key.encode(), header.value) for header in record.headers]
    return twins.Plain(record.timestamp or 0, record.key, record.value, headers)


@given(st.lists(RECORDS, max_size=12), st.integers(61, 700), st.data())
def test_writing_records_agrees_with_the_plain_twin(
    records: list[Record], batch_size: int, data: st.DataObject
) -> None:
    rows = None
    chosen = records
    if records and data.draw(st.booleans()):
        rows = np.array(data.draw(st.lists(st.integers(0, len(records) - 1))), np.int64)
        chosen = [records[row] for row in rows.tolist()]
    columns = InputColumns.from_records(records)
    buffer, table = encode_columns(columns, rows=rows, batch_size=batch_size)
    wanted = twins.write_records([plain_of(record) for record in chosen], batch_size)
    position = offset = 0
    for batch, (members, written) in zip(rows_of(table), wanted, strict=True):
        assert (batch.position, batch.size) == (position, 61 + len(written))
        assert (batch.base_offset, batch.last_offset) == (offset, offset + len(members) - 1)
        assert batch.base_timestamp == members[0].timestamp
        assert batch.max_timestamp == max(member.timestamp for member in members)
        assert batch.record_count == len(members)
        assert (batch.producer_id, batch.base_sequence, batch.leader_epoch) == (-1, -1, -1)
        assert buffer[position + 61 : position + batch.size].tobytes() == written
        position += batch.size
        offset += len(members)
    assert len(buffer) == position


@given(st.lists(RECORDS, min_size=1, max_size=12), st.integers(61, 700), st.data())
def test_writing_at_offsets_with_gaps_agrees_with_the_plain_twin(
    records: list[Record], batch_size: int, data: st.DataObject
) -> None:
    gap = st.sampled_from([0, 0, 0, 1, 5, 2**31 - 1, 2**31, 2**40])
    gaps = data.draw(st.lists(gap, min_size=len(records) + 1, max_size=len(records) + 1))
    first = data.draw(st.integers(0, 2**40))
    offsets = [first + sum(gaps[: n + 1]) + n for n in range(len(records))]
    end = offsets[-1] + 1 + gaps[-1]
    kept = KeptOffsets(np.array(offsets, np.int64), first, end, leader_epoch=7)
    buffer, table = encode_columns(
        InputColumns.from_records(records), batch_size=batch_size, kept=kept
    )
    wanted = twins.write_records_at([plain_of(r) for r in records], offsets, first, batch_size)
    position = 0
    for batch, (base, last, count, written) in zip(rows_of(table), wanted, strict=True):
        is_last = batch.position + batch.size == len(buffer)
        covers_end = is_last and end - 1 - base < 2**31
        assert (batch.base_offset, batch.last_offset) == (base, end - 1 if covers_end else last)
        assert (batch.record_count, batch.leader_epoch) == (count, 7)
        assert buffer[position + 61 : position + batch.size].tobytes() == written
        position += batch.size
    assert len(buffer) == position
    found = decode_columns(buffer, table)
    assert found.offset.tolist() == offsets


@pytest.mark.parametrize(
    ("offsets", "first", "end"), [([3, 3], 0, 9), ([1], 0, 9), ([1, 2], 2, 9), ([1, 2], 0, 2)]
)
def test_writing_refuses_offsets_that_cannot_be_those_of_the_records(
    offsets: list[int], first: int, end: int
) -> None:
    kept = KeptOffsets(np.array(offsets, np.int64), first, end, 0)
    with pytest.raises(InvalidRequestError, match="offsets do not ascend"):
        encode_columns(InputColumns(np.zeros(2, np.int64)), kept=kept)


def test_writing_grows_the_table_for_more_batches_than_estimated() -> None:
    columns = InputColumns(np.zeros(3000, np.int64))
    assert len(encode_columns(columns, batch_size=61).table) == 3000


@pytest.mark.parametrize("offsets", [[0, 5, 3], [0, 2, 9], [-1, 2, 3], [0, 2**20, 3]])
@pytest.mark.parametrize("rows", [None, [1, 0, 1]])
def test_writing_refuses_offsets_that_fall_or_leave_their_bytes(
    offsets: list[int], rows: list[int] | None
) -> None:
    broken = BinaryColumn(np.array(offsets, np.int32), np.zeros(5, np.uint8))
    chosen = None if rows is None else np.array(rows)
    times = np.zeros(2, np.int64)
    for columns in (InputColumns(times, key=broken), InputColumns(times, value=broken)):
        with pytest.raises(InvalidRequestError, match="offsets"):
            encode_columns(columns, rows=chosen)
    headers = HeaderColumn(np.array([0, 1, 2], np.int32), broken, broken)
    with pytest.raises(InvalidRequestError, match="offsets"):
        encode_columns(InputColumns(times, headers=headers), rows=chosen)


@pytest.mark.parametrize("offsets", [[0, 2, 1], [0, 1, 3], [-1, 0, 1]])
def test_writing_refuses_missing_headers(offsets: list[int]) -> None:
    fields = BinaryColumn.from_values([b"a", b"b"])
    headers = HeaderColumn(np.array(offsets, np.int32), fields, fields)
    with pytest.raises(InvalidRequestError, match="header"):
        encode_columns(InputColumns(np.zeros(2, np.int64), headers=headers))


def test_writing_refuses_a_record_larger_than_int32() -> None:
    rows, one = np.zeros(0, np.int64), (np.array([0, 2**31 - 100]), np.array([0, 100]))
    key, value = ((offsets.astype(np.int32), as_source(b""), as_source(b"")) for offsets in one)
    fields, buffer = np.empty((1, WIDTH), np.int64), np.empty(100, np.uint8)
    arrays = (read_only(rows, np.int64), 1, read_only([0], np.int64))
    headers = (read_only([], np.int32), read_only([], np.int64), as_source(b""))
    columns = [(read_only(column[0], np.int32), *column[1:]) for column in (key, value)]
    for offsets in (None, read_only([-1, 0], np.int64)):
        status = write_kernels.write_records(
            *arrays, columns[0], columns[1], headers, offsets, 2**31 - 1, 0, fields, buffer
        )
        assert status == s.RECORD_TOO_LARGE


@given(st.lists(NULLABLE, max_size=10), st.integers(1, 2**31 - 1))
def test_partitions_of_keys_agree_with_the_plain_twin(
    keys: list[bytes | None], partitions: int
) -> None:
    from streamlog.records.partitioner import partition_for_keys

    column = BinaryColumn.from_values(keys)
    found = partition_for_keys(column, partitions).tolist()
    assert found == twins.partition_keys(keys, partitions)
