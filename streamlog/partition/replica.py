"""A log as one of several replicas: what its leader, or the copying to a follower, asks of it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from streamlog.binary.arrays import as_source
from streamlog.clock import Clock
from streamlog.fs.api import Buffer, FileSystem
from streamlog.partition.append import AppendInfo, whole_batches
from streamlog.partition.epochs import EpochEntry, LeaderEpochCache
from streamlog.partition.local_log import LocalLog
from streamlog.partition.session import WriterSession
from streamlog.records.batch import BatchTable
from streamlog.records.layout import MAX_INT32
from streamlog.records.legacy_layout import MAGIC_V1
from streamlog.records.validate import AppendOrigin

__all__ = ["Replica"]


class _Log(Protocol):
    """The class that a `Replica` is part of."""

    path: str
    _fs: FileSystem
    _clock: Clock
    _log: LocalLog
    _session: WriterSession

    def locked(self) -> AbstractContextManager[None]: ...

    def _changing(self) -> AbstractContextManager[LocalLog]: ...

    def _append(
        self, buffer: Buffer, table: BatchTable, *, origin: AppendOrigin, now_ms: int
    ) -> AppendInfo: ...

    def _append_copies(self, batches: memoryview, table: BatchTable) -> AppendInfo: ...

    def _discard_decided_above(self, offset: int) -> None: ...


class Replica:
    """The part of `Log` that only one of several replicas needs."""

    # ---- append as a follower ------------------------------------------------------------------
    def append_as_follower(
        self: _Log, batches: Buffer, *, leader_epoch: int = MAX_INT32
    ) -> AppendInfo | None:
        """Append batches with the offsets and epochs they carry; gaps in offsets are fine.

        Args:
            batches: Whole record batches; timestamps and all else stay as they are.
            leader_epoch: The epoch of the leader they were fetched from; batches of a later one,
                and all after them, are left for the next fetch.

        Returns:
            Their offsets, None where all were left.

        Raises:
            UnexpectedAppendOffsetError: They start below the log end, or go back. Into an empty
                log, the first one may: the log start is within it.
            InvalidRecordError: They are not whole batches, or a leader epoch goes back.
            CorruptRecordError: A checksum is wrong.

        Source: UnifiedLog.appendAsFollower, Partition.appendRecordsToFollowerOrFutureReplica;
            KAFKA-18723.
        """
        table = whole_batches(batches)
        later = table.leader_epoch > leader_epoch
        if later.any():
            table = table.slice(0, int(later.argmax()))
        if len(table) == 0:
            return None
        with self._session.guard(), self._session.writing:
            start, _, end, _ = self._log.offsets
            first, last = int(table.base_offset[0]), int(table.last_offset[0])
            source = memoryview(as_source(batches))
            if start == end and first < start <= last:
                with self._session.changing:  # one change: a lower log start is never published
                    self._session.restart_at(first, keeps_start=True)
                    info = self._append_copies(source, table)
                    self._session.raise_log_start(start)
                    return info
            return self._append_copies(source, table)

    def _append_copies(self: _Log, batches: memoryview, table: BatchTable) -> AppendInfo:
        """Append a leader's batches; one of v0 or v1 clears the epochs before it (KAFKA-7897)."""
        self._log.check_follows(table)
        now_ms, origin = self._clock.now_ms(), AppendOrigin.REPLICATION
        legacy = np.flatnonzero(table.magic <= MAGIC_V1)
        if not len(legacy):
            return self._append(batches[: table.end], table, origin=origin, now_ms=now_ms)
        older = table.slice(0, int(legacy[-1]) + 1)
        self._log.clear_epochs()
        info = self._append(batches[: older.end], older, origin=origin, now_ms=now_ms)
        self._log.clear_epochs()
        newer = table.slice(len(older), len(table)).moved(-older.end)
        if len(newer):
            first = info.base_offset
            info = self._append(batches[older.end :], newer, origin=origin, now_ms=now_ms)
            info.base_offset = first
        return info

    def append_copied(
        self: _Log,
        buffer: Buffer,
        table: BatchTable,
        *,
        sync: bool = False,
        high_watermark: int = 0,
    ) -> None:
        """Append batches of the leader's log, read and checked, byte for byte; only in `locked`.

        Args:
            buffer: The batches.
            table: Their headers.
            sync: Whether to sync if the topic's settings say so; otherwise the caller syncs, once
                it has caught up.
            high_watermark: The leader's, published with the new log end.

        Raises:
            UnexpectedAppendOffsetError: They start below the log end.
            InvalidRecordError: A leader epoch goes back.
            UnknownOutcomeError: The disk failed during the write; some batches may be appended.
        """
        self._log.check_follows(table)
        now_ms, outline = self._clock.now_ms(), table.outline()
        if outline.has_producer and table.is_control.any():
            # Loaded now: without it the transaction index would lack what the marker aborts.
            self._log.producer_state(now_ms)
        syncs = sync and self._session.is_sync_due(outline.last_offset + 1, now_ms)
        with self._session.changing_to_sync if syncs else self._session.changing:
            self._log.append(buffer, table, outline, now_ms=now_ms)
            if sync:
                self._session.sync_if_due(now_ms)
            self._session.raise_high_watermark(high_watermark)

    def keep_settings(self: _Log, until_ms: float) -> None:
        """Look at the topic's settings again only after that time, by the monotonic clock."""
        self._session.settings_stand_ms = until_ms

    # ---- high watermark and leader epochs ------------------------------------------------------
    def raise_high_watermark(self: _Log, offset: int) -> None:
        """Raise the high watermark, to the log end at most, and publish it to readers.

        Ignored where it is above already, and without other replicas.

        Source: UnifiedLog.maybeIncrementHighWatermark, updateHighWatermark.
        """
        with self.locked():
            self._session.raise_high_watermark(offset)

    def sync_high_watermark(self: _Log) -> int:
        """Make a replica's high watermark durable, and return it to be written as a checkpoint."""
        with self.locked():
            return self._session.sync_high_watermark()

    def assign_leader_epoch(self: _Log, epoch: int) -> None:
        """Start a leader epoch at the log end, with or without records to follow; durable.

        Decided commits that wait are applied first: their batches carry the epoch of their
        decision. Ignored where the log is in this epoch already.

        Raises:
            InvalidRequestError: The log has records of a later epoch.

        Source: UnifiedLog.assignEpochStartOffset, KAFKA-7415.
        """
        with self.locked():
            self._session.assign_epoch(epoch)

    def adopt_epochs(self: _Log, entries: Sequence[EpochEntry]) -> None:
        """Replace the leader epochs by those of the log that was copied here; durable.

        They may say more than the batches do: an epoch may begin before its first batch that
        compaction has left.
        """
        with self._changing() as files:
            if files.epochs.entries != tuple(entries):
                files.epochs = LeaderEpochCache(tuple(entries))
                files.epochs.store(self._fs, self.path)

    # ---- begin elsewhere -----------------------------------------------------------------------
    def skip_to(self: _Log, offset: int) -> None:
        """Start a new segment at `offset`, above the log end: the leader has no record below it."""
        with self._changing() as files:
            files.skip_to(offset, self._clock.now_ms())

    def restart_at(self: _Log, offset: int) -> None:
        """Set all segments aside and begin again, empty, at `offset`; durable.

        A follower does this if the leader has deleted the records after the follower's log end.

        Raises:
            StorageError: It failed; the next call, or the next opening, finishes it.

        Source: UnifiedLog.truncateFullyAndStartAt.
        """
        with self.locked():
            self._discard_decided_above(offset)
            self._session.restart_at(offset)

    def truncate_replica(self: _Log, offset: int) -> None:
        """Truncate a follower to `offset`, where its log agrees with the leader's.

        As `truncate_undecided`, but decided commits that reach above `offset` are discarded: the
        leader does not have their records. Epochs from `offset` on go even where no record does
        (KAFKA-10706), and the high watermark is not above the new log end (KAFKA-9491).

        Raises:
            UnavailableError: A decided commit cannot be discarded; nothing was changed.
            PoisonedError: An fsync failed; the next opening finishes the truncation.

        Source: UnifiedLog.truncateTo, ReplicaFetcherThread.truncate.
        """
        with self.locked():
            self._discard_decided_above(offset)
            self._session.truncate(offset)
