"""Messages of formats v0 and v1: location, decompression and comparison of checksums.

A message with codec 0 holds one record. Any other message is a *wrapper*: its value is a compressed
message set, whose messages hold the records.

    wrapper   offset of its last record | … | magic | codec | timestamp | no key | message set
    set       offset | length | CRC-32 | magic | … | key | value, repeated

| | v0 | v1 |
|---|---|---|
| offsets in the set | absolute | relative: the last of them is the wrapper's own offset |
| timestamps | none | their own; with the wrapper's bit 3 that of the wrapper for all of them |
| lz4 frame | header checksum wrong, not checked | header checksum right |

Source: org.apache.kafka.common.record.AbstractLegacyRecordBatch, LegacyRecord.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary import lz4_frame
from streamlog.binary.arrays import Buffer, as_source
from streamlog.binary.compression import LZ4, NONE
from streamlog.binary.crc import crc32
from streamlog.records import legacy_layout as m
from streamlog.records import slot as s
from streamlog.records.layout import (
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    MAGIC_OFFSET,
)
from streamlog.records.plain_headers import FEW, numba_is_loaded
from streamlog.records.slots import EVERYTHING, LocatedRecords, check_arena, check_status, inflate
from streamlog.records.table import CRC, MAGIC, POSITION, SIZE, BatchTable

__all__ = ["IN_ANY_ORDER", "IN_ORDER", "find_bad_message", "messages_of"]

# Third limit of `messages_of`, after the wanted offsets.
IN_ORDER: Final = 1  # offsets in a message set ascend, as on disk
IN_ANY_ORDER: Final = 0  # offsets have no meaning yet, as from a producer

_CRC_PLACES: Final = (POSITION, SIZE, MAGIC, CRC)


def find_bad_message(buffer: Buffer, table: BatchTable) -> int:
    """Compare stored and computed checksums of messages of v0 and v1.

    Args:
        buffer: The messages; batches of v2 among them are skipped.
        table: Their headers.

    Returns:
        The index of the first message with a wrong checksum, or `len(table)`.

    Source: LegacyRecord.isValid.
    """
    if numba_is_loaded() or len(table) > FEW:
        from streamlog.records.legacy_kernels import find_bad_checksum

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
    max_decompressed: int,
    enough: int = EVERYTHING,
) -> LocatedRecords:
    """Return the bytes that hold the messages, those of wrappers decompressed, and their positions.

    Args:
        buffer: The messages; not trusted.
        table: Their headers, all of v0 or v1, as `scan_batches` found them in `buffer`.
        limits: int64[3], which ones are wanted, see `streamlog.records.legacy_kernels`.
        totals: int64[10]; upper bounds of rows and bytes of the messages are filled in.
        max_decompressed: Limit of the decompressed size of one message, in bytes.
        enough: Decompressed bytes that suffice: no message after the one that reaches them is
            decompressed or located.

    Returns:
        The leading messages as located, see `streamlog.records.slots.records_of`. Their spans are
        int64[n, 3]: the third is the base of their offsets.

    Raises:
        CorruptRecordError: A wrapper is damaged.
        LimitExceededError: A message decompresses to more than allowed, or all to 2 GiB.

    Source: AbstractLegacyRecordBatch.iterator.
    """
    from streamlog.records import legacy_kernels as kernels

    source = as_source(buffer)
    spans = np.empty((len(table), kernels.SPAN_WIDTH), np.int64)
    status = kernels.choose_messages(source, table.fields, limits, spans, totals)
    check_status(status, table, totals)
    if int(totals[s.ALL_ATTRIBUTES]) & COMPRESSION_MASK:
        source, taken = _decompress(source, table, spans, max_decompressed, enough)
        table, spans = table.slice(0, taken), spans[:taken]
    status = kernels.survey_sets(source, table.fields, limits, spans, totals)
    check_status(status, table, totals)
    return LocatedRecords(source, spans, table)


def _decompress(
    source: NDArray[np.uint8],
    table: BatchTable,
    spans: NDArray[np.int64],
    max_size: int,
    enough: int,
) -> tuple[NDArray[np.uint8], int]:
    """Append the message sets of chosen wrappers to `source` until there are enough bytes.

    Returns:
        The bytes, with their positions in `spans`, and how many messages were processed.
    """
    parts: list[Buffer] = [source]
    filled, taken = len(source), len(table)
    codecs = table.codec
    for row in np.flatnonzero((codecs != NONE) & (spans[:, 0] >= 0)).tolist():
        start, end = spans[row, :2].tolist()
        codec, where = int(codecs[row]), int(table.position[row])
        part: Buffer = source[start:end]
        if codec == LZ4 and table.magic[row] == m.MAGIC_V0:
            part = lz4_frame.with_right_checksum(part)
        offset = int(table.last_offset[row])
        part = inflate(codec, part, max_decompressed=max_size, position=where, offset=offset)
        spans[row, :2] = filled, filled + len(part)
        filled += len(part)
        parts.append(part)
        check_arena(filled, where)
        if filled - len(source) >= enough:
            taken = row + 1
            break
    return as_source(b"".join(parts)), taken
