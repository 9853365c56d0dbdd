"""Producer snapshots, transaction indexes and leader epochs, checked against the batches.

The batches are replayed as in recovery. Facts that follow for certain must be in the files. Facts
that compaction, retention or the expiry of idle producers may have removed from the log may be in a
file or not, so they are not checked.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from streamlog.errors import CorruptRecordError, InvalidRecordError
from streamlog.health.findings import Finding, FindingKind, Grouped, Report
from streamlog.health.log_file import LogEnd, Run
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.producer_snapshot import snapshot_file_name
from streamlog.partition.producer_state import ProducerState
from streamlog.partition.producers import ProducerStateManager, within
from streamlog.segment.index_entries import TxnEntry
from streamlog.segment.txn_index import TXN_ENTRY_SIZE, AbortedTxn

__all__ = ["EpochsCheck", "ProducersCheck", "Snapshots"]

Snapshots = Mapping[int, Sequence[ProducerState]]
"""The states that each snapshot holds, by the offset in its name."""

_CURRENT_VERSION: Final = 0  # AbortedTxn.CURRENT_VERSION


class ProducersCheck:
    """The producers of one partition, replayed over all its segments.

    Args:
        snapshots: The readable snapshots.
        directory: Their directory.
        report: Called with each finding.
    """

    def __init__(self, snapshots: Snapshots, directory: str, report: Report) -> None:
        self._snapshots, self._directory, self._report = snapshots, directory, report
        self._waiting = sorted(snapshots)
        self._replayed = ProducerStateManager()
        self._log_start: int | None = None
        self._next_offset = 0
        self._is_complete = True  # every record since offset 0 is in the log
        self._aborted: list[AbortedTxn] = []
        self._markers: dict[int, int] = {}  # offset of a control batch: producer id
        self._last_marker: dict[int, int] = {}  # of each producer: the offset

    @property
    def has_producers(self) -> bool:
        """Whether any batch has a producer."""
        return bool(self._replayed.producers)

    def feed(self, run: Run) -> None:
        """Replay a run of sound batches; compare the snapshots within it."""
        table = run.table
        if self._log_start is None:
            self._log_start = int(table.base_offset[0])
        row = 0
        while self._waiting and self._waiting[0] <= int(table.last_offset[-1]):
            end = int(np.searchsorted(table.base_offset, self._waiting[0]))
            self._replay(run, row, end)
            self._compare(self._waiting.pop(0))
            row = end
        self._replay(run, row, len(table))

    def _replay(self, run: Run, start: int, end: int) -> None:
        if start >= end:
            return
        table = run.table.slice(start, end)
        before = np.concatenate(([self._next_offset], table.last_offset[:-1] + 1))
        spans = table.last_offset - table.base_offset + 1
        if (table.base_offset != before).any() or (table.count != spans).any():
            self._is_complete = False
        self._next_offset = int(table.last_offset[-1]) + 1
        try:
            self._aborted += self._replayed.update(within(run.buffer), table)
        except (InvalidRecordError, CorruptRecordError) as error:
            self._is_complete = False
            self._report_marker(run, error)
        rows = np.flatnonzero(table.is_control & (table.producer_id >= 0))
        ids = table.producer_id[rows].tolist()
        offsets = table.base_offset[rows].tolist()
        self._markers.update(zip(offsets, ids, strict=True))
        self._last_marker.update(zip(ids, offsets, strict=True))

    def _report_marker(self, run: Run, error: InvalidRecordError | CorruptRecordError) -> None:
        self._report(
            Finding(
                kind=FindingKind.BAD_RECORD,
                path=run.path,
                what=f"malformed control record: {error.what}",
                position=None if error.position is None else run.position + error.position,
                offset=int(run.table.base_offset[0]),
                last_offset=int(run.table.last_offset[-1]),
                got=error.got,
                expected=error.expected,
            )
        )

    # ---- transaction indexes -----------------------------------------------------------------
    def finish_segment(
        self, path: str, entries: Sequence[TxnEntry], end: LogEnd, *, is_growing: bool
    ) -> None:
        """Compare the transactions that a segment's markers abort with its transaction index.

        Args:
            path: The index file; a missing one has no entries.
            entries: Its entries.
            end: The end of the segment's log file; after damage nothing is compared.
            is_growing: Whether markers may have been appended since the entries were read.
        """
        aborted, self._aborted = self._aborted, []
        markers, self._markers = self._markers, {}
        if not end.is_sound:
            self._is_complete = False
            return
        expected = {each.last_offset: each for each in aborted}
        previous = -1
        for at, (version, entry) in enumerate(entries):
            known = expected.pop(entry.last_offset, None)
            wrong = self._wrong_entry(entry, known, markers, previous)
            if version != _CURRENT_VERSION:
                wrong = f"version {_CURRENT_VERSION}"
            if wrong is not None:
                self._report_txn(path, "entry contradicts the log", at, (version, entry), wrong)
            previous = entry.last_offset
        for missing in expected.values() if not is_growing else ():
            self._report_txn(path, "an aborted transaction is missing", None, None, missing)

    def _wrong_entry(
        self,
        entry: AbortedTxn,
        known: AbortedTxn | None,
        markers: Mapping[int, int],
        previous: int,
    ) -> object:
        """Return the expected entry, None if the entry may be right."""
        if entry.last_offset <= previous:
            return f"a marker above offset {previous}"
        if markers.get(entry.last_offset) != entry.producer_id:
            return f"the offset of an abort marker of producer {entry.producer_id}"
        if known is not None and self._is_complete:
            return None if entry == known else known
        starts_late = known is not None and entry.first_offset > known.first_offset
        is_ordered = 0 <= entry.first_offset <= entry.last_offset
        is_stable = 0 <= entry.last_stable_offset <= entry.last_offset + 1
        if starts_late or not is_ordered or not is_stable:
            return known or "ascending offsets"
        return None

    def _report_txn(
        self, path: str, what: str, at: int | None, got: object, expected: object
    ) -> None:
        entry = expected if isinstance(expected, AbortedTxn) else None
        self._report(
            Finding(
                kind=FindingKind.TXN_INDEX,
                path=path,
                what=f"transaction index: {what}",
                position=None if at is None else at * TXN_ENTRY_SIZE,
                offset=None if entry is None else entry.first_offset,
                last_offset=None if entry is None else entry.last_offset,
                got=got,
                expected=expected,
            )
        )

    # ---- snapshots ---------------------------------------------------------------------------
    def finish(self, next_offset: int) -> None:
        """Compare the snapshots at the log end; report those after it.

        Args:
            next_offset: The log end.
        """
        for offset in self._waiting:
            if offset <= next_offset:
                self._compare(offset)
            else:
                self._report_snapshot(
                    offset, "is after the log end", None, f"at most {next_offset}"
                )

    def _compare(self, offset: int) -> None:
        stored = {state.producer_id: state for state in self._snapshots[offset]}
        for producer_id, replayed in self._replayed.producers.items():
            known = stored.pop(producer_id, None)
            if known is None:
                if replayed.current_txn_first_offset is not None:
                    what = "a producer with an open transaction is missing"
                    self._report_snapshot(offset, what, None, _text(replayed))
            elif not self._agrees(known, replayed):
                what = "a producer's state contradicts the log"
                self._report_snapshot(offset, what, _text(known), _text(replayed))
        for known in stored.values():
            is_before = self._log_start is None or known.last_offset < self._log_start
            if self._is_complete and not is_before:
                self._report_snapshot(offset, "a producer is not in the log", _text(known), None)

    def _agrees(self, stored: ProducerState, replayed: ProducerState) -> bool:
        """Return whether a snapshot's state is possible, given the replayed one."""
        if self._is_complete:
            epoch, sequence, _, first = _facts(replayed)
            marker = self._last_marker.get(replayed.producer_id)
            return (
                _facts(stored) == _facts(replayed)
                # Kafka 0.11 takes the marker for the producer's last batch.
                or _facts(stored) == (epoch, sequence, marker, first)
                or _was_forgotten(stored, replayed)
            )
        if stored.producer_epoch != replayed.producer_epoch:
            return stored.producer_epoch > replayed.producer_epoch
        # The log may have lost the producer's last batches, so the snapshot may know later ones.
        if stored.last_offset == replayed.last_offset:
            return stored.last_sequence == replayed.last_sequence
        return stored.last_offset > replayed.last_offset

    def _report_snapshot(self, offset: int, what: str, got: object, expected: object) -> None:
        self._report(
            Finding(
                kind=FindingKind.SNAPSHOT,
                path=f"{self._directory}/{snapshot_file_name(offset)}",
                what=f"producer snapshot: {what}",
                offset=offset,
                got=got,
                expected=expected,
            )
        )


