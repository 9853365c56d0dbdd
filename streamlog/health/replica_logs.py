"""Compares the logs of two replicas: below both high watermarks they hold the same batches.

Replicas are equal byte for byte, offsets and leader epochs included. Two things tell them apart:

- Each root compacts by itself. Where the bytes differ in a compacted topic, the records are
  compared, and a record may be missing from one log if a later one has its key.
- A replica may hold records that the leader never had or has lost, above the end of their last
  common epoch. It truncates them when it follows the leader. They are counted.
"""

from collections.abc import Callable, Iterator
from typing import Final

from streamlog.errors import CorruptDataError, OffsetOutOfRangeError
from streamlog.health.findings import Finding, FindingKind, Report, finding_of
from streamlog.partition.epochs import UNDEFINED_EPOCH, EpochEntry
from streamlog.partition.read import FetchInfo
from streamlog.partition.reader import LogReader
from streamlog.records.batch import LegacyRecordBatch, RecordBatch
from streamlog.records.record import IsolationLevel, Record
from streamlog.replication.truncation import (
    TruncationRule,
    end_of_epoch,
    epoch_to_ask,
    truncation_for,
)

__all__ = ["compare_logs"]

_READ_BYTES: Final = 4 << 20
_ATTEMPTS: Final = 10  # at reading logs that retention shortens meanwhile

OnProgress = Callable[[int], None]


def compare_logs(
    leader: LogReader,
    other: LogReader,
    report: Report,
    *,
    is_compacted: bool,
    on_progress: OnProgress = lambda size: None,
) -> None:
    """Compare two replicas from the higher log start to the lower high watermark.

    Args:
        leader: The replica to compare with.
        other: The replica that findings are reported about.
        report: Called with each finding: the first difference, and damage that ends the comparison.
        is_compacted: Whether the topic is compacted.
        on_progress: Called with numbers of bytes of `other` compared.

    Raises:
        StorageError: A file cannot be read.
        OffsetOutOfRangeError: Records are deleted as fast as they are read.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        comparison = _Comparison(leader, other, on_progress)
        try:
            found = list(comparison.run(is_compacted=is_compacted))
        except OffsetOutOfRangeError:  # retention raised a log start
            if attempt == _ATTEMPTS:
                raise
            leader.refresh()
            other.refresh()
        except CorruptDataError as error:
            report(finding_of(error, FindingKind.UNREADABLE, other.path))
            return
        else:
            for finding in found:
                report(finding)
            return


class _Comparison:
    """One comparison of the offsets that two replicas have in common."""

    def __init__(self, leader: LogReader, other: LogReader, on_progress: OnProgress) -> None:
        self._leader, self._other, self._on_progress = leader, other, on_progress
        self._start = max(leader.log_start_offset, other.log_start_offset)
        self._common_end = _common_end(leader, other)
        self._end = min(leader.high_watermark, other.high_watermark, self._common_end)

    def run(self, *, is_compacted: bool) -> Iterator[Finding]:
        if self._common_end < self._other.log_end_offset:
            yield self._abandoned()
        if self._start >= self._end:
            return
        if not is_compacted:  # compaction may remove all records of an epoch
            yield from self._compare_epochs()
        differing = self._first_difference()
        if differing is None:
            return
        offset, batches = differing
        if is_compacted:
            yield from self._compare_records(offset)
        else:
            theirs, ours = map(_batch_text, batches)
            yield self._finding("batches differ from the leader's", offset, ours, theirs)

    def _abandoned(self) -> Finding:
        start, end = self._common_end, self._other.log_end_offset
        committed = max(0, min(self._other.high_watermark, end) - start)
        return Finding(
            kind=FindingKind.ABANDONED_RECORDS,
            path=self._other.path,
            what="records that the leader does not have; the replica truncates them",
            offset=start,
            last_offset=end - 1,
            got=f"{end - start} offsets, {committed} of them were committed",
            expected=f"none from offset {start} on ({self._leader.path})",
        )

    # ---- leader epochs -----------------------------------------------------------------------
    def _compare_epochs(self) -> Iterator[Finding]:
        theirs, ours = map(self._epochs_of, (self._leader, self._other))
        if theirs != ours:
            different = min(entry.start_offset for entry in {*theirs} ^ {*ours})
            what = "leader epochs differ from the leader's"
            yield self._finding(what, different, _epochs_text(ours), _epochs_text(theirs))

    def _epochs_of(self, reader: LogReader) -> list[EpochEntry]:
        """Return the epochs that have records in the common range."""
        entries = reader.leader_epochs.entries
        ends = [*(entry.start_offset for entry in entries[1:]), self._end]
        return [
            EpochEntry(entry.epoch, max(entry.start_offset, self._start))
            for entry, end in zip(entries, ends, strict=False)
            if entry.start_offset < self._end and end > self._start
        ]

    # ---- bytes -------------------------------------------------------------------------------
    def _first_difference(self) -> "tuple[int, tuple[_Batch | None, _Batch | None]] | None":
        """Return the offset where the bytes begin to differ, with the batches there."""
        theirs = _Batches(self._leader, self._start, self._end)
        ours = _Batches(self._other, self._start, self._end)
        while True:
            left, right = theirs.rest(), ours.rest()
            size = min(len(left), len(right))
            if left[:size] != right[:size] or (size == 0 and len(left) != len(right)):
                return _first_differing_batch(theirs, ours, self._end)
            if size == 0:
                return None
            theirs.advance(size)
            ours.advance(size)
            self._on_progress(size)

    # ---- records -----------------------------------------------------------------------------
    def _compare_records(self, offset: int) -> Iterator[Finding]:
        """Report the first record that differs, and the first that is missing without successor.

        A successor may lie above the common range, so both logs are read to their own ends.
        """
        end = min(self._end, self._leader.last_stable_offset, self._other.last_stable_offset)
        missing: dict[bytes | None, tuple[int, bool]] = {}  # key: offset, whether `other` lacks it
        for theirs, ours in _paired(_records(self._leader, offset), _records(self._other, offset)):
            record = theirs or ours
            assert record is not None
            missing.pop(record.key, None)
            if record.offset >= end:
                continue
            if theirs is not None and ours is not None:
                if theirs != ours:
                    what = "record differs from the leader's"
                    yield self._finding(what, record.offset, ours, theirs)
                    return
            elif record.value is not None:  # a tombstone may expire in one log before the other
                missing[record.key] = record.offset, ours is None
        for at, is_ours in sorted(missing.values())[:1]:
            what = "record is missing, and no later one has its key"
            got, expected = ("nothing", "a record") if is_ours else ("a record", "nothing")
            yield self._finding(what, at, got, f"{expected}, as in the leader's log")

    def _finding(self, what: str, offset: int, got: object, expected: object) -> Finding:
        return Finding(
            kind=FindingKind.REPLICA_DIVERGED,
            path=self._other.path,
            what=what,
            offset=offset,
            last_offset=self._end - 1,
            got=got,
            expected=f"{expected} ({self._leader.path})",
        )


class _Positions:
    """The positions of a replica's log, without the epochs that a truncation removes."""

    def __init__(self, reader: LogReader) -> None:
        self.log_start_offset, self.log_end_offset = reader.log_start_offset, reader.log_end_offset
        self.epochs = reader.leader_epochs.copy()

    def truncate_to(self, offset: int) -> None:
        self.log_end_offset = min(self.log_end_offset, offset)
        self.epochs.truncate_from_end(offset)


