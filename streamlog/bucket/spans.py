"""Ranges of a partition in an object store: their sizes, where to cut them, how epochs end."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from streamlog.bucket.state import BucketPartition, Stretch
from streamlog.partition.epochs import EpochEntry, LeaderEpochCache

__all__ = ["covering", "epochs_of", "narrowed", "size_between", "split"]


def epochs_of(state: BucketPartition) -> LeaderEpochCache:
    """Return the leader epochs of a partition, for questions."""
    return LeaderEpochCache(tuple(EpochEntry(*each) for each in state.epochs))


def covering(state: BucketPartition, start_offset: int, end_offset: int) -> tuple[Stretch, ...]:
    """Return the stretches that hold the records between two offsets, oldest first."""
    first = state.at(start_offset)
    stop = first
    while stop < len(state.stretches) and state.stretches[stop].base_offset < end_offset:
        stop += 1
    return state.stretches[first:stop]


def size_between(state: BucketPartition, start_offset: int, end_offset: int) -> int:
    """Return the approximate size in bytes of the records between two offsets."""
    size = 0.0
    for stretch in covering(state, start_offset, end_offset):
        span = stretch.end_offset - stretch.base_offset
        inside = min(end_offset, stretch.end_offset) - max(start_offset, stretch.base_offset)
        size += stretch.size * min(1.0, inside / span)
    return int(size)


def split(
    state: BucketPartition, start_offset: int, end_offset: int, parts: int
) -> list[tuple[int, int]]:
    """Split a range of offsets, where batches end, into at most `parts` of about equal bytes.

    The ends of batches that the state knows are those of extents, and the points of segments.
    """
    marks = list(_marks(state, start_offset, end_offset))
    total = marks[-1][1] if marks else 0
    cuts, wanted = [start_offset], 1
    for offset, size in marks:
        if wanted < parts and size >= total * wanted / parts and offset < end_offset:
            cuts.append(offset)
            while wanted < parts and size >= total * wanted / parts:
                wanted += 1
    cuts.append(end_offset)
    return [(low, high) for low, high in itertools.pairwise(cuts) if low < high]


def narrowed(state: BucketPartition, start_offset: int, end_offset: int) -> BucketPartition:
    """Return the part of a partition that a reader of a range needs."""
    return replace(
        state,
        log_start_offset=start_offset,
        end_offset=end_offset,
        epochs=(),
        stretches=covering(state, start_offset, end_offset),
    )


def _marks(state: BucketPartition, start: int, end: int) -> Iterator[tuple[int, float]]:
    """Yield ends of batches, each with the bytes before it, counted from `start`."""
    before = 0.0
    for stretch in covering(state, start, end):
        low = max(start, stretch.base_offset)
        span = stretch.end_offset - stretch.base_offset
        for offset, position in stretch.points:
            if low < offset < min(end, stretch.end_offset):
                skipped = stretch.size * (low - stretch.base_offset) / span
                yield offset, before + max(0.0, position - skipped)
        high = min(end, stretch.end_offset)
        before += stretch.size * (high - low) / span
        yield high, before
