"""The one door to numba: how every kernel of the project is compiled.

Kernels take flat arrays and ints, write into arrays that the caller made, and return an int: a
count, or a negative status that a constant names. They never raise; their plain callers do. Array
reads and writes are bounds-checked (`boundscheck=True`), so a wrong kernel raises instead of
reading foreign memory; `copy_bytes`, `load_word`, `store` and `crc32c_of` are the exceptions and
therefore used only in kernels that have checked the range (`prefetch` accepts any position: the
processor ignores unmapped ones). Kernels allocate nothing, so numba's memory runtime is off: it
would count a reference, atomically, each time an array is passed to a helper, inlined or not, and
reading a varint would take three times as long. A kernel that did allocate does not compile.

The compiled code is cached on disk. numba unpickles that cache and runs it, so it lives in a
directory that only its owner can write to: `NUMBA_CACHE_DIR` if set, otherwise `streamlog/numba`
below the user's cache directory (mode 0700), otherwise a temporary one of this user. There, each
state of the sources shared by kernels has a directory of its own: numba compiles a kernel's callees
into it, but checks only the kernel's own file for changes. The cached code refers to the checksum
of `streamlog.binary.crc_function` by a name, which gets its address in each process.

The cache knows sources by their content and by their place in the package. numba's own knows them
by their path and time, so a packed environment would compile all kernels again in every executor of
every Spark application: each unpacks it into a directory of its own.
"""

import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streamlog.binary.arrays import WORD_SIZE
from streamlog.binary.crc import crc32c
from streamlog.binary.crc_function import CRC32C_ADDRESS, CRC32C_EMPTY
from streamlog.binary.heap import keep_large_blocks

__all__ = [
    "copy_bytes",
    "crc32c_of",
    "inlined",
    "int64",
    "kernel",
    "load_word",
    "prefetch",
    "store",
]

F = TypeVar("F", bound=Callable[..., Any])

# Code called by kernels of other files, and their constants: a change recompiles all kernels.
SHARED_SOURCES: Final = (
    "binary/*.py",
    "*/*kernels.py",
    "*/*layout.py",
    "records/slot.py",
    "records/table.py",
)
CRC32C_SYMBOL: Final = "streamlog_crc32c"  # name of the library's function in compiled code
PACKAGE: Final = Path(__file__).parent.parent
UNUSED_NS: Final = (
    30 * 86400 * 1_000_000_000
)  # after which compiled code of other sources is removed


def _cache_directory() -> str:
    """Return the directory for compiled code of the present sources, creating it."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    root = Path(given) if given else _private_directory()
    path = root / f"streamlog-{_digest_of_sources()}"
    try:
        if not path.exists():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_older(root, path.stat().st_mtime_ns - UNUSED_NS)
    except OSError:
        return tempfile.mkdtemp(prefix="streamlog-numba-")
    return str(path)


def _private_directory() -> Path:
    """Return a directory that only this user can write to, if possible the same one each time."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    shared = Path(tempfile.gettempdir()) / f"streamlog-numba-{os.getuid()}"
    for path in (Path(home) / "streamlog" / "numba", shared):
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(path):
                return path
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="streamlog-numba-"))


def _is_private(path: Path) -> bool:
    found = path.lstat()  # not stat: a link could lead to another user's directory
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and os.access(path, os.W_OK | os.X_OK)
    )


