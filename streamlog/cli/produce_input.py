"""The input of `streamlog produce`: lines or ndjson, parsed into columns of records.

It is read in chunks of a few MiB, or less when it pauses, so that a slow input is not held up. A
bad line is rejected with its number; the lines before it are not lost.
"""

import base64
import binascii
import difflib
import io
import json
import select
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import InvalidRecordError, MessageTooLargeError
from streamlog.records.builder import InputColumns
from streamlog.records.columns import BinaryColumn, HeaderColumn
from streamlog.records.layout import MAX_INT64
from streamlog.records.record import NO_TIMESTAMP, Header

__all__ = [
    "BadLineError",
    "Dressing",
    "Input",
    "InputChunk",
    "LineParser",
    "NdjsonParser",
    "read_chunks",
]

CHUNK_SIZE: Final = 4 << 20
PAUSE_S: Final = 0.05
LINE_SIZE_MAX: Final = 1 << 30
_LONG: Final = 4096  # average line length above which copying line by line is faster
NEWLINE: Final = 10
_FIELDS: Final = (
    *("topic", "partition", "offset", "timestamp", "timestampType"),
    *("key", "keyBase64", "value", "valueBase64", "headers"),
)
_HEADER_FIELDS: Final = ("key", "value", "valueBase64")


class InputChunk(NamedTuple):
    """Whole lines of the input.

    Attributes:
        data: The lines; the last line of the input may lack its newline.
        first_line: Number of the first line, from 1.
    """

    data: bytes
    first_line: int


class Input(NamedTuple):
    """Parsed records.

    Attributes:
        columns: The records.
        partition: int32[n], the partition each record names, or -1; None: no record names one.
        lines: The line number of each record.
    """

    columns: InputColumns
    partition: NDArray[np.int32] | None
    lines: Sequence[int]


class BadLineError(InvalidRecordError):
    """A line that is not a record; `before` holds the records before it in its chunk."""

    before: Input | None = None


def read_chunks(stream: IO[bytes]) -> Iterator[InputChunk]:
    """Yield whole lines of a stream: `CHUNK_SIZE` bytes, or fewer after a pause of `PAUSE_S`.

    Raises:
        MessageTooLargeError: A line of more than 1 GiB.
    """
    parts: list[bytes] = []
    size, line = 0, 1
    has_end = False
    while data := _read_some(stream):
        parts.append(data)
        size += len(data)
        has_end = has_end or b"\n" in data
        if not has_end:  # joining here would copy a long line again for each piece
            if size > LINE_SIZE_MAX:
                raise MessageTooLargeError(
                    f"line {line} of the input: line too long", got=f"{size} bytes"
                )
            continue
        if size < CHUNK_SIZE and _has_more(stream):
            continue
        whole = b"".join(parts)
        end = whole.rfind(b"\n") + 1
        chunk = InputChunk(whole[:end], line)
        line += chunk.data.count(b"\n")
        yield chunk
        parts, size, has_end = [whole[end:]], len(whole) - end, False
    if rest := b"".join(parts):
        yield InputChunk(rest, line)


def _read_some(stream: IO[bytes]) -> bytes:
    if isinstance(stream, io.BufferedReader):
        return stream.read1(1 << 20)
    return stream.read(1 << 20)


def _has_more(stream: IO[bytes]) -> bool:
    """Return whether more data, or the end, arrives within `PAUSE_S`."""
    try:
        return bool(select.select([stream], [], [], PAUSE_S)[0])
    except (OSError, ValueError):  # no file descriptor: an in-memory stream
        return True


