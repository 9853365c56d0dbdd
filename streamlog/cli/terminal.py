"""Tables and progress bars on a terminal, drawn with rich, which takes 0.1 s to import."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from streamlog.cli.output import Column, Kind

__all__ = ["make_bar", "print_table"]


def print_table(cells: list[list[str]], columns: Sequence[Column]) -> None:
    """Print a table that fits the terminal width."""
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
    Console(highlight=False).print(table)


def make_bar() -> Progress:
    """Return a progress bar for stderr with rate and remaining time."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
