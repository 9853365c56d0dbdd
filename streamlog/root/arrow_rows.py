"""The door from partitions and producers to Arrow, which lies in a layer above them.

A program that passes an Arrow table has loaded pyarrow; all others must not pay for it, and this
layer does not know it. So whether something is Arrow data is asked of Arrow's own protocol, and
`streamlog.arrow.appending` is looked up by its name when such data arrives.
"""

from importlib import import_module
from typing import Any, Final

__all__ = ["appending", "is_arrow"]

_PROTOCOLS: Final = ("__arrow_c_stream__", "__arrow_c_array__")


def is_arrow(data: object) -> bool:
    """Return whether something is a table, a batch or a stream of Arrow, of whichever library."""
    return any(hasattr(type(data), each) for each in _PROTOCOLS)


def appending() -> Any:
    """Return the module `streamlog.arrow.appending`."""
    return import_module("streamlog.arrow.appending")
