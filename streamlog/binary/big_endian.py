"""Big-endian two's complement integers in byte arrays, as Java writes them.

The kernels check only the array's bounds; the caller has verified that the field exists.
Twins: `tests.twins.binary`.
"""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import int64, kernel

__all__ = [
    "read_int8",
    "read_int16",
    "read_int32",
    "read_int64",
    "write_int8",
    "write_int16",
    "write_int32",
    "write_int64",
]


@kernel
def read_int8(buffer: NDArray[np.uint8], position: int) -> int:
    """Return the int8 at `position`."""
    return (int64(buffer[position]) ^ 0x80) - 0x80


@kernel
def read_int16(buffer: NDArray[np.uint8], position: int) -> int:
    """Return the int16 at `position`."""
    return read_int8(buffer, position) << 8 | int64(buffer[position + 1])


@kernel
def read_int32(buffer: NDArray[np.uint8], position: int) -> int:
    """Return the int32 at `position`."""
    low = int64(buffer[position + 2]) << 8 | int64(buffer[position + 3])
    return read_int16(buffer, position) << 16 | low


@kernel
def read_int64(buffer: NDArray[np.uint8], position: int) -> int:
    """Return the int64 at `position`."""
    low = read_int32(buffer, position + 4) & 0xFFFFFFFF
    return read_int32(buffer, position) << 32 | low


@kernel
def write_int8(buffer: NDArray[np.uint8], position: int, value: int) -> None:
    """Write the low byte of `value` at `position`."""
    buffer[position] = value & 0xFF


@kernel
def write_int16(buffer: NDArray[np.uint8], position: int, value: int) -> None:
    """Write the low 16 bits of `value` at `position`."""
    buffer[position] = value >> 8 & 0xFF
    buffer[position + 1] = value & 0xFF


@kernel
def write_int32(buffer: NDArray[np.uint8], position: int, value: int) -> None:
    """Write the low 32 bits of `value` at `position`."""
    write_int16(buffer, position, value >> 16)
    write_int16(buffer, position + 2, value)


@kernel
def write_int64(buffer: NDArray[np.uint8], position: int, value: int) -> None:
    """Write `value` at `position`."""
    write_int32(buffer, position, value >> 32)
    write_int32(buffer, position + 4, value)
