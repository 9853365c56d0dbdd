"""Create, alter and delete topics; every step survives a crash.

A topic exists once `.streamlog/topics/NAME.properties` does: creation writes that file last, and
deletion renames it first. A crash in between leaves

    NAME-0, NAME-1 … without a properties file     the next creation removes the empty directories
    NAME.deleted next to the properties files      the next creation or deletion of NAME finishes
                                                   the deletion

A deletion takes these steps, each of which may be repeated:

    rename NAME.properties to NAME.deleted         the topic leaves the list
    rename NAME-0 … to NAME-0.ID-delete            under the locks of their writers
    remove the log files in these                  other files stay, under the old directory name
    remove the rows in checkpoints, NAME.deleted

All partitions of a topic hold the same topic id in their `partition.metadata`.
"""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from streamlog.config.log_config import ConfigValue, check_topic_keys
from streamlog.config.settings import text_of
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRequestError,
    InvalidTopicError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
    command_at,
)
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.files import stat_directory
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import META_PROPERTIES, LogRoot
from streamlog.fs.names import NAME_SIZE_MAX, temporary_base
from streamlog.partition import checkpoints
from streamlog.partition.locks import take_partition_lock
from streamlog.partition.partition_metadata import (
    PARTITION_METADATA,
    new_topic_id,
    read_topic_id,
    topic_id_hex,
    write_topic_id,
)
from streamlog.partition.root_marks import sync_names
from streamlog.partition.topic_config import (
    read_properties,
    read_server_config,
    read_topic_properties,
)
from streamlog.root.directories import Holding, holding_of, refuse_strangers, remove_log_files
from streamlog.root.roots import (
    check_root,
    is_our_root,
    make_root,
    refuse_live_broker,
    refuse_planted,
    registry_locked,
    write_topic_properties,
)
from streamlog.root.topics import (
    directories_named,
    list_topics,
    partition_directories,
    topic_exists,
    unknown_topic_error,
)
from streamlog.topic import (
    TopicPartition,
    check_new_topic_name,
    check_topic_name,
    parse_partition_directory,
)

__all__ = [
    "STRAY_SUFFIX",
    "alter_topic",
    "changed_configs",
    "check_creation",
    "check_partition_count",
    "create_topic",
    "delete_topic",
    "ensure_partition",
    "finish_deletion",
    "make_partition",
    "numbers_to_make",
    "refuse_taken_name",
    "remove_half_made",
    "set_aside",
]


MAX_PARTITIONS: Final = 100_000  # of one topic; a larger directory listing is impractical

_AUTO_CREATE: Final = "auto.create.topics.enable"
_LOCK_TIMEOUT_MS: Final = 30_000
_SYNCING_THREADS: Final = 8
STRAY_SUFFIX: Final = "-stray"  # UnifiedLog.STRAY_DIR_SUFFIX
_DELETE_SUFFIX: Final = "-delete"
# LogFileUtils.DELETE_DIR_SUFFIX; with the topic id, where Kafka has a random one
_DELETE_DIRECTORY: Final = re.compile(
    r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]*)\.[0-9a-f]{32}-delete", re.ASCII
)

_logger = logging.getLogger(__name__)


# ---- creation -------------------------------------------------------------------------------
def create_topic(
    root: LogRoot,
    topic: str,
    *,
    partitions: int,
    configs: Mapping[str, ConfigValue],
) -> str:
    """Create a topic with empty partitions, durably; return its id.

    Args:
        root: A log root made by `make_root`.
        topic: The name of the new topic.
        partitions: Its number of partitions.
        configs: Its own settings, by Kafka's topic keys.

    Raises:
        InvalidTopicError: The name is invalid, or collides with that of another topic.
        InvalidPartitionsError: The number of partitions is out of range.
        InvalidConfigError: Unknown key or invalid value.
        TopicExistsError: The topic exists.
        InvalidRequestError: Directories of its name hold files.
        UnavailableError: A lock was held, or the disk failed; the next call continues.
    """
    _check_topic(root, topic, partitions, configs)
    refuse_live_broker(root)
    refuse_planted(root)
    with registry_locked(root):
        known = list_topics(root)
        if topic in known:  # its creator may have died before it was durable
            sync_names(root, [topic])
        refuse_taken_name(root.path, topic, known)
        finish_deletion(root, topic)
        remove_half_made(root, topic)
        topic_id = new_topic_id(root.random)
        _make_partitions(root, topic, range(partitions), topic_id)
        root.fs.sync_directory(root.path)
        own = {key: text_of(value) for key, value in configs.items()}
        write_topic_properties(root, topic, own)
    _logger.info("created topic %s with %d partitions in %s", topic, partitions, root.path)
    return topic_id


