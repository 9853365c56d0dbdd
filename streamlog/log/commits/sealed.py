r"""Small files that say what they are and prove that they are whole: decisions and ledgers.

    streamlog <kind> <version>\n        first line
    {"app":"…", …}\n                    one line of JSON, ASCII, keys sorted
    crc32c <8 hex digits>\n             over all bytes before this line

The checksum finds damage, not malice: every value is checked again for type and range when it is
taken out (`SealedValues`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptCheckpointError

__all__ = ["MAX_SEALED_SIZE", "SealedValues", "seal", "unseal"]

MAX_SEALED_SIZE: Final = 64 << 20  # a commit of some 100,000 extents
VERSION: Final = 1

_LAST_LINE: Final = re.compile(rb"crc32c ([0-9a-f]{8})\n")
_LAST_LINE_SIZE: Final = len(b"crc32c 00000000\n")


def seal(kind: str, values: Mapping[str, object]) -> bytes:
    """Return the bytes of a sealed file.

    Args:
        kind: What it is: `decision`, `ledger`.
        values: What it says; anything JSON can hold.
    """
    line = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    body = f"streamlog {kind} {VERSION}\n{line}\n".encode("ascii")
    return body + b"crc32c %08x\n" % crc32c(body)


def unseal(kind: str, content: bytes, path: str) -> "SealedValues":
    """Return what a sealed file says.

    Args:
        kind: What it has to be.
        content: The whole file.
        path: Where it lies, for errors.

    Raises:
        CorruptCheckpointError: It is damaged, of another kind, or of a later version.
    """
    body, last_line = content[:-_LAST_LINE_SIZE], content[-_LAST_LINE_SIZE:]
    match = _LAST_LINE.fullmatch(last_line)
    if match is None or int(match[1], 16) != crc32c(body):
        raise CorruptCheckpointError(
            f"{kind} file is damaged",
            path=path,
            got=f"{len(content)} bytes whose checksum is wrong or missing",
            expected="a last line with the CRC-32C of all before it",
        )
    first_line, _, line = body.partition(b"\n")
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
            f"{kind} file holds no JSON", path=path, got=str(error)[:200]
        ) from error
    return SealedValues(values, path)


class SealedValues:
    """An object of a sealed file; each value is checked as it is taken out.

    Args:
        values: What JSON gave; anything but an object is refused.
        path: The file, for errors.
    """

    __slots__ = ("_values", "path")

    def __init__(self, values: Any, path: str) -> None:
        self.path = path
        if not isinstance(values, dict):
            raise self.malformed("the value", values, "an object")
        self._values: dict[str, Any] = values

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self.malformed(name, value, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string, or None where it is null."""
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
        """Tell whether a value is null or not there."""
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
        """Return the error for a value that cannot be."""
        return CorruptCheckpointError(
            f"malformed {name!r}", path=self.path, got=repr(got)[:80], expected=expected
        )

    def _list(self, name: str) -> Sequence[Any]:
        value = self._values.get(name)
        if not isinstance(value, list):
            raise self.malformed(name, value, "a list")
        return value
