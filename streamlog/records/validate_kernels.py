"""The compiled loop that looks at records on append. Twin: `streamlog.records.reference`.

A leader wants to know of records only whether they are sound and what the rules ask; their fields
stay where they are. So there is a row of facts for each batch here, and no slot for each record.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import kernel
from streamlog.records.kernels import can_hold, note_error, read_record
from streamlog.records.layout import TIMESTAMP_TYPE_MASK
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.slot import (
    ERROR_BATCH,
    ERROR_RECORD,
    OK,
    OUT_OF_ROOM,
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
        out_totals: int64[9], of which the `ERROR_…` places are filled.

    Returns:
        OK, or what is wrong with the record at the `ERROR_…` places.
    """
    for batch in range(len(spans)):
        out_found[batch] = 0
        if spans[batch, 0] < 0:
            continue
        if not can_hold(source, spans[batch, 0], spans[batch, 1]):
            return note_error(out_totals, batch, 0, OUT_OF_ROOM)
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
    base_timestamp, max_stamp = batch[BASE_TIMESTAMP], batch[MAX_TIMESTAMP]
    earliest, latest = bounds[0], bounds[1]
    gaps = batch[LAST_OFFSET] - batch[BASE_OFFSET] + 1 != count
    keyless = untimely = max_timestamp = max_row = max_delta = 0
    for row in range(count):
        record = read_record(source, position, batch_end)
        if record.end < 0:
            out_totals[ERROR_RECORD] = row
            return record.end
        timestamp = max_stamp if is_stamped else base_timestamp + record.timestamp
        untimely += timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest
        if timestamp > max_timestamp or row == 0:
            max_timestamp, max_row, max_delta = timestamp, row, record.offset
        gaps |= record.offset != row
        keyless += record.key_size < 0
        position = record.end
    out_totals[ERROR_RECORD] = count
    out_found[FOUND_ROWS] = count
    out_found[FOUND_GAPS] = gaps
    out_found[FOUND_KEYLESS] = keyless
    out_found[FOUND_UNTIMELY] = untimely
    out_found[FOUND_MAX_TIMESTAMP] = max_timestamp
    out_found[FOUND_MAX_ROW] = max_row
    out_found[FOUND_MAX_OFFSET] = batch[BASE_OFFSET] + max_delta
    return OK if position == batch_end else SURPLUS_BYTES