def _common_end(leader: LogReader, other: LogReader) -> int:
    """Return the offset that `other` would truncate to when it follows `leader`."""
    positions, theirs = _Positions(other), _Positions(leader)
    while (epoch := epoch_to_ask(TruncationRule.KIP_320, positions.epochs)) != UNDEFINED_EPOCH:
        answer = end_of_epoch(TruncationRule.KIP_320, theirs, epoch)
        found = truncation_for(answer, positions, other.high_watermark)
        positions.truncate_to(found.offset)
        if found.is_final:
            break
    return positions.log_end_offset


_Batch = RecordBatch | LegacyRecordBatch


class _Batches:
    """The batches of one replica between two offsets, as one stream of bytes."""

    def __init__(self, reader: LogReader, start: int, end: int) -> None:
        self._reader, self._next, self._end = reader, start, end
        self._info: FetchInfo | None = None
        self._at = 0

    def rest(self) -> memoryview:
        """Return the bytes read and not yet passed; the next piece if all are, empty at the end."""
        while self._info is None or self._at == len(self._info.buffer):
            if self._next >= self._end:
                return memoryview(b"")
            self._info = self._reader.read(self._next, _READ_BYTES, end_offset=self._end)
            self._at, self._next = 0, max(self._info.next_offset, self._next + 1)
        return self._info.buffer[self._at :]

    def advance(self, size: int) -> None:
        """Pass `size` bytes of `rest`."""
        self._at += size

    def batches(self) -> Iterator[_Batch]:
        """Yield the batches from the one that holds the current position on."""
        while len(self.rest()):
            assert self._info is not None
            ends = self._info.table.position + self._info.table.size
            for batch, end in zip(self._info.batches(), ends.tolist(), strict=True):
                if end > self._at:
                    yield batch
            self._at = len(self._info.buffer)


def _first_differing_batch(
    theirs: _Batches, ours: _Batches, end: int
) -> tuple[int, tuple[_Batch | None, _Batch | None]]:
    """Return the first pair of batches that differ; None for a log that has no more."""
    left, right = theirs.batches(), ours.batches()
    while True:
        pair = next(left, None), next(right, None)
        if pair[0] is None or pair[1] is None or pair[0].buffer != pair[1].buffer:
            return min((each.base_offset for each in pair if each is not None), default=end), pair


def _batch_text(batch: _Batch | None) -> str:
    if batch is None:
        return "no batch"
    epoch = getattr(batch, "partition_leader_epoch", -1)
    return f"offsets {batch.base_offset} to {batch.next_offset - 1}, epoch {epoch}"


def _epochs_text(entries: list[EpochEntry]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in entries) or "none"


def _records(reader: LogReader, offset: int) -> Iterator[Record]:
    """Yield the committed records from `offset` on; an aborted one is lost by compaction."""
    return reader.records(offset, isolation=IsolationLevel.READ_COMMITTED)


def _paired(
    theirs: Iterator[Record], ours: Iterator[Record]
) -> Iterator[tuple[Record | None, Record | None]]:
    """Yield the records of two logs by offset, None for the log that lacks one."""
    left, right = next(theirs, None), next(ours, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.offset < right.offset):
            yield left, None
            left = next(theirs, None)
        elif left is None or right.offset < left.offset:
            yield None, right
            right = next(ours, None)
        else:
            yield left, right
            left, right = next(theirs, None), next(ours, None)
