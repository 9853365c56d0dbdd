"""What a commit was made from, and whether another commit was made from the same.

Always recorded: the source lines of the query's checkpoint, what the file sources among them read,
the id of the query, the number of rows, and a checksum over them (except of commits that can never
be repeated). How far the rows count depends on what the source lines name:

    the lines name              a commit of the same query and the same lines is a replay
    the batch (`Naming.BATCH`)  whatever the rows are: a query may draw random numbers
    its end (`Naming.END`)      where the number of rows is the same
    neither (`Naming.NOTHING`)  where the number of rows and the checksum are the same
"""

import hashlib
import json
from enum import Enum
from typing import Any, Final, NamedTuple

__all__ = [
    "BatchSource",
    "Fingerprint",
    "Likeness",
    "Naming",
    "checksum_sum",
    "logged_files",
    "naming_of",
    "weakest",
]

_CHECKSUM_SPAN: Final = 1 << 64
_SOURCE_LENGTH_MAX: Final = 1024  # of a fingerprint that is kept as it is
_NO_OFFSET: Final = "-"  # OffsetSeqLog.SERIALIZED_VOID_OFFSET: the source had nothing yet
_DELTA: Final = {"reservoirId", "reservoirVersion", "index"}  # DeltaSourceOffset
_FILES: Final = {"logOffset"}  # FileStreamSourceOffset


class Naming(Enum):
    """What the source lines of a batch name exactly, the weakest first."""

    NOTHING = "nothing"  # a running number: the same one may stand for other data
    END = "end"  # where the batch ends; where it begins is written nowhere
    BATCH = "batch"  # all that it reads


class Likeness(Enum):
    """How a commit is like one that was made before under the same identity."""

    SAME = "made from the same"
    OTHER = "made from something else"
    ANOTHER_QUERY = "made by another query"


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


class Fingerprint(NamedTuple):
    """What a commit was made from.

    Attributes:
        source: The source lines, shortened where they are long; None where unknown.
        rows: How many rows it had.
        checksum: Sum of the rows' hashes modulo 2**64, the same in any order; None where it was
            not computed, or by an earlier release in another way.
        query_id: The query that made it; None outside of a query, and where unknown.
        naming: What the source lines name.
        files: A digest of what the file sources read, None where unknown.
    """

    source: str | None
    rows: int
    checksum: int | None
    query_id: str | None = None
    naming: Naming = Naming.NOTHING
    files: str | None = None

    @classmethod
    def of(cls, source: BatchSource, rows: int, checksum: int | None) -> "Fingerprint":
        """Return the fingerprint; the front of long lines and a hash stand for the whole."""
        lines = source.lines
        if lines is not None and len(lines) > _SOURCE_LENGTH_MAX:
            digest = hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()
            front = lines[: _SOURCE_LENGTH_MAX - 128]
            lines = f"{front}… ({len(lines)} characters, sha256 {digest})"
        return cls(lines, rows, checksum, source.query_id, source.naming, source.files)

    def likeness(self, other: "Fingerprint") -> Likeness:
        """Return how both are alike, as far as both can say; the docstring above has the rule."""
        if _differ(self.query_id, other.query_id):
            return Likeness.ANOTHER_QUERY
        if _differ(self.source, other.source) or _differ(self.files, other.files):
            return Likeness.OTHER
        naming = Naming.NOTHING
        if self.source == other.source and self.files == other.files:
            naming = weakest(self.naming, other.naming)
        same_number = self.rows == other.rows
        same_rows = same_number and not _differ(self.checksum, other.checksum)
        is_same = {
            Naming.BATCH: True,
            Naming.END: same_number,
            Naming.NOTHING: same_rows,
        }[naming]
        return Likeness.SAME if is_same else Likeness.OTHER

    def __str__(self) -> str:
        text = f"{self.rows} rows"
        if self.checksum is not None:
            text += f" with checksum {self.checksum:016x}"
        if self.query_id is not None:
            text += f" of query {self.query_id}"
        if self.source is not None:
            text += f" from {self.source}"
        return text if self.files is None else f"{text} (files {self.files})"


def weakest(*namings: Naming) -> Naming:
    """Return what all of these name at least."""
    return min(namings, key=list(Naming).index)


def checksum_sum(left: int, right: int) -> int:
    """Return the checksum of two sets of rows together."""
    return (left + right) % _CHECKSUM_SPAN


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


def _differ(left: object, right: object) -> bool:
    return left is not None and right is not None and left != right
