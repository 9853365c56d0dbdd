"""The kernels of formats v0 and v1 beside their plain twins, on sound and damaged bytes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.binary.compression import NONE
from streamlog.records import legacy_kernels as kernels
from streamlog.records import legacy_reference as reference
from streamlog.records import slot as s
from streamlog.records.record import Record
from streamlog.records.reference import BadRecordError, Batch, Slot
from streamlog.records.table import WIDTH
from tests.records.test_kernels import slots_of
from tests.support.messages import message_set

FIELDS = st.none() | st.binary(max_size=6) | st.binary(min_size=30, max_size=60)
TIMESTAMPS = st.integers(-1, 2**63 - 1)
RECORDS = st.tuples(FIELDS, FIELDS, TIMESTAMPS).map(lambda r: Record(r[0], r[1], (), r[2]))
OFFSETS = st.integers(0, 60) | st.integers(0, 2**63 - 100)


@st.composite
def message_sets(draw: st.DrawFn) -> bytearray:
    """Some messages, of which some bytes may be changed."""
    buffer = bytearray()
    for _ in range(draw(st.integers(1, 3))):
        magic = draw(st.integers(0, 1))
        records = draw(st.lists(RECORDS, min_size=1, max_size=2))
        buffer += message_set(magic, records, base_offset=draw(OFFSETS))
    for _ in range(draw(st.integers(0, 3))):
        buffer[draw(st.integers(0, len(buffer) - 1))] = draw(st.integers(0, 255))
    return buffer


WRAPPERS = st.builds(
    lambda offset, magic, attributes, timestamp: Batch(
        0, 0, offset, offset, -1, magic, 0, attributes, timestamp, timestamp, -1, -1, -1, 1
    ),
    OFFSETS | st.just(0),
    st.integers(0, 1),
    st.sampled_from([0, 1, 8, 9]),
    st.integers(0, 2**40),
)
LIMITS = st.tuples(
    st.integers(-(2**63), 100) | OFFSETS,
    st.integers(0, 100) | st.just(2**63 - 1),
    st.integers(0, 1),
)


@given(message_sets(), WRAPPERS, LIMITS, st.integers(0, 40))
def test_locating_messages_agrees_with_the_plain_twin(
    buffer: bytearray, wrapper: Batch, limits: tuple[int, int, int], cut: int
) -> None:
    source = bytes(buffer)
    span = range(max(len(source) - cut, 0))
    spans = np.array([(span.start, span.stop), (-1, -1)])
    rows = np.empty(2, np.int64)
    fields = np.array([wrapper, wrapper], np.int64)
    count = kernels.count_messages(as_source(source), spans)
    assert count == reference.count_messages(source, [span, None])
    slots = np.zeros(count * s.SLOT_WIDTH, np.int64)
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    status = kernels.locate_messages(
        as_source(source), fields, spans, np.array(limits), slots, rows, totals
    )
    try:
        wanted = reference.locate_messages(source, [wrapper, wrapper], [span, None], limits)
    except BadRecordError as error:
        assert status == error.args[0]
        return
    assert status == s.OK
    found = slots_of(slots.reshape(-1, s.SLOT_WIDTH)[: totals[s.TOTAL_ROWS]])
    assert found == wanted[0]
    assert rows.tolist() == [len(wanted[0]), 0]
    assert_totals(totals.tolist(), found)


def assert_totals(totals: list[int], slots: list[Slot]) -> None:
    keys, values = [slot.key.size for slot in slots], [slot.value.size for slot in slots]
    assert totals[s.TOTAL_KEY_BYTES] == sum(max(size, 0) for size in keys)
    assert totals[s.TOTAL_VALUE_BYTES] == sum(max(size, 0) for size in values)
    assert totals[s.TOTAL_KEY_NULLS] == sum(size < 0 for size in keys)
    assert totals[s.TOTAL_VALUE_NULLS] == sum(size < 0 for size in values)


@st.composite
def whole_messages(draw: st.DrawFn) -> bytes:
    """One message, uncompressed or not, whose size and magic are right and the rest maybe not."""
    magic = draw(st.integers(0, 1))
    buffer = bytearray(message_set(magic, [draw(RECORDS)], base_offset=draw(OFFSETS)))
    buffer[17] = draw(st.integers(0, 3) | st.integers(0, 255))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(18, len(buffer) - 1) | st.integers(0, 7) | st.integers(12, 15))
        buffer[place] = draw(st.integers(0, 255))
    return bytes(buffer)


def rows_of(messages: list[bytes]) -> tuple[bytes, list[Batch], Any]:
    """Return messages one behind the other, and their headers as both twins read them."""
    buffer = b"".join(messages)
    positions = np.cumsum([0, *map(len, messages[:-1])]).tolist()
    fields = np.empty((len(messages), WIDTH), np.int64)
    for row, position in enumerate(positions):
        kernels.read_message_header(as_source(buffer), position, fields, row)
    return buffer, [reference.read_message_header(buffer, at) for at in positions], fields


@given(st.lists(whole_messages(), min_size=1, max_size=3), LIMITS)
def test_headers_and_choice_agree_with_the_plain_twins(
    messages: list[bytes], limits: tuple[int, int, int]
) -> None:
    buffer, batches, fields = rows_of(messages)
    assert [Batch(*row) for row in fields.tolist()] == batches
    spans = np.empty((len(batches), 2), np.int64)
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    status = kernels.choose_messages(as_source(buffer), fields, np.array(limits), spans, totals)
    try:
        wanted = reference.choose_messages(buffer, batches, limits)
    except BadRecordError as error:
        assert status == error.args[0]
        return
    assert status == s.OK
    assert [None if a < 0 else range(a, b) for a, b in spans.tolist()] == wanted
    chosen = [batch for batch, span in zip(batches, wanted, strict=True) if span is not None]
    attributes = 0
    for batch in chosen:
        attributes |= batch.attributes
    assert totals[s.ALL_ATTRIBUTES] == attributes
    assert all(batch.attributes & 7 != NONE or batch.last_offset < limits[1] for batch in chosen)


@given(st.lists(whole_messages(), min_size=1, max_size=4), st.sampled_from([2, 8, 64]))
def test_finding_a_bad_checksum_agrees_with_the_plain_twin(
    messages: list[bytes], words: int
) -> None:
    buffer, batches, fields = rows_of(messages)
    scratch = np.empty(words, np.int64)
    found = kernels.find_bad_checksum(as_source(buffer), fields, scratch, scratch.view(np.uint8))
    assert found == reference.find_bad_checksum(buffer, batches, scratch.nbytes)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, 1999])
def test_checksums_of_any_length_are_those_of_zlib(size: int) -> None:
    buffer = message_set(1, [Record(None, bytes(place % 251 for place in range(size)))])
    _, batches, fields = rows_of([buffer])
    scratch = np.empty(1024, np.int64)
    assert reference.find_bad_checksum(buffer, batches, 8192) == 1
    assert (
        kernels.find_bad_checksum(as_source(buffer), fields, scratch, scratch.view(np.uint8)) == 1
    )
