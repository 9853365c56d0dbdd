"""What one batch of a streaming query was made from, as the query's checkpoint records it."""

import json
from enum import Enum
from typing import Any, Final, NamedTuple

__all__ = ["BatchSource", "Naming", "logged_files", "naming_of", "weakest"]

_NO_OFFSET: Final = "-"  # OffsetSeqLog.SERIALIZED_VOID_OFFSET: the source had nothing yet
_DELTA: Final = {"reservoirId", "reservoirVersion", "index"}  # DeltaSourceOffset
_FILES: Final = {"logOffset"}  # FileStreamSourceOffset


class Naming(Enum):
    """What the source lines of a batch name exactly, the weakest first."""

    NOTHING = "nothing"  # a running number: the same one may stand for other data
    END = "end"  # where the batch ends; where it begins is written nowhere
    BATCH = "batch"  # all that it reads


class BatchSource(NamedTuple):
    """What a batch is made from, as the checkpoint of its query says.

    Attributes:
        lines: The source lines of `offsets/N`; None where they cannot be read.
        query_id: The query; None outside of one.
        naming: What the lines name.
        files: A digest of what the file sources read; None where there is none, or where it is
            not known.
    """

    lines: str | None
    query_id: str | None = None
    naming: Naming = Naming.NOTHING
    files: str | None = None


def weakest(*namings: Naming) -> Naming:
    """Return what all of these name at least."""
    return min(namings, key=list(Naming).index)


def naming_of(line: str) -> Naming:
    """Return what one source line of a checkpoint names, by its shape.

    Lines of Kafka's source and of ours (an offset for each partition) and of Delta's (a version
    and an index) name where the batch ends. So does the line of a source that had nothing yet. All
    others are a running number or unknown: file sources, `rate`, `rate-micro-batch`, `socket`.

    Args:
        line: The line.

    Returns:
        END or NOTHING: where a batch begins stands in the offsets of the batch before.
    """
    if line == _NO_OFFSET:
        return Naming.END
    offset = _parse(line)
    if offset.keys() >= _DELTA:
        return Naming.END
    topics = {name: value for name, value in offset.items() if not name.startswith("$")}
    is_kafkas = bool(topics) and all(
        isinstance(value, dict)
        and all(number.isdecimal() and type(at) is int for number, at in value.items())
        for value in topics.values()
    )
    return Naming.END if is_kafkas else Naming.NOTHING


def logged_files(line: str) -> int | None:
    """Return the last entry of a file source's log that a batch reads; None for other sources.

    Args:
        line: The source's line; `{"logOffset":7}` for a file source.
    """
    offset = _parse(line)
    at = offset.get("logOffset")
    return at if offset.keys() == _FILES and type(at) is int else None


def _parse(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
