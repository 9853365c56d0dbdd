"""The compiled loop that looks at records on append. Twin: `streamlog.records.reference`.

A leader wants to know of records only whether they are sound and what the rules ask; their fields
stay where they are. So there is a row of facts for each batch here, and no slot for each record.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import kernel
from streamlog.binary.varint import (
    SIZE_BITS,
    SIZE_MASK,
    find_varlong,
    read_varint,
    read_varlong,
)
from streamlog.records.layout import TIMESTAMP_TYPE_MASK
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.slot import (
    BAD_FIELD_LENGTH,
    BAD_HEADER_COUNT,
    BAD_HEADER_KEY,
    BAD_NUMBER,
    BAD_RECORD_END,
    BAD_RECORD_LENGTH,
    ERROR_BATCH,
    ERROR_RECORD,
    OK,
    SURPLUS_BYTES,
)
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP,
)

# Places in a row of facts. Those of a batch without records are all 0.
FOUND_ROWS: Final = 0
FOUND_GAPS: Final = 1  # whether its offsets are anything but one after the other, first to last
FOUND_KEYLESS: Final = 2  # records without a key
FOUND_UNTIMELY: Final = 3  # records whose timestamp lies outside the bounds
FOUND_MAX_TIMESTAMP: Final = 4
FOUND_MAX_ROW: Final = 5  # the first record that has it
FOUND_MAX_OFFSET: Final = 6  # and its offset
FOUND_WIDTH: Final = 7


@kernel
def inspect_records(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    bounds: NDArray[np.int64],
    out_found: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Check every record of the batches and note what the rules of appending ask for.

    Args:
        source: uint8[m], records of the batches, decompressed; not trusted.
        fields: int64[b, 14], the batches' headers; not trusted.
        spans: int64[b, 2], where each batch's records begin and end in `source`, inside it;
            begin -1 for a batch without any.
        bounds: int64[2], the earliest and the latest timestamp allowed; -1 always is.
        out_found: int64[b, 7], see the `FOUND_…` constants.
        out_totals: int64[12], of which the `ERROR_…` places are filled.

    Returns:
        OK, or what is wrong with the record at the `ERROR_…` places.
    """
    for batch in range(len(spans)):
        out_found[batch] = 0
        if spans[batch, 0] < 0:
            continue
        out_totals[ERROR_BATCH] = batch
        status = inspect_batch(
            source, spans[batch], fields[batch], bounds, out_found[batch], out_totals
        )
        if status != OK:
            return status
    return OK


@kernel
def inspect_batch(
    source: NDArray[np.uint8],
    span: NDArray[np.int64],
    batch: NDArray[np.int64],
    bounds: NDArray[np.int64],
    out_found: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Check the records of one batch; see `inspect_records`."""
    position, batch_end, count = span[0], span[1], batch[COUNT]
    is_stamped = batch[ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
    gaps = batch[LAST_OFFSET] - batch[BASE_OFFSET] + 1 != count
    keyless = untimely = max_timestamp = max_row = max_delta = 0
    for row in range(count):
        out_totals[ERROR_RECORD] = row
        number = read_varint(source, position, batch_end)
        position += number & SIZE_MASK
        length = number >> SIZE_BITS
        if number == 0 or length < 1 or length > batch_end - position:
            return BAD_RECORD_LENGTH
        end = position + length
        position += 1  # behind the attributes, of which no bit means anything yet
        size = find_varlong(source, position, end)
        if size == 0:
            return BAD_NUMBER
        timestamp = batch[BASE_TIMESTAMP] + read_varlong(source, position, size)
        number = read_varint(source, position + size, end)
        position += size + (number & SIZE_MASK)
        if number == 0:
            return BAD_NUMBER
        delta = number >> SIZE_BITS
        gaps |= delta != row
        if is_stamped:
            timestamp = batch[MAX_TIMESTAMP]
        untimely += timestamp != NO_TIMESTAMP and not bounds[0] <= timestamp <= bounds[1]
        if timestamp > max_timestamp or row == 0:
            max_timestamp, max_row, max_delta = timestamp, row, delta
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size > end - position:
            return BAD_FIELD_LENGTH
        keyless += size < 0
        position += max(size, 0)
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size > end - position:
            return BAD_FIELD_LENGTH
        position += max(size, 0)
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size < 0 or size > end - position:
            return BAD_HEADER_COUNT
        if size > 0:
            position = skip_headers(source, position, end, size)
            if position < 0:
                return position
        if position != end:
            return BAD_RECORD_END
    out_found[FOUND_ROWS] = count
    out_found[FOUND_GAPS] = gaps
    out_found[FOUND_KEYLESS] = keyless
    out_found[FOUND_UNTIMELY] = untimely
    out_found[FOUND_MAX_TIMESTAMP] = max_timestamp
    out_found[FOUND_MAX_ROW] = max_row
    out_found[FOUND_MAX_OFFSET] = batch[BASE_OFFSET] + max_delta
    return OK if position == batch_end else SURPLUS_BYTES


@kernel
def skip_headers(source: NDArray[np.uint8], position: int, end: int, count: int) -> int:
    """Check `count` headers from `position` on; return where they end, or what is wrong."""
    for _ in range(count):
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size < 0 or size > end - position:
            return BAD_HEADER_KEY
        position += size
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size > end - position:
            return BAD_FIELD_LENGTH
        position += max(size, 0)
    return position
