"""Arrow arrays made from buffers.

`pa.array` of a list or a numpy array imports pandas, and so does `to_numpy`: half a second and
60 MB in each of Spark's workers.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["array_of_errors", "array_of_ids", "array_of_integers", "array_of_texts", "validity_of"]


def validity_of(values: pa.Array) -> NDArray[np.bool_]:
    """Return bool[n]: which values are not null."""
    bits = values.buffers()[0]
    if bits is None or values.null_count == 0:
        return np.ones(len(values), bool)
    start, end = values.offset, values.offset + len(values)
    whole = np.unpackbits(np.frombuffer(bits, np.uint8), count=end, bitorder="little")
    return whole[start:].astype(bool)


def array_of_integers(
    values: NDArray[np.int32] | NDArray[np.int64], is_valid: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return int32[n] or int64[n] as an Arrow array; null where `is_valid` is false."""
    kind = pa.int32() if values.dtype == np.int32 else pa.int64()
    bits = None if is_valid is None else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [bits, data])


def array_of_ids(ids: NDArray[np.int64]) -> pa.Int32Array:
    """Return schema ids, null where they are negative: there is none."""
    return array_of_integers(ids.astype(np.int32), ids >= 0)


def array_of_texts(values: Sequence[str | None]) -> pa.StringArray:
    """Return texts as an Arrow array."""
    encoded = [b"" if value is None else value.encode("utf-8", "replace") for value in values]
    ends = np.cumsum(np.array([0, *map(len, encoded)], np.int64)).astype(np.int32)
    is_valid = np.array([value is not None for value in values], bool)
    bits = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def array_of_errors(errors: Mapping[int, str], count: int) -> pa.StringArray:
    """Return string[count] with the errors of some rows."""
    if not errors:
        return pa.nulls(count, pa.string())
    return array_of_texts([errors.get(row) for row in range(count)])
