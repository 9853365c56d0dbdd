"""Output of the command: rows of data on stdout; remarks, progress and errors on stderr.

Text from a log is untrusted. Tables escape characters that could control a terminal; JSON escapes
those that could end a line.

An error is two lines, `Error:` (what, where, got, expected) and `Try:` (what to do or type next),
and an exit code:

    0    success, including an empty result
    1    a finding: damage, or something that cannot be done now
    2    incorrect usage or bad input, including an unknown topic
    130  interrupted by Ctrl-C
"""

import base64
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
from streamlog.records.json_objects import ENCODINGS, record_object, to_json
from streamlog.words import counted, human_duration, human_size

__all__ = [
    "ENCODERS",
    "ENCODINGS",
    "EXIT_FINDING",
    "EXIT_INTERRUPTED",
    "EXIT_USAGE",
    "PARTITION_COLUMNS",
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
    "human_duration",
    "human_size",
    "record_object",
    "remark",
    "safe_text",
    "to_json",
]

Row = Mapping[str, Any]


class Kind(Enum):
    """Alignment and number format of a column."""

    TEXT = "text"
    NUMBER = "number"
    SIZE = "size"
    DURATION = "duration"


class Column(NamedTuple):
    """A column of a table: its key in the row, its title and its kind."""

    key: str
    title: str
    kind: Kind = Kind.TEXT

    def text(self, row: Row) -> str:
        """Return the cell of a row, `-` for null."""
        value = row.get(self.key)
        if value is None:
            return "-"
        if self.kind is Kind.SIZE:
            return human_size(value)
        if self.kind is Kind.DURATION:
            return human_duration(value)
        return safe_text(str(value))


PARTITION_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", Kind.NUMBER),
)


class Output:
    """Standard output in the format that the options and the terminal select.

    Args:
        settings: The shared options.
    """

    def __init__(self, settings: Settings) -> None:
        self._stream: IO[bytes] = sys.stdout.buffer
        self.is_terminal = sys.stdout.isatty()
        self.format = settings.format or ("table" if self.is_terminal else "ndjson")

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes unchanged."""
        self._stream.write(data)

    def flush(self) -> None:
        """Flush the buffer."""
        self._stream.flush()

    def rows(self, rows: Iterable[Row], columns: Sequence[Column]) -> None:
        """Print rows in the selected format.

        Args:
            rows: The rows; JSON contains all their keys.
            columns: The columns of a table.
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
        """Print a table, or nothing if there are no rows."""
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


def safe_text(text: str) -> str:
    """Return `text` with unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def remark(settings: Settings, line: str) -> None:
    """Print a line to stderr, unless `--quiet` is given."""
    if not settings.quiet:
        click.echo(safe_text(line), err=True)


# ---- records -------------------------------------------------------------------------------------
ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "utf8": bytes,
    "base64": base64.b64encode,
    "hex": lambda value: value.hex().encode("ascii"),
}


def encoded_text(value: bytes, encoding: str) -> str:
    r"""Return bytes as readable text; in `utf8`, invalid bytes become `\x..`."""
    if encoding == "utf8":
        return safe_text(value.decode("utf-8", "backslashreplace"))
    return ENCODERS[encoding](value).decode("ascii")


# ---- progress ------------------------------------------------------------------------------------
class Progress:
    """A progress bar, shown only if stderr is a terminal.

    Args:
        settings: The shared options; `--quiet` hides the bar.
        title: Text before the bar.
        total: Total bytes; None if unknown.
        is_wanted: False to hide the bar, such as while data goes to the same terminal.
        is_count: Whether the bar counts things, not bytes.
    """

    def __init__(
        self,
        settings: Settings,
        title: str,
        total: int | None,
        *,
        is_wanted: bool = True,
        is_count: bool = False,
    ) -> None:
        self._title, self._total, self._is_count = title, total, is_count
        self._is_shown = is_wanted and not settings.quiet and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self._is_shown:
            self._bar = load("terminal:make_bar")(is_count=self._is_count)
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total)
        return self

    def advance(self, size: int) -> None:
        """Add `size` bytes, or things."""
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
    (FileMissingError, "check the path; to create a root: streamlog topics create NAME"),
    (InvalidRequestError, "{verb} --help"),
    (CorruptDataError, "restore the file from a copy; the records before the damage are readable"),
    (FencedError, "read the current state and decide again"),
    (LockTimeoutError, "retry when the other writer has finished"),
    (DiskFullError, "free disk space and retry"),
    (StreamLogError, "streamlog doctor"),
)


class Failure(NamedTuple):
    """The two lines and the exit code of an error."""

    error: str
    cure: str
    exit_code: int

    def __str__(self) -> str:
        return f"Error: {safe_text(self.error)}\nTry: {safe_text(self.cure)}"


def explain(error: StreamLogError, verb: str = "streamlog") -> Failure:
    """Return the report of an error that `verb` raised."""
    general = next(text for kind, text in _CURES if isinstance(error, kind))
    cure = error.hint or general.format(verb=verb)
    is_usage = isinstance(error, InvalidRequestError | FileMissingError)
    return Failure(error.sentence, cure, EXIT_USAGE if is_usage else EXIT_FINDING)


class Findings(Exception):  # noqa: N818 - a container of errors
    """Errors met on the way, raised after all other work is done."""

    def __init__(self, errors: list[StreamLogError]) -> None:
        super().__init__(f"{len(errors)} findings")
        self.errors = errors
