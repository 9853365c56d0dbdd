"""Messages of formats v0 and v1: checked, decompressed, and turned into slots.

A message of codec 0 holds one record. Any other is a *wrapper*: its value is a compressed message
set, whose messages hold the records.

    wrapper   offset of its last record | … | magic | codec | timestamp | no key | message set
    set       offset | length | CRC-32 | magic | … | key | value, again and again

| | v0 | v1 |
|---|---|---|
| offsets in the set | absolute | relative: the last of them is the wrapper's own offset |
| timestamps | none | their own; with the wrapper's bit 3 that of the wrapper for all of them |
| lz4 frame | header checksum wrong, not looked at | as it should be |

Source: org.apache.kafka.common.record.AbstractLegacyRecordBatch, LegacyRecord.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary import lz4_v0
from streamlog.binary.arrays import Buffer, as_source
from streamlog.binary.compression import LZ4, decompress
from streamlog.binary.crc import crc32
from streamlog.errors import CorruptRecordError, LimitExceededError
from streamlog.records import legacy_layout as m
from streamlog.records import slot as s
from streamlog.records.layout import COMPRESSION_MASK, CURRENT_MAGIC, MAGIC_OFFSET, MAX_INT64
from streamlog.records.plain_headers import FEW, numba_is_loaded
from streamlog.records.slots import MAX_ARENA, MAX_DECOMPRESSED, RecordSlots, naming
from streamlog.records.table import BASE_OFFSET, BatchTable

__all__ = ["decode_messages", "find_bad_message", "with_first_offsets"]

MIN_INT64: Final = -MAX_INT64 - 1
SCRATCH_WORDS: Final = 256  # messages up to 2 KiB are checked by a kernel, larger ones by zlib

WHAT_IS_WRONG: Final = {
    m.BAD_MESSAGE_LENGTH: "length of a message is impossible",
    m.BAD_MESSAGE_MAGIC: "message set holds a message of another format",
    m.BAD_MESSAGE_FIELD: "key or value reaches beyond its message",
    m.NESTED: "message in a compressed message is compressed itself",
    m.NO_MESSAGES: "compressed message holds no message",
    m.BAD_WRAPPER_CODEC: "message is compressed with a codec that its format does not know",
    m.NULL_WRAPPER: "compressed message has no value",
    m.BAD_WRAPPER_OFFSET: "offset of a compressed message is below that of its last record",
    m.BAD_MESSAGE_ORDER: "offsets in a compressed message go back",
}


def find_bad_message(buffer: Buffer, table: BatchTable) -> int:
    """Compare stored and computed checksums of messages of v0 and v1.

    Args:
        buffer: The messages; batches of v2 among them are passed over.
        table: Their headers.

    Returns:
        The index of the first message whose checksum is wrong, or `len(table)`.

    Source: LegacyRecord.isValid.
    """
    found, largest = len(table), 0
    if numba_is_loaded() or len(table) > FEW:
        from streamlog.records import legacy_kernels as kernels

        words = np.empty(SCRATCH_WORDS, np.int64)
        largest = words.nbytes
        found = kernels.find_bad_checksum(
            as_source(buffer), table.fields, words, words.view(np.uint8)
        )
    sizes = table.size[:found] - MAGIC_OFFSET
    rest = np.flatnonzero((table.magic[:found] < CURRENT_MAGIC) & (sizes > largest))
    view = memoryview(buffer)
    for row in rest.tolist():
        start, size = int(table.position[row]), int(table.size[row])
        if crc32(view[start + MAGIC_OFFSET : start + size]) != int(table.crc[row]):
            return row
    return found


def decode_messages(
    buffer: Buffer,
    table: BatchTable,
    *,
    start_offset: int = 0,
    end_offset: int = MAX_INT64,
    is_strict: bool = True,
    max_decompressed: int = MAX_DECOMPRESSED,
    path: str | None = None,
    position: int = 0,
) -> RecordSlots:
    """Check the records of many messages and say where their fields lie.

    Args:
        buffer: The messages; nothing in them is trusted.
        table: Their headers, all of v0 or v1, as `scan_batches` found them in `buffer`.
        start_offset: First offset wanted.
        end_offset: First offset no longer wanted.
        is_strict: Whether offsets in a message set must rise, as they do on a disk. A producer's
            do not mean anything yet.
        max_decompressed: The most bytes one message may decompress to.
        path: The file, for messages.
        position: Where `buffer` begins in that file, for messages.

    Raises:
        CorruptRecordError: A message's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: A message decompresses to more than `max_decompressed`, or all
            together to 2 GiB.

    Source: AbstractLegacyRecordBatch.iterator.
    """
    from streamlog.records import legacy_kernels as kernels

    limits = np.array((start_offset, end_offset, int(is_strict)), np.int64)
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    spans = np.empty((len(table), 2), np.int64)
    rows = np.empty(len(table), np.int64)
    source = as_source(buffer)
    with naming(path, position):
        status = kernels.choose_messages(source, table.fields, limits, spans, totals)
        _check(status, table, totals)
        if totals[s.ALL_ATTRIBUTES] & COMPRESSION_MASK:
            source = _decompress(source, table, spans, max_decompressed)
        slots = np.empty(kernels.count_messages(source, spans) * s.SLOT_WIDTH, np.int64)
        status = kernels.locate_messages(source, table.fields, spans, limits, slots, rows, totals)
        _check(status, table, totals)
    numbers = totals.tolist()
    slots = slots.reshape(-1, s.SLOT_WIDTH)[: numbers[s.TOTAL_ROWS]]
    return RecordSlots(source=source, slots=slots, rows=rows)


def with_first_offsets(
    buffer: Buffer, table: BatchTable, *, path: str | None = None, position: int = 0
) -> BatchTable:
    """Return the table with the first offsets of wrappers, which decompressing them tells.

    Args:
        buffer: The messages; nothing in them is trusted.
        table: Their headers, all of v0 or v1.
        path: The file, for messages.
        position: Where `buffer` begins in that file, for messages.

    Raises:
        CorruptRecordError: A message's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: Decompressed to more than is ever read.
    """
    found = decode_messages(buffer, table, start_offset=MIN_INT64, path=path, position=position)
    fields = table.fields.copy()
    fields[:, BASE_OFFSET] = found.slots[np.cumsum(found.rows) - found.rows, s.SLOT_OFFSET]
    return BatchTable(fields)


def _check(status: int, table: BatchTable, totals: NDArray[np.int64]) -> None:
    """Raise what a kernel's `status` and the `ERROR_…` places of `totals` say."""
    if status == s.OK:
        return
    row, message = int(totals[s.ERROR_BATCH]), int(totals[s.ERROR_RECORD])
    raise CorruptRecordError(
        WHAT_IS_WRONG[status],
        position=int(table.position[row]),
        offset=int(table.last_offset[row]),
        got=f"message {message} of a set of format v{table.magic[row]}",
        expected="sound messages",
    )


def _decompress(
    source: NDArray[np.uint8], table: BatchTable, spans: NDArray[np.int64], max_size: int
) -> NDArray[np.uint8]:
    """Return `source` with the message sets of all chosen wrappers behind it; `spans` follows."""
    parts: list[Buffer] = [source]
    filled = len(source)
    codecs = table.codec
    for row in np.flatnonzero((codecs != 0) & (spans[:, 0] >= 0)).tolist():
        start, end = spans[row].tolist()
        codec, where = int(codecs[row]), int(table.position[row])
        part: Buffer = source[start:end]
        if codec == LZ4 and table.magic[row] == m.MAGIC_V0:
            part = lz4_v0.with_right_checksum(part)
        part = decompress(codec, part, max_size=max_size, position=where)
        spans[row] = filled, filled + len(part)
        filled += len(part)
        parts.append(part)
        if filled > MAX_ARENA:
            raise LimitExceededError(
                "messages decompress to 2 GiB and more",
                position=where,
                hint="read fewer bytes at a time",
            )
    return as_source(b"".join(parts))
