"""Where a copy ends: at the end of the source, or at a point in time.

A copy up to a time holds the records before the first one, by offset, whose timestamp is later:
those below the offset that Kafka's `offsetsForTimes` returns for the next millisecond. If that
offset lies inside a batch, the batch is rebuilt from its earlier records.

No transaction is cut in two where that would show: a copy up to a time ends before the first one
that is open there, and so does a copy into an object store, where every record is committed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES
from streamlog.records.filter import Selection, filter_batches, locate
from streamlog.records.legacy_layout import MAGIC_V1
from streamlog.records.slot import SLOT_OFFSET
from streamlog.records.table import BatchTable
from streamlog.transfer.ends import Piece, SourcePartition

__all__ = ["CopyBound", "bound_of", "bounded_pieces"]


class CopyBound(NamedTuple):
    """Where the copy of a partition ends.

    Attributes:
        end_offset: Only records below it are copied.
        log_end_offset: Where the copy's log then ends: later, if its last batch was rebuilt.
    """

    end_offset: int
    log_end_offset: int


def bound_of(source: SourcePartition, *, to_time: int | None, is_stable_only: bool) -> CopyBound:
    """Return where the copy of a partition ends.

    Args:
        source: The partition.
        to_time: Only records up to this time, in ms since 1970; None: all.
        is_stable_only: Whether the target can hold no open transactions.

    Raises:
        CorruptRecordError: A batch that had to be looked at is damaged.
        StorageError: A file or an object cannot be read.
    """
    end = source.end_offset
    if to_time is not None:
        later = source.offset_for_timestamp(to_time + 1)
        if later is not None:
            end = min(end, later.offset)
        if source.has_transactions:
            end = _before_open_transactions(source, end)
    elif is_stable_only:
        end = min(end, source.stable_offset)
    end = max(end, source.log_start_offset)
    if is_stable_only or to_time is not None:
        end = _before_aborted(source, end)
    return CopyBound(end, _log_end(source, end))


def _before_open_transactions(source: SourcePartition, end: int) -> int:
    """Return the last offset up to `end` that no transaction reaches across."""
    begun: dict[int, int] = {}
    ended: list[tuple[int, int]] = []  # first offset, and offset of the marker
    for piece in source.pieces(source.log_start_offset, end):
        table = piece.table
        for row in np.flatnonzero(table.is_transactional & (table.base_offset < end)).tolist():
            producer, offset = int(table.producer_id[row]), int(table.base_offset[row])
            if not table.is_control[row]:
                begun.setdefault(producer, offset)
            elif producer in begun:
                ended.append((begun.pop(producer), offset))
    end = min([end, *begun.values()])
    for first, marker in sorted(ended, key=lambda each: -each[1]):
        if first < end <= marker:  # without what came before `end`, it is open there
            end = first
    return end


def _before_aborted(source: SourcePartition, end: int) -> int:
    """Return an offset up to `end` that no aborted transaction reaches across."""
    while True:
        across = [
            each.first_offset
            for each in source.aborted_between(end - 1, end)
            if each.first_offset < end <= each.last_offset
        ]
        if not across:
            return end
        end = max(min(across), source.log_start_offset)
        if end == source.log_start_offset:
            return end


def _log_end(source: SourcePartition, end: int) -> int:
    """Return where a log ends that holds the records below `end`."""
    if end in (source.end_offset, source.log_start_offset):
        return end
    log_end = end
    for piece in source.pieces(end - 1, end):
        if len(piece.table) and int(piece.table.last_offset[-1]) >= end:
            kept = cut(piece, end, source.path)
            log_end = kept.next_offset if len(kept.table) else int(piece.table.base_offset[-1])
    return log_end


def bounded_pieces(source: SourcePartition, start: int, bound: CopyBound) -> Iterator[Piece]:
    """Yield the batches of a source from an offset up to a bound."""
    if start >= bound.log_end_offset:
        return
    for piece in source.pieces(start, bound.end_offset):
        if len(piece.table) and int(piece.table.last_offset[-1]) >= bound.end_offset:
            piece = cut(piece, bound.end_offset, source.path)
        if len(piece.table):
            yield piece


def cut(piece: Piece, end: int, path: str) -> Piece:
    """Return a piece without the records from `end` on, all of which are in its last batch.

    A message set of v0 or v1 goes whole.
    """
    from streamlog.records.filter_kernels import REWRITE

    table = piece.table
    whole, last = table.slice(0, len(table) - 1), table.slice(len(table) - 1, len(table))
    front = piece.buffer[: whole.end]
    before = int(last.base_offset[0])
    if int(last.magic[0]) > MAGIC_V1:
        for batch, slots in locate(
            piece.buffer,
            last,
            max_decompressed=DEFAULT_MAX_DECOMPRESSED_BYTES,
            path=path,
            position=0,
        ):
            keep = slots.slots[:, SLOT_OFFSET] < end
            if keep.any():
                fates, horizons = np.array([REWRITE]), np.array([-1])
                left = filter_batches(
                    piece.buffer, batch, slots, Selection(fates=fates, horizons=horizons, keep=keep)
                )
                buffer = memoryview(b"".join((front, left.buffer)))
                rest = left.table.moved(whole.end)
                return piece._replace(
                    buffer=buffer,
                    table=BatchTable.concatenate((whole, rest)),
                    next_offset=int(rest.last_offset[-1]) + 1,
                )
    return piece._replace(buffer=front, table=whole, next_offset=before)
