"""How `cat` shows records: JSON, a format string of kcat's letters, or a table."""

import base64
import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import repeat
from typing import Final, NamedTuple

from streamlog.cli.json_records import format_records
from streamlog.cli.output import Output, safe_text
from streamlog.errors import InvalidOptionError
from streamlog.records.columns import COLUMNS, BinaryColumn, RecordColumns
from streamlog.records.record import NO_TIMESTAMP, Header
from streamlog.topic import TopicPartition

__all__ = ["JsonWriter", "TableWriter", "TextWriter", "encoded_text", "parse_output_format"]

_TABLE_ROWS_MEASURED: Final = 200
_CELL_MAX: Final = 60  # characters of a key or value in a table on a terminal
_SIZE: Final = struct.Struct(">i")
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


class JsonWriter:
    """Records as JSON objects, one a line, or as one list.

    Args:
        output: Where to.
        encoding: How bytes become text.
        is_list: Whether to make one JSON document of all.
    """

    columns = COLUMNS

    def __init__(self, output: Output, encoding: str, *, is_list: bool) -> None:
        self._output, self._encoding, self._is_list = output, encoding, is_list
        self._is_first = True

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Write some records."""
        if not self._is_list:
            self._output.write(format_records(columns, partition, encoding=self._encoding))
            return
        text = format_records(
            columns, partition, encoding=self._encoding, before=b",\n ", after=b""
        )
        self._output.write(b"[" if self._is_first else text[:3])
        self._output.write(text[3:])
        self._is_first = False

    def flush(self) -> None:
        """End the list, if it is one, and hand over what is buffered."""
        if self._is_list:
            self._output.write(b"[]\n" if self._is_first else b"]\n")
        self._output.flush()


# ---- kcat's letters ---------------------------------------------------------------------------
Column = Iterable[bytes]


class _Chunk(NamedTuple):
    """What a letter makes its column of."""

    columns: RecordColumns
    partition: TopicPartition
    encode: Callable[[bytes], bytes]


def _encoded(column: BinaryColumn | None, chunk: _Chunk) -> Column:
    if column is None:
        return repeat(b"", chunk.columns.count)
    return (b"" if value is None else chunk.encode(value) for value in column)


def _sizes(column: BinaryColumn | None, count: int) -> Iterator[int]:
    if column is None:
        return repeat(-1, count)
    return (-1 if value is None else len(value) for value in column)


def _decimal(numbers: Iterable[int]) -> Column:
    return (b"%d" % number for number in numbers)


def _headers(chunk: _Chunk) -> Column:
    if chunk.columns.headers is None:
        return repeat(b"", chunk.columns.count)
    return (
        b",".join(_header(header, chunk.encode) for header in headers)
        for headers in chunk.columns.headers
    )


def _header(header: Header, encode: Callable[[bytes], bytes]) -> bytes:
    return header.key.encode() + b"=" + (b"NULL" if header.value is None else encode(header.value))


_LETTERS: Final[dict[str, Callable[[_Chunk], Column]]] = {
    "t": lambda c: repeat(c.partition.topic.encode(), c.columns.count),
    "p": lambda c: repeat(b"%d" % c.partition.partition, c.columns.count),
    "o": lambda c: _decimal(c.columns.offset.tolist()),
    "T": lambda c: _decimal(c.columns.timestamp.tolist()),
    "k": lambda c: _encoded(c.columns.key, c),
    "K": lambda c: _decimal(_sizes(c.columns.key, c.columns.count)),
    "s": lambda c: _encoded(c.columns.value, c),
    "S": lambda c: _decimal(_sizes(c.columns.value, c.columns.count)),
    "R": lambda c: map(_SIZE.pack, _sizes(c.columns.value, c.columns.count)),
    "h": _headers,
}

_ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "utf8": bytes,
    "base64": base64.b64encode,
    "hex": lambda value: value.hex().encode("ascii"),
}


def parse_output_format(text: str) -> list[bytes | str]:
    r"""Take a format string apart.

    Args:
        text: Letters after `%` as kcat has them, `%%`, and `\n \r \t \0 \\ \xHH`.

    Returns:
        Literal bytes, and letters, in order.

    Raises:
        InvalidOptionError: An unknown letter or escape.
    """
    parts: list[bytes | str] = []
    i = 0
    while i < len(text):
        pair = text[i : i + 2]
        size = 2
        if pair == "%%":
            parts.append(b"%")
        elif pair[0] == "%" and pair[1:] in _LETTERS:
            parts.append(pair[1])
        elif pair == "\\x":
            digits = text[i + 2 : i + 4]
            try:
                parts.append(bytes.fromhex(digits.zfill(1)))
            except ValueError:
                raise _bad_format(text[i : i + 4]) from None
            size = 2 + len(digits)
        elif pair[0] == "\\" and pair[1:] in _ESCAPES:
            parts.append(_ESCAPES[pair[1]])
        elif pair[0] in "%\\":
            raise _bad_format(pair)
        else:
            parts.append(pair[0].encode("utf-8", "surrogateescape"))
            size = 1
        i += size
    return parts


def _bad_format(got: str) -> InvalidOptionError:
    return InvalidOptionError(
        "--output-format has something unknown",
        got=repr(got),
        expected="%t topic, %p partition, %o offset, %T timestamp, %k key, %K its size, %s value,"
        r" %S and %R its size, %h headers, %%, or one of \n \r \t \0 \\ \xHH",
        hint=r"streamlog cat TOPIC --output-format '%p:%o %k %s\n'",
    )


class TextWriter:
    """Records through a format string.

    Args:
        output: Where to.
        template: The format string.
        encoding: How keys, values and header values are shown; `utf8` leaves bytes as they are.
    """

    def __init__(self, output: Output, template: str, encoding: str) -> None:
        self._output = output
        self._parts = parse_output_format(template)
        self._encode = _ENCODERS[encoding]
        letters = {part for part in self._parts if isinstance(part, str)}
        needs = {"key": "kK", "value": "sSR", "headers": "h"}
        self.columns = frozenset(name for name in COLUMNS if letters & set(needs[name]))

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Write some records."""
        chunk = _Chunk(columns, partition, self._encode)
        filled = [
            repeat(part, columns.count) if isinstance(part, bytes) else _LETTERS[part](chunk)
            for part in self._parts
        ]
        self._output.write(b"".join(map(b"".join, zip(*filled, strict=True))))

    def flush(self) -> None:
        """Hand over what is buffered."""
        self._output.flush()


