"""Checks one partition: every file of its directory, and whether the files fit each other."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    LimitExceededError,
    StorageError,
)
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.files import read_file
from streamlog.health.findings import Finding, FindingKind, Report, finding_of
from streamlog.health.index_files import OffsetIndexCheck, TimeIndexCheck
from streamlog.health.log_file import LogEnd, LogWalk, Neighbours, Run
from streamlog.health.replayed_files import EpochsCheck, ProducersCheck
from streamlog.partition.epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochCache
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.partition.producer_snapshot import MAX_SNAPSHOT_SIZE, decode_snapshot
from streamlog.partition.producer_state import ProducerState
from streamlog.segment.file_records import FileRecords
from streamlog.segment.filenames import (
    KEPT_ASIDE,
    FileSuffix,
    SegmentFileName,
    SegmentSuffix,
    parse_segment_file_name,
    segment_file_name,
)
from streamlog.segment.index_entries import (
    MAX_INDEX_FILE,
    TxnEntry,
    offset_entries,
    time_entries,
    txn_entries,
)

__all__ = ["Circumstances", "PartitionCheck"]

_INDEXES: Final = (FileSuffix.OFFSET_INDEX, FileSuffix.TIME_INDEX, FileSuffix.TXN_INDEX)
_UNFINISHED: Final = (SegmentSuffix.CLEANED, SegmentSuffix.SWAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Facts about a partition from outside its directory.

    Attributes:
        log_start_offset: The first offset that may be read; None: unknown.
        durable_offset: The recovery point; None: unknown.
        is_live: Whether another process may be writing to the partition.
        is_deep: Whether to decode every record.
        max_decompressed: The maximum decompressed size of a batch, in bytes.
    """

    log_start_offset: int | None = None
    durable_offset: int | None = None
    is_live: bool = False
    is_deep: bool = False
    max_decompressed: int


def _end_before(base: int) -> LogEnd:
    """Return the state of a walk before the segment of this base offset."""
    return LogEnd(base - 1, -1, -1, 0, 0, is_sound=True)


class _Gone(Exception):  # noqa: N818 - no error: a live log has dropped a file
    """A file was deleted during the check."""


