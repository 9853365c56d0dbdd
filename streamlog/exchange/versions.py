"""How far an import of one file is, as the version of its last commit.

    38 bits  rows committed so far
    24 bits  fingerprint of the file
     1 bit   whether these are all of its rows

Commits of one app need rising versions, and the rows rise with each commit. So the root itself says
where an interrupted import goes on, whichever way rows were divided into commits, and whether the
file is still the one that was begun.
"""

from typing import Final, NamedTuple

from streamlog.errors import LimitExceededError

__all__ = ["FINGERPRINT_BITS", "ImportVersion"]

_ROW_BITS: Final = 38
FINGERPRINT_BITS: Final = 24


class ImportVersion(NamedTuple):
    """The state after a commit."""

    rows: int
    fingerprint: int
    is_complete: bool

    @property
    def number(self) -> int:
        """The version of the commit.

        Raises:
            LimitExceededError: The file has too many rows.
        """
        if self.rows >> _ROW_BITS:
            raise LimitExceededError(
                "file has too many rows for an import",
                got=self.rows,
                expected=f"fewer than {1 << _ROW_BITS}",
                hint="split it",
            )
        front = self.rows << FINGERPRINT_BITS | self.fingerprint
        return front << 1 | int(self.is_complete)

    @classmethod
    def of(cls, number: int) -> "ImportVersion":
        """Return the state of a version."""
        mask = (1 << FINGERPRINT_BITS) - 1
        return cls(number >> FINGERPRINT_BITS + 1, number >> 1 & mask, bool(number & 1))
