"""The state of all producers that wrote to a partition, idempotent or transactional.

It derives from the batches alone: replaying a log rebuilds it. Snapshots (`producer_snapshot`)
save most of the replay. Batches without a producer id do not change it.

It determines the log's *last stable offset*: every transaction below it is completed. With one
replica a transaction is complete with its marker; otherwise when the high watermark has passed
the marker.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

import numpy as np

from streamlog.binary.arrays import as_source
from streamlog.errors import CorruptRecordError, InvalidRecordError
from streamlog.fs.api import Buffer, FileSystem
from streamlog.fs.files import write_file_atomically
from streamlog.partition.producer_snapshot import (
    encode_snapshot,
    list_snapshots,
    read_snapshot,
    snapshot_file_name,
)
from streamlog.partition.producer_state import (
    BATCHES_TO_RETAIN,
    BatchMetadata,
    CompletedTxn,
    ProducedBatch,
    ProducerState,
)
from streamlog.records.batch import BatchTable, ScanStop, check_crc, read_batches, scan_batches
from streamlog.records.control import EndTransactionMarker, parse_marker
from streamlog.records.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from streamlog.records.table import PRODUCER_ID
from streamlog.records.validate import AppendOrigin
from streamlog.segment.txn_index import AbortedTxn

__all__ = ["ProducerStateManager", "ReadBytes", "within"]

DEFAULT_EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms
EXPIRATION_CHECK_MS: Final = 600_000  # producer.id.expiration.check.interval.ms
_FEW_BATCHES: Final = 32  # up to this number, lists are faster than arrays
_REPLAY_CHUNK: Final = 4 << 20


ReadBytes = Callable[[int, int], Buffer]
"""Returns the bytes at a position (first) with a size (second), in the units of the table."""


def within(buffer: Buffer) -> ReadBytes:
    """Return a reader of batches in memory."""
    return lambda position, size: as_source(buffer)[position : position + size]


class ReplaySource(Protocol):
    """A segment, as replaying needs it."""

    @property
    def base_offset(self) -> int:
        """Its first offset."""

    @property
    def size(self) -> int:
        """Bytes of whole batches."""

    @property
    def path(self) -> str:
        """Its file."""

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes at `position`, fewer only at the end."""

    def translate_offset(self, offset: int) -> "Position | None":
        """Return the place of the first batch that ends at or after `offset`."""


class Position(Protocol):
    """A place in a segment."""

    @property
    def position(self) -> int:
        """The byte."""