def _facts(state: ProducerState) -> tuple[object, ...]:
    first = state.current_txn_first_offset
    return (state.producer_epoch, state.last_sequence, state.last_offset, first)


def _was_forgotten(stored: ProducerState, replayed: ProducerState) -> bool:
    """Return whether an idle producer had expired, and only a marker of it was written since."""
    return not stored.batches and (stored.producer_epoch, stored.current_txn_first_offset) == (
        replayed.producer_epoch,
        replayed.current_txn_first_offset,
    )


def _text(state: ProducerState) -> str:
    open_since = state.current_txn_first_offset
    return (
        f"producer {state.producer_id} epoch {state.producer_epoch} "
        f"sequence {state.last_sequence} offset {state.last_offset}"
        + ("" if open_since is None else f" in a transaction since {open_since}")
    )


# ---- leader epochs -------------------------------------------------------------------------------
class _Stretch(NamedTuple):
    """Consecutive batches of one epoch."""

    epoch: int
    first_offset: int
    last_offset: int


class EpochsCheck:
    """The epochs of one partition, over all its segments."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[_Stretch] = []

    @property
    def has_epochs(self) -> bool:
        """Whether any batch carries one."""
        return bool(self._stretches)

    def feed(self, run: Run) -> None:
        """Add the epochs of a run of sound batches."""
        table = run.table.select(run.table.leader_epoch >= 0)
        if not len(table):
            return
        turns = np.flatnonzero(np.diff(table.leader_epoch))
        first = np.concatenate(([0], turns + 1))
        last = np.concatenate((turns, [len(table) - 1]))
        found = zip(
            table.leader_epoch[first].tolist(),
            table.base_offset[first].tolist(),
            table.last_offset[last].tolist(),
            strict=True,
        )
        for epoch, start, end in found:
            if self._stretches and self._stretches[-1].epoch == epoch:
                start = self._stretches.pop().first_offset
            self._stretches.append(_Stretch(epoch, start, end))

    def finish(
        self,
        path: str,
        epochs: LeaderEpochCache,
        report: Report,
        *,
        log_start_offset: int | None,
        next_offset: int | None,
    ) -> None:
        """Compare the epochs of the batches with the file.

        Args:
            path: The file.
            epochs: Its entries.
            report: Called with each finding.
            log_start_offset: The file has no entries below it. None: unknown, so the file's first
                entry counts.
            next_offset: The log end. None: unknown because the log grows.
        """
        grouped = Grouped(report)
        if log_start_offset is None:
            log_start_offset = epochs.entries[0].start_offset if epochs.entries else 0
        for epoch, first_offset, last_offset in self._stretches:
            if last_offset < log_start_offset:
                continue
            for offset in (max(first_offset, log_start_offset), last_offset):
                known = epochs.epoch_for_offset(offset)
                if known != epoch:
                    what = "leader epochs: file and batch have different epochs"
                    got = "none" if known is None else f"epoch {known}"
                    grouped.add(_finding(path, what, offset, got, f"epoch {epoch}"))
                    break
        for epoch, start in epochs.entries:
            if next_offset is not None and start > next_offset:
                what = "leader epochs: an epoch starts after the log end"
                expected = f"at most offset {next_offset}"
                grouped.add(_finding(path, what, start, f"epoch {epoch}", expected))
        grouped.flush()


def _finding(path: str, what: str, offset: int, got: str, expected: str) -> Finding:
    return Finding(
        kind=FindingKind.EPOCHS, path=path, what=what, offset=offset, got=got, expected=expected
    )
