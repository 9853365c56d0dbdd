"""The offsets of one log, as of one moment."""

from typing import NamedTuple

__all__ = ["LogOffsets"]


class LogOffsets(NamedTuple):
    """The offsets of a log; immutable, so that a reader without a lock sees four that agree.

    Attributes:
        start: The first offset that may be read.
        high_watermark: Records below it are committed: read by consumers, deleted by retention.
        end: The offset that the next record gets.
        recovery_point: Records below it are synced; 0 where that is not known.
    """

    start: int = 0
    high_watermark: int = 0
    end: int = 0
    recovery_point: int = 0

    @classmethod
    def of_one_replica(cls, start: int, end: int, recovery_point: int = 0) -> "LogOffsets":
        """Return the offsets of a log that has no other replica: appended means committed."""
        # Each append makes one: this takes half the time of calling the class.
        return tuple.__new__(cls, (start, end, end, recovery_point))

    def with_high_watermark(self, offset: int) -> "LogOffsets":
        """Return the offsets with another high watermark, kept between log start and log end."""
        start, _, end, recovery_point = self
        return tuple.__new__(LogOffsets, (start, max(start, min(offset, end)), end, recovery_point))

    def with_recovery_point(self, offset: int) -> "LogOffsets":
        """Return the offsets with another recovery point."""
        start, high_watermark, end, _ = self
        return tuple.__new__(LogOffsets, (start, high_watermark, end, offset))

    def stable(self, first_unstable: int | None) -> int:
        """Return the last stable offset.

        Args:
            first_unstable: Where the oldest open transaction begins, None for none.
        """
        if first_unstable is None:
            return self.high_watermark
        return max(self.start, min(first_unstable, self.high_watermark))
