"""What notebooks show of a root, a topic and a partition: a small table of HTML."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from streamlog.words import human_size, number_text

__all__ = [
    "PARTITION_TITLES",
    "TOPIC_TITLES",
    "html_table",
    "partition_cells",
    "topic_cells",
]

TOPIC_TITLES: Final = ("Topic", "Partitions", "Offsets", "Size")
PARTITION_TITLES: Final = (
    "Partition",
    "Log start",
    "High watermark",
    "Log end",
    "Segments",
    "Size",
)


def html_table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; all text is escaped.

    Args:
        caption: What the table shows.
        titles: The titles of the columns.
        rows: The cells of each row.
    """
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return (
        f'<table><caption style="text-align:left">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def partition_cells(number: int, offsets: Iterable[int], segments: int, size: int) -> list[str]:
    """Return the cells under `PARTITION_TITLES`.

    Args:
        number: The partition.
        offsets: Its log start, high watermark and log end.
        segments: Number of its segments.
        size: Their bytes.
    """
    counted = [number_text(each) for each in (*offsets, segments)]
    return [str(number), *counted, human_size(size)]


def topic_cells(name: str, partitions: int, offsets: int, size: int) -> list[str]:
    """Return the cells under `TOPIC_TITLES`.

    Args:
        name: The topic.
        partitions: Number of its partitions.
        offsets: Number of their offsets.
        size: Their bytes.
    """
    return [name, number_text(partitions), number_text(offsets), human_size(size)]
