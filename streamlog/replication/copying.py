"""Catching up a follower's log from the leader's files.

The leader's segments are read without its lock, in pieces of whole batches whose checksums are
checked once, and appended with offsets and epochs untouched. The follower rolls where the leader
did, which also syncs what it has; the rest is synced at the end. After a kill, the next call
continues at the follower's log end: each piece is an append like any other.

The leader may meanwhile append, roll, compact and delete. Segments that disappear are listed
again. Three cases leave the follower without a batch to fetch at its log end:

    the leader's log starts above it            everything is set aside; restart at that start
    compaction left no batch up to the leader's log end       an empty segment is started there
    nothing was appended since                  the follower has caught up

Source: ReplicaFetcherThread, AbstractFetcherThread.fetchOffsetAndApplyFun.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import FileMissingError
from streamlog.partition.log import Log
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.read import READ_BEYOND, FetchInfo, fetch
from streamlog.partition.segments import Segments

__all__ = ["COPY_BYTES", "Copied", "LeaderLog", "copy_to_follower"]

COPY_BYTES: Final = 4 << 20  # at a time; a read, its checksums and a write stay in the cache

_ATTEMPTS: Final = 10  # at reading segments that are replaced or removed meanwhile


class LeaderLog(Protocol):
    """The leader's files: a `LogReader`, or the `Log` of a process that holds its lock."""

    @property
    def segments(self) -> Segments:
        """The segments as of the last look."""
        ...

    @property
    def offsets(self) -> LogOffsets:
        """Log start and log end as of the last look."""
        ...


class Copied(NamedTuple):
    """The result of a catch-up.

    Attributes:
        size: Bytes of the batches that were copied.
        is_caught_up: Whether the follower has everything that the leader had at the last look.
    """

    size: int
    is_caught_up: bool


def copy_to_follower(
    leader: LeaderLog,
    follower: Log,
    *,
    refresh: Callable[[], None],
    check: Callable[[], None],
    max_bytes: int | None = None,
    is_durable: bool = True,
    on_progress: Callable[[int], None] = lambda size: None,
) -> Copied:
    """Copy what the follower's log lacks.

    The follower's log must already be a prefix of the leader's, or end below the leader's log
    start: truncation by epoch comes first.

    Args:
        leader: The leader's log.
        follower: The follower's; its lock is taken for each piece and released in between.
        refresh: Looks at the leader's files again.
        check: Called under the follower's lock before each change; raises if another leader was
            elected meanwhile.
        max_bytes: Stop after about so many bytes; None: copy everything.
        is_durable: Sync what was copied; otherwise as the topic's flush settings say.
        on_progress: Called with the bytes of each piece.

    Raises:
        CorruptRecordError: The leader's log is damaged.
        UnknownOutcomeError: The follower's disk failed; some whole batches may stand.
        StorageError: A file cannot be read or written.
    """
    copying = _Copying(leader, follower, refresh, check, is_durable=is_durable)
    before = 0
    while copying.copy_piece():
        on_progress(copying.size - before)
        before = copying.size
        if max_bytes is not None and copying.size >= max_bytes:
            break
    return Copied(copying.size, copying.finish())


class _Copying:
    """One catch-up: the logs, the memory for pieces, and the bytes copied so far."""

    def __init__(
        self,
        leader: LeaderLog,
        follower: Log,
        refresh: Callable[[], None],
        check: Callable[[], None],
        *,
        is_durable: bool,
    ) -> None:
        self._leader, self._follower = leader, follower
        self._is_durable = is_durable
        self._refresh, self._check = refresh, check
        self._memory: NDArray[np.uint8] | None = None
        self.size = 0

    def copy_piece(self) -> bool:
        """Copy one piece under the follower's lock; False once there is nothing left."""
        with self._follower.locked():
            self._check()
            offset = self._follower.log_end_offset
            for _ in range(_ATTEMPTS):
                try:
                    return self._copy_from(offset)
                except FileMissingError:  # compaction or retention took the segment away
                    self._refresh()
                    self._follower.catch_up()
            return self._copy_from(offset)

    def _copy_from(self, offset: int) -> bool:
        leader, follower = self._leader, self._follower
        offsets, segments = leader.offsets, leader.segments
        end = segments.active.next_offset()  # the last sound batch
        if offset < offsets.start:
            # A batch may begin below the log start: everything of it is copied.
            offset = _first_batch_at(segments, offsets, end)
            follower.restart_at(offset)
            offsets = offsets._replace(start=min(offset, offsets.start))
        if offset >= end:
            return False
        found = self._read(segments, offsets, offset, end)
        if len(found.table) == 0:
            follower.skip_to(found.next_offset)
            return True
        if found.position == 0 and not follower.segments.active.is_empty:
            follower.roll()
        follower.append_copied(found.buffer, found.table, sync=not self._is_durable)
        self.size += len(found.buffer)
        return True

    def _read(self, segments: Segments, offsets: LogOffsets, offset: int, end: int) -> FetchInfo:
        if self._memory is None:
            self._memory = np.empty(min(COPY_BYTES, segments.size) + READ_BEYOND, np.uint8)
        return fetch(
            segments,
            offset,
            offsets=offsets,
            last_stable_offset=end,
            upper=end,
            max_bytes=COPY_BYTES,
            into=self._memory,
        )

    def finish(self) -> bool:
        """Sync, take over the leader's log start; return whether the follower has caught up."""
        with self._follower.locked():
            self._check()
            if self.size and self._is_durable:
                self._follower.sync()
            end = self._follower.log_end_offset
            if self._follower.log_start_offset < self._leader.offsets.start <= end:
                self._follower.raise_log_start(self._leader.offsets.start)
            return end >= self._leader.segments.active.next_offset()


def _first_batch_at(segments: Segments, offsets: LogOffsets, end: int) -> int:
    """Return the base offset of the batch that holds the log start, else the log start."""
    segment = segments[max(0, segments.floor_index(offsets.start))]
    found = segment.translate_offset(offsets.start) if offsets.start < end else None
    return offsets.start if found is None else min(found.offset, offsets.start)