class PartitionCheck:
    """Checks one partition's directory, read-only.

    Args:
        fs: The file system of the partition.
        directory: Its path.
        around: Facts from outside the directory.
        report: Called with each finding.
        on_progress: Called with numbers of bytes checked.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        around: Circumstances,
        report: Report,
        on_progress: Callable[[int], None],
    ) -> None:
        self._fs, self._directory, self._around = fs, directory, around
        self._report, self._on_progress = report, on_progress
        self._names = fs.list(directory)
        parsed = (parse_segment_file_name(name) for name in self._names)
        self._files = {file for file in parsed if file is not None}
        self._bases = sorted(
            file.base_offset for file in self._files if self._is(file, FileSuffix.LOG)
        )

    def run(self) -> int:
        """Check all files.

        Returns:
            The log end offset, as far as the log is sound.

        Raises:
            StorageError: The directory or a file cannot be read.
        """
        self._check_names()
        self._check_metadata()
        producers = ProducersCheck(self._read_snapshots(), self._directory, self._report)
        epochs = EpochsCheck()
        end = _end_before(self._bases[0] if self._bases else 0)
        for at, base in enumerate(self._bases):
            following = self._bases[at + 1] if at + 1 < len(self._bases) else None
            try:
                end = self._check_segment(base, following, end, producers, epochs)
            except _Gone:
                continue
        next_offset = self._next_offset(end)
        producers.finish(next_offset)
        self._check_snapshots_exist(producers)
        self._note_deleted()
        self._note_kept()
        self._finish_epochs(epochs, end, next_offset)
        self._check_durable(next_offset)
        return next_offset

    def run_segment(self, base: int) -> None:
        """Check one segment, log and indexes, without the context of the other segments.

        Args:
            base: Its base offset; an index may be its only file.

        Raises:
            StorageError: A file cannot be read.
        """
        if base not in self._bases:
            for name in self._names:
                file = parse_segment_file_name(name)
                if file is not None and file.base_offset == base:
                    self._check_leftover(name, file)
            return
        at = self._bases.index(base)
        following = self._bases[at + 1] if at + 1 < len(self._bases) else None
        producers = ProducersCheck({}, self._directory, self._report)
        with contextlib.suppress(_Gone):
            self._check_segment(base, following, _end_before(base), producers, EpochsCheck())

    def _next_offset(self, end: LogEnd) -> int:
        last_base = self._bases[-1] if self._bases else 0
        return max(end.last_offset + 1, last_base)

    def _check_durable(self, next_offset: int) -> None:
        durable = self._around.durable_offset
        if not self._bases:
            next_offset = self._around.log_start_offset or 0
        if durable is not None and next_offset < durable:
            base = self._bases[-1] if self._bases else next_offset
            self._add(
                FindingKind.LOST_RECORDS,
                segment_file_name(base, FileSuffix.LOG),
                "synced records are missing",
                offset=next_offset,
                last_offset=durable - 1,
                got=f"a log end of {next_offset}",
                expected=f"at least {durable}, the recovery point",
            )

    # ---- names -------------------------------------------------------------------------------
    def _check_names(self) -> None:
        for name in self._names:
            file = parse_segment_file_name(name)
            if file is None:
                if name.endswith(".log"):
                    self._add(
                        FindingKind.FOREIGN_FILE,
                        name,
                        "a file is named like a segment but is not one: Kafka would not start",
                        got=name,
                        expected="20 digits and .log",
                    )
                continue
            found = self._fs.stat(f"{self._directory}/{name}")
            if found is not None and found.kind is not FileKind.FILE:
                self._add(
                    FindingKind.FOREIGN_FILE,
                    name,
                    "a segment file is not a regular file",
                    got=found.kind.value,
                    expected="a regular file",
                )
                self._files.discard(file)
                if file.base_offset in self._bases and self._is(file, FileSuffix.LOG):
                    self._bases.remove(file.base_offset)
            elif not self._around.is_live:
                self._check_leftover(name, file)

    def _check_leftover(self, name: str, file: SegmentFileName) -> None:
        if file.suffix in _UNFINISHED:
            what = "compaction left an unfinished file"
        elif file.suffix is SegmentSuffix.NONE and file.kind in _INDEXES:
            if file._replace(kind=FileSuffix.LOG) in self._files:
                return
            what = "an index has no segment"
        else:
            return
        self._add(FindingKind.LEFTOVER, name, what, offset=file.base_offset)

    def _note_deleted(self) -> None:
        waiting = [file for file in self._files if file.suffix is SegmentSuffix.DELETED]
        if waiting:
            self._report(
                Finding(
                    kind=FindingKind.LEFTOVER,
                    path=self._directory,
                    what="files are waiting for removal",
                    got=f"{len(waiting)} files that end in {SegmentSuffix.DELETED.value}",
                    count=len(waiting),
                    is_note=True,
                )
            )

    def _note_kept(self) -> None:
        """Report bytes that a recovery or a repair has removed from the log and kept in a file."""
        for name in self._names:
            if KEPT_ASIDE.search(name):
                path = f"{self._directory}/{name}"
                found = self._fs.stat(path)
                self._report(
                    Finding(
                        kind=FindingKind.LEFTOVER,
                        path=path,
                        what="bytes removed from the log are kept here until you delete the file",
                        got=f"{0 if found is None else found.size} bytes",
                        is_note=True,
                    )
                )

    def _is(self, file: SegmentFileName, kind: FileSuffix) -> bool:
        return file.kind is kind and file.suffix is SegmentSuffix.NONE

    # ---- one file a partition ----------------------------------------------------------------
    def _check_metadata(self) -> None:
        try:
            read_topic_id(self._fs, self._directory)
        except CorruptDataError as error:
            self._report(finding_of(error, FindingKind.METADATA, self._directory))

    def _finish_epochs(self, check: EpochsCheck, end: LogEnd, next_offset: int) -> None:
        """Check the epochs; their file is read after the batches as it is written before them."""
        path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
        if LEADER_EPOCH_CHECKPOINT not in self._names:
            if check.has_epochs and not self._is_bare():
                what = "batches carry leader epochs, but the file of leader epochs is missing"
                self._add(FindingKind.MISSING_FILE, LEADER_EPOCH_CHECKPOINT, what)
            return
        try:
            epochs = LeaderEpochCache.load(self._fs, self._directory)
        except CorruptDataError as error:
            self._report(finding_of(error, FindingKind.EPOCHS, path))
            return
        check.finish(
            path,
            epochs,
            self._report,
            log_start_offset=self._around.log_start_offset,
            next_offset=None if self._has_grown(end) else next_offset,
        )

    def _has_grown(self, end: LogEnd) -> bool:
        """Return whether the last segment has grown since its walk began."""
        if not self._bases:
            return False
        found = self._fs.stat(self._path(self._bases[-1], FileSuffix.LOG))
        return found is None or found.size != end.size

    def _read_snapshots(self) -> dict[int, list[ProducerState]]:
        states = {}
        for file in sorted(self._files, key=lambda file: file.base_offset):
            if not self._is(file, FileSuffix.PRODUCER_SNAPSHOT):
                continue
            path = f"{self._directory}/{segment_file_name(*file)}"
            try:
                data = read_file(self._fs, path, max_size=MAX_SNAPSHOT_SIZE)
                states[file.base_offset] = decode_snapshot(data, path)
            except CorruptDataError as error:
                self._report(finding_of(error, FindingKind.SNAPSHOT, path))
            except FileMissingError:
                continue  # its writer has deleted it since the listing
        return states

    def _check_snapshots_exist(self, producers: ProducersCheck) -> None:
        """Report that there is no snapshot at all, although each roll writes one."""
        kind = FileSuffix.PRODUCER_SNAPSHOT
        if len(self._bases) < 2 or self._is_bare() or not producers.has_producers:
            return
        if not any(self._is(file, kind) for file in self._files):
            what = "idempotent producers wrote here, but there is no producer snapshot"
            self._add(FindingKind.MISSING_FILE, segment_file_name(self._bases[-1], kind), what)

    def _is_bare(self) -> bool:
        """Return whether there is no index at all: a copy of the log files only."""
        return not any(self._is(file, FileSuffix.OFFSET_INDEX) for file in self._files)

    # ---- segments ----------------------------------------------------------------------------
    def _check_segment(
        self,
        base: int,
        following: int | None,
        before: LogEnd,
        producers: ProducersCheck,
        epochs: EpochsCheck,
    ) -> LogEnd:
        index_checks = self._index_checks(base, is_sealed=following is not None)
        aborted = self._txn_entries(base)

        def on_run(run: Run) -> None:
            for check in (*index_checks, producers, epochs):
                check.feed(run)

        try:
            end = self._walk(base, following, before, on_run)
        except FileMissingError as error:
            raise _Gone from error
        except LimitExceededError as error:
            path = self._path(base, FileSuffix.LOG)
            self._report(finding_of(error, FindingKind.UNREADABLE, path))
            return before._replace(is_sound=False)
        for check in index_checks:
            check.finish(end)
        producers.finish_segment(
            self._path(base, FileSuffix.TXN_INDEX),
            aborted,
            end,
            is_growing=following is None and self._has_grown(end),
        )
        return end

    def _walk(
        self, base: int, following: int | None, before: LogEnd, on_run: Callable[[Run], None]
    ) -> LogEnd:
        around = self._around
        records = FileRecords(self._fs, self._path(base, FileSuffix.LOG), writable=False)
        neighbours = Neighbours(
            base_offset=base,
            next_base_offset=following,
            previous_offset=before.last_offset,
            previous_epoch=before.leader_epoch,
            durable_offset=around.durable_offset,
            is_live=around.is_live,
        )
        walk = LogWalk(
            records,
            neighbours,
            self._report,
            is_deep=around.is_deep,
            max_decompressed=around.max_decompressed,
        )
        try:
            return walk.run(on_run, self._on_progress)
        finally:
            records.close()

    def _index_checks(
        self, base: int, *, is_sealed: bool
    ) -> list[OffsetIndexCheck | TimeIndexCheck]:
        """Read the sparse indexes before the log because they are written after it."""
        checks: list[OffsetIndexCheck | TimeIndexCheck] = []
        found = self._fs.stat(self._path(base, FileSuffix.LOG))
        is_wanted = is_sealed and found is not None and found.size > 0
        data = self._index_data(base, FileSuffix.OFFSET_INDEX, is_wanted=is_wanted)
        if data is not None:
            path, entries = self._path(base, FileSuffix.OFFSET_INDEX), offset_entries(data, base)
            checks.append(OffsetIndexCheck(path, entries, base, self._report))
        data = self._index_data(base, FileSuffix.TIME_INDEX, is_wanted=is_wanted)
        if data is not None:
            path, times = self._path(base, FileSuffix.TIME_INDEX), time_entries(data, base)
            checks.append(TimeIndexCheck(path, times, base, self._report, is_sealed=is_sealed))
        return checks

    def _txn_entries(self, base: int) -> list[TxnEntry]:
        data = self._index_data(base, FileSuffix.TXN_INDEX, is_wanted=False) or b""
        entries, rest = txn_entries(data)
        if rest:
            self._report(
                Finding(
                    kind=FindingKind.TXN_INDEX,
                    path=self._path(base, FileSuffix.TXN_INDEX),
                    what="transaction index: length is not a multiple of 34",
                    position=len(data) - rest,
                    got=f"{rest} extra bytes",
                )
            )
        return entries

    def _index_data(self, base: int, kind: FileSuffix, *, is_wanted: bool) -> bytes | None:
        """Return an index file's bytes, None without such a file.

        A wanted index is reported as missing only if other segments have one: a directory without
        any is a copy of the log files, or older than that kind of index.
        """
        if SegmentFileName(base, kind, SegmentSuffix.NONE) not in self._files:
            if is_wanted and any(self._is(file, kind) for file in self._files):
                what = f"a segment has no {kind.value} file"
                self._add(
                    FindingKind.MISSING_FILE, segment_file_name(base, kind), what, offset=base
                )
            return None
        path = self._path(base, kind)
        try:
            return read_file(self._fs, path, max_size=MAX_INDEX_FILE)
        except FileMissingError:
            return None
        except (CorruptDataError, StorageError) as error:
            self._report(finding_of(error, FindingKind.UNREADABLE, path))
        return None

    def _path(self, base: int, kind: FileSuffix) -> str:
        return f"{self._directory}/{segment_file_name(base, kind)}"

    def _add(
        self,
        kind: FindingKind,
        name: str,
        what: str,
        *,
        offset: int | None = None,
        last_offset: int | None = None,
        got: object = None,
        expected: object = None,
    ) -> None:
        self._report(
            Finding(
                kind=kind,
                path=f"{self._directory}/{name}",
                what=what,
                offset=offset,
                last_offset=last_offset,
                got=got,
                expected=expected,
            )
        )
