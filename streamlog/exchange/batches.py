"""Record batches of an export: their offsets, and slices of them."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["last_offset", "offsets_of", "pieces"]

_OFFSET: Final = "offset"


def last_offset(batch: pa.RecordBatch) -> int:
    """Return the offset of the last row."""
    return int(offsets_of(batch)[-1])


def offsets_of(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the offsets of all rows: int64[n]."""
    column = batch.column(batch.schema.get_field_index(_OFFSET))
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)


def pieces(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of about `size` bytes; nothing is copied."""
    count = min(batch.num_rows, max(1, -(-batch.nbytes // size)))
    rows = max(1, -(-batch.num_rows // max(1, count)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
