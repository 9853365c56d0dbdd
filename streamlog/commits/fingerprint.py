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
from enum import Enum
from typing import Final, NamedTuple

from streamlog.query.checkpoint import BatchSource, Naming, weakest

__all__ = [
    "Fingerprint",
    "Likeness",
    "checksum_sum",
]

_CHECKSUM_SPAN: Final = 1 << 64
_SOURCE_LENGTH_MAX: Final = 1024  # of a fingerprint that is kept as it is


class Likeness(Enum):
    """How a commit is like one that was made before under the same identity."""

    SAME = "made from the same"
    OTHER = "made from something else"
    ANOTHER_QUERY = "made by another query"


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


def checksum_sum(left: int, right: int) -> int:
    """Return the checksum of two sets of rows together."""
    return (left + right) % _CHECKSUM_SPAN


def _differ(left: object, right: object) -> bool:
    return left is not None and right is not None and left != right
