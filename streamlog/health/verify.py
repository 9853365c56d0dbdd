"""Verifies everything below a path: a log root, a partition's directory, or one file."""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Final

from streamlog.clock import Clock
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidRequestError,
    UnknownTopicError,
)
from streamlog.fs.api import FileKind, FileStat, FileSystem
from streamlog.fs.files import read_file, stat_directory
from streamlog.fs.log_root import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LogRoot,
)
from streamlog.health.contents import Content, KnownFile, identify
from streamlog.health.findings import Finding, FindingKind, Report, finding_of
from streamlog.health.log_file import LogWalk, Neighbours
from streamlog.health.partition import Circumstances, PartitionCheck
from streamlog.health.repeated import Repeated
from streamlog.health.state_files import StateFiles
from streamlog.partition.checkpoints import read_offsets, read_recovery_points
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.partition.partition_metadata import PARTITION_METADATA, read_topic_id
from streamlog.partition.producer_snapshot import MAX_SNAPSHOT_SIZE, decode_snapshot
from streamlog.partition.topic_config import (
    check_decompressed_bytes,
    readable_decompressed_bytes,
)
from streamlog.root.directories import Holding, holding_of
from streamlog.root.roots import is_log_dir, is_our_root
from streamlog.root.topics import find_partitions
from streamlog.segment.file_records import FileRecords
from streamlog.segment.filenames import (
    SegmentSuffix,
    parse_log_file_name,
    parse_segment_file_name,
)
from streamlog.store.urls import absolute
from streamlog.topic import PUT_ASIDE, TopicPartition, parse_partition_directory

__all__ = ["size_of_logs", "verify", "verify_state"]

OnProgress = Callable[[int], None]

_PADDED: Final = re.compile(r".+-0[0-9]+", re.ASCII)  # `orders-00`: no partition's number
_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