def check_creation(
    root: LogRoot, topic: str, *, partitions: int, configs: Mapping[str, ConfigValue]
) -> None:
    """Raise what `create_topic` would, as far as that shows without creating anything."""
    _check_topic(root, topic, partitions, configs)
    refuse_taken_name(root.path, topic, list_topics(root))


def _check_topic(
    root: LogRoot, topic: str, partitions: int, configs: Mapping[str, ConfigValue]
) -> None:
    check_new_topic_name(topic)
    check_partition_count(topic, partitions)
    read_server_config(root).log_config(configs)


def ensure_partition(root: LogRoot, partition: TopicPartition) -> str:
    """Return the topic id of a partition; create its topic and its root if they are missing.

    A missing topic gets `num.partitions` partitions. Opening a partition by its path asks for it,
    so only an explicit `auto.create.topics.enable=false` in the root's settings refuses this. An
    existing topic gets no new partition, since that would leave gaps in the numbers. A copied
    directory becomes a partition of the root if it holds a log or nothing.

    Raises:
        UnknownTopicError: The topic has no such partition, or may not be created.
        InvalidTopicError: The name is invalid, or collides with that of another topic.
        InvalidRequestError: The directory holds only other files, the partition belongs to another
            root, or no root can be made there.
        CorruptCheckpointError: The existing `partition.metadata` is malformed.
        UnavailableError: A lock was held, or the disk failed.
    """
    check_topic_name(partition.topic)
    path = root.partition(partition)
    _refuse_another_roots(root, partition)
    if is_our_root(root) and root.fs.stat(root.topic_properties(partition.topic)):
        topic_id = _topic_id_if_there(root.fs, path)
        if topic_id is not None:
            return topic_id
    refuse_strangers(root.fs, path)
    numbers_to_make(root, partition)  # raises before anything is created
    make_root(root, named=partition)
    with registry_locked(root):
        is_known = topic_exists(root, partition.topic)
        if not is_known:
            check_new_topic_name(partition.topic)
            refuse_taken_name(root.path, partition.topic, list_topics(root))
            finish_deletion(root, partition.topic)
        numbers = numbers_to_make(root, partition)
        topic_id = _topic_id(root, partition)
        _make_partitions(root, partition.topic, numbers, topic_id)
        root.fs.sync_directory(root.path)
        if not is_known:
            write_topic_properties(root, partition.topic, {})
    return topic_id


def numbers_to_make(root: LogRoot, wanted: TopicPartition) -> Collection[int]:
    """Return the partitions to create when one of them is opened.

    Raises:
        UnknownTopicError: The partition does not exist and may not be created.
    """
    topic, number = wanted
    if root.fs.stat(root.partition(wanted)) is not None:
        return (number,)  # copied here, or left by a creator that died
    there: Collection[int] = ()
    known: list[str] = []
    if root.fs.stat(root.path) is not None:
        there, known = partition_directories(root, topic), list_topics(root)
    if topic in known:
        alter = f"topics alter {topic} --partitions {number + 1}"
        raise UnknownTopicError(
            f"topic {topic} has no such partition",
            path=root.path,
            got=number,
            expected=f"0 to {max(there)}" if there else "none: its directories are gone",
            hint=f"add it: {command_at(root.path, alter)}",
        )
    server = read_server_config(root)
    said = read_properties(root.fs, root.server_properties) or {}
    if _AUTO_CREATE in said and not server.auto_create_topics_enable:
        raise unknown_topic_error(root.path, topic, known)
    if number >= server.num_partitions:
        make = f"topics create {topic} --partitions {number + 1}"
        raise UnknownTopicError(
            f"there is no topic {topic}, and a new one would not have this partition",
            path=root.path,
            got=number,
            expected=f"below {server.num_partitions}, as num.partitions says",
            hint=f"create the topic first: {command_at(root.path, make)}",
        )
    return range(server.num_partitions)


def _topic_id_if_there(fs: FileSystem, path: str) -> str | None:
    found = stat_directory(fs, path)
    return None if found is None else read_topic_id(fs, path)


