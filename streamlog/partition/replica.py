"""A log as one of several replicas: what its leader, or the copying to a follower, asks of it."""

from contextlib import AbstractContextManager
from typing import Protocol

from streamlog.clock import Clock
from streamlog.fs.api import Buffer
from streamlog.partition.append import AppendInfo, whole_batches
from streamlog.partition.local_log import LocalLog
from streamlog.partition.session import WriterSession
from streamlog.records.batch import BatchTable
from streamlog.records.validate import AppendOrigin

__all__ = ["Replica"]


class _Log(Protocol):
    """The class that a `Replica` is part of."""

    _clock: Clock
    _log: LocalLog
    _session: WriterSession

    def locked(self) -> AbstractContextManager[None]: ...

    def _changing(self) -> AbstractContextManager[LocalLog]: ...

    def _append(
        self, buffer: Buffer, table: BatchTable, *, origin: AppendOrigin, now_ms: int
    ) -> AppendInfo: ...


class Replica:
    """The part of `Log` that only one of several replicas needs."""

    # ---- append as a follower ------------------------------------------------------------------
    def append_as_follower(self: _Log, batches: Buffer) -> AppendInfo:
        """Append batches with the offsets and epochs they carry; gaps in offsets are fine.

        Raises:
            UnexpectedAppendOffsetError: They start below the log end, or go back.
            InvalidRecordError: They are not whole batches, or a leader epoch goes back.
            CorruptRecordError: A checksum is wrong.

        Source: UnifiedLog.appendAsFollower.
        """
        table = whole_batches(batches)
        with self._session.guard(), self._session.writing:
            self._log.check_follows(table)
            return self._append(
                batches, table, origin=AppendOrigin.REPLICATION, now_ms=self._clock.now_ms()
            )

    def append_copied(self: _Log, buffer: Buffer, table: BatchTable, *, sync: bool = False) -> None:
        """Append batches of the leader's log, read and checked, byte for byte.

        Only within `locked`. Without `sync` the caller syncs, once it has caught up; with it the
        topic's settings decide.

        Raises:
            UnexpectedAppendOffsetError: They start below the log end.
            InvalidRecordError: A leader epoch goes back.
            UnknownOutcomeError: The disk failed during the write; some batches may be appended.
        """
        self._log.check_follows(table)
        now_ms = self._clock.now_ms()
        with self._session.changing:
            self._log.append(buffer, table, table.outline(), now_ms=now_ms)
            if sync:
                self._session.sync_if_due(now_ms)

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

    # ---- begin elsewhere -----------------------------------------------------------------------
    def skip_to(self: _Log, offset: int) -> None:
        """Start a new segment at `offset`, above the log end: the leader has no record below it."""
        with self._changing() as files:
            files.skip_to(offset, self._clock.now_ms())

    def restart_at(self: _Log, offset: int) -> None:
        """Set all segments aside and begin again, empty, at `offset` above the log end; durable.

        A follower does this if the leader has deleted the records after the follower's log end.

        Raises:
            StorageError: It failed; the next call, or the next opening, finishes it.

        Source: UnifiedLog.truncateFullyAndStartAt.
        """
        with self._changing() as files:
            self._session.write_log_start(offset)
            files.restart_at(offset, self._clock.now_ms())