# ---- the files of a root beside its partitions ------------------------------------------------
class RootFiles:
    """The files of one log root, read before its partitions.

    Args:
        root: The log root.
        report: Called with each finding.

    Raises:
        StorageError: A file cannot be read.
    """

    def __init__(self, root: LogRoot, report: Report) -> None:
        self._root, self._fs, self._report = root, root.fs, report
        self._rows = {name: self._read(name) for name in _CHECKPOINTS}
        self._is_clean = root.fs.stat(root.clean_shutdown) is not None

    def _read(self, name: str) -> Mapping[TopicPartition, int]:
        path = self._root.checkpoint(name)
        try:
            return read_offsets(self._fs, path)
        except CorruptDataError as error:
            self._report(finding_of(error, FindingKind.CHECKPOINT, path))
            return {}

    def log_start_offset(self, partition: TopicPartition) -> int | None:
        """Return a partition's log start, None if it is unknown.

        After an unclean shutdown the checkpoint may be older than the log start.
        """
        known = self._rows[LOG_START_OFFSET_CHECKPOINT]
        return known.get(partition, 0) if self._is_clean else None

    def recovery_point(self, partition: TopicPartition) -> int | None:
        """Return a partition's recovery point, None if the checkpoint has none."""
        return self._rows[RECOVERY_POINT_CHECKPOINT].get(partition)

    # ---- what no partition needs -------------------------------------------------------------
    def check_root(self, partitions: Mapping[TopicPartition, str]) -> None:
        """Check the files of the root itself.

        Args:
            partitions: The directories of all partitions.
        """
        try:
            read_meta_properties(self._fs, self._root.path)
        except CorruptDataError as error:
            self._report(finding_of(error, FindingKind.METADATA, self._root.path))
        for name, rows in self._rows.items():
            for partition in rows:
                if partition not in partitions:
                    # Rows of a deleted topic stay until the file is written again.
                    what = f"{partition} does not exist"
                    is_note = not self._is_clean
                    self._report(
                        self._finding(name, what, None, "no directory", None, is_note=is_note)
                    )
        self._check_topic_ids(partitions)
        self._check_names(partitions)

    def _check_names(self, partitions: Mapping[TopicPartition, str]) -> None:
        """Report entries that are not read although they are named like partitions."""
        for name in self._fs.list(self._root.path):
            if name.endswith(PUT_ASIDE):
                self._report(
                    Finding(
                        kind=FindingKind.LEFTOVER,
                        path=f"{self._root.path}/{name}",
                        what="a broker has set this partition aside: its records are not read",
                        is_note=True,
                    )
                )
            named = parse_partition_directory(name)
            is_twin = named is None and _PADDED.fullmatch(name) is not None
            if not (is_twin or (named is not None and named not in partitions)):
                continue
            found = holding_of(self._fs, f"{self._root.path}/{name}")
            if found is Holding.NOTHING:
                continue
            if found is Holding.STRANGE:
                self._report(
                    Finding(
                        kind=FindingKind.FOREIGN_FILE,
                        path=f"{self._root.path}/{name}",
                        what="named like a partition but holds no log: ignored",
                        is_note=True,
                    )
                )
            elif is_twin or found is Holding.NO_DIRECTORY:
                self._report(
                    Finding(
                        kind=FindingKind.FOREIGN_FILE,
                        path=f"{self._root.path}/{name}",
                        what="named like a partition but is not one: it is not read",
                        got=f"{found.value} named {name}",
                        expected="a directory named TOPIC-PARTITION, without leading zeros",
                    )
                )

    def _check_topic_ids(self, partitions: Mapping[TopicPartition, str]) -> None:
        known: dict[str, str] = {}
        for partition, directory in sorted(partitions.items()):
            try:
                topic_id = read_topic_id(self._fs, directory)
            except CorruptDataError:
                continue  # reported with the partition
            if topic_id is None:
                continue
            expected = known.setdefault(partition.topic, topic_id)
            if topic_id != expected:
                self._report(
                    Finding(
                        kind=FindingKind.METADATA,
                        path=f"{directory}/{PARTITION_METADATA}",
                        what="partitions of one topic have different topic ids",
                        got=topic_id,
                        expected=expected,
                    )
                )

    # ---- checkpoints of one partition --------------------------------------------------------
    def check_partition(self, partition: TopicPartition, next_offset: int, report: Report) -> None:
        """Compare the checkpoints of a partition with its log end.

        The recovery point is checked with the log itself. Checkpoints may lag because they are
        written at intervals.

        Args:
            partition: The partition.
            next_offset: Its log end offset.
            report: Called with each finding.
        """
        for name in (
            LOG_START_OFFSET_CHECKPOINT,
            HIGH_WATERMARK_CHECKPOINT,
            CLEANER_OFFSET_CHECKPOINT,
        ):
            offset = self._rows[name].get(partition)
            if offset is not None and offset > next_offset:
                what = f"{partition} ends before that offset"
                expected = f"at most {next_offset}"
                report(self._finding(name, what, offset, offset, expected, is_note=False))

    def _finding(
        self,
        name: str,
        what: str,
        offset: int | None,
        got: object,
        expected: object,
        *,
        is_note: bool,
    ) -> Finding:
        return Finding(
            kind=FindingKind.CHECKPOINT,
            path=f"{self._root.path}/{name}",
            what=what,
            offset=offset,
            got=got,
            expected=expected,
            is_note=is_note,
        )


# ---- everything below a path ------------------------------------------------------------------
def verify(
    fs: FileSystem,
    path: str,
    report: Report,
    *,
    is_deep: bool = False,
    max_decompressed_bytes: int | None = None,
    on_progress: OnProgress = lambda size: None,
    clock: Clock | None = None,
) -> None:
    """Check everything below a path, read-only and without a lock.

    Findings that running writers may cause are checked again, see `streamlog.health.repeated`.

    Args:
        fs: The file system of the path.
        path: A log root, a partition's directory, or a file in one of them.
        report: Called with each finding.
        is_deep: Whether to decode every record as well.
        max_decompressed_bytes: The maximum decompressed size of a batch; None: the topic's.
        on_progress: Called with numbers of bytes of log files checked.
        clock: Measures the time between checks; the system's by default.

    Raises:
        UnknownTopicError: The path does not exist.
        InvalidRequestError: An unknown kind of file, or a directory without a log.
        StorageError: The path cannot be read.
    """
    if max_decompressed_bytes is not None:
        check_decompressed_bytes(max_decompressed_bytes)
    path = absolute(path)
    found = _stat(fs, path)
    if found is None:
        raise UnknownTopicError("no such file or directory", path=path)
    if found.kind is FileKind.FILE:
        root = LogRoot.at(os.path.dirname(os.path.dirname(path)), fs=fs, clock=clock)
        Repeated(root, report).report(
            _once_with_progress(
                lambda report_one, progress: _verify_file(
                    root,
                    path,
                    report_one,
                    is_deep=is_deep,
                    limit=max_decompressed_bytes,
                    on_progress=progress,
                ),
                on_progress,
            ),
            path,
        )
        return
    partitions = _partitions_at(fs, path)
    is_partition = list(partitions.values()) == [path]
    root = LogRoot.at(os.path.dirname(path) if is_partition else path, fs=fs, clock=clock)
    repeated = Repeated(root, report)
    if not partitions:
        _check_log_dir(fs, root.path)
    if not is_partition:
        repeated.report(lambda: _check_root(root, is_deep=is_deep), root.path)
    known = RootFiles(root, lambda _: None)
    for partition, directory in partitions.items():
        look = _PartitionLook(root, partition, directory, known, is_deep=is_deep)
        look.is_alone, look.limit = is_partition, max_decompressed_bytes
        repeated.report(_once_with_progress(look, on_progress), directory)


