"""The checkpoint files of a log root: one offset for each partition.

    recovery-point-offset-checkpoint    records below it are synced
    log-start-offset-checkpoint         the first readable offset, if the first segment has more
    replication-offset-checkpoint       the high watermark
    cleaner-offset-checkpoint           the first offset that compaction has not processed

The format is Kafka's, plain text:

    0                    version
    2                    number of rows that follow
    orders 0 141         topic, partition, offset, separated by white space
    orders 1 77

An empty file, or one with only the version, has no rows.

All writers of a root share the files. A writer changes the rows of its own partitions and keeps
the others, under the lock `.streamlog/locks/root`, and replaces the file as a whole. A partition
without a row is unknown, never zero.

A file that cannot be parsed is treated as missing, as in Kafka, with a warning: its contents can
be rebuilt from the logs at the price of a scan. The next update keeps the bad file as
`NAME.corrupt`.
"""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from streamlog.errors import CorruptCheckpointError, FileMissingError, LimitExceededError
from streamlog.fs.api import FileStat, FileSystem
from streamlog.fs.files import locked, read_file, write_file_atomically
from streamlog.fs.log_root import (
    CHECKPOINTS,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LogRoot,
)
from streamlog.topic import MAX_PARTITION, TopicPartition, parse_partition_directory

__all__ = [
    "MAX_CHECKPOINT_SIZE",
    "Written",
    "format_checkpoint",
    "parse_checkpoint",
    "parse_number",
    "read_cleaner_offsets",
    "read_high_watermarks",
    "read_log_start_offsets",
    "read_offsets",
    "read_recovery_points",
    "remove_partition",
    "remove_topic",
    "root_locked",
    "update_offsets",
    "write_cleaner_offsets",
    "write_high_watermarks",
    "write_log_start_offsets",
    "write_recovery_points",
]

CHECKPOINT_VERSION: Final = 0  # OffsetCheckpointFile, LeaderEpochCheckpointFile: CURRENT_VERSION
MAX_CHECKPOINT_SIZE: Final = 64 << 20  # 200,000 partitions with the longest names

_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_MAX_INT64: Final = 2**63 - 1


