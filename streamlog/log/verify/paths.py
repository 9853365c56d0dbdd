"""What a path names, looked at whole: a log root, a partition's directory, one file."""

import os
from collections.abc import Callable
from typing import Final

from streamlog.errors import CorruptDataError, InvalidRequestError, UnknownTopicError
from streamlog.fs.api import FileKind, FileStat, FileSystem
from streamlog.fs.files import read_file
from streamlog.log.checkpoints import read_offsets, read_recovery_points
from streamlog.log.contents import Content, KnownFile, identify
from streamlog.log.directories import stat_directory
from streamlog.log.epochs import LeaderEpochCache
from streamlog.log.locks import broker_lock_path
from streamlog.log.meta_properties import read_meta_properties
from streamlog.log.partition_metadata import read_topic_id
from streamlog.log.producer_snapshot import MAX_SNAPSHOT_SIZE, decode_snapshot
from streamlog.log.roots import is_our_root
from streamlog.log.topics import (
    check_decompressed_bytes,
    find_partitions,
    readable_decompressed_bytes,
)
from streamlog.log.verify.checkpoints import RootFiles
from streamlog.log.verify.findings import Finding, FindingKind, Report, finding_of
from streamlog.log.verify.log_file import LogWalk, Neighbours
from streamlog.log.verify.partition import Circumstances, PartitionCheck
from streamlog.log.verify.state_files import StateFiles
from streamlog.segment.file_records import FileRecords
from streamlog.segment.filenames import (
    SegmentSuffix,
    parse_log_file_name,
    parse_segment_file_name,
)
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = ["size_of_logs", "verify", "verify_state"]

_ATTEMPTS: Final = 3  # at a directory that a running broker changes meanwhile

OnProgress = Callable[[int], None]


def verify(
    fs: FileSystem,
    path: str,
    report: Report,
    *,
    is_deep: bool = False,
    max_decompressed_bytes: int | None = None,
    on_progress: OnProgress = lambda size: None,
) -> None:
    """Look at everything that a path names; nothing is created, locked or changed.

    Args:
        fs: Where it lies.
        path: A log root, a partition's directory, or a file of one of them.
        report: Called with each finding.
        is_deep: Whether to decode every record, too.
        max_decompressed_bytes: The most bytes that one batch may decompress to; None: what its
            topic says.
        on_progress: Called with numbers of bytes of log files that were looked at.

    Raises:
        UnknownTopicError: There is nothing.
        InvalidRequestError: A file of no kind that is known.
        StorageError: It cannot be read.
    """
    if max_decompressed_bytes is not None:
        check_decompressed_bytes(max_decompressed_bytes)
    path = os.path.abspath(path)
    found = _stat(fs, path)
    if found is None:
        raise UnknownTopicError("there is no such file or directory", path=path)
    if found.kind is FileKind.FILE:
        limit = max_decompressed_bytes
        _verify_file(fs, path, report, is_deep=is_deep, limit=limit, on_progress=on_progress)
        return
    by_topic = find_partitions(fs, path)
    partitions = {
        TopicPartition(topic, number): directory
        for topic, numbers in by_topic.items()
        for number, directory in numbers.items()
    }
    is_partition = list(partitions.values()) == [path]
    root = os.path.dirname(path) if is_partition else path
    files = RootFiles(fs, root, (lambda _: None) if is_partition else report)
    if not is_partition:
        files.check_root(partitions)
        if is_our_root(fs, root):
            verify_state(fs, root, report, is_deep=is_deep)
    for partition, directory in partitions.items():
        around = Circumstances(
            log_start_offset=files.log_start_offset(partition),
            durable_offset=files.recovery_point(partition),
            is_live=fs.broker_lock_is_held(broker_lock_path(root)),
            is_deep=is_deep,
            max_decompressed=max_decompressed_bytes
            or readable_decompressed_bytes(fs, root, partition.topic),
        )
        next_offset = _verify_partition(fs, directory, around, report, on_progress)
        if not is_partition:
            files.check_partition(partition, next_offset)


def verify_state(fs: FileSystem, root: str, report: Report, *, is_deep: bool) -> None:
    """Look at what lies below `.streamlog` of a root that streamlog made.

    Args:
        fs: Where it lies.
        root: The log root.
        report: Called with each finding.
        is_deep: Whether to read rows that are staged and not yet applied, too.

    Raises:
        StorageError: It cannot be read.
    """
    try:
        durable = read_recovery_points(fs, root)
    except CorruptDataError:  # told with the root's files
        durable = {}
    StateFiles(fs, root, report, is_deep=is_deep, durable=durable).run()


def _stat(fs: FileSystem, path: str) -> FileStat | None:
    """Return facts about what is to be looked at; links to directories alone are followed."""
    found = fs.stat(path)
    return found if parse_segment_file_name(os.path.basename(path)) else stat_directory(fs, path)


def _verify_partition(
    fs: FileSystem,
    directory: str,
    around: Circumstances,
    report: Report,
    on_progress: OnProgress,
) -> int:
    """Look at a partition; again, where a running broker changed its files meanwhile."""
    for attempt in range(_ATTEMPTS):
        names = fs.list(directory)
        findings: list[Finding] = []
        next_offset = PartitionCheck(fs, directory, around, findings.append, on_progress).run()
        is_last = attempt == _ATTEMPTS - 1
        if is_last or not findings or not around.is_live or fs.list(directory) == names:
            break
    for finding in findings:
        report(finding)
    return next_offset


# ---- one file -------------------------------------------------------------------------------
def _verify_file(
    fs: FileSystem,
    path: str,
    report: Report,
    *,
    is_deep: bool,
    limit: int | None,
    on_progress: OnProgress,
) -> None:
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
    limit = limit or readable_decompressed_bytes(fs, os.path.dirname(directory), topic)
    is_live_name = parsed is not None and parsed.suffix is SegmentSuffix.NONE
    if known is not None and known.kind is Content.LOG and not is_live_name:
        _verify_log_alone(
            fs, path, known, report, is_deep=is_deep, limit=limit, on_progress=on_progress
        )
        return
    if parsed is None or not is_live_name:
        raise InvalidRequestError(
            "this is no file of a partition or a log root",
            path=path,
            expected="a segment, an index, a snapshot, a checkpoint or a metadata file",
            hint="streamlog verify DIRECTORY",
        )
    root = os.path.dirname(directory)
    is_live = fs.broker_lock_is_held(broker_lock_path(root))
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
    """Look at batches that are no live segment's: on their way out, or a metadata snapshot's."""
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


# ---- how much there is to do ----------------------------------------------------------------
def size_of_logs(fs: FileSystem, path: str) -> int:
    """Return how many bytes of log files `verify` is going to look at below a path.

    Raises:
        StreamLogError: As `verify` does.
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
        for name in fs.list(directory)
        if parse_log_file_name(name) is not None
    )
    return sum(found.size for found in sizes if found is not None)
