"""The one door to numba: how every kernel of the project is compiled.

Kernels take flat arrays and ints, write into arrays that the caller made, and return an int:
a count, or a negative status that a constant names. They never raise; the plain function beside
them does. Array reads and writes are bounds-checked (`boundscheck=True`), so a wrong kernel
raises instead of reading foreign memory; `copy_bytes` is the one exception and therefore takes
part only in kernels that checked both ranges.

The compiled code is cached on disk. numba unpickles that cache and runs what it finds, so it
lives in a directory that only its owner can write to: `NUMBA_CACHE_DIR` where that is set, else
`streamlog/numba` below the user's cache directory (mode 0700), else a private temporary one.
"""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["copy_bytes", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])


def _private_directory() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = Path(home) / "streamlog" / "numba"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
        if (
            found.st_uid == os.getuid()
            and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            and os.access(path, os.W_OK | os.X_OK)
        ):
            return str(path)
    except OSError:
        pass
    return tempfile.mkdtemp(prefix="streamlog-numba-")


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    def kernel(function: F) -> F:
        """Compile `function` with numba; the types stay those of the Python source."""

    def copy_bytes(
        target: NDArray[np.uint8],
        target_position: int,
        source: NDArray[np.uint8],
        source_position: int,
        size: int,
    ) -> None:
        """Copy `size` bytes as memcpy does: ranges unchecked, and they must not overlap."""

else:
    if not os.environ.get("NUMBA_CACHE_DIR"):
        os.environ["NUMBA_CACHE_DIR"] = _private_directory()
    import numba
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    if numba.config.DISABLE_JIT:

        def copy_bytes(target, target_position, source, source_position, size):
            target[target_position : target_position + size] = source[
                source_position : source_position + size
            ]

    else:

        @intrinsic
        def copy_bytes(typing_context, target, target_position, source, source_position, size):
            def generate(context, builder, signature, arguments):
                into = context.make_array(signature.args[0])(context, builder, arguments[0])
                out_of = context.make_array(signature.args[2])(context, builder, arguments[2])
                cgutils.raw_memcpy(
                    builder,
                    builder.gep(into.data, [arguments[1]]),
                    builder.gep(out_of.data, [arguments[3]]),
                    arguments[4],
                    1,
                )
                return context.get_dummy_value()

            return types.void(target, types.int64, source, types.int64, types.int64), generate

    kernel = numba.njit(cache=True, nogil=True, boundscheck=True)