def parse_checkpoint(data: bytes, path: str, *, columns: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the rows of a checkpoint file.

    Args:
        data: The whole file.
        path: Where it comes from, for errors.
        columns: How many words a row has.

    Yields:
        The number of the line, from 1, and its words.

    Raises:
        CorruptCheckpointError: Another version, another number of rows than announced, or a
            row of another shape.

    Source: org.apache.kafka.server.common.CheckpointFile.read.
    """
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if not lines:
        return
    version = parse_number(lines[0], path, 1)
    if version != CHECKPOINT_VERSION:
        raise CorruptCheckpointError(
            "checkpoint file has another version", path=path, got=version, expected="0"
        )
    rows = lines[2:]
    announced = parse_number(lines[1], path, 2) if len(lines) > 1 else 0
    if announced != len(rows):
        raise CorruptCheckpointError(
            "checkpoint file has another number of rows than it says",
            path=path,
            got=len(rows),
            expected=announced,
        )
    for number, row in enumerate(rows, start=3):
        words = row.split()
        if len(words) != columns:
            raise CorruptCheckpointError(
                "malformed row in a checkpoint file",
                path=path,
                got=f"{len(words)} words in line {number}",
                expected=columns,
            )
        yield number, words


def parse_number(word: bytes, path: str, line: int, *, limit: int = _MAX_INT64) -> int:
    """Return the number that `word` writes in canonical decimal.

    Raises:
        CorruptCheckpointError: Anything else than 0 to `limit`.
    """
    if not _NUMBER.fullmatch(word) or int(word) > limit:
        shown = word[:40].decode("ascii", "backslashreplace")
        raise CorruptCheckpointError(
            "not a number in a checkpoint file",
            path=path,
            got=f"{shown!r} in line {line}",
            expected=f"0 to {limit}",
        )
    return int(word)


def format_checkpoint(rows: Iterable[str]) -> bytes:
    """Return the bytes of a checkpoint file with these rows.

    Source: org.apache.kafka.server.common.CheckpointFile.write.
    """
    listed = list(rows)
    lines = [str(CHECKPOINT_VERSION), str(len(listed)), *listed]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


_logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


@contextlib.contextmanager
def root_locked(root: LogRoot) -> Iterator[None]:
    """Hold the lock under which a root's files are changed; nothing else is taken within it.

    Raises:
        LockTimeoutError: Another process kept the lock.
        StorageError: The lock file cannot be opened.
    """
    what = f"the checkpoint files of {root.path}"
    with locked(root.fs, root.clock, root.checkpoints_lock, what=what):
        yield


# ---- reading --------------------------------------------------------------------------------
def read_offsets(fs: FileSystem, path: str) -> Offsets:
    """Return the rows of one checkpoint file; none where there is no file.

    Raises:
        CorruptCheckpointError: The file cannot be understood.
        StorageError: The file cannot be read.

    Source: org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile.read.
    """
    try:
        data = read_file(fs, path, max_size=MAX_CHECKPOINT_SIZE)
    except FileMissingError:
        return {}
    except LimitExceededError as error:
        raise CorruptCheckpointError(
            "checkpoint file is too large", path=path, got=error.got, expected=error.expected
        ) from error
    offsets: Offsets = {}
    for line, (topic, partition, offset) in parse_checkpoint(data, path, columns=3):
        number = parse_number(partition, path, line, limit=MAX_PARTITION)
        name = topic.decode("ascii", "backslashreplace")
        found = parse_partition_directory(f"{name}-{number}")
        if found is None or found in offsets:
            raise CorruptCheckpointError(
                "malformed row in a checkpoint file",
                path=path,
                got=f"topic {name[:80]!r}, partition {number} in line {line}",
                expected="each partition once, and names a topic may have",
            )
        offsets[found] = parse_number(offset, path, line)
    return offsets


def read_recovery_points(root: LogRoot) -> Offsets:
    """Return up to where each partition is known to be synced.

    Raises:
        StorageError: The file cannot be read.
    """
    return _read_or_warn(root.fs, root.checkpoint(RECOVERY_POINT_CHECKPOINT))


def read_log_start_offsets(root: LogRoot) -> Offsets:
    """Return the log start offsets of partitions that begin behind their first record.

    Raises:
        StorageError: The file cannot be read.
    """
    return _read_or_warn(root.fs, root.checkpoint(LOG_START_OFFSET_CHECKPOINT))


def read_high_watermarks(root: LogRoot) -> Offsets:
    """Return the high watermarks as of the last time somebody wrote them down.

    Raises:
        StorageError: The file cannot be read.
    """
    return _read_or_warn(root.fs, root.checkpoint(HIGH_WATERMARK_CHECKPOINT))


def read_cleaner_offsets(root: LogRoot) -> Offsets:
    """Return the first offset of each partition that compaction has not seen.

    Raises:
        StorageError: The file cannot be read.
    """
    return _read_or_warn(root.fs, root.checkpoint(CLEANER_OFFSET_CHECKPOINT))


# ---- writing --------------------------------------------------------------------------------
class Written(NamedTuple):
    """A checkpoint file as it was written: facts about it, and all its rows."""

    stat: FileStat | None
    offsets: Offsets


def update_offsets(
    root: LogRoot,
    name: str,
    offsets: Mapping[TopicPartition, int],
    *,
    keeps_known: bool = False,
) -> Written:
    """Set the rows of some partitions in a checkpoint file and keep all others; durable.

    Args:
        root: The log root.
        name: The file, one of `CHECKPOINTS`.
        offsets: The partitions to set.
        keeps_known: Whether a row that is there already stands.

    Returns:
        The file that stands now.

    Raises:
        LockTimeoutError: Another process kept the lock.
        StorageError: It failed; the old file stands.
    """

    def changed(known: Offsets) -> Offsets:
        return {**offsets, **known} if keeps_known else {**known, **offsets}

    path = root.checkpoint(name)
    with root_locked(root):
        rows = _rewrite(root.fs, path, changed)
        return Written(root.fs.stat(path), rows)


def write_recovery_points(root: LogRoot, offsets: Mapping[TopicPartition, int]) -> None:
    """Note up to where partitions are synced; see `update_offsets`."""
    update_offsets(root, RECOVERY_POINT_CHECKPOINT, offsets)


def write_log_start_offsets(root: LogRoot, offsets: Mapping[TopicPartition, int]) -> None:
    """Note where partitions begin; see `update_offsets`."""
    update_offsets(root, LOG_START_OFFSET_CHECKPOINT, offsets)


def write_cleaner_offsets(root: LogRoot, offsets: Mapping[TopicPartition, int]) -> None:
    """Note how far compaction has come; see `update_offsets`."""
    update_offsets(root, CLEANER_OFFSET_CHECKPOINT, offsets)


def write_high_watermarks(root: LogRoot, offsets: Mapping[TopicPartition, int]) -> None:
    """Note the high watermarks of partitions; see `update_offsets`."""
    update_offsets(root, HIGH_WATERMARK_CHECKPOINT, offsets)


def remove_topic(root: LogRoot, topic: str) -> None:
    """Remove the rows of a topic from every checkpoint file of a root; durable.

    Raises:
        LockTimeoutError: Another process kept the lock.
        StorageError: It failed; some files may have been changed.
    """
    _remove(root, lambda each: each.topic == topic)


def remove_partition(root: LogRoot, partition: TopicPartition) -> None:
    """Remove the rows of one partition, whose records are not in the root any more.

    Raises: As `remove_topic`.
    """
    _remove(root, lambda each: each == partition)


def _remove(root: LogRoot, is_gone: Callable[[TopicPartition], bool]) -> None:
    def others(known: Offsets) -> Offsets:
        return {each: known[each] for each in known if not is_gone(each)}

    with root_locked(root):
        for name in CHECKPOINTS:
            _rewrite(root.fs, root.checkpoint(name), others)


def _rewrite(fs: FileSystem, path: str, change: Callable[[Offsets], Offsets]) -> Offsets:
    """Change the rows of a checkpoint file; durable also where they stand there already."""
    is_sound = True
    try:
        known = read_offsets(fs, path)
    except CorruptCheckpointError as error:
        _logger.warning("%s; it is kept as %s.corrupt and written anew", error, path)
        known, is_sound = {}, False
    changed = change(known)
    if not is_sound:
        fs.rename(path, f"{path}.corrupt")
    elif changed == known:
        fs.sync_directory(os.path.dirname(path))  # who wrote them may have died, or failed, at it
        return changed
    write_file_atomically(fs, path, format_checkpoint(_rows(changed)))
    return changed


def _rows(offsets: Offsets) -> Iterable[str]:
    return (f"{each.topic} {each.partition} {offsets[each]}" for each in sorted(offsets))


def _read_or_warn(fs: FileSystem, path: str) -> Offsets:
    try:
        return read_offsets(fs, path)
    except CorruptCheckpointError as error:
        _logger.warning("%s; treated as missing: the logs are scanned instead", error)
        return {}
