"""The library's CRC-32C as a C function, so that compiled loops can call it.

    uint32 f(uint32 state, const void *data, unsigned long size)

The state starts as all ones, and the checksum is its complement, so that pieces can follow each
other. A call through Python takes ten times as long as the checksum of a short batch. The package
`crc32c` exports the function that it has chosen for this processor from its extension module, so
there is only one algorithm. If a build does not export it, a callback replaces it: one call of
Python, with the GIL held, per batch.

Source: _crc32c.c of the package crc32c.
"""

import ctypes
import importlib
from typing import Any, Final

import crc32c as library

from streamlog.binary.crc import crc32c

__all__ = ["CRC32C_ADDRESS", "CRC32C_EMPTY", "FUNCTION", "exported", "through_python"]

CRC32C_EMPTY: Final = 0xFFFFFFFF  # the state before the first byte
HARDWARE_NAMES: Final = ("_crc32c_hw_adler", "_crc32c_hw_arm64")
SOFTWARE_NAMES: Final = ("_crc32c_sw_slicing_by_8",)

_Prototype = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_ulong)

_PROBE: Final = bytes(range(251)) * 67  # long enough for every branch of the function


def exported(names: tuple[str, ...]) -> Any:
    """Return the first of `names` that the package exports, None if there is none to trust."""
    try:
        module = importlib.import_module("crc32c._crc32c")
        symbols = ctypes.CDLL(module.__file__)
    except (ImportError, OSError, TypeError):
        return None
    for name in names:
        if hasattr(symbols, name):
            found = _Prototype((name, symbols))
            return found if _is_sound(found) else None
    return None


def _is_sound(function: Any) -> bool:
    """Return whether `function` agrees with the library, in one piece and in two."""
    text = ctypes.create_string_buffer(_PROBE, len(_PROBE))
    start = ctypes.addressof(text)
    for size in (0, 1, 9, 4099, len(_PROBE)):
        state = function(CRC32C_EMPTY, start, size)
        state = function(state, start + size, len(_PROBE) - size)
        if state ^ CRC32C_EMPTY != crc32c(_PROBE):
            return False
    return True


def _call_library(state: int, start: int | None, size: int) -> int:
    data = ctypes.string_at(start, size) if start else b""
    crc: int = library.crc32c(data, state ^ CRC32C_EMPTY)
    return crc ^ CRC32C_EMPTY


through_python: Final = _Prototype(_call_library)  # does the same as the exported function

FUNCTION: Final = (
    exported(HARDWARE_NAMES if library.hardware_based else SOFTWARE_NAMES) or through_python
)

CRC32C_ADDRESS: Final = ctypes.cast(FUNCTION, ctypes.c_void_p).value
