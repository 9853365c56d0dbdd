"""The topics of a log root and where their partitions lie; nothing here changes anything.

In a root made by streamlog a topic exists once `.streamlog/topics/NAME.properties` does. In any
other directory, a broker's log.dir say, the directories `NAME-0`, `NAME-1` … are the topics. Which
of these hold a log, and which links are followed, says `streamlog.root.directories`.
"""

import difflib
import os
import shlex
from typing import TYPE_CHECKING

from streamlog.clock import Clock
from streamlog.commits.chores import Chores, at_once
from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES, LogConfig
from streamlog.config.settings import MAX_INT
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidConfigError,
    InvalidOptionError,
    InvalidRequestError,
    InvalidTopicError,
    StorageError,
    UnknownTopicError,
    command_at,
)
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.names import is_temporary
from streamlog.partition.partition_metadata import PARTITION_METADATA
from streamlog.root.directories import Holding, holding_of, stat_directory
from streamlog.root.roots import (
    STATE_DIRECTORY,
    check_root,
    is_our_root,
    read_properties,
    read_server_config,
    state_path,
    topic_of_properties,
    topic_properties_path,
)
from streamlog.segment.filenames import parse_log_file_name
from streamlog.topic import check_topic_name, parse_partition_directory

if TYPE_CHECKING:
    from streamlog.commits.commit_log import CommitLog
    from streamlog.commits.pending import PendingDecisions
    from streamlog.commits.retirement import OpenLogs
    from streamlog.partition.waiting import Patience
    from streamlog.root.root_marks import RootMarks

__all__ = [
    "ConfigFiles",
    "check_decompressed_bytes",
    "commit_log",
    "directories_named",
    "find_partitions",
    "is_partition",
    "list_topics",
    "partition_directories",
    "read_topic_properties",
    "readable_decompressed_bytes",
    "topic_exists",
    "unknown_topic_error",
]


# ---- what there is --------------------------------------------------------------------------
def list_topics(fs: FileSystem, root: str) -> list[str]:
    """Return the names of a root's topics, sorted.

    Raises:
        StorageError: The root cannot be listed.
    """
    if not is_our_root(fs, root):
        return sorted(_directories_by_topic(fs, root))
    found = []
    for name in fs.list(state_path(root, "topics")):
        if name.endswith("~"):  # the first part of names that are too long for one file
            inner = fs.list(state_path(root, "topics", name))
            found += [topic_of_properties(name, each) for each in inner]
        else:
            found.append(topic_of_properties("", name))
    return sorted(topic for topic in found if topic is not None)


def topic_exists(fs: FileSystem, root: str, topic: str) -> bool:
    """Tell whether a root has a topic.

    Raises:
        InvalidTopicError: No topic can have this name.
        StorageError: The root cannot be read.
    """
    check_topic_name(topic)
    if is_our_root(fs, root):
        return fs.stat(topic_properties_path(root, topic)) is not None
    return topic in _directories_by_topic(fs, root)


def partition_directories(fs: FileSystem, root: str, topic: str) -> dict[int, str]:
    """Return the directories of a topic's partitions by number, ascending; maybe none.

    Those of a topic that has its settings file may be empty still. A link that leads nowhere is
    among them: opening it is an error, leaving it out would be a loss of records.

    Raises:
        StorageError: The root cannot be listed.
    """
    return _directories_by_topic(fs, root, only=topic).get(topic, {})


def directories_named(fs: FileSystem, root: str, topic: str) -> dict[int, str]:
    """Return everything that is called like a partition of a topic, whatever it is, by number.

    Raises:
        StorageError: The root cannot be listed.
    """
    named = (parse_partition_directory(name) for name in fs.list(root))
    numbers = sorted(each.partition for each in named if each is not None and each.topic == topic)
    return {number: f"{root}/{topic}-{number}" for number in numbers}


def read_topic_properties(fs: FileSystem, root: str, topic: str) -> dict[str, str]:
    """Return the settings that a topic has of its own; none in a foreign root.

    Raises:
        InvalidConfigError: The file cannot be understood.
        StorageError: The file cannot be read.
    """
    return read_properties(fs, topic_properties_path(root, topic)) or {}


