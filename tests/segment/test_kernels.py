"""Each kernel agrees with its twin in plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source, read_only
from streamlog.records.batch import scan_batches
from streamlog.records.record import Record
from streamlog.records.table import BASE_OFFSET, LAST_OFFSET, LEADER_EPOCH, WIDTH
from streamlog.segment import kernels
from streamlog.segment.file_records import walk_to
from streamlog.segment.indexes import IndexState, choose_entries
from streamlog.segment.walk import plain_count_in_order, plain_find_candidates
from streamlog.segment.walk_layout import (
    CONTINUE,
    ENTRY_MISSED,
    FOUND,
    NO_PROMISE,
    UNSOUND,
    WALK_WIDTH,
)
from tests.support.batches import message_set
from tests.support.segments import BatchPlan, make_batches
from tests.twins import segment as twins

NAMES = {
    FOUND: "found",
    CONTINUE: "continue",
    UNSOUND: "unsound",
    ENTRY_MISSED: "entry missed",
}
offsets = st.integers(0, 40)
plans = st.lists(
    st.tuples(offsets, st.integers(1, 5), st.integers(61, 130), st.integers(-1, 30)).map(
        lambda values: BatchPlan(*values)
    ),
    max_size=12,
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Several messages of v0 and v1."""
    parts = [
        message_set(draw(st.integers(0, 1)), [Record(b"k", b"v" * size)], base_offset=draw(offsets))
        for size in draw(st.lists(st.integers(0, 40), max_size=5))
    ]
    return b"".join(parts)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Batches of any format with some bytes changed, removed or added."""
    buffer = bytearray(draw(messages()) + make_batches(draw(plans)) + draw(messages()))
    for _ in range(draw(st.integers(0, 3))):
        if buffer:
            buffer[draw(st.integers(0, len(buffer) - 1))] = draw(st.integers(0, 255))
    buffer += draw(st.binary(max_size=80))
    return bytes(buffer[: draw(st.integers(0, len(buffer)))])


@settings(deadline=None)  # kernels are compiled at first use
@given(damaged(), offsets, st.one_of(st.none(), offsets), st.integers(0, 100))
def test_find_batch_agrees_with_its_twin(
    buffer: bytes, offset: int, promised: int | None, start: int
) -> None:
    state = np.zeros(WALK_WIDTH, np.int64)
    state[0], state[1] = start, NO_PROMISE if promised is None else promised
    status = kernels.find_batch(as_source(buffer), offset, state)
    expected = twins.find_batch(buffer, offset, start, promised)
    position, open_promise, base, last, size = state.tolist()
    assert NAMES[status] == expected.status
    assert position == expected.position
    assert (None if open_promise == NO_PROMISE else open_promise) == expected.promised
    if expected.batch is not None:
        assert (base, last, size) == expected.batch


@pytest.mark.parametrize("has_numba", [True, False])
@settings(deadline=None)  # kernels are compiled at first use
@given(damaged(), offsets, st.one_of(st.none(), offsets))
def test_a_walk_with_its_short_cut_ends_where_the_twin_does(
    has_numba: bool, buffer: bytes, offset: int, promised: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlog.segment.file_records.numba_is_loaded", lambda: has_numba)
        found = walk_to(buffer, offset, NO_PROMISE if promised is None else promised)
    expected = twins.find_batch(buffer, offset, 0, promised)
    assert NAMES[found.status] == expected.status
    assert found.position == expected.position
    assert (None if found.promised == NO_PROMISE else found.promised) == expected.promised
    if expected.batch is not None:
        assert (found.base_offset, found.last_offset, found.size) == expected.batch


@settings(deadline=None)  # kernels are compiled at first use
@given(damaged(), st.integers(0, 60), st.integers(0, 200), offsets, offsets)
def test_find_candidate_agrees_with_its_twin(
    buffer: bytes, start: int, more: int, first: int, last: int
) -> None:
    left = len(buffer) + more
    found = kernels.find_candidate(as_source(buffer), start, left, first, last)
    assert found == twins.find_candidate(buffer, start, left, first, last)


@settings(deadline=None)  # kernels are compiled at first use
@given(damaged(), st.integers(0, 200), offsets, offsets, st.sampled_from([7, 64, 1 << 16]))
def test_the_search_without_numba_finds_the_same_candidates(
    buffer: bytes, more: int, first: int, last: int, at_once: int
) -> None:
    window, left = as_source(buffer), len(buffer) + more
    found, at = [], -1
    while (at := kernels.find_candidate(window, at + 1, left, first, last)) >= 0:
        found.append(at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlog.segment.walk._AT_ONCE", at_once)
        assert list(plain_find_candidates(window, left, first, last)) == found


@settings(deadline=None)  # kernels are compiled at first use
@given(plans, st.integers(0, 400), st.integers(0, 12))
def test_index_entries_agree_with_the_twin_however_the_batches_arrive(
    planned: list[BatchPlan], interval: int, border: int
) -> None:
    table = scan_batches(make_batches(planned)).table
    columns = (table.position, table.size, table.last_offset, table.max_timestamp)
    batches = list(zip(*(column.tolist() for column in columns), strict=True))
    expected = twins.index_entries(batches, interval)
    first, state = choose_entries(table.slice(0, border), 0, interval, IndexState())
    if batches[:border] and not len(first):
        assert IndexState().after(table.slice(0, border)) == state
    second, state = choose_entries(table.slice(border, len(table)), 0, interval, state)
    assert [tuple(entry) for entry in [*first.tolist(), *second.tolist()]] == expected
    if batches:
        largest = max(batch[3] for batch in batches)
        assert state.max_timestamp == max(largest, -1)


@given(
    st.lists(
        st.tuples(offsets, st.integers(-1, 5), st.integers(-1, 3)).map(
            lambda values: (values[0], values[0] + values[1], values[2])
        ),
        max_size=6,
    ),
    offsets,
    st.integers(-1, 3),
    st.sampled_from([0, 40 - 2**31, 45 - 2**31]),
    st.booleans(),
)
def test_counting_batches_in_order_agrees_with_the_plain_loop(
    batches: list[tuple[int, int, int]],
    next_offset: int,
    epoch: int,
    base_offset: int,
    are_sorted: bool,
) -> None:
    fields = np.zeros((len(batches), WIDTH), np.int64)
    rows = sorted(batches) if are_sorted else batches
    fields[:, (BASE_OFFSET, LAST_OFFSET, LEADER_EPOCH)] = np.reshape(rows, (-1, 3))
    known = next_offset, epoch, base_offset
    compiled = kernels.count_in_order(read_only(fields, np.int64), *known)
    assert compiled == plain_count_in_order(fields.tolist(), *known)


def test_no_batch_follows_the_largest_offset() -> None:
    fields = np.zeros((2, WIDTH), np.int64)
    fields[0, (BASE_OFFSET, LAST_OFFSET)] = 2**63 - 1
    known = 0, -1, 2**63 - 2
    assert kernels.count_in_order(read_only(fields, np.int64), *known) == 1
    assert plain_count_in_order(fields.tolist(), *known) == 1
