"""Confluent's framing of one record at a time, by plain Python."""

from collections.abc import Sequence
from typing import Any


def plain_find_headers(records: Sequence[Sequence[Any] | None], name: str) -> list[int]:
    """Return the place of the last header of a name among those of each record, -1 if none is.

    Args:
        records: Lists of headers as Arrow shows them: a dict of key and value, or None.
        name: The name.
    """
    found = []
    for headers in records:
        places = [
            place
            for place, header in enumerate(headers or ())
            if header is not None and header["key"] == name
        ]
        found.append(places[-1] if places else -1)
    return found


def plain_read_ids(values: Sequence[bytes | None]) -> list[int]:
    """Return the id in front of each value, -1 if there is none."""
    return [
        int.from_bytes(value[1:5], "big")
        if value is not None and len(value) >= 5 and value[0] == 0
        else -1
        for value in values
    ]


def plain_find_changes(values: Sequence[bytes]) -> list[bool]:
    """Return which values differ from the one before; the first does."""
    return [row == 0 or values[row - 1] != value for row, value in enumerate(values)]
