"""Tables and progress bars on a terminal, drawn with rich, which takes 0.1 s to import."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from streamlog.cli.output import Column, Kind

__all__ = ["LiveTable", "make_bar", "print_table"]


def print_table(cells: list[list[str]], columns: Sequence[Column]) -> None:
    """Print a table that fits the terminal width."""
    Console(highlight=False).print(_table(cells, columns))


class LiveTable:
    """A table that is replaced in place until it is stopped; the last one stays.

    Args:
        columns: Its columns.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._live = Live(console=Console(highlight=False), auto_refresh=False)
        self._live.start()

    def show(self, cells: list[list[str]]) -> None:
        """Replace the lines."""
        self._live.update(_table(cells, self._columns), refresh=True)

    def stop(self) -> None:
        """End the display."""
        self._live.stop()


def _table(cells: list[list[str]], columns: Sequence[Column]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        is_text = column.kind is Kind.TEXT
        table.add_column(  # a wrapped number would read as another number
            column.title,
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text,
        )
    for line in cells:
        table.add_row(*map(Text, line))
    return table


def make_bar(*, is_count: bool = False) -> Progress:
    """Return a progress bar for stderr with remaining time, and the rate of bytes."""
    bytes_done = (DownloadColumn(binary_units=True), TransferSpeedColumn())
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *((MofNCompleteColumn(),) if is_count else bytes_done),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
