"""Checks every byte of one log file: whole batches, checksums, order of offsets and epochs.

After damage the walk continues at the next sound batch, so that one flipped bit does not hide the
next one. Findings include the extent of the skipped bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import CorruptDataError, LimitExceededError
from streamlog.health.findings import Finding, FindingKind, Grouped, Report
from streamlog.records.batch import BatchTable, ScanStop
from streamlog.records.columns import RecordColumns
from streamlog.records.decode import PIECE_BYTES, Wanted, decode_pieces
from streamlog.records.layout import (
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAX_INT32,
    MIN_LEGACY_LENGTH,
    NO_PARTITION_LEADER_EPOCH,
)
from streamlog.records.record import CompressionType
from streamlog.segment.file_records import FileRecords
from streamlog.segment.walk import Place, find_sound, fits_checksum

__all__ = ["LogEnd", "LogWalk", "Neighbours", "Run"]

_WHY: Final = {
    ScanStop.PARTIAL: "a batch extends past the end of the file",
    ScanStop.BAD_LENGTH: "not a record batch: invalid length",
    ScanStop.BAD_MAGIC: "not a record batch: unknown format",
    ScanStop.BAD_HEADER: "not a record batch: invalid offsets or count",
}


class Run(NamedTuple):
    """Adjacent sound batches.

    Attributes:
        path: The log file.
        position: The position of `buffer` in the file.
        buffer: uint8[n], reused for the next run.
        table: The batches, positions relative to `buffer`.
    """

    path: str
    position: int
    buffer: NDArray[np.uint8]
    table: BatchTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The context of a log file.

    Attributes:
        base_offset: The base offset in its name.
        next_base_offset: The base offset of the next segment; None for the last segment.
        previous_offset: The last offset before this file, -1 for none.
        previous_epoch: The last leader epoch before it, -1 for none.
        durable_offset: The recovery point, below which all records are synced. None: unknown.
        is_live: Whether another process may be writing to the file.
    """

    base_offset: int
    next_base_offset: int | None = None
    previous_offset: int = -1
    previous_epoch: int = NO_PARTITION_LEADER_EPOCH
    durable_offset: int | None = None
    is_live: bool = False


class LogEnd(NamedTuple):
    """The end of a walk over a log file.

    Attributes:
        last_offset: The last offset of the last sound batch, or that of `Neighbours` without one.
        leader_epoch: The last leader epoch, likewise.
        max_timestamp: The largest timestamp, -1 for none.
        position: The end of the last sound batch.
        size: Bytes of the file when the walk began.
        is_sound: Whether every batch was sound.
    """

    last_offset: int
    leader_epoch: int
    max_timestamp: int
    position: int
    size: int
    is_sound: bool


