"""Ranges of a partition in an object store: their sizes, where to cut them, how epochs end."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from streamlog.bucket.actions import NO_TRANSACTIONS
from streamlog.bucket.state import BucketPartition, Stretch
from streamlog.partition.epochs import EpochEntry, LeaderEpochCache

__all__ = ["covering", "epochs_of", "narrowed", "size_between", "split", "with_aborts"]


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


def with_aborts(state: BucketPartition, stretches: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    """Return stretches of a partition with later ones that say which of their records count.

    The marker of an aborted transaction, and so the index that lists it, may lie further on.
    """
    if all(each.transactions == NO_TRANSACTIONS for each in stretches):
        return stretches
    end = stretches[-1].end_offset
    later = state.stretches[state.at(end) :]
    return (*stretches, *(each for each in later if each.transactions > 0))


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
        stretches=with_aborts(state, covering(state, start_offset, end_offset)),
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
