"""Find the topics of a log root and their partitions; read-only.

In a root that streamlog made, a topic exists once `.streamlog/topics/NAME.properties` does. In any
other directory, such as a broker's log.dir, the directories `NAME-0`, `NAME-1` … are the topics.
`streamlog.root.directories` decides which directories are partitions and which links are followed.
"""

import difflib
import os
import shlex
from collections.abc import Sequence
from typing import Final

from streamlog.errors import (
    InvalidRequestError,
    InvalidTopicError,
    StorageError,
    UnknownTopicError,
    command_at,
)
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.files import stat_directory
from streamlog.fs.log_root import STATE_DIRECTORY, LogRoot, topic_of_properties
from streamlog.partition.partition_metadata import PARTITION_METADATA
from streamlog.root.directories import Holding, holding_of
from streamlog.root.roots import ONE_OF_A_SET, check_root, is_our_root
from streamlog.segment.filenames import parse_log_file_name
from streamlog.store.urls import is_store_url
from streamlog.topic import TopicPartition, check_topic_name, parse_partition_directory
from streamlog.words import listed

__all__ = [
    "directories_by_topic",
    "directories_named",
    "find_partitions",
    "is_partition",
    "list_topics",
    "partition_directories",
    "partition_path",
    "topic_exists",
    "unknown_topic_error",
]

_NAMED_MAX: Final = 10  # topics named in an error


# ---- topics --------------------------------------------------------------------------------
def list_topics(root: LogRoot) -> list[str]:
    """Return the names of a root's topics, sorted."""
    if not is_our_root(root):
        return sorted(directories_by_topic(root))
    found = []
    for name in root.fs.list(root.topics):
        if name.endswith("~"):  # directory of topics whose names are too long for one file name
            inner = root.fs.list(f"{root.topics}/{name}")
            found += [topic_of_properties(name, each) for each in inner]
        else:
            found.append(topic_of_properties("", name))
    return sorted(topic for topic in found if topic is not None)


def topic_exists(root: LogRoot, topic: str) -> bool:
    """Return whether a root has a topic.

    Raises:
        InvalidTopicError: The name is invalid.
    """
    check_topic_name(topic)
    if is_our_root(root):
        return root.fs.stat(root.topic_properties(topic)) is not None
    return topic in directories_by_topic(root)


def partition_directories(root: LogRoot, topic: str) -> dict[int, str]:
    """Return the directories of a topic's partitions by number, ascending.

    Partitions of a topic with a settings file may be empty. Dangling links are included: opening
    one is an error, while leaving it out would silently lose records.
    """
    return directories_by_topic(root, only=topic).get(topic, {})


def directories_named(root: LogRoot, topic: str) -> dict[int, str]:
    """Return all paths named like a partition of a topic, whatever they are, by number."""
    named = (parse_partition_directory(name) for name in root.fs.list(root.path))
    numbers = sorted(each.partition for each in named if each is not None and each.topic == topic)
    return {number: f"{root.path}/{topic}-{number}" for number in numbers}


def unknown_topic_error(
    root: str,
    topic: str,
    known: list[str],
    *,
    is_wanted: bool = True,
    offline: Sequence[str] = (),
) -> UnknownTopicError:
    """Return the error for a topic that a root does not have, with a command that helps.

    Args:
        root: The path of the root.
        topic: The missing topic.
        known: The existing topics.
        is_wanted: Whether creating the topic would help.
        offline: Other roots of the set that are offline; a topic without replicas may be there.
    """
    make = f"create it: {command_at(root, f'topics create {topic}')}"
    if (
        not known and "," not in root and not is_store_url(root)
    ):  # an unmounted disk looks like a new root
        make += ONE_OF_A_SET
    see = f"list the topics: {command_at(root, 'topics list')}"
    return UnknownTopicError(
        f"there is no topic {topic}",
        path=root,
        expected=f"one of {listed(known, _NAMED_MAX)}" if known else None,
        hint=_instead(topic, known, offline) + (make if is_wanted else see),
    )


def _instead(topic: str, known: list[str], offline: Sequence[str]) -> str:
    near = difflib.get_close_matches(topic, known, 1)
    use = f"use {near[0]}, or " if near else ""
    back = f"bring {', '.join(offline)} back, which may have it and is offline, or "
    return use + (back if offline else "")


