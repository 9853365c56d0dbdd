"""The segments of one partition, in order: an immutable list that is copied on every change.

A reader takes the list once and keeps it; a writer that rolls, or deletes, puts a new list in
its place. So readers never lock, never block a writer, and a segment they hold stays readable
while its files are being deleted under them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from streamlog.segment.segment import Segment

__all__ = ["Segments"]


class Segments:
    """Segments sorted by base offset; every change returns a new list."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._bases = [segment.base_offset for segment in self._segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def active(self) -> Segment:
        """The last segment, the only one that grows."""
        return self._segments[-1]

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets, ascending."""
        return list(self._bases)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def find(self, base_offset: int) -> Segment | None:
        """Return the segment with exactly this base offset."""
        at = bisect_left(self._bases, base_offset)
        if at < len(self._bases) and self._bases[at] == base_offset:
            return self._segments[at]
        return None

    def find_current(self, base_offset: int) -> Segment | None:
        """Return the segment of this base offset unless compaction replaced it, or it grew."""
        found = self.find(base_offset)
        return None if found is None or found.is_replaced() else found

    def floor_index(self, offset: int) -> int:
        """Return the index of the last segment whose base is at most `offset`, -1 for none."""
        return bisect_right(self._bases, offset) - 1

    def starting_at(self, offset: int) -> tuple[Segment, ...]:
        """Return the segment that `offset` falls into and all behind it."""
        return self._segments[max(0, self.floor_index(offset)) :]

    def with_segment(self, segment: Segment) -> "Segments":
        """Return the list with `segment` added, or put in place of one of the same base."""
        kept = [other for other in self._segments if other.base_offset != segment.base_offset]
        return Segments([*kept, segment])

    def without(self, segments: Iterable[Segment]) -> "Segments":
        """Return the list without `segments`."""
        gone = {segment.base_offset for segment in segments}
        return Segments(s for s in self._segments if s.base_offset not in gone)
