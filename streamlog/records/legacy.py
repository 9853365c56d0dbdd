"""Messages of formats v0 and v1: found, decompressed, and their checksums compared.

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
from streamlog.binary.compression import LZ4, NONE, decompress
from streamlog.binary.crc import crc32
from streamlog.errors import LimitExceededError
from streamlog.records import legacy_layout as m
from streamlog.records import slot as s
from streamlog.records.layout import (
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    MAGIC_OFFSET,
)
from streamlog.records.plain_headers import FEW, numba_is_loaded
from streamlog.records.slots import MAX_ARENA, MAX_DECOMPRESSED, check_status
from streamlog.records.table import CRC, MAGIC, POSITION, SIZE, BatchTable

__all__ = ["IN_ANY_ORDER", "IN_ORDER", "find_bad_message", "messages_of"]

# What `messages_of` is told besides the offsets that are wanted.
IN_ORDER: Final = 1  # offsets in a message set rise, as they do on a disk
IN_ANY_ORDER: Final = 0  # they mean nothing yet, as a producer's do

_CRC_PLACES: Final = (POSITION, SIZE, MAGIC, CRC)


def find_bad_message(buffer: Buffer, table: BatchTable) -> int:
    """Compare stored and computed checksums of messages of v0 and v1.

    Args:
        buffer: The messages; batches of v2 among them are passed over.
        table: Their headers.

    Returns:
        The index of the first message whose checksum is wrong, or `len(table)`.

    Source: LegacyRecord.isValid.
    """
    if numba_is_loaded() or len(table) > FEW:
        from streamlog.records.legacy_header_kernels import find_bad_checksum

        return find_bad_checksum(as_source(buffer), table.fields)
    view = memoryview(buffer)
    places = zip(*(table.fields[:, place].tolist() for place in _CRC_PLACES), strict=True)
    for row, (position, size, magic, crc) in enumerate(places):
        body = view[position + MAGIC_OFFSET : position + size]
        if magic < CURRENT_MAGIC and crc32(body) != crc:
            return row
    return len(table)


def messages_of(
    buffer: Buffer,
    table: BatchTable,
    *,
    limits: NDArray[np.int64],
    totals: NDArray[np.int64],
    max_decompressed: int = MAX_DECOMPRESSED,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes that the messages lie in, those of wrappers decompressed, and where.

    Args:
        buffer: The messages; nothing in them is trusted.
        table: Their headers, all of v0 or v1, as `scan_batches` found them in `buffer`.
        limits: int64[3], which ones are wanted, see `streamlog.records.legacy_kernels`.
        totals: int64[10]; the rows and the bytes of messages there may be are filled.
        max_decompressed: The most bytes one message may decompress to.

    Returns:
        uint8[m] and int64[n, 3]: where each message or message set begins and ends in it, and
        what its offsets are relative to; begin -1 for what is left out.

    Raises:
        CorruptRecordError: A wrapper is not what it should be.
        LimitExceededError: Decompressed to more than is ever read.

    Source: AbstractLegacyRecordBatch.iterator.
    """
    from streamlog.records import legacy_kernels as kernels

    source = as_source(buffer)
    spans = np.empty((len(table), kernels.SPAN_WIDTH), np.int64)
    status = kernels.choose_messages(source, table.fields, limits, spans, totals)
    check_status(status, table, totals)
    if int(totals[s.ALL_ATTRIBUTES]) & COMPRESSION_MASK:
        source = _decompress(source, table, spans, max_decompressed)
    status = kernels.survey_sets(source, table.fields, limits, spans, totals)
    check_status(status, table, totals)
    return source, spans


def _decompress(
    source: NDArray[np.uint8], table: BatchTable, spans: NDArray[np.int64], max_size: int
) -> NDArray[np.uint8]:
    """Return `source` with the message sets of all chosen wrappers behind it; `spans` follows."""
    parts: list[Buffer] = [source]
    filled = len(source)
    codecs = table.codec
    for row in np.flatnonzero((codecs != NONE) & (spans[:, 0] >= 0)).tolist():
        start, end = spans[row, :2].tolist()
        codec, where = int(codecs[row]), int(table.position[row])
        part: Buffer = source[start:end]
        if codec == LZ4 and table.magic[row] == m.MAGIC_V0:
            part = lz4_v0.with_right_checksum(part)
        part = decompress(codec, part, max_size=max_size, position=where)
        spans[row, :2] = filled, filled + len(part)
        filled += len(part)
        parts.append(part)
        if filled > MAX_ARENA:
            raise LimitExceededError(
                "messages decompress to 2 GiB and more",
                position=where,
                hint="read fewer bytes at a time",
            )
    return as_source(b"".join(parts))