def directories_by_topic(root: LogRoot, *, only: str | None = None) -> dict[str, dict[int, str]]:
    """Return the directories of all partitions by topic and number, from one listing.

    Args:
        root: The root.
        only: The only topic wanted; None: all.
    """
    named = [parse_partition_directory(name) for name in root.fs.list(root.path)]
    is_ours = is_our_root(root)
    registered: dict[str, bool] = {}
    topics: dict[str, dict[int, str]] = {}
    for partition in sorted(each for each in named if each is not None):
        topic = partition.topic
        if only is not None and topic != only:
            continue
        if topic not in registered:
            properties = root.topic_properties(topic)
            registered[topic] = is_ours and root.fs.stat(properties) is not None
        path = root.partition(partition)
        if is_partition(root.fs, path, is_registered=registered[topic]):
            topics.setdefault(topic, {})[partition.partition] = path
    return topics


def partition_path(root: LogRoot, partition: TopicPartition) -> str:
    """Return the directory of an existing partition.

    Raises:
        UnknownTopicError: There is no such topic or partition.
    """
    topic = partition.topic
    if not topic_exists(root, topic):
        raise unknown_topic_error(root.path, topic, list_topics(root))
    path = root.partition(partition)
    if partition.partition >= 0 and is_partition(root.fs, path, is_registered=is_our_root(root)):
        return path
    numbers = list(partition_directories(root, topic))
    raise UnknownTopicError(
        f"topic {topic} has no such partition",
        path=root.path,
        got=partition.partition,
        expected=f"0 to {numbers[-1]}" if numbers else "none: its directories are gone",
    )


def is_partition(fs: FileSystem, path: str, *, is_registered: bool) -> bool:
    """Return whether a path that is named like a partition is one.

    Args:
        fs: The file system.
        path: The path, `ROOT/TOPIC-PARTITION`.
        is_registered: Whether the topic has a settings file: an empty directory is a partition
            then.

    Returns:
        Also True if the path is not readable: opening it is an error then, while leaving it out
        would silently lose records.
    """
    try:
        found = holding_of(fs, path)
    except StorageError:
        return True  # such as a dangling link: opening it raises this error
    return found is Holding.LOG or (is_registered and found is Holding.EMPTY)


# ---- any path ------------------------------------------------------------------------------
def find_partitions(fs: FileSystem, path: str) -> dict[str, dict[int, str]]:
    """Return the partitions at a path, without locks and without changes.

    Args:
        fs: The file system.
        path: A log root, the directory of a partition, or one `.log` file in such a directory.

    Returns:
        For each topic the paths of its partitions by number, sorted: directories, or `path` itself
        if it is a file. Topics without a directory are left out.

    Raises:
        UnknownTopicError: The path does not exist.
        InvalidRequestError: It is a file that is not a segment, or named like a segment and not a
            file.
        InvalidTopicError: A directory of segments is not named after a partition.
    """
    path = os.path.abspath(path)
    is_segment = parse_log_file_name(os.path.basename(path)) is not None
    found = fs.stat(path) if is_segment else stat_directory(fs, path)
    if found is not None and found.kind is FileKind.FILE:
        return _of_file(path)
    if found is not None and is_segment:
        raise InvalidRequestError(
            "a segment must be a regular file", path=path, got=f"a {found.kind.value}"
        )
    root = LogRoot.at(path, fs=fs)
    check_root(root)
    if not is_our_root(root) and _is_partition(fs, path):
        return _named_after(path, path)
    by_topic = directories_by_topic(root)
    return {topic: by_topic[topic] for topic in list_topics(root) if topic in by_topic}


def _of_file(path: str) -> dict[str, dict[int, str]]:
    if parse_log_file_name(os.path.basename(path)) is None:
        raise InvalidRequestError(
            "this file is not a segment of a log",
            path=path,
            expected="a .log file named after its base offset, or a directory",
            hint="pass the directory of the partition or the log root",
        )
    return _named_after(os.path.dirname(path), path)


def _is_partition(fs: FileSystem, path: str) -> bool:
    """Return whether a directory is a partition, not a root: by its files, else by its name."""
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
            hint=f"copy it under such a name: cp -r {shlex.quote(directory)} topic-0",
        )
    return {partition.topic: {partition.partition: path}}
