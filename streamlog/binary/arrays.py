"""Bytes as arrays of one type, so that each kernel is compiled for one signature only.

numba compiles a kernel again for every combination of argument types, and a read-only array has
another type than a writable one. So kernels read from a *source*: read-only, contiguous, aligned.
They write to an ordinary new array. Kernels that read numbers of several bytes load a whole word at
a time, so their source has at least that many bytes.
"""

from collections.abc import Sequence
from typing import Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["WORD_SIZE", "Buffer", "as_source", "read_only"]

Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]

WORD_SIZE: Final = 8  # bytes

A = TypeVar("A", bound=np.generic)


def as_source(buffer: Buffer) -> NDArray[np.uint8]:
    """Return `buffer` as read-only uint8[n] without copying it."""
    if isinstance(buffer, bytes):
        return np.frombuffer(buffer, np.uint8)
    if isinstance(buffer, np.ndarray):
        if not buffer.flags.writeable:
            return buffer
        source: NDArray[np.uint8] = buffer.view()
    else:
        source = np.frombuffer(buffer, np.uint8)
    source.flags.writeable = False
    return source


def read_only(values: NDArray[A] | Sequence[int], kind: type[A]) -> NDArray[A]:
    """Return `values` as a read-only, contiguous, aligned array of `kind`; copied if it is not."""
    array = np.asarray(values, kind)
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        array = array.copy()
    array = array.view()
    array.flags.writeable = False
    return cast("NDArray[A]", array)  # quoted: building the type costs more than the rest
