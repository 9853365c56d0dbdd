"""The kernels that check an append compared with their plain twins."""

from functools import reduce
from operator import or_
from types import ModuleType

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.binary.crc import crc32c
from streamlog.records import batch_kernels, kernels, plain_records, validate_kernels
from streamlog.records import slot as s
from streamlog.records.batch import scan_batches
from streamlog.records.table import WIDTH, BatchTable
from tests.records.test_kernels import damaged, rows_of, without_codec
from tests.twins import records as twins

LOOPS = st.sampled_from([validate_kernels, plain_records])


def resealed(buffer: bytes) -> bytes:
    """Return the batches with checksums that match their bytes."""
    sealed = bytearray(buffer)
    for batch in rows_of(scan_batches(buffer).table):
        start, end = batch.position, batch.position + batch.size
        sealed[start + 17 : start + 21] = crc32c(sealed[start + 21 : end]).to_bytes(4, "big")
    return bytes(sealed)


def counted(found: list[twins.Found]) -> list[int]:
    """Return the facts about records that are counted over all batches."""
    return [
        sum(facts.gaps for facts in found),
        sum(facts.keyless for facts in found),
        sum(facts.untimely for facts in found),
        sum(facts.has_wrong_max for facts in found),
    ]


@given(
    damaged() | damaged().map(resealed) | damaged().map(without_codec).map(resealed),
    st.integers(0, 3000),
    st.integers(0, 3000),
    LOOPS,
)
def test_inspecting_batches_agrees_with_the_plain_twin(
    buffer: bytes, low: int, high: int, loops: ModuleType
) -> None:
    source = as_source(buffer)
    fields = np.empty((batch_kernels.count_batches(source), WIDTH), np.int64)
    stop = batch_kernels.scan_batches(source, fields, scanned := np.zeros(2, np.int64))
    rows = rows_of(BatchTable(fields[: scanned[0]]))
    plain, expected = twins.inspect_batches(buffer, rows, stop, range(low, high + 1))

    fields = np.full((loops.count_batches(source), WIDTH), -1)
    found = np.empty((len(fields), s.FOUND_WIDTH), np.int64)
    seen = np.zeros(s.SEEN_WIDTH, np.int64)
    status = loops.inspect_batches(source, low, high, fields, found, seen)
    assert status == expected
    assert found[: len(plain)].tolist() == [list(facts[: s.FOUND_WIDTH]) for facts in plain]
    if status < s.OK:
        assert seen[[s.ERROR_BATCH, s.SEEN_BATCHES]].tolist() == [len(plain), len(plain) + 1]
        return
    good = rows[: len(plain)]
    assert rows_of(BatchTable(fields[: len(plain)])) == good
    assert seen[s.SEEN_BATCHES :].tolist() == [
        len(good),
        sum(batch.size for batch in good),
        max((batch.size for batch in good), default=0),
        *counted(plain),
    ]
    assert seen[s.ALL_ATTRIBUTES] == reduce(or_, (batch.attributes for batch in good), 0)


@given(damaged().map(without_codec), st.integers(0, 3000), st.integers(0, 3000), LOOPS)
def test_inspecting_records_agrees_with_the_plain_twin(
    buffer: bytes, low: int, high: int, loops: ModuleType
) -> None:
    table = scan_batches(buffer).table
    spans = np.empty((len(table), 2), np.int64)
    seen = np.zeros(s.SEEN_WIDTH, np.int64)
    limits = (-(2**63), 2**63 - 1, 0)
    if kernels.choose_batches(table.fields, np.array(limits), spans, seen) != s.OK:
        return
    found = np.empty((len(table), s.FOUND_WIDTH), np.int64)
    status = loops.inspect_records(as_source(buffer), table.fields, spans, low, high, found, seen)
    rows = rows_of(table)
    chosen = twins.choose_batches(rows, limits)
    try:
        plain = twins.inspect_records(buffer, rows, chosen, range(low, high + 1))
    except twins.BadRecordError as error:
        assert status == error.args[0]
    else:
        assert status == s.OK
        assert found.tolist() == [list(facts[: s.FOUND_WIDTH]) for facts in plain]
        assert seen[s.SEEN_GAPS :].tolist() == counted(plain)
