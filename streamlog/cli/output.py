"""What the command prints: rows of data, remarks, progress and errors."""

import base64
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import IO, Any, Final, NamedTuple

import click

from streamlog.cli.verb import Settings, load
from streamlog.errors import (
    CorruptDataError,
    DiskFullError,
    FencedError,
    FileMissingError,
    InvalidRequestError,
    LockTimeoutError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.records.record import Header, Record
from streamlog.topic import TopicPartition

__all__ = [
    "ENCODINGS",
    "EXIT_FINDING",
    "EXIT_INTERRUPTED",
    "EXIT_USAGE",
    "Column",
    "Failure",
    "Findings",
    "Kind",
    "Output",
    "Progress",
    "Row",
    "counted",
    "encoded_text",
    "explain",
    "human_size",
    "record_object",
    "remark",
    "safe_text",
    "to_json",
]

Row = Mapping[str, Any]


# What JSON may hold as it is, but splits a line or steers a terminal.
ESCAPED: Final = {c: f"\\u{c:04x}" for c in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


class Kind(Enum):
    """How a column is set."""

    TEXT = "text"
    NUMBER = "number"
    SIZE = "size"


class Column(NamedTuple):
    """A column of a table: the row's key, and how to show it."""

    key: str
    title: str
    kind: Kind = Kind.TEXT

    def text(self, row: Row) -> str:
        """Return the cell."""
        value = row.get(self.key)
        if value is None:
            return "-"
        if self.kind is Kind.SIZE:
            return human_size(value)
        return safe_text(str(value))


class Output:
    """Where data goes, and in which format.

    Args:
        settings: The shared options.
    """

    def __init__(self, settings: Settings) -> None:
        self._stream: IO[bytes] = sys.stdout.buffer
        self.is_terminal = sys.stdout.isatty()
        self.format = settings.format or ("table" if self.is_terminal else "ndjson")

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes as they are."""
        self._stream.write(data)

    def flush(self) -> None:
        """Hand over what is buffered."""
        self._stream.flush()

    def rows(self, rows: Iterable[Row], columns: Sequence[Column]) -> None:
        """Print rows whole, in the chosen format.

        Args:
            rows: What to print; JSON has every key of them.
            columns: What a table shows of it.
        """
        if self.format == "ndjson":
            for row in rows:
                self.write(to_json(row) + b"\n")
        elif self.format == "json":
            self.write(b"[" + b",\n ".join(map(to_json, rows)) + b"]\n")
        else:
            self.table(list(rows), columns)
        self.flush()

    def table(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        """Print a table; one without rows prints nothing."""
        if not rows:
            return
        cells = [[column.text(row) for column in columns] for row in rows]
        if self.is_terminal:
            load("terminal:print_table")(cells, columns)
            return
        titles = [column.title for column in columns]
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        for line in [titles, *cells]:
            set_cells = (
                cell.ljust(width) if column.kind is Kind.TEXT else cell.rjust(width)
                for cell, width, column in zip(line, widths, columns, strict=True)
            )
            self.write("  ".join(set_cells).rstrip().encode() + b"\n")


def to_json(row: Row) -> bytes:
    """Return a row as one line of JSON."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return text.translate(ESCAPED).encode("utf-8", "surrogateescape")


def human_size(size: int) -> str:
    """Return a size in bytes for a person, as `12.3 MiB`."""
    if size < 1024:
        return f"{size} B"
    value, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"


def safe_text(text: str) -> str:
    """Return `text` with everything that is not printable as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def remark(settings: Settings, line: str) -> None:
    """Tell something beside the data, on stderr, unless asked to be quiet."""
    if not settings.quiet:
        click.echo(safe_text(line), err=True)


# ---- records -------------------------------------------------------------------------------------


_ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "utf8": bytes,
    "base64": base64.b64encode,
    "hex": lambda value: value.hex().encode("ascii"),
}


def encoded_text(value: bytes, encoding: str) -> str:
    r"""Return bytes as text for people; `utf8` shows what is none as `\x..`."""
    if encoding == "utf8":
        return safe_text(value.decode("utf-8", "backslashreplace"))
    return _ENCODERS[encoding](value).decode("ascii")


ENCODINGS: Final = ("utf8", "base64", "hex")


def record_object(
    record: Record, partition: TopicPartition | None, encoding: str
) -> dict[str, object]:
    """Return one record as an object of the contract; topic and partition null where unknown."""
    topic, number = (None, None) if partition is None else partition
    return {
        "topic": topic,
        "partition": number,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type.label,
        **text_field("key", record.key, encoding),
        **text_field("value", record.value, encoding),
        "headers": [_header_object(header, encoding) for header in record.headers],
    }


def _header_object(header: Header, encoding: str) -> dict[str, object]:
    return {"key": header.key, **text_field("value", header.value, encoding)}


def text_field(name: str, value: bytes | None, encoding: str) -> dict[str, str | None]:
    """Return bytes as the field called `name`; in base64, and so called, where they must be."""
    if value is None:
        return {name: None}
    if encoding == "hex":
        return {name: value.hex()}
    if encoding == "utf8":
        try:
            return {name: value.decode("utf-8")}
        except UnicodeDecodeError:
            name += "Base64"
    return {name: base64.b64encode(value).decode("ascii")}


def counted(count: int, one: str) -> str:
    """Return a number with its noun: `1 partition`, `3 partitions`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


# ---- progress ------------------------------------------------------------------------------------
class Progress:
    """How far some work is, counted in bytes; shows nothing unless stderr is a terminal.

    Args:
        settings: The shared options; `--quiet` shows nothing.
        title: What is being done.
        total: Bytes to do, None when nobody knows.
        is_wanted: Whether a bar may be shown at all (not while data goes to the same terminal).
    """

    def __init__(
        self, settings: Settings, title: str, total: int | None, *, is_wanted: bool = True
    ) -> None:
        self._title, self._total = title, total
        self._is_shown = is_wanted and not settings.quiet and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self._is_shown:
            self._bar = load("terminal:make_bar")()
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total)
        return self

    def advance(self, size: int) -> None:
        """Count `size` bytes more as done."""
        if self._bar is not None:
            self._bar.advance(self._task, size)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


# ---- errors --------------------------------------------------------------------------------------
EXIT_FINDING: Final = 1


EXIT_USAGE: Final = 2


EXIT_INTERRUPTED: Final = 130


_CURES: Final[tuple[tuple[type[StreamLogError], str], ...]] = (
    (UnknownTopicError, "streamlog topics list"),
    (FileMissingError, "check the path; a new root is made by: streamlog topics create NAME"),
    (InvalidRequestError, "{verb} --help"),
    (CorruptDataError, "restore the file from a copy; the records before it can be read"),
    (FencedError, "look at what stands now and decide again"),
    (LockTimeoutError, "again, when the other writer is done"),
    (DiskFullError, "make room, then do it again"),
    (StreamLogError, "streamlog doctor"),
)


class Failure(NamedTuple):
    """One thing that went wrong, ready to be told."""

    error: str
    cure: str
    exit_code: int

    def __str__(self) -> str:
        return f"Error: {safe_text(self.error)}\nTry: {safe_text(self.cure)}"


def explain(error: StreamLogError, verb: str = "streamlog") -> Failure:
    """Return what to tell about `error`, which `verb` met."""
    general = next(text for kind, text in _CURES if isinstance(error, kind))
    cure = error.hint or general.format(verb=verb)
    is_usage = isinstance(error, InvalidRequestError | FileMissingError)
    return Failure(error.sentence, cure, EXIT_USAGE if is_usage else EXIT_FINDING)


class Findings(Exception):  # noqa: N818 - not an error of its own: it carries those met
    """Errors that did not keep the rest from being done; raised when that is finished."""

    def __init__(self, errors: list[StreamLogError]) -> None:
        super().__init__(f"{len(errors)} findings")
        self.errors = errors