# ---- lines ------------------------------------------------------------------------------------
class LineParser:
    """Parses lines into values, or into keys and values around a separator.

    Args:
        separator: Separates key and value; None: lines are values, keys are null.
        encoding: Encoding of keys and values; `utf8` takes the bytes unchanged.
        now_ms: Returns the timestamp of the records.
        dressing: Fields that all records get.
    """

    def __init__(
        self,
        separator: bytes | None,
        encoding: str,
        now_ms: Callable[[], int],
        dressing: "Dressing | None" = None,
    ) -> None:
        self._separator = separator
        self._dressing = dressing or Dressing()
        self._decode = _DECODERS[encoding]
        self._now_ms = now_ms

    def parse(self, chunk: InputChunk) -> Input:
        """Return the records of a chunk.

        Raises:
            BadLineError: A line without a separator, or with invalid encoding.
        """
        data = np.frombuffer(chunk.data, np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        if chunk.data[-1] != NEWLINE:
            ends = np.append(ends, len(data))
        starts = np.concatenate(([0], ends[:-1] + 1))
        if self._separator is None:
            return self._input(chunk, len(ends), None, _spans(data, starts, ends))
        cuts = _find_first(chunk.data, self._separator, starts, ends)
        bad = np.flatnonzero(cuts < 0)
        if len(bad):
            good = int(bad[0])
            error = BadLineError(
                f"line {chunk.first_line + good}: no key separator",
                got=repr(chunk.data[starts[good] : ends[good]][:60]),
                expected=f"KEY{self._separator.decode()}VALUE",
                hint="for records without a key use --format ndjson",
            )
            starts, ends, cuts = starts[:good], ends[:good], cuts[:good]
            error.before = self._keyed(chunk, data, starts, ends, cuts)
            raise error
        return self._keyed(chunk, data, starts, ends, cuts)

    def _keyed(
        self,
        chunk: InputChunk,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        cuts: NDArray[np.int64],
    ) -> Input:
        assert self._separator is not None
        keys = _spans(data, starts, cuts)
        values = _spans(data, cuts + len(self._separator), ends)
        return self._input(chunk, len(ends), keys, values)

    def _input(
        self, chunk: InputChunk, count: int, keys: BinaryColumn | None, values: BinaryColumn
    ) -> Input:
        timestamp = np.full(count, self._now_ms(), np.int64)
        columns = InputColumns(timestamp, self._decoded(chunk, keys), self._decoded(chunk, values))
        lines = range(chunk.first_line, chunk.first_line + count)
        return Input(self._dressing.apply(columns), None, lines)

    def _decoded(self, chunk: InputChunk, column: BinaryColumn | None) -> BinaryColumn | None:
        if self._decode is None or column is None:
            return column
        decoded = []
        for i, value in enumerate(column):
            try:
                decoded.append(self._decode(value or b""))
            except ValueError as error:
                raise BadLineError(
                    f"line {chunk.first_line + i}: invalid encoding",
                    got=repr((value or b"")[:60]),
                    expected=str(error),
                ) from None
        return BinaryColumn.from_values(decoded)


def _find_first(
    data: bytes, separator: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the first position of `separator` in each line, or -1."""
    array = np.frombuffer(data, np.uint8)
    room = max(0, len(array) - len(separator) + 1)  # possible positions
    matches = array[:room] == separator[0]
    for i, byte in enumerate(separator[1:], 1):
        matches = matches & (array[i : room + i] == byte)
    places = np.append(np.flatnonzero(matches), MAX_INT64 >> 1)  # a match after every line
    found = places[np.searchsorted(places, starts)]
    return np.where(found + len(separator) <= ends, found, -1)


def _spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> BinaryColumn:
    """Return a column with the bytes from each start to its end; spans must not overlap."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(ends - starts, out=offsets[1:])
    if 0 < len(starts) * _LONG < len(data):
        parts = [data[start:end] for start, end in zip(starts, ends, strict=True)]
        return BinaryColumn(offsets=offsets, data=np.concatenate(parts))
    # Mark the bytes inside of spans and copy them in one pass.
    steps = np.zeros(len(data) + 1, np.int8)
    steps[starts] += 1
    steps[ends] -= 1
    inside = np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)
    return BinaryColumn(offsets=offsets, data=data[inside])


# ---- ndjson -----------------------------------------------------------------------------------
class NdjsonParser:
    """Parses one JSON object per line, in the shape that `cat` prints.

    `partition` and `timestamp` are used; `topic`, `offset` and `timestampType`, which describe the
    source of a record, are ignored.

    Args:
        encoding: Encoding of `key`, `value` and header values; `…Base64` is always base64.
        now_ms: Returns the timestamp of records without one.
    """

    def __init__(self, encoding: str, now_ms: Callable[[], int]) -> None:
        self._encoding = encoding
        self._decode = _DECODERS[encoding] or (lambda value: value)
        self._now_ms = now_ms
        self._scan = json.JSONDecoder().raw_decode

    def parse(self, chunk: InputChunk) -> Input:
        """Return the records of a chunk; blank lines are skipped.

        Raises:
            BadLineError: A line that is not such an object; names the field.
        """
        rows: list[_Row] = []
        lines: list[int] = []
        now_ms = self._now_ms()
        for number, line in enumerate(chunk.data.split(b"\n"), chunk.first_line):
            if not line or line.isspace():
                continue
            try:
                rows.append(self._row(self._object(line), now_ms))
                lines.append(number)
            except _FieldError as problem:
                error = BadLineError(
                    f"line {number}: {problem.what}", got=problem.got, expected=problem.expected
                )
                error.before = _input_of(rows, lines)
                raise error from None
        return _input_of(rows, lines)

    def _object(self, line: bytes) -> dict[str, Any]:
        try:
            text = line.decode("utf-8").strip(" \t\r")
            found, end = self._scan(text)
        except (ValueError, RecursionError):
            raise _FieldError("invalid JSON", line, "one object per line") from None
        if end != len(text):
            raise _FieldError("text after the JSON object", line, "one object per line")
        if not isinstance(found, dict):
            raise _FieldError("not a JSON object", line, '{"key":…,"value":…}')
        if not found.keys() <= _KNOWN_FIELDS:
            raise _unknown_field(found, _FIELDS)
        return found

    def _row(self, fields: dict[str, Any], now_ms: int) -> "_Row":
        timestamp = fields.get("timestamp")
        partition = fields.get("partition")
        headers = fields.get("headers")
        return _Row(
            self._bytes(fields, "key", "keyBase64"),
            self._bytes(fields, "value", "valueBase64"),
            self._headers(headers) if headers else (),
            now_ms if timestamp is None else _integer("timestamp", timestamp, NO_TIMESTAMP),
            -1 if partition is None else _integer("partition", partition, 0, (1 << 31) - 1),
        )

    def _bytes(self, fields: dict[str, Any], name: str, name_base64: str) -> bytes | None:
        value = fields.get(name)
        decode = self._decode
        if name_base64 in fields:
            if name in fields:
                raise _FieldError(f"both {name} and {name_base64} given", value, "one of them")
            name, value, decode = name_base64, fields[name_base64], _decode_base64
        if value is None:
            return None
        if not isinstance(value, str):
            raise _FieldError(f"{name} is not a string", value, "a string or null")
        try:
            return decode(value.encode("utf-8"))
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON escapes allow
            raise _FieldError(f"{name} is not valid Unicode", value, "no lone surrogates") from None
        except ValueError as error:
            raise _FieldError(f"{name} cannot be decoded", value, str(error)) from None

    def _headers(self, headers: Any) -> tuple[Header, ...]:
        if not isinstance(headers, list):
            raise _FieldError("headers is not a list", headers, '[{"key":…,"value":…}, …]')
        return tuple(map(self._header, headers))

    def _header(self, header: Any) -> Header:
        if not isinstance(header, dict) or not isinstance(header.get("key"), str):
            raise _FieldError("header without a key", header, '{"key":…,"value":…}')
        if not header.keys() <= set(_HEADER_FIELDS):
            raise _unknown_field(header, _HEADER_FIELDS)
        try:
            header["key"].encode("utf-8")
        except UnicodeEncodeError:
            raise _FieldError(
                "header key is not valid Unicode", header, "no lone surrogates"
            ) from None
        return Header(header["key"], self._bytes({**header, "": None}, "value", "valueBase64"))


_KNOWN_FIELDS: Final = frozenset(_FIELDS)


class _Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int
    partition: int


class _FieldError(Exception):
    """An error in a line whose number is added later."""

    def __init__(self, what: str, got: object, expected: str) -> None:
        super().__init__(what)
        text = (
            got.decode("utf-8", "backslashreplace") if isinstance(got, bytes) else json.dumps(got)
        )
        self.what, self.got, self.expected = what, text[:80], expected


def _unknown_field(found: dict[str, Any], known: Sequence[str]) -> _FieldError:
    name = min(found.keys() - set(known))
    near = difflib.get_close_matches(name, known, 1)
    expected = f"{near[0]}?" if near else f"one of {', '.join(known)}"
    return _FieldError("unknown field", name, expected)


def _integer(name: str, value: object, least: int, most: int = MAX_INT64) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _FieldError(f"invalid value for {name}", value, f"an integer from {least} to {most}")
    return value


def _input_of(rows: list[_Row], lines: list[int]) -> Input:
    has_headers = any(row.headers for row in rows)
    return Input(
        InputColumns(
            np.array([row.timestamp for row in rows], np.int64),
            BinaryColumn.from_values(row.key for row in rows),
            BinaryColumn.from_values(row.value for row in rows),
            HeaderColumn.from_values(row.headers for row in rows) if has_headers else None,
        ),
        np.array([row.partition for row in rows], np.int32),
        lines,
    )


# ---- encodings --------------------------------------------------------------------------------
def _decode_base64(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"base64 ({error})") from None


def _decode_hex(value: bytes) -> bytes:
    try:
        return bytes.fromhex(value.decode("ascii"))
    except ValueError:
        raise ValueError("pairs of hexadecimal digits") from None


_DECODERS: Final[dict[str, Callable[[bytes], bytes] | None]] = {
    "utf8": None,
    "base64": _decode_base64,
    "hex": _decode_hex,
}


# ---- options for all lines ----------------------------------------------------------------------
class Dressing(NamedTuple):
    """Fields that all records of `--format lines` get.

    Attributes:
        key: The key; None: that of the line, if any.
        headers: The headers.
        has_nulls: Whether empty keys and values become null.
        timestamp: ms since 1970; None: the current time.
    """

    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    has_nulls: bool = False
    timestamp: int | None = None

    def apply(self, columns: InputColumns) -> InputColumns:
        """Return the records with these fields."""
        count = len(columns.timestamp)
        if self.has_nulls:
            columns = columns._replace(
                key=_with_nulls(columns.key), value=_with_nulls(columns.value)
            )
        if self.key is not None:
            columns = columns._replace(key=_repeated(BinaryColumn.from_values([self.key]), count))
        if self.timestamp is not None:
            columns = columns._replace(timestamp=np.full(count, self.timestamp, np.int64))
        if self.headers:
            names = BinaryColumn.from_values(name.encode() for name, _ in self.headers)
            values = BinaryColumn.from_values(value for _, value in self.headers)
            offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(self.headers))
            column = HeaderColumn(
                offsets=offsets, key=_repeated(names, count), value=_repeated(values, count)
            )
            columns = columns._replace(headers=column)
        return columns


def _with_nulls(column: BinaryColumn | None) -> BinaryColumn | None:
    """Return a column with nulls in place of empty values."""
    if column is None:
        return None
    is_full = np.diff(column.offsets) > 0
    return BinaryColumn(
        offsets=column.offsets,
        data=column.data,
        validity=np.packbits(is_full, bitorder="little"),
        null_count=int(len(column) - is_full.sum()),
    )


def _repeated(column: BinaryColumn, count: int) -> BinaryColumn:
    """Return a column whose values are repeated as a whole `count` times."""
    sizes = np.tile(np.diff(column.offsets), count)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return BinaryColumn(offsets=offsets, data=np.tile(column.data, count))