def _check_log_dir(fs: FileSystem, path: str) -> None:
    """Refuse a directory that holds no log, which would pass as sound.

    Raises:
        InvalidRequestError: It is neither a log root nor a broker's log.dir.
    """
    if not is_log_dir(fs, path):
        raise InvalidRequestError(
            "nothing to verify: the directory holds no log",
            path=path,
            got="a directory without a partition",
            expected="a log root, a broker's log.dir, a partition's directory, or a file of one",
            hint=f"list the directory: ls -la {shlex.quote(path)}",
        )


class _PartitionLook:
    """Checks one partition; from the second call on with checkpoints that are read again."""

    def __init__(
        self,
        root: LogRoot,
        partition: TopicPartition,
        directory: str,
        known: RootFiles,
        *,
        is_deep: bool,
    ) -> None:
        self._root, self._fs, self._is_deep = root, root.fs, is_deep
        self._partition, self._directory = partition, directory
        self._known: RootFiles | None = known
        self.is_alone = False
        self.limit: int | None = None

    def __call__(self, report: Report, progress: OnProgress) -> None:
        files = self._known or RootFiles(self._root, lambda _: None)
        self._known = None
        around = Circumstances(
            log_start_offset=files.log_start_offset(self._partition),
            durable_offset=files.recovery_point(self._partition),
            is_live=self._fs.broker_lock_is_held(self._root.broker_lock),
            is_deep=self._is_deep,
            max_decompressed=self.limit
            or readable_decompressed_bytes(self._root, self._partition.topic),
        )
        next_offset = PartitionCheck(self._fs, self._directory, around, report, progress).run()
        if not self.is_alone:
            files.check_partition(self._partition, next_offset, report)


def _partitions_at(fs: FileSystem, path: str) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic, number): directory
        for topic, numbers in find_partitions(fs, path).items()
        for number, directory in numbers.items()
    }


def _check_root(root: LogRoot, *, is_deep: bool) -> list[Finding]:
    found: list[Finding] = []
    RootFiles(root, found.append).check_root(_partitions_at(root.fs, root.path))
    if is_our_root(root):
        verify_state(root, found.append, is_deep=is_deep)
    return found


def _once_with_progress(
    look: Callable[[Report, OnProgress], None], on_progress: OnProgress
) -> Callable[[], list[Finding]]:
    """Return a check that reports progress the first time only: bytes count once."""
    progress = [on_progress]

    def looked() -> list[Finding]:
        found: list[Finding] = []
        look(found.append, progress.pop() if progress else (lambda size: None))
        return found

    return looked


def verify_state(root: LogRoot, report: Report, *, is_deep: bool) -> None:
    """Check the files below `.streamlog` of a root that streamlog made.

    Args:
        root: The log root.
        report: Called with each finding.
        is_deep: Whether to read staged rows that are not yet applied as well.

    Raises:
        StorageError: A directory cannot be read.
    """
    try:
        durable = read_recovery_points(root)
    except CorruptDataError:  # reported with the root's files
        durable = {}
    StateFiles(root, report, is_deep=is_deep, durable=durable).run()


def _stat(fs: FileSystem, path: str) -> FileStat | None:
    """Return the stat of a path; links are followed only to directories."""
    found = fs.stat(path)
    return found if parse_segment_file_name(os.path.basename(path)) else stat_directory(fs, path)


