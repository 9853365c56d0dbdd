"""The transactions of what is being cleaned: which data is aborted, which markers may go.

Fed with the batches in their order. A batch of an aborted transaction goes whole. A marker may go
once no batch of its transaction was met in this round, not even an empty one; until then its
abort stays in the transaction index. Aborts are known in advance, from the transaction indexes.

Source: org.apache.kafka.storage.internals.log.CleanedTransactionMetadata.
"""

import heapq
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import CorruptRecordError, InvalidRecordError
from streamlog.records.control import ControlRecordType, parse_control_key
from streamlog.records.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from streamlog.records.slot import SLOT_KEY, SLOT_KEY_SIZE
from streamlog.records.slots import RecordSlots
from streamlog.records.table import BatchTable
from streamlog.segment.txn_index import AbortedTxn

__all__ = ["CleanedTransactions"]


class CleanedTransactions:
    """What is known of transactions up to the batch that was seen last."""

    __slots__ = ("_aborted", "_committed", "_retained", "_upcoming")

    def __init__(self) -> None:
        self._upcoming: list[tuple[int, AbortedTxn]] = []  # a heap by first offsets
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}  # by producer; was a batch met?
        self._committed: set[int] = set()  # producers of which a batch was met
        self._retained: list[AbortedTxn] = []

    def add(self, aborted: Iterable[AbortedTxn]) -> None:
        """Learn of aborted transactions; of one that is known already, too."""
        for txn in aborted:
            heapq.heappush(self._upcoming, (txn.first_offset, txn))

    def take_retained(self) -> list[AbortedTxn]:
        """Return the aborted transactions, since the last call, whose markers must stay."""
        retained, self._retained = self._retained, []
        return retained

    def discardable(self, table: BatchTable, records: RecordSlots) -> NDArray[np.bool_]:
        """Tell of each batch whether its records may go: aborted data, or a marker of no use.

        Args:
            table: The next batches.
            records: Their records.

        Raises:
            CorruptRecordError: A control record cannot be understood.
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
            "control record cannot be understood", offset=offset, got=error.got
        ) from error
