"""Keys and values as people read them: JSON, text, or bytes."""

import json
from typing import Final, NamedTuple

from streamlog.words import human_size

__all__ = ["ShownValue", "one_line", "shown_value"]

_HEX_BYTES: Final = 1024
_HEX_ROW: Final = 16
_FRAME: Final = 5  # magic byte 0 and the schema id, 4 bytes
MAX_SHOWN: Final = 256 << 10


class ShownValue(NamedTuple):
    """A key or value on a page.

    Attributes:
        kind: What it is: `null`, `empty`, `JSON`, `text` or `bytes`, with a schema id in front
            where it is framed.
        text: The text to show.
        note: What is left out; empty if nothing is.
        error: Why it could not be decoded; empty if it was, or was not to be.
    """

    kind: str
    text: str
    note: str = ""
    error: str = ""


def shown_value(value: bytes | None) -> ShownValue:
    """Return a key or value as text; at most `MAX_SHOWN` bytes of it."""
    if value is None:
        return ShownValue("null", "")
    if not value:
        return ShownValue("empty", "")
    if value[0] == 0 and len(value) > _FRAME:
        schema = int.from_bytes(value[1:_FRAME], "big")
        inner = shown_value(value[_FRAME:])
        if inner.kind != "bytes" or schema < 1 << 20:  # else a number that begins with zero
            return ShownValue(f"schema id {schema}, then {inner.kind}", inner.text, inner.note)
    note = ""
    if len(value) > MAX_SHOWN:
        note = f"the first {human_size(MAX_SHOWN)} of {human_size(len(value))}"
        value = value[:MAX_SHOWN]
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        rest = f"the first {_HEX_BYTES} bytes" if len(value) > _HEX_BYTES else note
        return ShownValue("bytes", _hex_dump(value[:_HEX_BYTES]), note or rest)
    if not _is_readable(text):
        rest = f"the first {_HEX_BYTES} bytes" if len(value) > _HEX_BYTES else note
        return ShownValue("bytes", _hex_dump(value[:_HEX_BYTES]), note or rest)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ShownValue("text", text, note)
    if not isinstance(document, dict | list):
        return ShownValue("text", text, note)
    return ShownValue("JSON", json.dumps(document, indent=2, ensure_ascii=False), note)


def _is_readable(text: str) -> bool:
    return all(c.isprintable() or c in "\n\r\t" for c in text)


def _hex_dump(data: bytes) -> str:
    rows = []
    for at in range(0, len(data), _HEX_ROW):
        row = data[at : at + _HEX_ROW]
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        rows.append(f"{at:08x}  {row.hex(' '):<{3 * _HEX_ROW}} {letters}")
    return "\n".join(rows)


def one_line(value: bytes | str | None, limit: int = 160) -> str:
    """Return the beginning of a key or value on one line; bytes that are no text in hex."""
    if value is None:
        return "null"
    start = value[: 2 * limit]
    text = start if isinstance(start, str) else start.decode("utf-8", "backslashreplace")
    line = "".join(c if c.isprintable() else " " if c in "\n\r\t" else repr(c)[1:-1] for c in text)
    return line if len(line) <= limit and len(value) <= 2 * limit else f"{line[:limit]}…"
