"""The kernels of `streamlog.segment.kernels` in plain Python.

Written from the description, with `struct` for the header and no shared functions, so that a
mistake in one is a difference between the two.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Walk", "find_batch", "find_candidate", "index_entries"]

_LARGEST = 2**63 - 1
_LEAST = {0: 14, 1: 22, 2: 49}  # lengths by magic


class Walk(NamedTuple):
    """Result of a walk over headers.

    `status` is `found`, `continue`, `unsound` or `entry missed`; `batch` is base offset, last
    offset and size.
    """

    status: str
    position: int
    promised: int | None
    batch: tuple[int, int, int] | None = None


def find_batch(buffer: bytes, offset: int, position: int, promised: int | None) -> Walk:
    """Walk to the first batch that reaches `offset`; `promised` as in the kernel, or None."""
    while (header := _header_at(buffer, position)) is not None:
        base, length, magic, delta = header
        last = base + delta
        if length < _LEAST.get(magic, _LARGEST) or base < 0 or delta < 0 or last > _LARGEST:
            return Walk("unsound", position, promised)
        if promised is not None and last > promised:
            return Walk("entry missed", position, promised)
        if promised == last:
            promised = None
        if last >= offset:
            return Walk("found", position, promised, (base, last, 12 + length))
        position += 12 + length
    return Walk("continue", position, promised)


def _header_at(buffer: bytes, position: int) -> tuple[int, int, int, int] | None:
    """Return base offset, length, magic and last offset delta; None if bytes are missing."""
    if len(buffer) - position < 26:
        return None
    base, length, _, magic = struct.unpack_from(">qiib", buffer, position)
    if magic != 2:
        return base, length, magic, 0
    if len(buffer) - position < 61:
        return None
    return base, length, magic, struct.unpack_from(">i", buffer, position + 23)[0]


def find_candidate(
    buffer: bytes, position: int, left: int, first_offset: int, last_offset: int
) -> int:
    """Return the next place of a plausible header, or -1."""
    for at in range(position, len(buffer)):
        header = _header_at(buffer, at)
        if header is None:
            continue
        base, length, magic, delta = header
        offsets_fit = delta >= 0 and first_offset <= base <= base + delta <= last_offset
        if offsets_fit and _LEAST.get(magic, _LARGEST) <= length <= left - at - 12:
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