def _digest_of_sources() -> str:
    """Return a name for the state of the shared sources, by their names and content."""
    facts = [
        (str(path.relative_to(PACKAGE)), _digest_of(path))
        for path in sorted(path for pattern in SHARED_SOURCES for path in PACKAGE.glob(pattern))
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@functools.cache
def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _remove_older(root: Path, oldest_ns: int) -> None:
    for directory in root.glob("streamlog-*"):
        if directory.stat().st_mtime_ns < oldest_ns:
            for path in sorted(directory.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            directory.rmdir()


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    def kernel(function: F) -> F:
        """Compile `function` with numba; the types stay those of the Python source."""

    def inlined(function: F) -> F:
        """Compile `function` into every kernel that calls it.

        For the smallest helpers in the hottest loops: LLVM does not inline numba's calls by
        itself, and a call costs several times what reading a one-byte varint does. Longer ones
        cost compile time at every place they are used.
        """

    def int64(value: int | np.integer[Any]) -> int:
        """Return `value` as int64. numba's `int()` would keep the type of a byte."""

    def copy_bytes(
        target: NDArray[np.uint8],
        target_position: int,
        source: NDArray[np.uint8],
        source_position: int,
        size: int,
    ) -> None:
        """Copy `size` bytes like memcpy: ranges unchecked, and they must not overlap."""

    def load_word(source: NDArray[np.uint8], position: int) -> int:
        """Return the 8 bytes at `position` as int64, first byte lowest; range unchecked."""

    def prefetch(source: NDArray[np.uint8], position: int) -> None:
        """Prefetch the byte at `position`, which may be anywhere, into the processor's cache."""

    def store(target: NDArray[Any], index: int, value: int) -> None:
        """Write `value` at `index`, 0 or more, of a contiguous array; the range is unchecked."""

    def crc32c_of(source: NDArray[np.uint8], position: int, size: int) -> int:
        """Return the library's CRC-32C of `size` bytes from `position` on; range unchecked."""

else:
    import numba
    from llvmlite import binding, ir
    from numba import int64
    from numba.core import caching, cgutils, types
    from numba.extending import intrinsic

    numba.config.CACHE_DIR = _cache_directory()
    keep_large_blocks()  # processes that call kernels move megabytes

    if numba.config.DISABLE_JIT:

        def copy_bytes(target, target_position, source, source_position, size):  # noqa: D103
            target[target_position : target_position + size] = source[
                source_position : source_position + size
            ]

        def load_word(source, position):  # noqa: D103
            return int.from_bytes(source[position : position + WORD_SIZE], "little", signed=True)

        def prefetch(source, position):  # noqa: D103
            pass

        def store(target, index, value):  # noqa: D103
            target[index] = value

        def crc32c_of(source, position, size):  # noqa: D103
            return crc32c(source[position : position + size])

    else:
        binding.add_symbol(CRC32C_SYMBOL, CRC32C_ADDRESS)

        @intrinsic
        def copy_bytes(  # noqa: D103
            typing_context, target, target_position, source, source_position, size
        ):
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

        @intrinsic
        def load_word(typing_context, source, position):  # noqa: D103
            def generate(context, builder, signature, arguments):
                out_of = context.make_array(signature.args[0])(context, builder, arguments[0])
                place = builder.gep(out_of.data, [arguments[1]])
                word = context.get_value_type(types.int64).as_pointer()
                return builder.load(builder.bitcast(place, word), align=1)

            return types.int64(source, types.int64), generate

        @intrinsic
        def prefetch(typing_context, source, position):  # noqa: D103
            def generate(context, builder, signature, arguments):
                out_of = context.make_array(signature.args[0])(context, builder, arguments[0])
                place = builder.gep(out_of.data, [arguments[1]])
                flag = ir.IntType(32)
                prototype = ir.FunctionType(ir.VoidType(), [place.type, flag, flag, flag])
                function = cgutils.get_or_insert_function(
                    builder.module, prototype, "llvm.prefetch.p0i8"
                )
                to_read, near, data = flag(0), flag(3), flag(1)
                builder.call(function, [place, to_read, near, data])
                return context.get_dummy_value()

            return types.void(source, types.int64), generate

        @intrinsic
        def store(typing_context, target, index, value):  # noqa: D103
            def generate(context, builder, signature, arguments):
                into, _, kind = signature.args
                data = context.make_array(into)(context, builder, arguments[0]).data
                number = context.cast(builder, arguments[2], kind, into.dtype)
                builder.store(number, builder.gep(data, [arguments[1]]))
                return context.get_dummy_value()

            return types.void(target, types.int64, value), generate

        @intrinsic
        def crc32c_of(typing_context, source, position, size):  # noqa: D103
            def generate(context, builder, signature, arguments):
                out_of = context.make_array(signature.args[0])(context, builder, arguments[0])
                place = builder.gep(out_of.data, [arguments[1]])
                word, state = context.get_value_type(types.int64), ir.IntType(32)
                prototype = ir.FunctionType(state, [state, place.type, word])
                function = cgutils.get_or_insert_function(builder.module, prototype, CRC32C_SYMBOL)
                empty = ir.Constant(state, CRC32C_EMPTY)
                last = builder.call(function, [empty, place, arguments[2]])
                return builder.zext(builder.not_(last), word)

            return types.int64(source, types.int64, types.int64), generate

    class _Locator:
        """Where the compiled code of a kernel is cached; numba documents the methods."""

        def __init__(self, line, path):
            self._line, self._path = line, path

        @classmethod
        def from_function(cls, function, path):
            return cls(function.__code__.co_firstlineno, Path(path))

        def get_cache_path(self):
            parent = self._path.parent  # of a test's kernel, any path
            name = parent.relative_to(PACKAGE) if parent.is_relative_to(PACKAGE) else parent
            return os.path.join(numba.config.CACHE_DIR, str(name).strip("/").replace("/", "."))

        def ensure_cache_path(self):
            os.makedirs(self.get_cache_path(), exist_ok=True)

        def get_source_stamp(self):
            return _digest_of(self._path)

        def get_disambiguator(self):
            return str(self._line)

    class _CacheImpl(caching.CompileResultCacheImpl):
        _locator_classes = (_Locator,)

    class _Cache(caching.FunctionCache):
        _impl_class = _CacheImpl

    def _compiled(**options):
        def compile_when_called(function):
            dispatcher = numba.njit(nogil=True, boundscheck=True, _nrt=False, **options)(function)
            if not numba.config.DISABLE_JIT:
                dispatcher._cache = _Cache(function)
            return dispatcher

        return compile_when_called

    kernel = _compiled()
    inlined = _compiled(inline="always")