# ---- one file -------------------------------------------------------------------------------
def _verify_file(
    root: LogRoot,
    path: str,
    report: Report,
    *,
    is_deep: bool,
    limit: int | None,
    on_progress: OnProgress,
) -> None:
    fs = root.fs
    known = identify(path)
    directory = os.path.dirname(path)
    if known is not None and known.kind in _PARSERS:
        kind, parse = _PARSERS[known.kind]
        try:
            parse(fs, path)
        except CorruptDataError as error:
            report(finding_of(error, kind, path))
        return
    parsed = parse_segment_file_name(os.path.basename(path))
    partition = parse_partition_directory(os.path.basename(directory))
    topic = "" if partition is None else partition.topic
    limit = limit or readable_decompressed_bytes(root, topic)
    is_live_name = parsed is not None and parsed.suffix is SegmentSuffix.NONE
    if known is not None and known.kind is Content.LOG and not is_live_name:
        _verify_log_alone(
            fs, path, known, report, is_deep=is_deep, limit=limit, on_progress=on_progress
        )
        return
    if parsed is None or not is_live_name:
        raise InvalidRequestError(
            "not a file of a partition or a log root",
            path=path,
            expected="a segment, an index, a snapshot, a checkpoint or a metadata file",
            hint="streamlog verify DIRECTORY",
        )
    is_live = fs.broker_lock_is_held(root.broker_lock)
    around = Circumstances(is_live=is_live, is_deep=is_deep, max_decompressed=limit)

    def report_own(finding: Finding) -> None:
        if finding.path == path:
            report(finding)

    check = PartitionCheck(fs, directory, around, report_own, on_progress)
    check.run_segment(parsed.base_offset)


def _verify_log_alone(
    fs: FileSystem,
    path: str,
    known: KnownFile,
    report: Report,
    *,
    is_deep: bool,
    limit: int,
    on_progress: OnProgress,
) -> None:
    """Check batches outside live segments: of deleted segments, or of a metadata snapshot."""
    records = FileRecords(fs, path, writable=False)
    is_segment = known.base_offset is not None and known.epoch is None
    base_offset = (known.base_offset or 0) if is_segment else 0
    around = Neighbours(base_offset=base_offset, previous_offset=base_offset - 1)
    walk = LogWalk(records, around, report, is_deep=is_deep, max_decompressed=limit)
    try:
        walk.run(lambda run: None, on_progress)
    finally:
        records.close()


def _decode_snapshot(fs: FileSystem, path: str) -> object:
    return decode_snapshot(read_file(fs, path, max_size=MAX_SNAPSHOT_SIZE), path)


def _load_epochs(fs: FileSystem, path: str) -> object:
    return LeaderEpochCache.load(fs, os.path.dirname(path))


def _read_topic_id(fs: FileSystem, path: str) -> object:
    return read_topic_id(fs, os.path.dirname(path))


def _read_meta_properties(fs: FileSystem, path: str) -> object:
    return read_meta_properties(fs, os.path.dirname(path))


_PARSERS: Final[dict[Content, tuple[FindingKind, Callable[[FileSystem, str], object]]]] = {
    Content.PRODUCER_SNAPSHOT: (FindingKind.SNAPSHOT, _decode_snapshot),
    Content.OFFSETS: (FindingKind.CHECKPOINT, read_offsets),
    Content.LEADER_EPOCHS: (FindingKind.EPOCHS, _load_epochs),
    Content.PARTITION_METADATA: (FindingKind.METADATA, _read_topic_id),
    Content.META_PROPERTIES: (FindingKind.METADATA, _read_meta_properties),
}


# ---- progress -------------------------------------------------------------------------------
def size_of_logs(fs: FileSystem, path: str) -> int:
    """Return the bytes of log files that `verify` checks below a path.

    Raises:
        StreamLogError: As `verify`.
    """
    path = os.path.abspath(path)
    found = _stat(fs, path)
    if found is None:
        return 0
    if found.kind is FileKind.FILE:
        return found.size
    directories = [
        each for numbers in find_partitions(fs, path).values() for each in numbers.values()
    ]
    sizes = (
        fs.stat(f"{directory}/{name}")
        for directory in directories
        for name in _names_in(fs, directory)
        if parse_log_file_name(name) is not None
    )
    return sum(found.size for found in sizes if found is not None)


def _names_in(fs: FileSystem, directory: str) -> list[str]:
    try:
        return fs.list(directory)
    except FileMissingError:
        return []  # deleted since the directory was listed