def unknown_topic_error(
    root: str, topic: str, known: list[str], *, is_wanted: bool = True
) -> UnknownTopicError:
    """Return the error about a topic that a root does not have, with the command that helps.

    Args:
        root: The root.
        topic: The topic.
        known: Those there are.
        is_wanted: Whether making it would help.
    """
    make = f"make it: {command_at(root, f'topics create {topic}')}"
    see = f"see which there are: {command_at(root, 'topics list')}"
    listed = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    return UnknownTopicError(
        f"there is no topic {topic}",
        path=root,
        expected=f"one of {listed}" if known else None,
        hint=_instead(topic, known) + (make if is_wanted else see),
    )


def _instead(topic: str, known: list[str]) -> str:
    near = difflib.get_close_matches(topic, known, 1)
    return f"use {near[0]}, or " if near else ""


def _directories_by_topic(
    fs: FileSystem, root: str, *, only: str | None = None
) -> dict[str, dict[int, str]]:
    named = [parse_partition_directory(name) for name in fs.list(root)]
    is_ours = is_our_root(fs, root)
    registered: dict[str, bool] = {}
    topics: dict[str, dict[int, str]] = {}
    for partition in sorted(each for each in named if each is not None):
        topic = partition.topic
        if only is not None and topic != only:
            continue
        if topic not in registered:
            properties = topic_properties_path(root, topic)
            registered[topic] = is_ours and fs.stat(properties) is not None
        path = f"{root}/{partition}"
        if is_partition(fs, path, is_registered=registered[topic]):
            topics.setdefault(topic, {})[partition.partition] = path
    return topics


def is_partition(fs: FileSystem, path: str, *, is_registered: bool) -> bool:
    """Tell whether a partition lies at a path that is called like one.

    Args:
        fs: Where it is.
        path: The path, `ROOT/TOPIC-PARTITION`.
        is_registered: Whether the topic has its settings file: then an empty directory is one.

    Returns:
        True as well where it cannot be looked at: opening it is an error then, and leaving it out
        would be a loss of records that nobody sees.
    """
    try:
        found = holding_of(fs, path)
    except StorageError:
        return True  # a link that leads nowhere, say: opening it is this error
    return found is Holding.LOG or (is_registered and found is Holding.EMPTY)


# ---- where things lie -----------------------------------------------------------------------
def find_partitions(fs: FileSystem, path: str) -> dict[str, dict[int, str]]:
    """Return the partitions that a path names, whoever wrote them.

    Args:
        fs: Where to look; nothing is created, locked or touched.
        path: A log root, a partition's directory, or one `.log` file in such a directory.

    Returns:
        For each topic the paths of its partitions by number, sorted: directories, or the file
        itself where `path` is a file. Topics without a directory are left out.

    Raises:
        UnknownTopicError: There is nothing.
        InvalidRequestError: A file that holds no segment, or what is called like one and no file.
        InvalidTopicError: Segments in a directory that is not named after a partition.
        StorageError: It cannot be looked at.
    """
    path = os.path.abspath(path)
    is_segment = parse_log_file_name(os.path.basename(path)) is not None
    found = fs.stat(path) if is_segment else stat_directory(fs, path)
    if found is not None and found.kind is FileKind.FILE:
        return _of_file(path)
    if found is not None and is_segment:
        raise InvalidRequestError(
            "a segment of a log must be a regular file", path=path, got=f"a {found.kind.value}"
        )
    check_root(fs, path)
    if not is_our_root(fs, path) and _is_partition(fs, path):
        return _named_after(path, path)
    by_topic = _directories_by_topic(fs, path)
    return {topic: by_topic[topic] for topic in list_topics(fs, path) if topic in by_topic}


def _of_file(path: str) -> dict[str, dict[int, str]]:
    if parse_log_file_name(os.path.basename(path)) is None:
        raise InvalidRequestError(
            "this file is no segment of a log",
            path=path,
            expected="a .log file named after its base offset, or a directory",
            hint="name the partition's directory or the log root",
        )
    return _named_after(os.path.dirname(path), path)


