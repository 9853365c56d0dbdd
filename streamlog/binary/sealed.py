r"""Sealed files: small files with a type, a checksum and two copies of their content.

    streamlog <kind> <version>\n        first line
    {"app":"…", …}\n                    one line of JSON, ASCII, keys sorted
    crc32c <8 hex digits>\n             over the two lines before
    \n …                                empty lines up to the next multiple of 4096 bytes
    streamlog <kind> <version>\n …      the same three lines once more

One intact copy is enough. No byte, sector or page belongs to both copies, so a file is lost only if
both are damaged. A file with one copy only was written by an earlier version.

The checksum detects damage, not malice: the type and range of every value are checked again when it
is read (`SealedValues`).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptCheckpointError

__all__ = ["MAX_SEALED_SIZE", "SealedValues", "mended", "seal", "unseal"]

_PAGE: Final = 4096
MAX_SEALED_SIZE: Final = 2 * (64 << 20) + _PAGE  # a commit of some 100,000 extents
VERSION: Final = 1

_LAST_LINE: Final = re.compile(rb"crc32c ([0-9a-f]{8})\n")


def seal(kind: str, values: Mapping[str, object], *, copies: int = 2) -> bytes:
    """Return the content of a sealed file.

    Args:
        kind: The type of the file: `decision`, `ledger`.
        values: The values; anything that JSON can represent.
        copies: 2, or 1 where the storage itself keeps several.
    """
    line = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    body = f"streamlog {kind} {VERSION}\n{line}\n".encode("ascii")
    copy = body + b"crc32c %08x\n" % crc32c(body)
    return copy if copies == 1 else _twice(copy)


def _twice(copy: bytes) -> bytes:
    return copy + b"\n" * (-len(copy) % _PAGE) + copy


def unseal(kind: str, content: bytes, path: str) -> "SealedValues":
    """Return the values of a sealed file, from the first intact copy.

    Args:
        kind: The expected type.
        content: The whole file.
        path: Its path, for errors.

    Raises:
        CorruptCheckpointError: The file is damaged, of another type, or of a later version.
    """
    whole = next(_whole_copies(content), None)
    if whole is None:
        raise CorruptCheckpointError(
            f"{kind} file is damaged",
            path=path,
            got=f"{len(content)} bytes without a copy whose checksum matches",
            expected="two lines, and a third one with their CRC-32C",
        )
    first_line, line, _ = whole.split(b"\n", 2)
    if first_line != f"streamlog {kind} {VERSION}".encode("ascii"):
        raise CorruptCheckpointError(
            f"not a {kind} file of this version",
            path=path,
            got=repr(first_line[:60]),
            expected=f"streamlog {kind} {VERSION}",
            hint="use the version of streamlog that wrote it, or a later one",
        )
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"{kind} file contains no JSON", path=path, got=str(error)[:200]
        ) from error
    return SealedValues(values, path)


def mended(content: bytes) -> bytes | None:
    """Return the repaired content of a sealed file that is readable but damaged.

    Args:
        content: The whole file.

    Returns:
        The bytes that `seal` made; None if the content is undamaged, if no copy is intact, and for
        the single copy of an earlier version.
    """
    whole = next(_whole_copies(content), None)
    if whole is None or content in (whole, _twice(whole)):
        return None
    return _twice(whole)


def _whole_copies(content: bytes) -> Iterator[bytes]:
    """Yield the intact copies; the file's size determines where the second one begins."""
    for start in (0, -(-len(content) // (2 * _PAGE)) * _PAGE):
        middle = content.find(b"\n", start) + 1
        end = content.find(b"\n", middle) + 1
        match = _LAST_LINE.match(content, end) if 0 < middle < end else None
        if match is not None and int(match[1], 16) == crc32c(content[start:end]):
            yield content[start : match.end()]


class SealedValues:
    """An object in a sealed file; each value is checked when it is read.

    Args:
        values: The parsed JSON; anything but an object is refused.
        path: The file, for errors.
    """

    __slots__ = ("_values", "path")

    def __init__(self, values: Any, path: str) -> None:
        self.path = path
        if not isinstance(values, dict):
            raise self.malformed("the value", values, "an object")
        self._values: dict[str, Any] = values

    @property
    def as_read(self) -> dict[str, Any]:
        """All values, unchecked: to be shown."""
        return self._values

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self.malformed(name, value, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string, None if it is null."""
        return None if self.is_null(name) else self.text(name)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise self.malformed(name, value, "true or false")
        return value

    def integer(self, name: str, low: int = 0, high: int = 2**63 - 1) -> int:
        """Return an integer from `low` to `high`."""
        return self.checked_integer(name, self._values.get(name), low, high)

    def is_null(self, name: str) -> bool:
        """Return whether a value is null or missing."""
        return self._values.get(name) is None

    def nested(self, name: str) -> "SealedValues":
        """Return an object."""
        return SealedValues(self._values.get(name), self.path)

    def objects(self, name: str) -> "list[SealedValues]":
        """Return a list of objects."""
        return [SealedValues(value, self.path) for value in self._list(name)]

    def integers(self, name: str, width: int) -> Sequence[Sequence[int]]:
        """Return a list of rows, each of `width` integers from 0 to 2**63 - 1."""
        rows = self._list(name)
        for row in rows:
            if not isinstance(row, list) or len(row) != width:
                raise self.malformed(name, row, f"{width} integers")
            for value in row:
                self.checked_integer(name, value, 0, 2**63 - 1)
        return rows

    def checked_integer(self, name: str, value: object, low: int, high: int) -> int:
        """Return `value` if it is an integer from `low` to `high`."""
        if type(value) is not int or not low <= value <= high:
            raise self.malformed(name, value, f"an integer from {low} to {high}")
        return value

    def malformed(self, name: str, got: object, expected: object) -> CorruptCheckpointError:
        """Return the error for an invalid value."""
        return CorruptCheckpointError(
            f"malformed {name!r}", path=self.path, got=repr(got)[:80], expected=expected
        )

    def text_list(self, name: str) -> list[str]:
        """Return a list of strings."""
        found = self._list(name)
        for value in found:
            if not isinstance(value, str):
                raise self.malformed(name, value, "a string")
        return list(found)

    def texts(self, name: str) -> dict[str, str]:
        """Return an object whose values are strings."""
        values = self.nested(name)
        return {key: values.text(key) for key in values._values}

    def _list(self, name: str) -> Sequence[Any]:
        value = self._values.get(name)
        if not isinstance(value, list):
            raise self.malformed(name, value, "a list")
        return value