class LogWalk:
    """A walk over one log file.

    Args:
        records: The file.
        around: Its context.
        report: Called with each finding.
        is_deep: Whether to decode every record.
        max_decompressed: The maximum decompressed size of a batch, in bytes.
    """

    def __init__(
        self,
        records: FileRecords,
        around: Neighbours,
        report: Report,
        *,
        is_deep: bool,
        max_decompressed: int,
    ) -> None:
        self._records, self._around = records, around
        self._report, self._grouped = report, Grouped(report)
        self._is_deep, self._max_decompressed = is_deep, max_decompressed
        self._last_offset, self._epoch = around.previous_offset, around.previous_epoch
        self._max_timestamp = -1
        self._is_sound = True

    def run(self, on_run: Callable[[Run], None], on_progress: Callable[[int], None]) -> LogEnd:
        """Walk to the end.

        Args:
            on_run: Called with each run of sound batches, in order.
            on_progress: Called with the number of bytes checked since the last call.

        Raises:
            StorageError: The file cannot be read.
        """
        size = self._records.stat().size
        position = end = 0
        while position < size:
            end, stop = self._walk_sound(position, size, on_run, on_progress)
            if end == size:
                break
            position = self._pass_over(end, size, stop)
            on_progress(position - end)
        self._grouped.flush()
        return LogEnd(
            self._last_offset, self._epoch, self._max_timestamp, end, size, is_sound=self._is_sound
        )

    def _walk_sound(
        self,
        position: int,
        size: int,
        on_run: Callable[[Run], None],
        on_progress: Callable[[int], None],
    ) -> tuple[int, ScanStop]:
        """Walk over batches up to the first unsound one; return its position and the cause."""
        stop = ScanStop.END
        for chunk in self._records.chunks(position, size):
            table, stop = chunk.scan.table, chunk.scan.stop
            good = chunk.sound
            if good:
                run = Run(self._records.path, chunk.position, chunk.buffer, table.slice(0, good))
                self._look_at(run)
                on_run(run)
            if good < len(table):
                return chunk.position + int(table.position[good]), ScanStop.END
            position = chunk.position + chunk.scan.consumed
            on_progress(chunk.scan.consumed)
        return position, stop

    # ---- sound batches -----------------------------------------------------------------------
    def _look_at(self, run: Run) -> None:
        self._check_order(run)
        self._check_epochs(run)
        self._check_place(run)
        if self._is_deep:
            self._check_records(run)
        table = run.table
        self._last_offset = int(table.last_offset[-1])
        self._max_timestamp = max(self._max_timestamp, int(table.max_timestamp.max()))

    def _check_order(self, run: Run) -> None:
        table = run.table
        before = np.concatenate(([self._last_offset], table.last_offset[:-1]))
        self._add_rows(
            run,
            table.base_offset <= before,
            FindingKind.OFFSET_ORDER,
            "a batch's offsets are not above those of the batch before",
            lambda row: (f"offset {table.base_offset[row]}", f"above {before[row]}"),
        )

    def _check_epochs(self, run: Run) -> None:
        rows = np.flatnonzero(run.table.leader_epoch != NO_PARTITION_LEADER_EPOCH)
        if not len(rows):
            return
        epochs = run.table.leader_epoch[rows]
        before = np.concatenate(([self._epoch], epochs[:-1]))
        falls = np.zeros(len(run.table), np.bool_)
        falls[rows] = epochs < before
        self._add_rows(
            run,
            falls,
            FindingKind.EPOCH_ORDER,
            "the leader epoch decreases",
            lambda row: (
                f"epoch {run.table.leader_epoch[row]}",
                f"at least {before[np.searchsorted(rows, row)]}",
            ),
        )
        self._epoch = int(epochs[-1])

    def _check_place(self, run: Run) -> None:
        table, base, limit = run.table, self._around.base_offset, self._around.next_base_offset
        last = table.last_offset
        self._add_rows(
            run,
            (table.base_offset < base) | (last - base > MAX_INT32),
            FindingKind.WRONG_SEGMENT,
            "a batch's offsets are outside this segment",
            lambda row: (f"offset {table.base_offset[row]}", f"{base} or up to 2^31 - 1 above it"),
        )
        if limit is not None and int(last.max()) >= limit:
            self._add_rows(
                run,
                last >= limit,
                FindingKind.OVERLAP,
                "a batch's offsets belong to the next segment",
                lambda row: (f"offset {last[row]}", f"below {limit}"),
            )
        self._add_rows(
            run,
            (table.count > last - table.base_offset + 1) | (table.codec > CompressionType.ZSTD),
            FindingKind.BAD_BATCH,
            "a batch with a valid checksum has an invalid header",
            lambda row: (
                f"{table.count[row]} records, codec {table.codec[row]}",
                f"at most {last[row] - table.base_offset[row] + 1} records, codec 0 to 4",
            ),
        )

    def _add_rows(
        self,
        run: Run,
        bad: NDArray[np.bool_],
        kind: FindingKind,
        what: str,
        describe: Callable[[int], tuple[str, str]],
    ) -> None:
        """Add a finding for the rows of a run where `bad`, bool[n], holds."""
        if not bad.any():
            return
        row = int(bad.argmax())
        got, expected = describe(row)
        self._grouped.add_all(
            Finding(
                kind=kind,
                path=run.path,
                what=what,
                position=run.position + int(run.table.position[row]),
                offset=int(run.table.base_offset[row]),
                last_offset=int(run.table.last_offset[row]),
                got=got,
                expected=expected,
            ),
            int(bad.sum()),
        )

    # ---- records -----------------------------------------------------------------------------
    def _check_records(self, run: Run) -> None:
        """Decode all records of a run; if that fails, batch by batch to find the damaged ones."""
        try:
            self._decode(run)
        except CorruptDataError as error:
            if len(run.table) > 1:
                for row in range(len(run.table)):
                    self._check_records(run._replace(table=run.table.slice(row, row + 1)))
                return
            self._report(
                Finding(
                    kind=FindingKind.BAD_RECORD,
                    path=self._records.path,
                    what=error.what,
                    position=run.position + int(run.table.position[0]),
                    offset=int(run.table.base_offset[0]),
                    last_offset=int(run.table.last_offset[0]),
                    got=error.got,
                    expected=error.expected,
                )
            )

    def _decode(self, run: Run) -> None:
        """Decode all records of a run in pieces, and check their offsets and timestamps."""
        wanted = Wanted(
            drop_control=False, max_decompressed=self._max_decompressed, max_bytes=PIECE_BYTES
        )
        for table, columns in decode_pieces(
            run.buffer, run.table, wanted, path=self._records.path, position=run.position
        ):
            self._check_columns(run._replace(table=table), columns)

    def _check_columns(self, run: Run, columns: RecordColumns) -> None:
        table = run.table
        rows = np.searchsorted(table.last_offset, columns.offset)
        rows = np.minimum(rows, len(table) - 1)
        # The header of a compressed message of v0 or v1 does not hold its first offset.
        is_after_start = (columns.offset >= table.base_offset[rows]) | (
            table.magic[rows] < CURRENT_MAGIC
        )
        is_inside = is_after_start & (columns.offset <= table.last_offset[rows])
        is_inside[1:] &= columns.offset[1:] > columns.offset[:-1]
        self._add_records(
            run, rows, ~is_inside, "record is out of order or outside its batch", columns.offset
        )
        is_younger = columns.timestamp > table.max_timestamp[rows]
        self._add_records(
            run,
            rows,
            is_younger,
            "record has a timestamp above its batch's maximum",
            columns.offset,
        )

    def _add_records(
        self,
        run: Run,
        rows: NDArray[np.int64],
        bad: NDArray[np.bool_],
        what: str,
        offsets: NDArray[np.int64],
    ) -> None:
        if not bad.any():
            return
        first = int(bad.argmax())
        self._grouped.add_all(
            Finding(
                kind=FindingKind.BAD_RECORD,
                path=run.path,
                what=what,
                position=run.position + int(run.table.position[rows[first]]),
                offset=int(offsets[first]),
            ),
            int(bad.sum()),
        )

    # ---- what is not sound -------------------------------------------------------------------
    def _pass_over(self, position: int, size: int, stop: ScanStop) -> int:
        """Report the damage at `position` and return the position to continue at."""
        around = self._around
        place = Place(position, self._last_offset + 1, self._epoch)
        is_endless = False
        try:
            found = find_sound(self._records, around.base_offset, place, size)
        except LimitExceededError:
            found, is_endless = None, True  # too much to search: cannot be a torn append
        is_torn = self._may_be_torn() and not self._is_unharmed(position, size)
        if found is None and not is_endless and is_torn:
            is_growing = around.is_live or self._records.stat().size != size
            if not is_growing:
                self._report(self._torn(position, size, stop))
            return size
        self._is_sound = False
        end = size if found is None else found
        self._report(self._damage(position, end, stop))
        return end

    def _may_be_torn(self) -> bool:
        around = self._around
        return around.next_base_offset is None and (
            around.durable_offset is None or self._last_offset + 1 >= around.durable_offset
        )

    def _is_unharmed(self, position: int, size: int) -> bool:
        """Return whether a whole batch with a valid checksum is there: no torn write."""
        head = self._records.file.pread(LOG_OVERHEAD, position)
        length = int.from_bytes(head[LENGTH_OFFSET:], "big", signed=True)
        if not MIN_LEGACY_LENGTH <= length <= size - position - LOG_OVERHEAD:
            return False
        return fits_checksum(self._records.file.pread(LOG_OVERHEAD + length, position))

    def _torn(self, position: int, size: int, stop: ScanStop) -> Finding:
        return Finding(
            kind=FindingKind.TORN_TAIL,
            path=self._records.path,
            what="the log ends in an incomplete batch",
            position=position,
            offset=self._last_offset + 1,
            got=f"{size - position} bytes: {_WHY.get(stop, 'wrong checksum')}",
            expected="whole batches",
        )

    def _damage(self, position: int, end: int, stop: ScanStop) -> Finding:
        if stop is ScanStop.END:
            return Finding(
                kind=FindingKind.BAD_CHECKSUM,
                path=self._records.path,
                what="a batch has a wrong checksum",
                position=position,
                offset=self._last_offset + 1,
                got=f"{end - position} unreadable bytes",
                expected="the batch as it was written",
            )
        head = self._records.file.pread(HEADER_SIZE_UP_TO_MAGIC, position)
        return Finding(
            kind=FindingKind.BAD_BATCH,
            path=self._records.path,
            what=_WHY[stop],
            position=position,
            offset=self._last_offset + 1,
            got=f"{end - position} bytes, beginning with {head.hex()}",
            expected="a whole, sound batch",
        )