def _refuse_another_roots(root: LogRoot, partition: TopicPartition) -> None:
    """Raise for a link to a directory that is written under another lock, or under none.

    Raises:
        InvalidRequestError: The link leads into another log root, or where another link leads.
    """
    path = root.partition(partition)
    found = root.fs.stat(path)
    if found is None or found.kind is not FileKind.SYMLINK:
        return
    target = root.fs.resolve(path)
    parent = os.path.dirname(target)
    if root.fs.stat(f"{parent}/{META_PROPERTIES}") is not None or is_our_root(
        replace(root, path=parent)
    ):
        raise InvalidRequestError(
            "a partition that is a link into another log root is read-only here",
            path=path,
            got=f"a link to {target}",
            expected="a directory outside of other log roots",
            hint=f"move the directory out of {parent} first",
        )
    for name in root.fs.list(root.path):
        other = f"{root.path}/{name}"
        if other != path and parse_partition_directory(name) and root.fs.resolve(other) == target:
            raise InvalidRequestError(
                "two partitions are links to one directory",
                path=path,
                got=f"{name} leads to the same directory",
                expected="a directory for each",
                hint=f"remove the wrong link: ls -l {root.path}",
            )


def _topic_id(root: LogRoot, partition: TopicPartition) -> str:
    """Return the id of a partition, else that of its siblings, else a new one."""
    siblings = partition_directories(root, partition.topic)
    own = siblings.pop(partition.partition, None)
    for path in ([own] if own else []) + list(siblings.values()):
        topic_id = read_topic_id(root.fs, path)
        if topic_id is not None:
            return topic_id
    return new_topic_id(root.random)


def _make_partitions(root: LogRoot, topic: str, numbers: Collection[int], topic_id: str) -> None:
    """Create the directories of partitions; their names are not durable yet.

    On a disk in threads, since most of the time passes in syncs, which a file system merges: the 50
    partitions of `__consumer_offsets` take a fifth of the time.

    Raises:
        StorageError: The disk failed, for one of them or more; all others were tried.
    """

    def make(number: int) -> None:
        make_partition(root, TopicPartition(topic, number), topic_id)

    if len(numbers) == 1 or not isinstance(root.fs, LocalFileSystem):
        for number in numbers:
            make(number)
        return
    with ThreadPoolExecutor(min(len(numbers), _SYNCING_THREADS)) as threads:
        made = [threads.submit(make, number) for number in numbers]
    for each in made:
        each.result()


def make_partition(root: LogRoot, partition: TopicPartition, topic_id: str) -> None:
    """Create the directory of a partition; its name is not durable yet."""
    path = root.partition(partition)
    root.fs.make_directory(path)
    refuse_planted(root, str(partition))  # again: it may have existed before
    if root.fs.stat(f"{path}/{PARTITION_METADATA}") is None:
        write_topic_id(root.fs, path, topic_id)


def check_partition_count(topic: str, partitions: int) -> None:
    """Check the number of partitions of a topic.

    Raises:
        InvalidPartitionsError: It is out of range.
    """
    # The longest topic name, of 249 characters, leaves room for five digits in a file name.
    if not isinstance(partitions, int) or not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidPartitionsError(
            f"topic {topic} cannot have this number of partitions",
            got=repr(partitions),
            expected=f"1 to {MAX_PARTITIONS}",
        )


def refuse_taken_name(root: str, topic: str, known: list[str]) -> None:
    """Raise for the name of an existing topic, or one that differs only in '.' and '_'.

    Source: org.apache.kafka.common.internals.Topic.hasCollision; metrics do not tell the two apart.
    """
    if topic in known:
        raise TopicExistsError(
            f"topic {topic} exists already",
            path=root,
            hint=f"show it: {command_at(root, f'topics describe {topic}')}",
        )
    for other in known:
        if other.replace(".", "_") == topic.replace(".", "_"):
            raise InvalidTopicError(
                f"topic {topic} would differ from {other} only in '.' and '_', which Kafka's "
                "metrics do not tell apart",
                got=repr(topic),
                expected=f"a name unlike {other}",
            )


def remove_half_made(root: LogRoot, topic: str) -> None:
    """Remove the empty directories of an unfinished creation."""
    leftovers = directories_named(root, topic)
    for path in leftovers.values():
        refuse_strangers(root.fs, path)
        kept = [name for name in root.fs.list(path) if _holds_something(root.fs, path, name)]
        if kept:
            raise InvalidRequestError(
                f"a directory of the new topic {topic} exists and holds files",
                path=path,
                got=", ".join(kept[:5]),
                expected="no directory, or an empty one",
                hint=f"move it away first: mv {path} {path}.kept",
            )
    for path in leftovers.values():
        remove_log_files(root.fs, path)


