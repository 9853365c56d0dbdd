"""Removing records from batches: the byte level of compaction.

A batch that keeps all its records is copied as it is. Any other is rebuilt with the same base
offset, last offset, producer, sequence, epoch and codec; base timestamp, largest timestamp, count
and checksum follow from the remaining records. A message of v0 or v1 becomes a batch of v2. A batch
may also be emptied: then only its header stays.

Source: MemoryRecords.filterTo.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, as_source, read_only
from streamlog.binary.compression import NONE, compress
from streamlog.records import slot as s
from streamlog.records.builder import rewrite_headers
from streamlog.records.columns import BinaryColumn, RecordColumns
from streamlog.records.decode import PIECE_BYTES, Wanted, decode_pieces
from streamlog.records.layout import MAX_RECORD_OVERHEAD, MIN_INT64, RECORD_BATCH_OVERHEAD
from streamlog.records.slots import RecordSlots, decode_slots, naming
from streamlog.records.table import POSITION, SIZE, BatchTable

__all__ = ["Filtered", "Selection", "filter_batches", "locate"]

MAX_OVERHEAD: Final = MAX_RECORD_OVERHEAD + 10  # sizes at their longest


class Filtered(NamedTuple):
    """The remaining batches: their bytes, uint8[m], and headers."""

    buffer: NDArray[np.uint8]
    table: BatchTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Decisions about batches and their records.

    Attributes:
        fates: int64[b], see `filter_kernels`: DROP, COPY, REWRITE or EMPTY.
        horizons: int64[b], the delete horizon of a rewritten batch, -1 for none.
        keep: bool[n], whether a record stays; at least one per rewritten batch.
    """

    fates: NDArray[np.int64]
    horizons: NDArray[np.int64]
    keep: NDArray[np.bool_]


def locate(
    buffer: Buffer, table: BatchTable, *, max_decompressed: int, path: str, position: int
) -> Iterator[tuple[BatchTable, RecordSlots]]:
    """Check and locate all records of batches, some batches at a time.

    Args:
        buffer: The batches; not trusted.
        table: Their headers.
        max_decompressed: Limit of the decompressed size of one batch, in bytes.
        path: The file, for messages.
        position: Position of `buffer` in that file, for messages.

    Yields:
        Batches of one format, v2 or older, and their records; about `PIECE_BYTES` of them,
        decompressed, or a single batch.

    Raises:
        CorruptRecordError: A record's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: A batch decompresses to more than allowed.
    """
    wanted = Wanted(
        start_offset=MIN_INT64,
        drop_control=False,
        max_decompressed=max_decompressed,
        max_bytes=PIECE_BYTES,
    )
    for run in table.by_format():
        if run.is_legacy:
            pieces = decode_pieces(buffer, run, wanted, path=path, position=position)
            yield from ((done, _legacy_slots(done, columns)) for done, columns in pieces)
            continue
        first = 0
        while first < len(run):
            rest = run.slice(first, len(run))
            with naming(path, position):
                slots = decode_slots(
                    buffer, rest, max_decompressed=max_decompressed, enough=PIECE_BYTES
                )
            yield rest.slice(0, len(slots.rows)), slots
            first += len(slots.rows)


def _legacy_slots(table: BatchTable, columns: RecordColumns) -> RecordSlots:
    """Return slots of messages of v0 and v1, relative to their concatenated keys and values."""
    assert columns.key is not None and columns.value is not None
    slots = np.zeros((columns.count, s.SLOT_WIDTH), np.int64)
    slots[:, s.SLOT_OFFSET] = columns.offset
    slots[:, s.SLOT_TIMESTAMP] = columns.timestamp
    _place(columns.key, 0, slots[:, s.SLOT_KEY], slots[:, s.SLOT_KEY_SIZE])
    start = len(columns.key.data)
    _place(columns.value, start, slots[:, s.SLOT_VALUE], slots[:, s.SLOT_VALUE_SIZE])
    room = np.zeros(s.SLOT_WIDTH, np.uint8)  # the kernels read whole words
    source = np.concatenate((columns.key.data, columns.value.data, room))
    batches = np.searchsorted(table.last_offset, columns.offset)
    rows = np.bincount(batches, minlength=len(table)).astype(np.int64)
    return RecordSlots(source=as_source(source), slots=slots, rows=rows)


def _place(
    column: BinaryColumn, start: int, positions: NDArray[np.int64], sizes: NDArray[np.int64]
) -> None:
    """Fill in the positions of a column's values; its data starts at `start`."""
    positions[:] = column.offsets[:-1]
    positions += start
    sizes[:] = np.diff(column.offsets)
    if column.validity is not None:
        present = np.unpackbits(column.validity, count=len(column), bitorder="little")
        sizes[present == 0] = -1


def filter_batches(
    buffer: Buffer, table: BatchTable, records: RecordSlots, selection: Selection
) -> Filtered:
    """Return the remaining batches.

    Args:
        buffer: The batches.
        table: Their headers.
        records: Their records, from `locate`.
        selection: The decisions about them.
    """
    from streamlog.records import filter_kernels as kernels

    copied = table.size[selection.fates == kernels.COPY]
    room = len(records.source) + int(copied.sum())  # untouched memory costs nothing
    room += int(selection.keep.sum()) * MAX_OVERHEAD + len(table) * RECORD_BATCH_OVERHEAD
    fields = np.empty_like(table.fields)
    out = np.empty(room, np.uint8)
    count = kernels.rewrite_batches(
        as_source(buffer),
        read_only(table.fields, np.int64),
        read_only(selection.fates, np.int64),
        read_only(selection.horizons, np.int64),
        records.source,
        read_only(records.slots, np.int64),
        read_only(records.rows, np.int64),
        read_only(selection.keep, np.bool_),
        fields,
        out,
    )
    assert count >= 0, count
    left = BatchTable(fields[:count])
    fates = selection.fates[selection.fates != kernels.DROP]
    out = _compressed(out[: left.end], left, (fates == kernels.REWRITE) & (left.codec != NONE))
    rewrite_headers(out, left)
    return Filtered(out, left)


def _compressed(
    buffer: NDArray[np.uint8], table: BatchTable, due: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """Return the batches after compressing the records of those that need it; updates `table`."""
    if not due.any():
        return buffer
    parts: list[Buffer] = []
    filled = 0
    codecs = table.codec.tolist()
    for batch, (position, size) in enumerate(table.fields[:, POSITION : SIZE + 1].tolist()):
        part: Buffer = buffer[position : position + size].data
        if due[batch]:
            head, records = part[:RECORD_BATCH_OVERHEAD], part[RECORD_BATCH_OVERHEAD:]
            part = bytes(head) + compress(codecs[batch], records, level=None)
        table.fields[batch, POSITION], table.fields[batch, SIZE] = filled, len(part)
        filled += len(part)
        parts.append(part)
    return np.frombuffer(bytearray().join(parts), np.uint8)
