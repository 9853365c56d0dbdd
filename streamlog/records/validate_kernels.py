"""The compiled loops that check batches on append. Twins: `tests.twins.records`.

A leader only needs to know whether records are sound and obey the rules; their fields are not used.
So these loops fill a row of facts per batch, and no slot per record. Few records are checked by
`streamlog.records.plain_records`.
"""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import kernel
from streamlog.records.batch_kernels import (
    END,
    check_batch,
    count_batches,
    crc_of_batch,
    read_header,
)
from streamlog.records.kernels import can_hold, read_record
from streamlog.records.layout import (
    COMPRESSION_MASK,
    MIN_RECORD_SIZE,
    RECORDS_OFFSET,
    TIMESTAMP_TYPE_MASK,
)
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.slot import (
    ALL_ATTRIBUTES,
    BAD_CHECKSUM,
    BAD_COUNT,
    ERROR_BATCH,
    ERROR_RECORD,
    FOUND_GAPS,
    FOUND_MAX_TIMESTAMP,
    FOUND_ROWS,
    OK,
    OUT_OF_ROOM,
    SEEN_BATCHES,
    SEEN_END,
    SEEN_GAPS,
    SEEN_KEYLESS,
    SEEN_LARGEST,
    SEEN_UNTIMELY,
    SEEN_WRONG_MAX,
    SURPLUS_BYTES,
)
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    CRC,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    SIZE,
)

__all__ = ["count_batches", "inspect_batches", "inspect_records"]

assert END == OK


@kernel
def inspect_batches(
    source: NDArray[np.uint8],
    earliest: int,
    latest: int,
    out_fields: NDArray[np.int64],
    out_found: NDArray[np.int64],
    out_seen: NDArray[np.int64],
) -> int:
    """Read and check the v2 batches of an append: headers, checksums, uncompressed records.

    Compressed records are left to `inspect_records`.

    Args:
        source: uint8[m]; not trusted.
        earliest: The least timestamp allowed; -1 always is.
        latest: The largest timestamp allowed.
        out_fields: int64[b, 14], one row per batch, b from `count_batches`.
        out_found: int64[b, 3], see the `FOUND_…` constants of `streamlog.records.slot`.
        out_seen: int64[16], all 0, see the `SEEN_…` constants.

    Returns:
        OK; or why it stopped before the end of `source`, a positive number; or the error of the
        record at the `ERROR_…` places, a negative one.
    """
    row = position = 0
    while position < source.size:
        status = check_batch(source, position)
        if status == END:
            status = read_header(source, position, out_fields, row)
        if status != END:
            return status
        batch = out_fields[row]
        end = position + batch[SIZE]
        if crc_of_batch(source, position, batch[SIZE]) != batch[CRC]:
            return BAD_CHECKSUM
        out_seen[SEEN_BATCHES] = row + 1
        out_seen[SEEN_END] = end
        out_seen[SEEN_LARGEST] = max(out_seen[SEEN_LARGEST], batch[SIZE])
        out_seen[ALL_ATTRIBUTES] |= batch[ATTRIBUTES]
        out_found[row] = 0
        if batch[COUNT] > 0 and not batch[ATTRIBUTES] & COMPRESSION_MASK:
            out_seen[ERROR_BATCH] = row
            start = position + RECORDS_OFFSET
            status = inspect_batch(
                source, start, end, batch, earliest, latest, out_found[row], out_seen
            )
            if status != OK:
                return status
        position = end
        row += 1
    return OK


@kernel
def inspect_records(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    earliest: int,
    latest: int,
    out_found: NDArray[np.int64],
    out_seen: NDArray[np.int64],
) -> int:
    """Check every record of the batches and collect the facts that the rules of appending need.

    Args:
        source: uint8[m], records of the batches, decompressed; not trusted.
        fields: int64[b, 14], the batches' headers; not trusted.
        spans: int64[b, 2], begin and end of each batch's records in `source`, inside it; begin -1
            for a batch without any.
        earliest: The least timestamp allowed; -1 always is.
        latest: The largest timestamp allowed.
        out_found: int64[b, 3], see the `FOUND_…` constants of `streamlog.records.slot`.
        out_seen: int64[16]; the `ERROR_…` places and those about records are filled.

    Returns:
        OK, or the error of the record at the `ERROR_…` places.
    """
    out_seen[SEEN_GAPS:] = 0
    for row in range(len(spans)):
        start, end = spans[row, 0], spans[row, 1]
        out_found[row] = 0
        if start < 0:
            continue
        out_seen[ERROR_BATCH] = row
        status = inspect_batch(
            source, start, end, fields[row], earliest, latest, out_found[row], out_seen
        )
        if status != OK:
            return status
    return OK


@kernel
def inspect_batch(
    source: NDArray[np.uint8],
    position: int,
    batch_end: int,
    batch: NDArray[np.int64],
    earliest: int,
    latest: int,
    out_found: NDArray[np.int64],
    out_seen: NDArray[np.int64],
) -> int:
    """Check the records of one batch; see `inspect_records`."""
    count = batch[COUNT]
    out_seen[ERROR_RECORD] = 0
    if not can_hold(source, position, batch_end):
        return OUT_OF_ROOM
    if count > (batch_end - position) // MIN_RECORD_SIZE:
        out_seen[ERROR_RECORD] = count
        return BAD_COUNT
    is_stamped = batch[ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
    base_timestamp, max_stamp = batch[BASE_TIMESTAMP], batch[MAX_TIMESTAMP]
    gaps = batch[LAST_OFFSET] - batch[BASE_OFFSET] + 1 != count
    keyless = untimely = max_timestamp = 0
    for row in range(count):
        record = read_record(source, position, batch_end)
        if record.end < 0:
            out_seen[ERROR_RECORD] = row
            return record.end
        timestamp = max_stamp if is_stamped else base_timestamp + record.timestamp
        untimely += timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest
        if timestamp > max_timestamp or row == 0:
            max_timestamp = timestamp
        gaps |= record.offset != row
        keyless += record.key_size < 0
        position = record.end
    out_seen[ERROR_RECORD] = count
    out_seen[SEEN_GAPS] += gaps
    out_seen[SEEN_KEYLESS] += keyless
    out_seen[SEEN_UNTIMELY] += untimely
    out_seen[SEEN_WRONG_MAX] += max_timestamp != max_stamp
    out_found[FOUND_ROWS] = count
    out_found[FOUND_GAPS] = gaps
    out_found[FOUND_MAX_TIMESTAMP] = max_timestamp
    return OK if position == batch_end else SURPLUS_BYTES
