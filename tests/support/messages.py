"""Messages of formats v0 and v1 for tests."""

import numpy as np

from streamlog.records import legacy_reference as reference
from streamlog.records.legacy_builder import LegacyBuilder
from streamlog.records.record import CompressionType, Record
from streamlog.records.table import WIDTH, BatchTable


def message_set(
    magic: int,
    records: list[Record],
    *,
    base_offset: int = 0,
    compression: CompressionType = CompressionType.NONE,
    log_append_time: int | None = None,
) -> bytes:
    """Return records as a message set."""
    builder = LegacyBuilder(
        magic,
        base_offset=base_offset,
        compression=compression,
        log_append_time=log_append_time,
    )
    for record in records:
        builder.append(record)
    return builder.build()


def table_of(buffer: bytes) -> BatchTable:
    """Return the headers of whole messages, one behind the other."""
    rows = []
    position = 0
    while position < len(buffer):
        rows.append(reference.read_message_header(buffer, position))
        position += rows[-1].size
    return BatchTable(np.array(rows, np.int64).reshape(-1, WIDTH))
