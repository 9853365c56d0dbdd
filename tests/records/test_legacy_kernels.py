"""The kernels of formats v0 and v1 compared with their plain twins, on sound and damaged bytes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.records import legacy_kernels as kernels
from streamlog.records import plain_headers
from streamlog.records import slot as s
from streamlog.records.batch import scan_batches
from streamlog.records.layout import COMPRESSION_MASK
from streamlog.records.record import Record
from streamlog.records.table import WIDTH
from tests.records.test_kernels import Decoded, decoded_by
from tests.support.batches import message_set
from tests.twins import legacy as twins
from tests.twins.records import BadRecordError, Batch

FIELDS = st.none() | st.binary(max_size=6) | st.binary(min_size=30, max_size=60)
TIMESTAMPS = st.integers(-1, 2**63 - 1)
RECORDS = st.tuples(FIELDS, FIELDS, TIMESTAMPS).map(lambda r: Record(r[0], r[1], (), r[2]))
OFFSETS = st.integers(0, 60) | st.integers(0, 2**63 - 100)


@st.composite
def message_sets(draw: st.DrawFn) -> bytearray:
    """Several messages, some with changed bytes."""
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
    st.sampled_from([1, 9]),
    st.integers(0, 2**40),
)
LIMITS = st.tuples(
    st.integers(-(2**63), 100) | OFFSETS,
    st.integers(0, 100) | st.just(2**63 - 1),
    st.integers(0, 1),
)


@given(message_sets(), WRAPPERS, LIMITS, st.integers(0, 40))
def test_locating_a_set_agrees_with_the_plain_twin(
    buffer: bytearray, wrapper: Batch, limits: tuple[int, int, int], cut: int
) -> None:
    source = bytes(buffer)
    span = range(max(len(source) - cut, 0))
    assert_same_slots(source, [wrapper, wrapper], [span, None], limits)


def assert_same_slots(
    source: bytes, batches: list[Batch], spans: list[range | None], limits: tuple[int, int, int]
) -> None:
    """Check that kernel and twin find the same messages, or the same error."""
    fields = np.array(batches, np.int64).reshape(-1, WIDTH)
    ends = [(-1, -1) if span is None else (span.start, span.stop) for span in spans]
    places = np.array([(*end, 0) for end in ends], np.int64).reshape(-1, kernels.SPAN_WIDTH)
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    status = kernels.survey_sets(as_source(source), fields, np.array(limits), places, totals)
    try:
        surveyed = twins.survey_sets(source, batches, spans, limits)
    except BadRecordError as error:
        assert status == error.args[0]
        return
    assert status == s.OK
    assert (int(totals[s.TOTAL_ROWS]), places[:, kernels.SPAN_BASE].tolist()) == surveyed
    arguments = as_source(source), fields, places, np.array(limits), totals
    found = decoded_by(kernels.decode_messages, *arguments)
    assert found == plain_decode(source, batches, spans, limits)


def plain_decode(*arguments: Any) -> Decoded | int:
    try:
        return Decoded(*twins.decode_messages(*arguments))
    except BadRecordError as error:
        return int(error.args[0])


@st.composite
def whole_messages(draw: st.DrawFn) -> bytes:
    """One message, uncompressed or not, with right size and magic and otherwise arbitrary bytes."""
    magic = draw(st.integers(0, 1))
    buffer = bytearray(message_set(magic, [draw(RECORDS)], base_offset=draw(OFFSETS)))
    buffer[17] = draw(st.integers(0, 3) | st.integers(0, 255))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(18, len(buffer) - 1) | st.integers(0, 7) | st.integers(12, 15))
        buffer[place] = draw(st.integers(0, 255))
    return bytes(buffer)


def rows_of(messages: list[bytes]) -> tuple[bytes, list[Batch], Any]:
    """Return messages without gaps, and their headers as both twins read them."""
    buffer = b"".join(messages)
    fields = np.empty((kernels.count_batches(as_source(buffer)), WIDTH), np.int64)
    counts = np.zeros(2, np.int64)
    stop = kernels.scan_batches(as_source(buffer), fields, counts)
    rows, why, consumed = plain_headers.scan_batches(memoryview(buffer))
    fields = fields[: counts[0]]
    assert (stop, fields.tolist()) == (why, [list(row) for row in rows])
    assert counts.tolist() == [len(rows), consumed]
    return buffer, [Batch(*row) for row in rows], fields


@given(st.lists(whole_messages(), min_size=1, max_size=3), LIMITS)
def test_headers_and_choice_agree_with_the_plain_twins(
    messages: list[bytes], limits: tuple[int, int, int]
) -> None:
    buffer, batches, fields = rows_of(messages)
    spans = np.empty((len(batches), kernels.SPAN_WIDTH), np.int64)
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    status = kernels.choose_messages(as_source(buffer), fields, np.array(limits), spans, totals)
    try:
        wanted = twins.choose_messages(buffer, batches, limits)
    except BadRecordError as error:
        assert status == error.args[0]
        return
    assert status == s.OK
    assert [None if a < 0 else range(a, b) for a, b, _ in spans.tolist()] == wanted
    chosen = [batch for batch, span in zip(batches, wanted, strict=True) if span is not None]
    attributes = 0
    for batch in chosen:
        attributes |= batch.attributes
    assert totals[s.ALL_ATTRIBUTES] == attributes
    is_single = [batch.attributes & COMPRESSION_MASK == 0 for batch in batches]
    spans_of_singles = [
        span if single else None for span, single in zip(wanted, is_single, strict=True)
    ]
    assert_same_slots(buffer, batches, spans_of_singles, limits)


@given(st.lists(whole_messages(), min_size=1, max_size=4))
def test_finding_a_bad_checksum_agrees_with_the_plain_twin(messages: list[bytes]) -> None:
    buffer, batches, fields = rows_of(messages)
    found = kernels.find_bad_checksum(as_source(buffer), fields)
    assert found == twins.find_bad_checksum(buffer, batches)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100, 1999])
def test_checksums_of_any_length_are_those_of_zlib(size: int) -> None:
    buffer = message_set(1, [Record(None, bytes(place % 251 for place in range(size)))])
    _, batches, fields = rows_of([buffer])
    assert twins.find_bad_checksum(buffer, batches) == 1
    assert kernels.find_bad_checksum(as_source(buffer), fields) == 1


def test_a_checksum_of_missing_bytes_is_wrong() -> None:
    buffer = message_set(1, [Record(None, b"value")])
    _, _, fields = rows_of([buffer])
    assert kernels.find_bad_checksum(as_source(buffer[:-1]), fields) == 0


@given(st.lists(whole_messages(), max_size=3), st.binary(max_size=60), st.integers(0, 40))
def test_scanning_arbitrary_bytes_agrees_with_the_plain_twin(
    messages: list[bytes], end: bytes, cut: int
) -> None:
    buffer = b"".join(messages) + end
    buffer = buffer[: max(len(buffer) - cut, 0)]
    rows, why, consumed = plain_headers.scan_batches(memoryview(buffer))
    scan = scan_batches(buffer)
    assert (scan.table.fields.tolist(), scan.stop) == ([list(row) for row in rows], why)
    assert scan.consumed == consumed