def encoded_text(value: bytes, encoding: str) -> str:
    r"""Return bytes as text for people; `utf8` shows what is none as `\x..`."""
    if encoding == "utf8":
        return safe_text(value.decode("utf-8", "backslashreplace"))
    return _ENCODERS[encoding](value).decode("ascii")


# ---- table ------------------------------------------------------------------------------------
class TableWriter:
    r"""Records as a table whose widths follow from the first rows.

    On a terminal long keys and values are cut; elsewhere they are whole.

    Args:
        output: Where to.
        encoding: How bytes become text; `utf8` shows what is none as `\x..`.
    """

    columns = COLUMNS
    titles = ("partition", "offset", "timestamp", "key", "value", "headers")

    def __init__(self, output: Output, encoding: str) -> None:
        self._output, self._encoding = output, encoding
        self._widths: list[int] | None = None

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Write some records."""
        lines = [
            (
                str(partition),
                str(record.offset),
                _time_text(record.timestamp),
                self._text(record.key),
                self._text(record.value),
                " ".join(f"{safe_text(h.key)}={self._text(h.value)}" for h in record.headers),
            )
            for record in columns.records()
        ]
        if self._widths is None and lines:
            measured = [self.titles, *lines[:_TABLE_ROWS_MEASURED]]
            self._widths = [max(map(len, column)) for column in zip(*measured, strict=True)]
            self._print(self.titles)
        for line in lines:
            self._print(line)

    def _print(self, line: Iterable[str]) -> None:
        assert self._widths is not None
        cells = (cell.ljust(width) for cell, width in zip(line, self._widths, strict=True))
        self._output.write("  ".join(cells).rstrip().encode() + b"\n")

    def _text(self, value: bytes | None) -> str:
        if value is None:
            return "null"
        text = encoded_text(value, self._encoding)
        if self._output.is_terminal and len(text) > _CELL_MAX:
            return text[: _CELL_MAX - 1] + "…"
        return text

    def flush(self) -> None:
        """Hand over what is buffered."""
        self._output.flush()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _time_text(timestamp: int | None) -> str:
    if timestamp is None or timestamp == NO_TIMESTAMP:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
