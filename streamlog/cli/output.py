"""Rows of data on stdout: a table, one JSON document, or one JSON object a line.

Nothing but data goes to stdout. Text that came out of a log is hostile: in a table, characters
that could steer a terminal are shown as escapes, and in JSON those that could end a line.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import IO, Any, Final, NamedTuple

import click

from streamlog.cli.settings import Settings

__all__ = [
    "ESCAPED",
    "Column",
    "Kind",
    "Output",
    "Row",
    "human_size",
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
            _print_rich(cells, columns)
            return
        titles = [column.title for column in columns]
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        for line in [titles, *cells]:
            set_cells = (
                cell.ljust(width) if column.kind is Kind.TEXT else cell.rjust(width)
                for cell, width, column in zip(line, widths, columns, strict=True)
            )
            self.write("  ".join(set_cells).rstrip().encode() + b"\n")


def _print_rich(cells: list[list[str]], columns: Sequence[Column]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        is_text = column.kind is Kind.TEXT
        table.add_column(  # a number that is broken into lines is another number
            column.title,
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text,
        )
    for line in cells:
        table.add_row(*map(Text, line))
    Console(highlight=False).print(table)


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
