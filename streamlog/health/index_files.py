"""The two sparse indexes of a segment, checked against the batches they point at.

An index alone does not show which segment it belongs to: entries are relative to the base offset,
and there is no checksum. So each entry is compared with its batch during the walk over the log
file.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.health.findings import Finding, FindingKind, Grouped, Report
from streamlog.health.log_file import LogEnd, Run
from streamlog.records.batch import BatchTable
from streamlog.records.layout import CURRENT_MAGIC
from streamlog.segment.index_entries import OffsetEntries, TimeEntries
from streamlog.segment.offset_index import OFFSET_ENTRY_SIZE
from streamlog.segment.time_index import TIME_ENTRY_SIZE

__all__ = ["OffsetIndexCheck", "TimeIndexCheck"]

_NONE: Final = -1
_MISMATCH: Final = "entry and batch have different offsets"


class _Notes:
    """The findings of one index file.

    Args:
        kind: Their kind.
        path: The file.
        word: The kind in words, which each description begins with.
        report: Called with each finding at `flush`.
    """

    __slots__ = ("_grouped", "_kind", "_path", "_word", "flush")

    def __init__(self, kind: FindingKind, path: str, word: str, report: Report) -> None:
        self._kind, self._path, self._word = kind, path, word
        self._grouped = Grouped(report)
        self.flush = self._grouped.flush

    def add(
        self,
        what: str,
        *,
        entry: int | None = None,
        offset: int | None = None,
        got: object = None,
        expected: object = None,
    ) -> None:
        """Add a finding; `entry` is the position of the index entry in the file."""
        self._grouped.add(
            Finding(
                kind=self._kind,
                path=self._path,
                what=f"{self._word}: {what}",
                position=entry,
                offset=offset,
                got=got,
                expected=expected,
            )
        )


def _first_offsets(table: BatchTable, last_offset: int) -> NDArray[np.int64]:
    """Return the lowest offset that the first record of each batch may have.

    The header of a compressed message of v0 or v1 does not hold its first offset; it is above the
    last offset before.

    Args:
        table: Batches in the order of their offsets.
        last_offset: The last offset before them.
    """
    before = np.concatenate(([last_offset], table.last_offset[:-1]))
    first: NDArray[np.int64] = np.where(table.magic < CURRENT_MAGIC, before + 1, table.base_offset)
    return first


class OffsetIndexCheck:
    """The offset index of one segment.

    An entry holds the last offset of the batch at its position. Kafka before 4.0 wrote the last
    offset of a whole append, and before 1.0 its first offset. So the last offset of any later
    batch is accepted, and the first offset of this one: lookups work with both.

    Args:
        path: The index file.
        entries: Its entries.
        base_offset: The segment's base offset.
        report: Called with each finding.
    """

    def __init__(self, path: str, entries: OffsetEntries, base_offset: int, report: Report) -> None:
        self._entries = entries
        self._notes = _Notes(FindingKind.OFFSET_INDEX, path, "offset index", report)
        self._open_offsets = np.empty(0, np.int64)  # of appends that may end in a later run
        self._last_offset = base_offset - 1  # of the runs before
        self._is_sane = self._check_structure(base_offset)

    def _check_structure(self, base_offset: int) -> bool:
        offset, position, rest = self._entries
        if rest:
            self._notes.add(
                f"length is not a multiple of {OFFSET_ENTRY_SIZE}", got=f"{rest} extra bytes"
            )
        if not len(offset):
            return not rest
        bad = (offset < base_offset) | (position < 0)
        if bad.any():
            at = int(bad.argmax())
            self._note("entry points before the segment", at, f"offset {base_offset} or above")
        falls = (np.diff(offset) <= 0) | (np.diff(position) <= 0)
        if falls.any():
            at = int(falls.argmax()) + 1
            self._note("entries are not ascending", at, "above the entry before")
        return not (rest or bad.any() or falls.any())

    def feed(self, run: Run) -> None:
        """Check the entries that point into a run of sound batches."""
        if self._is_sane:
            self._close_appends(run)
            self._look_at(run)
        self._last_offset = int(run.table.last_offset[-1])

    def _look_at(self, run: Run) -> None:
        table, (offset, position, _) = run.table, self._entries
        starts = table.position + run.position
        first, end = np.searchsorted(position, (starts[0], run.position + table.end)).tolist()
        if first == end:
            return
        rows = np.searchsorted(starts, position[first:end], side="right") - 1
        is_start = starts[rows] == position[first:end]
        last, wanted = table.last_offset[rows], offset[first:end]
        is_early = is_start & (last > wanted) & ~self._are_first(run, rows, wanted)
        for at in np.flatnonzero(~is_start).tolist():
            self._note("entry points into the middle of a batch", first + at, "a batch's start")
        for at in np.flatnonzero(is_early).tolist():
            self._note(_MISMATCH, first + at, f"offset {last[at]}")
        opened = wanted[is_start & (last < wanted)]
        self._open_offsets = np.concatenate((self._open_offsets, opened))
        self._close_appends(run)

    def _are_first(
        self, run: Run, rows: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return which of the offsets may be the first of the batches at `rows` of a run."""
        table = run.table
        first = _first_offsets(table, self._last_offset)[rows]
        is_first: NDArray[np.bool_] = np.where(
            table.magic[rows] < CURRENT_MAGIC, offsets >= first, offsets == first
        )
        return is_first

    def _close_appends(self, run: Run) -> None:
        """Remove the open offsets that end a batch of this run; report those it has passed."""
        if not len(self._open_offsets):
            return
        last = run.table.last_offset
        reached = self._open_offsets[self._open_offsets <= last[-1]]
        for offset in reached[~np.isin(reached, last)].tolist():
            at = int(np.searchsorted(self._entries.offset, offset))
            self._note(_MISMATCH, at, "the last offset of a batch")
        self._open_offsets = self._open_offsets[self._open_offsets > last[-1]]

    def finish(self, end: LogEnd) -> None:
        """Report the findings, unless damage to the log file itself explains them."""
        for offset in self._open_offsets.tolist():
            at = int(np.searchsorted(self._entries.offset, offset))
            self._note(_MISMATCH, at, f"at most {end.last_offset}")
        position = self._entries.position
        if self._is_sane and len(position) and position[-1] >= end.position:
            at = int(np.searchsorted(position, end.position))
            self._note("entry points after the last batch", at, f"below byte {end.position}")
        if end.is_sound or not self._is_sane:
            self._notes.flush()

    def _note(self, what: str, at: int, expected: str) -> None:
        offset, position, _ = self._entries
        self._notes.add(
            what,
            entry=at * OFFSET_ENTRY_SIZE,
            offset=int(offset[at]),
            got=f"offset {offset[at]}, position {position[at]}",
            expected=expected,
        )


