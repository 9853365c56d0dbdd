"""Which records and batches stay: the rules of a round. `CLEANER.md` has them as tables.

Decisions are made for all batches of a chunk at once, in arrays with one element per batch or
record; only batches of transactions and last batches of producers are handled one by one.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.cleaner.offset_map import OffsetMap
from streamlog.errors import CorruptRecordError, InvalidRecordError
from streamlog.partition.producer_state import ProducerState
from streamlog.records.control import ControlRecordType, parse_control_key
from streamlog.records.filter import Selection
from streamlog.records.layout import CONTROL_MASK, DELETE_HORIZON_MASK, TRANSACTIONAL_MASK
from streamlog.records.slot import SLOT_KEY, SLOT_KEY_SIZE
from streamlog.records.slots import RecordSlots
from streamlog.records.table import BatchTable
from streamlog.segment.txn_index import AbortedTxn

__all__ = ["CleanedTransactions", "KeepRules", "LastRecord", "last_records"]

NO_HORIZON: Final = -1


class CleanedTransactions:
    """The transactions of the batches being cleaned: which data is aborted, which markers may go.

    Batches are fed in order. A batch of an aborted transaction is removed whole. A marker may go
    once the round has met no batch of its transaction, not even an empty one; until then its abort
    stays in the transaction index. Aborts are known in advance, from the transaction indexes.

    Source: org.apache.kafka.storage.internals.log.CleanedTransactionMetadata.
    """

    __slots__ = ("_aborted", "_committed", "_retained", "_upcoming")

    def __init__(self) -> None:
        self._upcoming: list[tuple[int, AbortedTxn]] = []  # a heap by first offsets
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}  # by producer; has a batch been met
        self._committed: set[int] = set()  # producers with a batch of an open or committed one
        self._retained: list[AbortedTxn] = []

    def add(self, aborted: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions; known ones may be added again."""
        for txn in aborted:
            heapq.heappush(self._upcoming, (txn.first_offset, txn))

    def take_retained(self) -> list[AbortedTxn]:
        """Return the aborted transactions since the last call whose markers must stay."""
        retained, self._retained = self._retained, []
        return retained

    def discardable(self, table: BatchTable, records: RecordSlots) -> NDArray[np.bool_]:
        """Return of each batch whether its records may go: aborted data, or an unneeded marker.

        Args:
            table: The next batches.
            records: Their records.

        Raises:
            CorruptRecordError: A control record is malformed.
        """
        result = np.zeros(len(table), np.bool_)
        marked = table.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK) != 0
        if not marked.any():
            return result
        ends = np.cumsum(records.rows)
        is_control, last_offsets = table.is_control.tolist(), table.last_offset.tolist()
        producers = table.producer_id.tolist()
        for batch in np.flatnonzero(marked).tolist():
            self._begin_up_to(last_offsets[batch])
            if not is_control[batch]:
                result[batch] = self._on_data(producers[batch])
            elif records.rows[batch] == 0:
                result[batch] = True  # an earlier round emptied it
            else:
                row = int(ends[batch] - records.rows[batch])
                kind = _kind_of(records, row, last_offsets[batch])
                result[batch] = self._on_marker(kind, producers[batch])
        return result

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            _, txn = heapq.heappop(self._upcoming)
            self._aborted.setdefault(txn.producer_id, (txn, False))

    def _on_data(self, producer_id: int) -> bool:
        found = self._aborted.get(producer_id)
        if found is None:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = found[0], True
        return True

    def _on_marker(self, kind: ControlRecordType, producer_id: int) -> bool:
        if kind is ControlRecordType.ABORT:
            txn, was_met = self._aborted.pop(producer_id, (None, False))
            if txn is not None and was_met:
                self._retained.append(txn)
            return not was_met
        if kind is ControlRecordType.COMMIT:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met
        return False


def _kind_of(records: RecordSlots, row: int, offset: int) -> ControlRecordType:
    start, size = records.slots[row, (SLOT_KEY, SLOT_KEY_SIZE)].tolist()
    key = None if size < 0 else records.source[start : start + size].tobytes()
    try:
        return parse_control_key(key)
    except InvalidRecordError as error:
        raise CorruptRecordError(
            "control record is malformed", offset=offset, got=error.got
        ) from error


class LastRecord(NamedTuple):
    """A producer's last data batch, by its last offset; None if it has only written a marker.

    Source: org.apache.kafka.storage.internals.log.LastRecord.
    """

    last_data_offset: int | None
    producer_epoch: int


