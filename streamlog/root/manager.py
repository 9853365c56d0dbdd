"""`LogManager`: open a log root, create, alter, describe and delete its topics, open partitions.

Opening a root for reading never changes it. The first call that writes (`create_topic`,
`delete_topic`, `log`, `commits`) registers a writer of the root (`open_writers`); `close`
unregisters it.
"""

import contextlib
import logging
import random as random_module
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final

from streamlog.clock import Clock
from streamlog.commits.commit_log import CommitLog
from streamlog.commits.mirror import Mirror
from streamlog.commits.retirement import Chores, at_once
from streamlog.config.log_config import ConfigValue, LogConfig
from streamlog.config.server_config import ConfigEntry, ServerConfig
from streamlog.errors import (
    FileMissingError,
    InvalidRequestError,
    StreamLogError,
    command_at,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition.locks import Patience
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.partition.reader import LogReader
from streamlog.partition.root_marks import sync_names
from streamlog.partition.topic_config import ConfigFiles, read_topic_properties
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.root import registry, replicated_topics, topics
from streamlog.root.deeds import Deed, read_deeds
from streamlog.root.notebook import (
    PARTITION_TITLES,
    TOPIC_TITLES,
    html_table,
    partition_cells,
    topic_cells,
)
from streamlog.root.open_writers import OpenWriter
from streamlog.root.partition_log import FindReplicas, OpenPartitions, PartitionLog
from streamlog.root.read_roots import RootPaths, parse_roots
from streamlog.root.readers import Held, Holds
from streamlog.root.roots import (
    check_root,
    is_our_root,
    make_root,
    refuse_live_broker,
    refuse_planted,
)
from streamlog.root.set_commits import SetCommits
from streamlog.topic import TopicPartition, check_topic_name

__all__ = [
    "LogManager",
    "PartitionDescription",
    "TopicDescription",
    "describe_partition",
]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """Facts about one partition at one moment.

    Attributes:
        partition: Its number.
        path: Its directory.
        leader: The node that leads it: the `node.id` of this root, 0 if it has none.
        leader_epoch: The latest epoch, -1 if unknown.
        log_start_offset: The first readable offset.
        high_watermark: The end of committed records.
        log_end_offset: The offset of the next record.
        segments: Number of segments.
        size_bytes: Bytes of all segments.
    """

    partition: int
    path: str
    leader: int
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic: its id, its partitions by number, all settings in force with their sources.

    `held` lists the segments kept for recorded readers, `deeds` the last changes by maintenance.
    """

    name: str
    topic_id: str | None
    partitions: tuple[PartitionDescription, ...]
    configs: tuple[ConfigEntry, ...]
    held: tuple[Held, ...]
    deeds: tuple[Deed, ...]

    def _repr_html_(self) -> str:
        """Return the partitions as a table, for notebooks."""
        rows = (
            partition_cells(
                each.partition,
                (each.log_start_offset, each.high_watermark, each.log_end_offset),
                each.segments,
                each.size_bytes,
            )
            for each in self.partitions
        )
        return html_table(f"Topic {self.name}", PARTITION_TITLES, rows)


def describe_partition(
    reader: LogReader, number: int, path: str, leader: int
) -> PartitionDescription:
    """Return the facts that a reader knows about its partition."""
    return PartitionDescription(
        partition=number,
        path=path,
        leader=leader,
        leader_epoch=reader.leader_epoch,
        log_start_offset=reader.log_start_offset,
        high_watermark=reader.high_watermark,
        log_end_offset=reader.log_end_offset,
        segments=len(reader.segments),
        size_bytes=reader.size,
    )


def _home(root: RootPaths, fs: FileSystem | None) -> str:
    """Return the log root to open: of several, the first that can be read."""
    fs = fs or LocalFileSystem()
    paths = parse_roots(root, fs)
    if len(paths) == 1:
        return paths[0]
    roots = RootSet.open([LogRoot.at(path, fs=fs) for path in paths])
    if roots is None:
        raise InvalidRequestError(
            "log roots belong to no replica set",
            path=paths[0],
            hint=command_at(paths[0], f"replicas add {paths[1]}"),
        )
    return roots.home.path


_DEEDS_SHOWN: Final = 5


class LogManager:
    """A log root; see `LogManager.open`.

    Attributes:
        root: Its directory, absolute.
        fs: The file system it lies in.
        clock: Its clock.
        log_root: The three together, with all paths of the root.
        marks: The recovery points and log starts of its partitions.
        patience: Time limit for locks of other writers.

    Source: org.apache.kafka.storage.internals.log.LogManager.
    """

    def __init__(
        self,
        log_root: LogRoot,
        *,
        chores: Chores,
        lock_timeout_ms: float | None,
        replicated: FindReplicas | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        self.log_root, self._chores = log_root, chores
        self.root, self.fs, self.clock = log_root.path, log_root.fs, log_root.clock
        self.patience = Patience()
        self._lock_timeout_ms, self._mirror = lock_timeout_ms, mirror
        self._guard = threading.RLock()
        self._partitions = OpenPartitions(
            log_root,
            patience=self.patience,
            enter=self._enter,
            replicated=replicated,
            mirror=mirror,
        )
        self.marks = self._partitions.marks
        self._readers: dict[TopicPartition, LogReader] = {}
        self._commits: CommitLog | SetCommits | None = None
        self._writer: OpenWriter | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        root: RootPaths,
        *,
        create: bool = False,
        adopt: bool = False,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        random: random_module.Random | None = None,
        chores: Chores = at_once,
        lock_timeout_ms: float | None = None,
        replicated: FindReplicas | None = None,
        mirror: Mirror | None = None,
    ) -> "LogManager":
        """Open a log root.

        Args:
            root: The directory; also a broker's log.dir, read-only. Or several roots of a replica
                set, as a list or separated by commas: the first that can be read is opened.
            create: Make the root if the directory is missing or empty.
            adopt: With `create`, also accept a directory with other contents: logs in it become
                topics, other files stay as they are.
            fs: The file system; the machine's own by default.
            clock: The clock; the machine's own by default.
            random: For ids.
            chores: Runs the work that commits leave behind; immediately by default.
            lock_timeout_ms: Time limit for locks of other writers; the root's
                `streamlog.lock.timeout.ms` by default.
            replicated: Returns the other replicas of a partition that is to be led through this
                root, and no other.
            mirror: The copies of its commits on other roots, if it is part of a replica set.

        Returns:
            The open root; close it, or use it as a context manager.

        Raises:
            UnknownTopicError: There is no such root.
            InvalidRequestError: It is not a directory, or cannot become a root.
            StorageError: It is not readable.
        """
        log_root = LogRoot.at(_home(root, fs), fs=fs, clock=clock, random=random)
        if create:
            make_root(log_root, adopt=adopt)
        check_root(log_root)
        return cls(
            log_root,
            chores=chores,
            lock_timeout_ms=lock_timeout_ms,
            replicated=replicated,
            mirror=mirror,
        )

    # ---- topics ------------------------------------------------------------------------------
    @property
    def server_config(self) -> ServerConfig:
        """The root's settings as of now."""
        return self._partitions.server.load()

    def topic_config(self, name: str) -> LogConfig:
        """Return the settings of a topic: its own override the root's, these Kafka's defaults.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidConfigError: A settings file has an unknown key or an invalid value.
        """
        self._check_exists(name)
        return ConfigFiles(self.log_root, name, self._partitions.server).load()

    def topics(self) -> list[str]:
        """Return the names of the topics, sorted."""
        self._check_open()
        return topics.list_topics(self.log_root)

    def partitions(self, name: str) -> list[int]:
        """Return the numbers of a topic's partitions, ascending.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        self._check_exists(name)
        return replicated_topics.partition_numbers(self.log_root, name)

    def describe(self, name: str) -> TopicDescription:
        """Return the facts about a topic, its partitions and settings; takes no lock.

        Raises:
            UnknownTopicError: There is no such topic.
            CorruptDataError: A file of the topic is damaged.
        """
        self._check_exists(name)
        meta = read_meta_properties(self.fs, self.root)
        leader = 0 if meta is None or meta.node_id is None else meta.node_id
        directories = topics.partition_directories(self.log_root, name)
        holds = Holds.read(self.log_root)
        described, held, topic_id = [], [], None
        for number, path in directories.items():
            reader = self.reader(name, number)
            reader.refresh()
            topic_id = topic_id or reader.topic_id
            described.append(describe_partition(reader, number, path, leader))
            sizes = [segment.size for segment in reader.segments]
            partition = TopicPartition(name, number)
            held += holds.of(partition, path, reader.segments.base_offsets, sizes)
        own = read_topic_properties(self.log_root, name)
        return TopicDescription(
            name=name,
            topic_id=topic_id,
            partitions=tuple(described),
            configs=tuple(self.server_config.describe(own)),
            held=tuple(held),
            deeds=tuple(read_deeds(self.log_root, topic=name)[-_DEEDS_SHOWN:]),
        )

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, ConfigValue] | None = None,
        *,
        if_not_exists: bool = False,
        replication_factor: int | None = None,
        replica_assignment: Sequence[Sequence[int]] | None = None,
    ) -> TopicDescription:
        """Create a topic; durable.

        Args:
            name: Its name.
            partitions: Its number of partitions; the root's `num.partitions` by default.
            configs: Its own settings, by Kafka's topic keys.
            if_not_exists: Leave an existing topic of this name as it is.
            replication_factor: Its number of replicas, each in a log root of its own; the root's
                `default.replication.factor` by default.
            replica_assignment: The nodes with replicas, a row for each partition; replaces both
                numbers.

        Raises:
            TopicExistsError: The topic exists.
            InvalidTopicError: The name is invalid, or collides with that of another topic.
            InvalidPartitionsError: The number of partitions is out of range.
            InvalidReplicationFactorError: Fewer log roots are online.
            InvalidReplicaAssignmentError: A node is unknown, offline or repeated.
            InvalidConfigError: Unknown key or invalid value.
            UnavailableError: A lock was held, a broker is running, or the disk failed.
        """
        self._check_open()
        check_topic_name(name)
        if if_not_exists and topics.topic_exists(self.log_root, name):
            sync_names(self.log_root, [name])  # its creator may have died before it was durable
        else:
            self._enter()
            server = self.server_config
            count = server.num_partitions if partitions is None else partitions
            factor = replication_factor
            if factor is None:
                factor = server.default_replication_factor
            if factor != 1 or replica_assignment is not None:
                replicated_topics.create_replicated(
                    self._root_set(factor),
                    name,
                    partitions=count,
                    replication_factor=factor,
                    configs=configs or {},
                    assignment=replica_assignment,
                )
            else:
                replicated_topics.forget_replicas(self.log_root, name)
                registry.create_topic(self.log_root, name, partitions=count, configs=configs or {})
        return self.describe(name)

    def _root_set(self, factor: int) -> RootSet:
        return replicated_topics.set_with_replicas(self.log_root, factor, patience=self.patience)

    def alter_topic(
        self,
        name: str,
        *,
        configs: Mapping[str, ConfigValue] | None = None,
        delete_configs: Collection[str] = (),
        partitions: int | None = None,
    ) -> TopicDescription:
        """Change the settings of a topic, add partitions; durable, effective for open handles too.

        Args:
            name: Its name.
            configs: Settings to add or replace, by Kafka's topic keys.
            delete_configs: Keys of its own settings to remove.
            partitions: Its new number of partitions, which can only grow.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidPartitionsError: The number of partitions would not grow.
            InvalidConfigError: Unknown key, invalid value, or nothing to delete.
            UnavailableError: A lock was held, a broker is running, or the disk failed.
        """
        self._check_exists(name)
        self._enter()
        alter: Callable[..., None] = partial(registry.alter_topic, self.log_root)
        if replicated_topics.is_replicated(self.log_root, name):
            roots = self._root_set(2)
            alter = partial(replicated_topics.alter_replicated, roots)
        alter(name, configs=configs or {}, delete_configs=delete_configs, partitions=partitions)
        return self.describe(name)

    def ensure_topic(self, name: str) -> None:
        """Create a topic if it is missing and `auto.create.topics.enable` is true.

        Raises:
            UnknownTopicError: It is missing, and that setting is false.
        """
        if not topics.topic_exists(self.log_root, name):
            if not self.server_config.auto_create_topics_enable:
                self._check_exists(name)
            self.create_topic(name, if_not_exists=True)

    def delete_topic(self, name: str) -> list[str]:
        """Delete a topic with all its records, durably; return paths of foreign files left behind.

        Raises:
            UnknownTopicError: There is no such topic.
            UnavailableError: A writer held the lock of a partition, or the disk failed.
        """
        self._check_open()
        check_topic_name(name)
        with self._guard:
            self._enter()
            self.close_topic(name)
            if replicated_topics.is_replicated(self.log_root, name):
                return replicated_topics.delete_replicated(self._root_set(2), name)
            return registry.delete_topic(self.log_root, name)

    def close_topic(self, name: str) -> None:
        """Close the open partitions of a topic; a later call opens them again.

        A program that outlives topics calls it once another process has deleted one.
        """
        with self._guard:
            self._partitions.close_topic(name)
            for partition in [each for each in self._readers if each.topic == name]:
                self._readers.pop(partition).close()

    def delete_records(
        self, topic: str, partition: int, offset: int, *, force: bool = False
    ) -> int:
        """Delete the records of a partition below an offset; see `PartitionLog.delete_records`."""
        return self.log(topic, partition).delete_records(offset, force=force)

    # ---- partitions --------------------------------------------------------------------------
    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return a partition open for writing; the same object on each call until `close`.

        A replicated one is opened through its leader, wherever that is.

        Raises:
            UnknownTopicError: There is no such topic or partition.
            CorruptDataError: Acknowledged bytes are damaged.
            UnavailableError: A lock was held, a broker is running, or the disk failed.
        """
        return self.logs([TopicPartition(topic, partition)])[0]

    def logs(self, wanted: Sequence[TopicPartition]) -> list[PartitionLog]:
        """Return partitions open for writing, in the given order; see `log`.

        Opening them in one call writes the root's checkpoint once.
        """
        with self._guard:
            self._check_open()
            if self._mirror is not None:
                self._enter()  # taking over opens partitions too
            return self._partitions.get(wanted)

    def local_log(self, topic: str, partition: int) -> PartitionLog:
        """Return a partition as this root has it, open to be maintained; see `log`.

        A replica is appended to through its leader only, which `log` returns.
        """
        with self._guard:
            self._check_open()
            return self._partitions.get_local([TopicPartition(topic, partition)])[0]

    def reader(self, topic: str, partition: int) -> LogReader:
        """Return a partition open for reading; the same object on each call until `close`.

        Raises:
            UnknownTopicError: There is no such topic or partition.
            CorruptDataError: A file that opening reads is damaged.
        """
        wanted = TopicPartition(topic, partition)
        with self._guard:
            self._check_open()
            found = self._readers.get(wanted)
            if found is None:
                found = LogReader.open(topics.partition_path(self.log_root, wanted), fs=self.fs)
                self._readers[wanted] = found
            return found

    @property
    def commits(self) -> CommitLog | SetCommits:
        """The transactional commits of the root, or of its replica set."""
        with self._guard:
            self._check_open()
            if self._commits is None:
                self._enter()
                roots = RootSet.load(self.log_root, patience=self.patience)
                if roots is None or roots.register(COMMITS).peek() is None:
                    self._commits = self._partitions.commit_log(
                        open_logs=self.logs, chores=self._chores
                    )
                else:
                    self._commits = SetCommits(roots, patience=self.patience, chores=self._chores)
            return self._commits

    # ---- closing -----------------------------------------------------------------------------
    def close(self) -> None:
        """Close all partitions, write the high watermarks, leave the root; idempotent.

        Raises:
            StorageError: Something could not be made durable; everything is closed all the same.
        """
        with self._guard:
            if self._closed:
                return
            self._closed = True
            with contextlib.ExitStack() as stack:
                if self._writer is not None:
                    stack.push(self._leave)
                for reader in self._readers.values():
                    stack.callback(reader.close)
                stack.callback(self._partitions.close)
                if isinstance(self._commits, SetCommits):
                    stack.callback(self._commits.close)

    def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._writer is not None
        try:
            self._writer.leave(in_order=error is None)
        except FileMissingError as missing:
            if not self._partitions.are_all_led:
                raise
            # The root is gone with its disk; what was acknowledged is on the other replicas.
            _logger.warning("log root %s is not left in order: %s", self.root, missing)

    def _enter(self) -> None:
        """Register this process as a writer of the root, once."""
        with self._guard:
            self._check_open()
            if self._writer is not None:
                return
            refuse_live_broker(self.log_root)
            refuse_planted(self.log_root)
            if not is_our_root(self.log_root):
                make_root(self.log_root)
            timeout_ms = self._lock_timeout_ms
            default_ms = self.server_config.streamlog_lock_timeout_ms
            self.patience.timeout_ms = default_ms if timeout_ms is None else timeout_ms
            self._writer = OpenWriter.enter(self.log_root)
            roots = RootSet.load(self.log_root, patience=self.patience)
            if roots is not None:
                replicated_topics.restore_if_due(roots)
            if self._mirror is not None:
                self._mirror.enter(self._partitions.get)

    def _check_exists(self, name: str) -> None:
        self._check_open()
        if not topics.topic_exists(self.log_root, name):
            known = topics.list_topics(self.log_root)
            roots = RootSet.load(self.log_root, patience=self.patience)
            offline = () if roots is None else roots.offline()
            raise topics.unknown_topic_error(self.root, name, known, offline=offline)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequestError("the log root has been closed", path=self.root)

    def __enter__(self) -> "LogManager":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LogManager {self.root}{' closed' if self._closed else ''}>"

    def _repr_html_(self) -> str | None:
        """Return the topics as a table, for notebooks; None once it is closed."""
        return (
            None
            if self._closed
            else html_table(
                f"Log root {self.root}", TOPIC_TITLES, map(self._topic_cells, self.topics())
            )
        )

    def _topic_cells(self, name: str) -> list[str]:
        try:
            described = self.describe(name).partitions
        except StreamLogError as error:
            return [name, str(error)]
        return topic_cells(
            name,
            len(described),
            sum(each.log_end_offset - each.log_start_offset for each in described),
            sum(each.size_bytes for each in described),
        )