def _is_partition(fs: FileSystem, path: str) -> bool:
    """Tell a partition's directory from a root's: by its files, else by its name."""
    names = fs.list(path)
    if any(name == PARTITION_METADATA or parse_log_file_name(name) is not None for name in names):
        return True
    is_root = STATE_DIRECTORY in names or any(map(parse_partition_directory, names))
    return not is_root and parse_partition_directory(os.path.basename(path)) is not None


def _named_after(directory: str, path: str) -> dict[str, dict[int, str]]:
    partition = parse_partition_directory(os.path.basename(directory))
    if partition is None:
        raise InvalidTopicError(
            "a directory of segments must be named after its partition",
            path=directory,
            got=repr(os.path.basename(directory)),
            expected="TOPIC-PARTITION, as orders-0",
            hint=f"make a copy of it: cp -r {shlex.quote(directory)} topic-0",
        )
    return {partition.topic: {partition.partition: path}}


# ---- settings -------------------------------------------------------------------------------
class ConfigFiles:
    """The settings in force for one topic, read again when a file changes.

    Args:
        fs: Where the root is.
        root: The log root.
        topic: The topic; it need not have a file.
    """

    __slots__ = ("_fs", "_paths", "_root", "_stamps", "_topic")

    def __init__(self, fs: FileSystem, root: str, topic: str) -> None:
        self._fs, self._root, self._topic = fs, root, topic
        self._paths = (state_path(root, "server.properties"), topic_properties_path(root, topic))
        self._stamps: list[tuple[int, int, int] | None] | None = None

    def has_changed(self) -> bool:
        """Tell whether a file is another one than at the last `load`; two `stat` calls."""
        return self._stamps != self._look()

    def load(self) -> LogConfig:
        """Return the settings in force now.

        Raises:
            InvalidConfigError: A file has a key or value that cannot be.
            StorageError: A file cannot be read.
        """
        stamps = self._look()
        properties = read_topic_properties(self._fs, self._root, self._topic)
        server = read_server_config(self._fs, self._root)
        config = server.log_config(properties, path=self._paths[1])
        self._stamps = stamps
        return config

    def _look(self) -> list[tuple[int, int, int] | None]:
        stats = [self._fs.stat(path) for path in self._paths]
        return [each and (each.mtime_ns, each.inode, each.size) for each in stats]


def check_decompressed_bytes(limit: int) -> int:
    """Return what a reader asks that a batch may decompress to, in bytes, if that can be.

    Raises:
        InvalidOptionError: It is not 1 to 2^31 - 1.
    """
    if not 1 <= limit <= MAX_INT:
        raise InvalidOptionError(
            "impossible limit of what a batch may decompress to",
            got=limit,
            expected=f"1 to {MAX_INT} bytes",
        )
    return limit


def readable_decompressed_bytes(fs: FileSystem, root: str, topic: str) -> int:
    """Return what a batch of a topic may decompress to when it is read, in bytes.

    That is the topic's `streamlog.max.decompressed.bytes`, but no less than its default. Reading
    needs no settings: those that cannot be understood count as none.

    Args:
        fs: Where the root is.
        root: The log root, or any other directory: that has no settings.
        topic: The topic.
    """
    try:
        return ConfigFiles(fs, root, topic).load().readable_decompressed_bytes
    except (InvalidConfigError, CorruptDataError, StorageError):
        return DEFAULT_MAX_DECOMPRESSED_BYTES


def has_pending(fs: FileSystem, root: str) -> bool:
    """Tell whether a decision waits in this root; most openings need to know no more."""
    try:
        names = fs.list(state_path(root, "commits", "pending"))
        return any(not is_temporary(name) for name in names)
    except FileMissingError:
        return False


def commit_log(
    fs: FileSystem,
    clock: Clock,
    root: str,
    *,
    open_logs: "OpenLogs | None" = None,
    marks: "RootMarks | None" = None,
    decisions: "PendingDecisions | None" = None,
    lock_timeout_ms: "float | Patience | None" = None,
    chores: Chores = at_once,
) -> "CommitLog":
    """Return the commits of a root; imported late, for it uses partitions itself."""
    from streamlog.commits.commit_log import CommitLog

    return CommitLog(
        root,
        fs=fs,
        clock=clock,
        open_logs=open_logs,
        marks=marks,
        decisions=decisions,
        lock_timeout_ms=lock_timeout_ms,
        chores=chores,
    )