def last_records(producers: Mapping[int, ProducerState]) -> dict[int, LastRecord]:
    """Return the last record of each producer.

    Source: UnifiedLog.lastRecordsOfActiveProducers.
    """
    return {
        producer_id: LastRecord(state.last_offset if state.batches else None, state.producer_epoch)
        for producer_id, state in producers.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRules:
    """The rules of one round.

    Attributes:
        offset_map: The last offset of each key.
        transactions: The transactions of the batches.
        last_records: The last record of each producer.
        round_end: The first offset that this round cannot clean.
        now_ms: The time of the round.
        delete_retention_ms: The time for which tombstones and markers stay (`delete.retention.ms`).

    Source: Cleaner.cleanInto, Cleaner.shouldRetainRecord.
    """

    offset_map: OffsetMap
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    round_end: int
    now_ms: int
    delete_retention_ms: int

    def select(
        self, table: BatchTable, records: RecordSlots, *, keeps_legacy_tombstones: bool
    ) -> Selection:
        """Decide which batches and records stay; the batches are all of v2 or all older.

        Args:
            table: The batches.
            records: Their records.
            keeps_legacy_tombstones: Whether tombstones of v0 and v1 may stay, by segment age.

        Raises:
            CorruptRecordError: A control record is malformed.
        """
        discardable = self.transactions.discardable(table, records)
        is_control = table.is_control
        has_horizon = table.attributes & DELETE_HORIZON_MASK != 0
        is_due = has_horizon & (table.base_timestamp <= self.now_ms)
        loses_all = discardable & (~is_control | is_due)
        ways = self._ways(table, loses_all, is_due, keeps_legacy_tombstones=keeps_legacy_tombstones)
        keep, counts = self.offset_map.choose(records, ways)
        kept, tombstones = counts.T
        gets_horizon = ((tombstones > 0) | discardable & is_control) & ~has_horizon
        horizons = np.where(has_horizon, table.base_timestamp, NO_HORIZON)
        horizons[gets_horizon] = self.now_ms + self.delete_retention_ms
        is_copied = (kept == records.rows) & ~gets_horizon & (not table.is_legacy)
        return Selection(
            fates=self._fates(table, kept, is_copied, loses_all), horizons=horizons, keep=keep
        )

    def _ways(
        self,
        table: BatchTable,
        loses_all: NDArray[np.bool_],
        is_due: NDArray[np.bool_],
        *,
        keeps_legacy_tombstones: bool,
    ) -> NDArray[np.int64]:
        """Return the rule for each batch's records, see `map_kernels`."""
        from streamlog.cleaner import map_kernels as k

        if table.is_legacy:
            way = k.LAST_STAY if keeps_legacy_tombstones else k.LAST_VALUES_STAY
            return np.full(len(table), way)
        ways = np.where(is_due, k.LAST_VALUES_STAY, k.LAST_STAY)
        ways[table.is_control] = k.ALL_STAY
        ways[loses_all] = k.ALL_GO
        return ways

    def _fates(
        self,
        table: BatchTable,
        kept: NDArray[np.int64],
        is_copied: NDArray[np.bool_],
        loses_all: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        from streamlog.records import filter_kernels as k

        fates = np.where(is_copied, k.COPY, k.REWRITE)
        is_bare = kept == 0
        stays_empty = self._stay_when_empty(table, np.flatnonzero(is_bare))
        fates[is_bare] = np.where(stays_empty[is_bare], k.EMPTY, k.DROP)
        return fates.astype(np.int64)

    def _stay_when_empty(
        self, table: BatchTable, candidates: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return of each candidate whether its header must stay although it has no records."""
        result = np.zeros(len(table), np.bool_)
        if table.is_legacy:  # v0 and v1 have no producers and no empty batches
            return result
        result[candidates] = table.last_offset[candidates] + 1 == self.round_end
        produced = candidates[table.producer_id[candidates] >= 0]
        is_control = table.is_control
        for batch in produced.tolist():
            last = self.last_records.get(int(table.producer_id[batch]))
            if last is None:
                continue
            if last.last_data_offset is not None:
                stays = int(table.last_offset[batch]) == last.last_data_offset
            else:
                epoch = int(table.producer_epoch[batch])
                stays = bool(is_control[batch]) and epoch == last.producer_epoch
            result[batch] |= stays
        return result
