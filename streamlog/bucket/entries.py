"""Entries of the journal as JSON, and snapshots that consist of entries.

A snapshot is the whole state (`streamlog.bucket.snapshots`), or it names an earlier one that is,
and has the entries since: its size does not depend on how much the root holds.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from streamlog.binary.sealed import SealedValues, seal, unseal
from streamlog.bucket.actions import Action, format_action, parse_action
from streamlog.bucket.snapshots import SNAPSHOT, packed, unpacked

__all__ = [
    "Entry",
    "KeptEntry",
    "Since",
    "format_entry",
    "format_since",
    "parse_entry",
    "parse_since",
]


class Entry(NamedTuple):
    """One entry of the journal.

    Attributes:
        number: Its number.
        mark: The random mark of its writer.
        made_ms: When it was made, in ms since 1970.
        actions: What it does.
    """

    number: int
    mark: str
    made_ms: int
    actions: tuple[Action, ...]


class KeptEntry(NamedTuple):
    """An entry that later objects repeat: its mark, values and size as JSON."""

    number: int
    values: dict[str, object]
    size: int

    @classmethod
    def of(cls, entry: Entry) -> "KeptEntry":
        """Return an entry to keep."""
        values = format_entry(entry)
        return cls(entry.number, values, len(json.dumps(values)))


class Since(NamedTuple):
    """The entries since a snapshot of the whole state.

    Attributes:
        base: The number of that snapshot.
        entries: The entries after it, oldest first.
    """

    base: int
    entries: list[Entry]


def format_entry(entry: Entry) -> dict[str, object]:
    """Return the values of an entry, without its number."""
    return {
        "mark": entry.mark,
        "made_ms": entry.made_ms,
        "actions": [format_action(action) for action in entry.actions],
    }


def parse_entry(values: SealedValues, number: int) -> Entry:
    """Return the entry in some values.

    Raises:
        CorruptCheckpointError: A value is invalid.
    """
    return Entry(
        number,
        values.text("mark"),
        values.integer("made_ms"),
        tuple(parse_action(value) for value in values.objects("actions")),
    )


def format_since(base: int, entries: Sequence[KeptEntry]) -> bytes:
    """Return the content of a snapshot that has entries since another one.

    Args:
        base: The number of the other one, which has the whole state.
        entries: The entries after it, at least one, oldest first.
    """
    values = {
        "number": entries[-1].number,
        "base": base,
        "entries": [each.values for each in entries],
    }
    return packed(seal(SNAPSHOT, values, copies=1))


def parse_since(content: bytes, path: str) -> Since | None:
    """Return the entries in a snapshot; None if it has the whole state.

    Args:
        content: The whole object.
        path: Its URL, for errors.

    Raises:
        CorruptCheckpointError: The object is damaged, or a value is invalid.
    """
    values = unseal(SNAPSHOT, unpacked(content, path), path)
    if values.is_null("base"):
        return None
    base, entries = values.integer("base", 1), values.objects("entries")
    if base + len(entries) != values.integer("number"):
        raise values.malformed("entries", f"{len(entries)}", f"those after entry {base}")
    return Since(base, [parse_entry(each, base + 1 + at) for at, each in enumerate(entries)])