class TimeIndexCheck:
    """The time index of one segment.

    An entry holds the largest timestamp up to a batch, and the last offset of the batch that has
    it. Some releases before 4.0 wrote the offset of the record that has it, so any offset within
    that batch is accepted: a lookup starts at the same batch. The index of a sealed segment ends
    with the segment's largest timestamp.

    Args:
        path: The index file.
        entries: Its entries.
        base_offset: The segment's base offset.
        is_sealed: Whether a later segment exists.
        report: Called with each finding.
    """

    def __init__(
        self,
        path: str,
        entries: TimeEntries,
        base_offset: int,
        report: Report,
        *,
        is_sealed: bool,
    ) -> None:
        self._entries, self._is_sealed = entries, is_sealed
        self._notes = _Notes(FindingKind.TIME_INDEX, path, "time index", report)
        self._next = 0
        self._largest = _NONE
        self._last_offset = base_offset - 1  # of the runs before
        self._is_sane = self._check_structure(base_offset)

    def _check_structure(self, base_offset: int) -> bool:
        timestamp, offset, rest = self._entries
        if rest:
            self._notes.add(
                f"length is not a multiple of {TIME_ENTRY_SIZE}", got=f"{rest} extra bytes"
            )
        if not len(offset):
            return not rest
        bad = (offset < base_offset) | (timestamp < 0)
        if bad.any():
            at = int(bad.argmax())
            self._note(
                "entry is not of this segment", at, f"timestamp 0, offset {base_offset} or above"
            )
        falls = (np.diff(timestamp) <= 0) | (np.diff(offset) < 0)
        if falls.any():
            at = int(falls.argmax()) + 1
            self._note("entries are not ascending", at, "a larger timestamp than the entry before")
        return not (rest or bad.any() or falls.any())

    def feed(self, run: Run) -> None:
        """Check the entries that name a batch of a run."""
        table, (timestamp, offset, _) = run.table, self._entries
        largest = np.maximum.accumulate(np.maximum(table.max_timestamp, self._largest))
        self._largest = int(largest[-1])
        first = _first_offsets(table, self._last_offset)
        self._last_offset = int(table.last_offset[-1])
        end = int(np.searchsorted(offset, table.last_offset[-1], side="right"))
        start, self._next = self._next, max(end, self._next)
        if start >= end or not self._is_sane:
            return
        rows = np.searchsorted(table.last_offset, offset[start:end])
        wanted = timestamp[start:end]
        is_batch = first[rows] <= offset[start:end]
        is_right = table.max_timestamp[rows] == wanted
        is_largest = largest[rows] == wanted
        for at in np.flatnonzero(~is_batch).tolist():
            self._note("entry has an offset of no batch", start + at, "an offset of a batch")
        for at in np.flatnonzero(is_batch & ~is_right).tolist():
            expected = f"timestamp {table.max_timestamp[rows[at]]}"
            self._note("entry and batch have different timestamps", start + at, expected)
        for at in np.flatnonzero(is_batch & is_right & ~is_largest).tolist():
            expected = f"at least {largest[rows[at]]}"
            self._note("an earlier batch has a larger timestamp", start + at, expected)

    def finish(self, end: LogEnd) -> None:
        """Report the findings, unless damage to the log file itself explains them."""
        timestamp, offset, _ = self._entries
        if self._is_sane and self._next < len(offset):
            self._note("entry is after the log end", self._next, f"at most {end.last_offset}")
        last = int(timestamp[-1]) if len(timestamp) else _NONE
        if self._is_sane and self._is_sealed and end.max_timestamp > last:
            self._notes.add(
                "the largest timestamp of the segment is missing",
                got=f"timestamp {last} at the end",
                expected=end.max_timestamp,
            )
        if end.is_sound or not self._is_sane:
            self._notes.flush()

    def _note(self, what: str, at: int, expected: str) -> None:
        timestamp, offset, _ = self._entries
        self._notes.add(
            what,
            entry=at * TIME_ENTRY_SIZE,
            offset=int(offset[at]),
            got=f"timestamp {timestamp[at]}, offset {offset[at]}",
            expected=expected,
        )
