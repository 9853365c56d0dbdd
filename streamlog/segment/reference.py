"""The kernels of `streamlog.segment.kernels` once more, in plain Python, for the tests.

Written from the description, with the header read by `struct` and without shared helpers, so
that a mistake in one is a difference between both.
"""

from collections.abc import Iterable
from typing import NamedTuple

from streamlog.records.layout import BATCH_HEADER

__all__ = ["Walk", "find_batch", "find_candidate", "index_entries"]

_LARGEST = 2**63 - 1


class Walk(NamedTuple):
    """How a walk from header to header ended.

    `status` is `found`, `continue`, `unsound` or `entry missed`; `batch` is base offset, last
    offset and size.
    """

    status: str
    position: int
    promised: int | None
    batch: tuple[int, int, int] | None = None


def find_batch(buffer: bytes, offset: int, position: int, promised: int | None) -> Walk:
    """Walk to the first batch that reaches `offset`; `promised` as in the kernel, or None."""
    while position + BATCH_HEADER.size <= len(buffer):
        base, length, _, magic, _, _, delta, *_ = BATCH_HEADER.unpack_from(buffer, position)
        last = base + delta
        if length < 49 or magic != 2 or base < 0 or delta < 0 or last > _LARGEST:
            return Walk("unsound", position, promised)
        if promised is not None and last > promised:
            return Walk("entry missed", position, promised)
        if promised == last:
            promised = None
        if last >= offset:
            return Walk("found", position, promised, (base, last, 12 + length))
        position += 12 + length
    return Walk("continue", position, promised)


def find_candidate(
    buffer: bytes, position: int, left: int, first_offset: int, last_offset: int
) -> int:
    """Return the next place of a plausible header, or -1."""
    for at in range(position, len(buffer) - BATCH_HEADER.size + 1):
        base, length, _, magic, _, _, delta, *_ = BATCH_HEADER.unpack_from(buffer, at)
        offsets_fit = delta >= 0 and first_offset <= base <= base + delta <= last_offset
        if magic == 2 and offsets_fit and 49 <= length <= left - at - 12:
            return at
    return -1


def index_entries(
    batches: Iterable[tuple[int, int, int, int]], interval: int
) -> list[tuple[int, int, int, int]]:
    """Return the index entries of a whole segment.

    Args:
        batches: (position, size, last offset, largest timestamp) of each batch.
        interval: `index.interval.bytes`.

    Returns:
        (last offset, position, largest timestamp so far, its offset) of each entry.
    """
    entries = []
    largest, largest_offset = -1, -1
    indexed = 0
    for position, _, last_offset, max_timestamp in batches:
        if max_timestamp > largest:
            largest, largest_offset = max_timestamp, last_offset
        if position - indexed > interval:
            entries.append((last_offset, position, largest, largest_offset))
            indexed = position
    return entries
