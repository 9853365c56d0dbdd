"""Compiled loops that write whole columns as text, for CSV.

The twins in plain Python are in `tests.twins.exported_text`.
"""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import kernel
from streamlog.records.json_kernels import (
    BASE64,
    Bytes,
    Column,
    is_utf8,
    write_base64_digits,
    write_headers,
    write_hex_digits,
    write_text,
)

__all__ = ["encode_headers", "encode_values", "mark_invalid", "quote_values"]


@kernel
def mark_invalid(marks: Bytes, offsets: NDArray[np.int32], data: Bytes) -> int:
    """Set a byte for each value that is not UTF-8.

    Args:
        marks: uint8[n], zeros.
        offsets: int32[n + 1].
        data: The bytes of all values.

    Returns:
        The number of such values.
    """
    found = 0
    for row in range(marks.size):
        if is_utf8(data, offsets[row], offsets[row + 1]) == 0:
            marks[row] = 1
            found += 1
    return found


@kernel
def encode_values(out_offsets: NDArray[np.int32], out: Bytes, column: Column, encoding: int) -> int:
    """Write each value in BASE64 or HEX; nothing for null.

    Args:
        out_offsets: int32[n + 1], written: where each text begins.
        out: Room for all texts.
        column: The values.
        encoding: BASE64 or HEX.

    Returns:
        The number of bytes written.
    """
    offsets, data, validity = column
    at = 0
    for row in range(out_offsets.size - 1):
        out_offsets[row] = at
        if validity.size > 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0:
            continue
        if encoding == BASE64:
            at = write_base64_digits(out, at, data, offsets[row], offsets[row + 1])
        else:
            at = write_hex_digits(out, at, data, offsets[row], offsets[row + 1])
    out_offsets[out_offsets.size - 1] = at
    return at


@kernel
def encode_headers(
    out_offsets: NDArray[np.int32],
    out: Bytes,
    runs: NDArray[np.int32],
    keys: Column,
    values: Column,
    encoding: int,
) -> int:
    """Write the headers of each record as a JSON list; nothing for none.

    Args:
        out_offsets: int32[n + 1], written: where each list begins.
        out: Room for all lists.
        runs: int32[n + 1], the headers of each record.
        keys: Their keys, UTF-8.
        values: Their values.
        encoding: UTF8, BASE64 or HEX, of the values.

    Returns:
        The number of bytes written.
    """
    at = 0
    for row in range(out_offsets.size - 1):
        out_offsets[row] = at
        if runs[row + 1] > runs[row]:
            at = write_headers(out, at, keys, values, runs[row], runs[row + 1], encoding)
    out_offsets[out_offsets.size - 1] = at
    return at


@kernel
def quote_values(out_offsets: NDArray[np.int32], out: Bytes, column: Column) -> int:
    """Write each value, UTF-8, as a JSON string; nothing for null.

    Args:
        out_offsets: int32[n + 1], written: where each string begins.
        out: Room for all strings.
        column: The values.

    Returns:
        The number of bytes written.
    """
    offsets, data, validity = column
    at = 0
    for row in range(out_offsets.size - 1):
        out_offsets[row] = at
        if validity.size > 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0:
            continue
        at = write_text(out, at, data, offsets[row], offsets[row + 1])
    out_offsets[out_offsets.size - 1] = at
    return at
