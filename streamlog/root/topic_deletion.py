"""A topic on its way out: what stays to be done once its settings file has been renamed.

    NAME.deleted beside the settings files     the topic is gone from the list
    NAME-0.ID-delete …                         its directories, renamed under their writers' locks
    (the log files in these are removed)       what else lies there gets its directory's name back
    (the rows in checkpoints, NAME.deleted)    removed last

Each step may be repeated; a crash in between leaves NAME.deleted, by which the rest is done.
"""

import contextlib
import logging
import os
import re
from typing import Final

from streamlog.errors import CorruptDataError, FileMissingError, StorageError
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.names import NAME_SIZE_MAX
from streamlog.partition import checkpoints
from streamlog.partition.locks import take_partition_lock
from streamlog.partition.partition_metadata import read_topic_id, topic_id_hex
from streamlog.root.directories import Holding, holding_of, remove_log_files
from streamlog.root.topics import directories_named
from streamlog.topic import TopicPartition

__all__ = ["finish_deletion"]

_LOCK_TIMEOUT_MS: Final = 30_000
# LogFileUtils.DELETE_DIR_SUFFIX; the id is the topic's, where Kafka draws one by chance
_DELETE_DIRECTORY: Final = re.compile(
    r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]*)\.[0-9a-f]{32}-delete", re.ASCII
)

_logger = logging.getLogger(__name__)


def finish_deletion(root: LogRoot, topic: str) -> list[str]:
    """Do what is left of a deletion once the topic is gone from the list; nothing if nothing is.

    Args:
        root: The log root; the lock of its list of topics is held.
        topic: The topic.

    Returns:
        The paths of what is no file of a log, and stays.

    Raises:
        LockTimeoutError: A writer kept a partition's lock.
        StorageError: Something cannot be renamed or removed.
    """
    marker = root.deleted_topic(topic)
    if root.fs.stat(marker) is None:
        return []
    root.fs.sync_directory(os.path.dirname(marker))  # who deleted, and died, may not have
    for number, path in directories_named(root, topic).items():
        if not _is_strangers(root.fs, path):
            _set_aside(root, TopicPartition(topic, number), path)
    root.fs.sync_directory(root.path)
    left: list[str] = []
    for name in root.fs.list(root.path):
        if _is_remains_of(topic, name):
            left += _remove_remains(root, topic, name)
    checkpoints.remove_topic(root.fs, root.clock, root.path, topic)
    root.fs.sync_directory(root.path)
    with contextlib.suppress(FileMissingError):
        root.fs.remove(marker)
    root.fs.sync_directory(os.path.dirname(marker))
    for path in left:
        _logger.warning("left %s: it is no file of a log", path)
    return left


def _is_strangers(fs: FileSystem, path: str) -> bool:
    with contextlib.suppress(StorageError):  # a link that leads nowhere is the topic's
        return holding_of(fs, path) in (Holding.STRANGE, Holding.NO_DIRECTORY)
    return False


def _remove_remains(root: LogRoot, topic: str, name: str) -> list[str]:
    """Remove the log in a directory set aside; what else it holds gets its old name back.

    A broker would delete the directory with all it holds, by its name.
    """
    path = f"{root.path}/{name}"
    left = remove_log_files(root.fs, path)
    match = _DELETE_DIRECTORY.fullmatch(name)
    if left and match is not None and root.fs.stat(path) is not None:
        before = f"{root.path}/{topic}-{match['partition']}"
        if root.fs.stat(before) is None:
            root.fs.rename(path, before)
            left = [f"{before}{each.removeprefix(path)}" for each in left]
    return left


def _is_remains_of(topic: str, name: str) -> bool:
    """Tell whether a directory is a partition of `topic` on its way out; its name may be cut."""
    match = _DELETE_DIRECTORY.fullmatch(name)
    if match is None:
        return False
    is_cut = len(name) == NAME_SIZE_MAX and topic.startswith(match["topic"])
    return match["topic"] == topic or is_cut


def _set_aside(root: LogRoot, partition: TopicPartition, path: str) -> None:
    """Rename a partition's directory so that it is none any more; wait for its writer first."""
    lock = take_partition_lock(
        root.fs, root.clock, root.path, partition, timeout_ms=_LOCK_TIMEOUT_MS
    )
    try:
        topic_id = None
        with contextlib.suppress(CorruptDataError):  # it is about to go anyway
            topic_id = read_topic_id(root.fs, path)
        unique = topic_id_hex(topic_id) if topic_id else "0" * 32
        suffix = f"-{partition.partition}.{unique}-delete"
        # UnifiedLog.logDeleteDirName cuts a long name as well.
        name = partition.topic[: NAME_SIZE_MAX - len(suffix)] + suffix
        aside = f"{root.path}/{name}"
        if root.fs.stat(aside) is not None:
            remove_log_files(root.fs, aside)
        # First what the last writer left: its handle would believe it, and append to a directory
        # that is none any more. Without it the handle looks around, and finds the topic gone.
        lock.file.truncate(0)
        root.fs.rename(path, aside)
    finally:
        lock.release()