def _holds_something(fs: FileSystem, directory: str, name: str) -> bool:
    """Return whether a file is more than an unfinished creation leaves."""
    if name.startswith(PARTITION_METADATA) or temporary_base(name) == PARTITION_METADATA:
        return False
    found = fs.stat(f"{directory}/{name}")
    return found is not None and (found.kind is not FileKind.FILE or found.size > 0)


# ---- alteration -----------------------------------------------------------------------------
def alter_topic(
    root: LogRoot,
    topic: str,
    *,
    configs: Mapping[str, ConfigValue],
    delete_configs: Collection[str],
    partitions: int | None,
) -> None:
    """Change the settings of a topic and add partitions; durable.

    Open handles use the new settings from the next append or maintenance on. New partitions are
    empty; readers discover them.

    Args:
        root: A log root made by `make_root`.
        topic: The topic.
        configs: Settings to add or replace, by Kafka's topic keys.
        delete_configs: Keys of its own settings to remove.
        partitions: Its new number of partitions; None: unchanged.

    Raises:
        UnknownTopicError: There is no such topic.
        InvalidRequestError: The root is a foreign one.
        InvalidPartitionsError: The number of partitions would not grow.
        InvalidConfigError: Unknown key, invalid value, or a key to delete that the topic does not
            set. Nothing was changed.
        UnavailableError: A lock was held, or the disk failed; the next call continues.

    Source: ConfigurationControlManager.incrementalAlterConfigs,
        ReplicationControlManager.createPartitions; kafka-configs, kafka-topics.
    """
    _check_ours(root, topic)
    with registry_locked(root):
        if not topic_exists(root, topic):
            raise unknown_topic_error(root.path, topic, list_topics(root))
        own = read_topic_properties(root, topic)
        changed = changed_configs(own, configs, delete_configs)
        read_server_config(root).log_config(changed)
        added = _partitions_to_add(root, topic, partitions)
        for number in added:
            refuse_strangers(root.fs, root.partition(TopicPartition(topic, number)))
        if added:
            topic_id = _topic_id(root, TopicPartition(topic, added[0]))
            _make_partitions(root, topic, added, topic_id)
            root.fs.sync_directory(root.path)
        if changed != own:
            write_topic_properties(root, topic, changed)
    _logger.info("altered topic %s in %s", topic, root.path)


def changed_configs(
    own: Mapping[str, str], configs: Mapping[str, ConfigValue], delete_configs: Collection[str]
) -> dict[str, str]:
    """Return a topic's own settings after a change.

    Raises:
        InvalidConfigError: Unknown key, or a key to delete that the topic does not set.
    """
    check_topic_keys([*configs, *delete_configs])
    for key in delete_configs:
        if key in configs:
            raise InvalidConfigError("a setting cannot be both set and deleted", got=repr(key))
        if key not in own:
            raise InvalidConfigError(
                f"the topic does not set {key}: nothing to delete",
                got=repr(key),
                expected=f"one of {', '.join(own)}" if own else "none: it has no settings",
            )
    kept = {key: value for key, value in own.items() if key not in delete_configs}
    return {**kept, **{key: text_of(value) for key, value in configs.items()}}


def _partitions_to_add(root: LogRoot, topic: str, partitions: int | None) -> list[int]:
    """Return the missing numbers below `partitions`; none for None."""
    if partitions is None:
        return []
    check_partition_count(topic, partitions)
    there = partition_directories(root, topic)
    missing = [number for number in range(partitions) if number not in there]
    if not missing or len(there) >= partitions:
        raise InvalidPartitionsError(
            f"topic {topic} has {len(there)} partitions: their number can only grow",
            got=partitions,
            expected=f"at least {len(there) + 1}",
        )
    return missing


# ---- deletion -----------------------------------------------------------------------------
def delete_topic(root: LogRoot, topic: str) -> list[str]:
    """Delete a topic with all its records, durably; return the paths of foreign files left behind.

    Only files of logs are removed. A directory with other files keeps them, and its name. Without
    such a topic, one that is being copied here, invisible to readers, is deleted.

    Raises:
        UnknownTopicError: There is no such topic.
        InvalidRequestError: The root is a foreign one.
        UnavailableError: A writer held the lock of a partition, or the disk failed. Once the topic
            has left the list, its next creation or deletion finishes the deletion.
    """
    _check_ours(root, topic)
    unfinished = root.of_copies()
    with registry_locked(root):
        is_there = topic_exists(root, topic)
        if not is_there and root.fs.stat(unfinished.topic_properties(topic)) is not None:
            return delete_topic(unfinished, topic)
        if not is_there and root.fs.stat(root.deleted_topic(topic)) is None:
            raise unknown_topic_error(root.path, topic, list_topics(root), is_wanted=False)
        if is_there:
            root.fs.rename(root.topic_properties(topic), root.deleted_topic(topic))
        left = finish_deletion(root, topic)
    _logger.info("deleted topic %s in %s", topic, root.path)
    return left