class ProducerStateManager:
    """Producers and open transactions, up to `map_end_offset`.

    Args:
        map_end_offset: The log up to here is in it.
        expiration_ms: When an idle producer is forgotten, by the time of its last record.

    Source: org.apache.kafka.storage.internals.log.ProducerStateManager.
    """

    __slots__ = (
        "_expiration_ms",
        "_last_expiry_ms",
        "_ongoing",
        "_producers",
        "_snapshot_offset",
        "_unreplicated",
        "map_end_offset",
    )

    def __init__(
        self, map_end_offset: int = 0, *, expiration_ms: int = DEFAULT_EXPIRATION_MS
    ) -> None:
        self.map_end_offset = map_end_offset
        self._expiration_ms = expiration_ms
        self._last_expiry_ms: int | None = None
        self._snapshot_offset = map_end_offset
        self._producers: dict[int, ProducerState] = {}
        self._ongoing: dict[int, int] = {}  # first offset of an open transaction: producer id
        self._unreplicated: dict[int, int] = {}  # first offset of an ended one: its marker

    # ---- what it knows -----------------------------------------------------------------------
    @property
    def producers(self) -> Mapping[int, ProducerState]:
        """The state of each producer, by id; read-only."""
        return self._producers

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is not complete, None without any."""
        undecided = [*self._ongoing, *self._unreplicated]
        return min(undecided) if undecided else None

    @property
    def open_transactions(self) -> list[int]:
        """The first offset of each open transaction, ascending."""
        return sorted(self._ongoing)

    # ---- appending ---------------------------------------------------------------------------
    def check(
        self,
        buffer: Buffer,
        table: BatchTable,
        *,
        origin: AppendOrigin,
        now_ms: int,
        transaction_version: int = 1,
    ) -> BatchMetadata | None:
        """Check that a leader may append batches; changes nothing.

        Args:
            buffer: The batches.
            table: Their headers, offsets assigned.
            origin: A client's sequences are checked, a coordinator's not; others are believed.
            now_ms: Producers idle for too long are forgotten first.
            transaction_version: How strict markers are; see `ProducerState.check_marker`.

        Returns:
            The remembered batch that a client's batch repeats, and nothing is to be appended;
            None where all are new.

        Raises:
            InvalidProducerEpochError: A batch or marker of an older producer epoch.
            OutOfOrderSequenceError: A batch that does not follow the producer's last one.
            InvalidTxnStateError: A plain batch while the producer's transaction is open.
            TransactionCoordinatorFencedError: A marker of an older coordinator.

        Source: UnifiedLog.analyzeAndValidateProducerState, ProducerAppendInfo.
        """
        if origin in (AppendOrigin.REPLICATION, AppendOrigin.COMMIT):
            return None
        produced = _produced(table)
        if produced:
            self._expire_now_and_then(now_ms)
        trial: dict[int, ProducerState] = {}
        for batch in produced:
            known = trial.get(batch.producer_id) or self._state(batch.producer_id).copy()
            trial[batch.producer_id] = known
            if batch.is_control:
                marker = _end_marker(within(buffer), batch)
                if marker is not None:
                    known.check_marker(batch, marker, transaction_version=transaction_version)
                    known.append_marker(batch, marker)
                continue
            is_client = origin.is_client
            duplicate = known.find_duplicate(batch) if is_client else None
            if duplicate is not None:
                return duplicate
            if origin is AppendOrigin.CLIENT_V2:
                known.check_first(batch)
            known.check_data(batch, check_sequence=is_client)
            known.append_data(batch)
        return None

    def update(self, read: ReadBytes, table: BatchTable) -> list[AbortedTxn]:
        """Update the state with batches that were appended or are replayed.

        Args:
            read: Gives the bytes of a batch; only markers are asked for.
            table: The batches' headers.

        Returns:
            An entry for the transaction index for each transaction that a marker aborted.

        Source: UnifiedLog.updateProducers, ProducerStateManager.completeTxn.
        """
        if not len(table):
            return []
        aborted = []
        for batch in _produced(_that_count(table)):
            state = self._state(batch.producer_id)
            if batch.is_control:
                marker = _end_marker(read, batch)
                if marker is None:
                    continue
                completed = state.append_marker(batch, marker)
                if completed is not None:
                    aborted += self._complete(completed)
            else:
                state.append_data(batch)
                if state.current_txn_first_offset is not None:
                    self._ongoing.setdefault(state.current_txn_first_offset, batch.producer_id)
            self._producers[batch.producer_id] = state
        self.map_end_offset = int(table.last_offset[-1]) + 1
        return aborted

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop completed transactions whose markers lie below the high watermark.

        Source: ProducerStateManager.onHighWatermarkUpdated.
        """
        held = {first: last for first, last in self._unreplicated.items() if last >= high_watermark}
        self._unreplicated = held

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Drop completed transactions whose markers lie below the new log start.

        Source: ProducerStateManager.onLogStartOffsetIncremented.
        """
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def remove_expired(self, now_ms: int) -> None:
        """Remove producers that were idle for `expiration_ms`, except in open transactions.

        Source: ProducerStateManager.removeExpiredProducers.
        """
        self._last_expiry_ms = now_ms
        self._producers = {
            producer_id: state
            for producer_id, state in self._producers.items()
            if not state.is_expired(now_ms, self._expiration_ms)
        }

    def _expire_now_and_then(self, now_ms: int) -> None:
        last = self._last_expiry_ms
        if last is None or not last <= now_ms < last + EXPIRATION_CHECK_MS:
            self.remove_expired(now_ms)

    def _state(self, producer_id: int) -> ProducerState:
        return self._producers.get(producer_id) or ProducerState(producer_id)

    def _complete(self, completed: CompletedTxn) -> list[AbortedTxn]:
        self._ongoing.pop(completed.first_offset, None)
        self._unreplicated[completed.first_offset] = completed.last_offset
        if not completed.is_aborted:
            return []
        others = min(self._ongoing, default=completed.last_offset + 1)
        return [
            AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, others)
        ]

    # ---- loading -----------------------------------------------------------------------------
    @classmethod
    def load(
        cls,
        fs: FileSystem,
        directory: str,
        *,
        segments: Iterable[ReplaySource],
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int | None = None,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> "ProducerStateManager":
        """Return the state of the producers at the log end: newest sound snapshot, then replay.

        Nothing on the disk is changed: tidying up is the writer's, with
        `producer_snapshot.remove_stale_snapshots`.

        Args:
            fs: Where the partition is.
            directory: The partition's directory.
            segments: Its segments, ascending.
            log_start_offset: Snapshots at or below it are of no use.
            log_end_offset: Replay goes up to here.
            high_watermark: Transactions that end at or above it are not complete; None: the log
                end.
            now_ms: Producers idle since longer ago are forgotten.
            expiration_ms: How long that is.

        Raises:
            CorruptRecordError: A batch that must be replayed is damaged.
            StorageError: A file cannot be read.

        Source: ProducerStateManager.truncateAndReload, UnifiedLog.rebuildProducerState.
        """
        committed = log_end_offset if high_watermark is None else high_watermark
        manager = cls.at_snapshot(
            fs,
            directory,
            log_start_offset=log_start_offset,
            end_offset=committed,  # a later one knows no transaction whose marker is not committed
            now_ms=now_ms,
            expiration_ms=expiration_ms,
        )
        manager.replay(segments, log_end_offset)
        manager.on_high_watermark(committed)
        return manager

    @classmethod
    def at_snapshot(
        cls,
        fs: FileSystem,
        directory: str,
        *,
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> "ProducerStateManager":
        """Return the state of the producers at the newest sound snapshot up to `end_offset`.

        Where there is none, that is the empty state at the log start.

        Raises:
            StorageError: A file cannot be read.
        """
        manager = cls(log_start_offset, expiration_ms=expiration_ms)
        for offset in reversed(list_snapshots(fs, directory)):
            if not log_start_offset < offset <= end_offset:
                continue
            states = read_snapshot(fs, directory, offset)
            if states is not None:
                manager._adopt(states, offset, now_ms)
                break
        return manager

    def _adopt(self, states: list[ProducerState], offset: int, now_ms: int) -> None:
        self.map_end_offset = self._snapshot_offset = offset
        for state in states:
            if not state.is_expired(now_ms, self._expiration_ms):
                self._producers[state.producer_id] = state
                if state.current_txn_first_offset is not None:
                    self._ongoing[state.current_txn_first_offset] = state.producer_id

    def replay(self, segments: Iterable[ReplaySource], log_end_offset: int) -> list[AbortedTxn]:
        """Update the state with the batches between `map_end_offset` and the log end.

        Args:
            segments: The partition's segments, ascending.
            log_end_offset: Where to stop.

        Returns:
            The transactions whose abort markers were taken in, in the order of the markers.

        Raises:
            CorruptRecordError: A batch is damaged; what came before it has been taken in.
            StorageError: A file cannot be read.
        """
        ordered = list(segments)
        aborted: list[AbortedTxn] = []
        for at, segment in enumerate(ordered):
            end = ordered[at + 1].base_offset if at + 1 < len(ordered) else log_end_offset
            if self.map_end_offset < end and segment.base_offset < log_end_offset:
                aborted += self._replay_segment(segment, log_end_offset)
        self.map_end_offset = max(self.map_end_offset, log_end_offset)
        return aborted

    def _replay_segment(self, segment: ReplaySource, log_end_offset: int) -> Iterator[AbortedTxn]:
        found = segment.translate_offset(self.map_end_offset)
        if found is None:
            return
        position, chunk = found.position, _REPLAY_CHUNK
        while position < segment.size:
            data = segment.read(position, min(chunk, segment.size - position))
            scan = scan_batches(data)
            if scan.stop not in (ScanStop.END, ScanStop.PARTIAL):
                raise _damaged(segment, position + scan.consumed, scan.stop.name.lower())
            if not len(scan.table):
                if chunk >= segment.size - position:
                    raise _damaged(segment, position, "half a batch")
                chunk *= 4
                continue
            table = scan.table.slice(0, int((scan.table.base_offset < log_end_offset).sum()))
            wanted = BatchTable(table.fields[table.last_offset >= self.map_end_offset])
            produced = BatchTable(wanted.fields[wanted.producer_id >= 0])
            bad = check_crc(data, produced)
            if bad < len(produced):
                raise _damaged(segment, position + int(produced.position[bad]), "a wrong checksum")
            try:
                yield from self.update(within(data), wanted)
            except InvalidRecordError as error:
                raise _damaged(segment, position, str(error)) from error
            if len(table) < len(scan.table):
                return
            position += scan.consumed

    # ---- snapshots ---------------------------------------------------------------------------
    def take_snapshot(self, fs: FileSystem, directory: str) -> bool:
        """Write the state to `<map_end_offset>.snapshot`, durably, if it changed.

        Returns:
            Whether it was; the directory is synced then.

        Raises:
            StorageError: It failed.

        Source: ProducerStateManager.takeSnapshot.
        """
        if self.map_end_offset <= self._snapshot_offset:
            return False
        path = f"{directory}/{snapshot_file_name(self.map_end_offset)}"
        write_file_atomically(fs, path, encode_snapshot(self._producers.values()))
        self._snapshot_offset = self.map_end_offset
        return True


# ---- batches --------------------------------------------------------------------------------
def _produced(table: BatchTable) -> list[ProducedBatch]:
    """Return the batches that have a producer id."""
    if len(table) > _FEW_BATCHES:
        table = BatchTable(table.fields[table.producer_id >= 0])
    rows = table.fields.tolist()
    return [ProducedBatch(*row) for row in rows if row[PRODUCER_ID] >= 0]


def _that_count(table: BatchTable) -> BatchTable:
    """Return the batches that matter: of plain ones only the last five of each producer."""
    if len(table) <= _FEW_BATCHES:
        return table
    if int(table.producer_id.max()) < 0:
        return table.slice(0, 0)
    rows = np.flatnonzero(table.producer_id >= 0)
    if (table.attributes[rows] & (TRANSACTIONAL_MASK | CONTROL_MASK)).any():
        return table
    producer_ids = table.producer_id[rows]
    order = np.argsort(producer_ids, kind="stable")
    ends = np.searchsorted(producer_ids[order], producer_ids[order], side="right")
    lasts = order[ends - np.arange(len(order)) <= BATCHES_TO_RETAIN]
    return BatchTable(table.fields[np.sort(rows[lasts])])


def _end_marker(read: ReadBytes, batch: ProducedBatch) -> EndTransactionMarker | None:
    """Return the end of a transaction that a control batch holds; None for other control records.

    Raises:
        InvalidRecordError: The control record cannot be understood.
        CorruptRecordError: It cannot be decoded.
    """
    whole = as_source(read(batch.position, batch.size))
    for control in read_batches(whole, position=batch.position):
        for record in control.records():
            return parse_marker(record)
    return None  # compaction leaves empty control batches


def _damaged(segment: ReplaySource, position: int, got: str) -> CorruptRecordError:
    return CorruptRecordError(
        "producer state cannot be learnt from a damaged batch",
        path=segment.path,
        position=position,
        got=got,
        expected="a whole, sound batch",
    )
