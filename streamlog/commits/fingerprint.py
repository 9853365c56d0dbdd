"""The fingerprint of a commit's input, and whether two commits had the same input.

A fingerprint records the source lines of the query's checkpoint, the files read by its file
sources, the query id, the number of rows, and a checksum over them (except for commits that can
never be repeated). How far the rows count depends on how much the source lines identify:

    the lines identify          a commit of the same query and the same lines is a replay
    the batch (`Naming.BATCH`)  whatever its rows are: a query may use random numbers
    its end (`Naming.END`)      if the number of rows is the same
    nothing (`Naming.NOTHING`)  if the number of rows and the checksum are the same
"""

import hashlib
from enum import Enum
from typing import Final, NamedTuple

from streamlog.query.checkpoint import BatchSource, Naming, weakest

__all__ = [
    "Fingerprint",
    "Likeness",
    "checksum_sum",
]

_CHECKSUM_SPAN: Final = 1 << 64
_SOURCE_LENGTH_MAX: Final = 1024  # characters; longer source lines are shortened


class Likeness(Enum):
    """How a commit compares to an earlier one with the same identity."""

    SAME = "same input"
    OTHER = "other input"
    ANOTHER_QUERY = "another query"


class Fingerprint(NamedTuple):
    """The fingerprint of a commit's input.

    Attributes:
        source: The source lines, shortened if they are long; None if unknown.
        rows: Number of rows.
        checksum: Sum of the rows' hashes modulo 2**64, independent of their order; None if it was
            not computed, or computed differently by an earlier release.
        query_id: The query; None outside of a query, or if unknown.
        naming: How much the source lines identify.
        files: A digest of the entries that the file sources read, None if unknown.
    """

    source: str | None
    rows: int
    checksum: int | None
    query_id: str | None = None
    naming: Naming = Naming.NOTHING
    files: str | None = None

    @classmethod
    def of(cls, source: BatchSource, rows: int, checksum: int | None) -> "Fingerprint":
        """Return the fingerprint; long source lines are cut to their first part and a hash."""
        lines = source.lines
        if lines is not None and len(lines) > _SOURCE_LENGTH_MAX:
            digest = hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()
            front = lines[: _SOURCE_LENGTH_MAX - 128]
            lines = f"{front}… ({len(lines)} characters, sha256 {digest})"
        return cls(lines, rows, checksum, source.query_id, source.naming, source.files)

    def likeness(self, other: "Fingerprint") -> Likeness:
        """Compare two fingerprints by the rule above, ignoring parts that one of them lacks."""
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


def checksum_sum(left: int, right: int) -> int:
    """Return the checksum of the union of two sets of rows."""
    return (left + right) % _CHECKSUM_SPAN


def _differ(left: object, right: object) -> bool:
    return left is not None and right is not None and left != right