def _check_ours(root: LogRoot, topic: str) -> None:
    check_root(root)
    if not is_our_root(root):
        raise InvalidRequestError(
            f"topic {topic} is read-only: streamlog did not make this root",
            path=root.path,
            hint="change the topic with its broker's tools",
        )
    refuse_live_broker(root)
    refuse_planted(root)


# ---- after the rename -----------------------------------------------------------------------


def finish_deletion(root: LogRoot, topic: str) -> list[str]:
    """Finish a deletion whose topic has left the list, if there is one.

    Args:
        root: The log root; the caller holds `registry_locked`.
        topic: The topic.

    Returns:
        The paths of remaining files that are not files of a log.

    Raises:
        LockTimeoutError: A writer held the lock of a partition.
    """
    marker = root.deleted_topic(topic)
    if root.fs.stat(marker) is None:
        return []
    root.fs.sync_directory(os.path.dirname(marker))  # the deleter may have died before its sync
    for number, path in directories_named(root, topic).items():
        if not _is_strangers(root.fs, path):
            set_aside(root, TopicPartition(topic, number), path)
    root.fs.sync_directory(root.path)
    left: list[str] = []
    for name in root.fs.list(root.path):
        if _is_remains_of(topic, name):
            left += _remove_remains(root, topic, name)
    checkpoints.remove_topic(root, topic)
    root.fs.sync_directory(root.path)
    with contextlib.suppress(FileMissingError):
        root.fs.remove(marker)
    root.fs.sync_directory(os.path.dirname(marker))
    for path in left:
        _logger.warning("left %s: not a file of a log", path)
    return left


def _is_strangers(fs: FileSystem, path: str) -> bool:
    with contextlib.suppress(StorageError):  # a dangling link belongs to the topic
        return holding_of(fs, path) in (Holding.STRANGE, Holding.NO_DIRECTORY)
    return False


def _remove_remains(root: LogRoot, topic: str, name: str) -> list[str]:
    """Remove the log in a directory set aside; with other files it gets its old name back.

    A broker deletes directories with names like this one, whatever they hold.
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
    """Return whether a directory is a partition of `topic` set aside; the name may be cut off."""
    match = _DELETE_DIRECTORY.fullmatch(name)
    if match is None:
        return False
    is_cut = len(name) == NAME_SIZE_MAX and topic.startswith(match["topic"])
    return match["topic"] == topic or is_cut


def set_aside(
    root: LogRoot,
    partition: TopicPartition,
    path: str,
    *,
    ending: str = _DELETE_SUFFIX,
    check: Callable[[], None] = lambda: None,
) -> str:
    """Rename the directory of a partition, under the lock of its writer; return the new path.

    Args:
        root: The log root.
        partition: The partition.
        path: Its directory.
        ending: The end of the new name.
        check: Called under the lock; raises if the directory must stay.

    Raises:
        LockTimeoutError: A writer held the lock of the partition.
    """
    lock = take_partition_lock(root, partition, timeout_ms=_LOCK_TIMEOUT_MS)
    try:
        check()
        topic_id = None
        with contextlib.suppress(CorruptDataError):  # the partition is being deleted anyway
            topic_id = read_topic_id(root.fs, path)
        unique = topic_id_hex(topic_id) if topic_id else "0" * 32
        suffix = f"-{partition.partition}.{unique}{ending}"
        # UnifiedLog.logDeleteDirName cuts off long names too.
        name = partition.topic[: NAME_SIZE_MAX - len(suffix)] + suffix
        aside = f"{root.path}/{name}"
        if root.fs.stat(aside) is not None:
            remove_log_files(root.fs, aside)
        # First the shared state: the handle of the last writer would trust it, and append to the
        # renamed directory. Without it the handle looks at the files and finds the topic gone.
        lock.file.truncate(0)
        root.fs.rename(path, aside)
    finally:
        lock.release()
    return aside
