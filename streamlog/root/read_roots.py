"""The log roots that a reader may read: one path, or all roots of a replica set.

One path is any that `find_partitions` takes, and costs what it costs there. Of a set, a root is
skipped while it is offline, and a topic is read from the roots that have it under the id of its
register: a root that returns with an older copy may still have a deleted topic, or the former one
of a name. Roots without a list, such as the directories of several brokers or copies of one root,
are read as copies: the id that most of them have counts.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from streamlog.clock import Clock, SystemClock
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidOptionError,
    InvalidRequestError,
    NoReplicaOnlineError,
    StorageError,
    StreamLogError,
    UnavailableError,
)
from streamlog.fs.api import FileStat, FileSystem
from streamlog.fs.files import stat_directory
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot, refuse_url
from streamlog.partition.partition_metadata import PARTITION_METADATA, read_topic_id
from streamlog.partition.reader import LogReader
from streamlog.partition.tiered import with_remote_segments
from streamlog.replication.partition_state import NO_LEADER
from streamlog.replication.register import QuorumRegister
from streamlog.replication.root_set import RootSet
from streamlog.root.readers import Reader, list_readers
from streamlog.root.replica_reader import REPLICA_FAILURES, LeaderAndIsr, ReplicaReader
from streamlog.root.replicated_topics import is_replicated
from streamlog.root.topics import find_partitions
from streamlog.segment.filenames import parse_log_file_name
from streamlog.topic import TopicPartition

__all__ = ["Directories", "ReadRoots", "RootPaths", "parse_roots"]

RootPaths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

Directories = dict[str, dict[int, tuple[str, ...]]]  # by topic and partition number


_ByRoot: TypeAlias = Mapping[str, Mapping[str, Mapping[int, str]]]

_LOOK_EVERY_MS: Final = 200
_SETTLED_AFTER_MS: Final = 2000


class ReadRoots:
    """One path or the roots of a replica set, for reading.

    Args:
        path: A log root, a partition's directory or a segment file; or several log roots, as a
            list or separated by commas. One root of a set names the others. Directories of
            Kafka's tiered storage may be among them, see `streamlog.partition.tiered`.
        fs: The file system; the machine's own by default.
        clock: The clock; the machine's own by default.

    Attributes:
        fs: Where to read; with remote segments, a view that shows them in place.
        paths: The paths as given, absolute, without remote storages beside a log root.
    """

    def __init__(
        self, path: RootPaths, *, fs: FileSystem | None = None, clock: Clock | None = None
    ) -> None:
        self.fs = fs or LocalFileSystem()
        self.clock = clock or SystemClock()
        self.paths = parse_roots(path, self.fs)
        self.fs, self.paths = with_remote_segments(self.fs, self.paths)
        self._roots: list[LogRoot] = []
        self._set: RootSet | None = None
        self._registers: dict[TopicPartition, QuorumRegister] = {}
        self._load_list()
        self._stamp: tuple[int, ...] = ()
        self._changes = 0
        self._looked_ms = -float("inf")
        self._topic_ids: dict[str, str | None] = {}
        self._ids: dict[str, tuple[FileStat, str]] = {}  # file and topic id by directory
        self._found: Directories = {}

    def _load_list(self) -> None:
        """Load the list of all roots of the set; an unreachable list changes nothing.

        Raises:
            InvalidRequestError: One of several paths does not belong to the set of the others.
            CorruptCheckpointError: No list is readable, and one is damaged.
        """
        named = [LogRoot.at(each, fs=self.fs, clock=self.clock) for each in self.paths]
        self._roots = self._roots or named
        if parse_log_file_name(os.path.basename(self.paths[0])) is not None:
            return
        with contextlib.suppress(UnavailableError):
            found = RootSet.open(named)
            if found is not None and (self._set is None or found.list != self._set.list):
                self._set, self._registers = found, {}
                self._roots = [found.root(node) for node in found.node_ids]

    @property
    def roots(self) -> tuple[LogRoot, ...]:
        """The log root, or all roots of the set, reachable or not."""
        return tuple(self._roots)

    @property
    def name(self) -> str:
        """The paths as text, for errors and commands."""
        return ",".join(root.path for root in self._roots) if self.is_set else self.paths[0]

    @property
    def is_set(self) -> bool:
        """Whether there are several roots."""
        return len(self._roots) > 1

    @property
    def offline(self) -> list[str]:
        """The paths of roots of the set that are not reachable."""
        return [each.path for each in self._roots if self.is_set and not self._is_online(each)]

    @property
    def first_online(self) -> LogRoot:
        """The only root, or the first one of the set that is reachable.

        Raises:
            UnavailableError: There is none.
        """
        self.in_each(self.check_online)
        return next(root for root in self._roots if not self.is_set or self._is_online(root))

    # ---- the partitions ----------------------------------------------------------------------
    def changed_at(self) -> tuple[int, ...]:
        """Return times that change when a topic or partition is created or deleted."""
        names = [name for root in self._roots for name in (root.path, root.topics)]
        if self.is_set:
            names += [root.replica_roots for root in self._roots]
        return tuple(map(self._changed_at, names))

    def _changed_at(self, directory: str) -> int:
        try:
            found = stat_directory(self.fs, directory)
        except StorageError:
            if not self.is_set:
                raise
            return -1
        return 0 if found is None else found.mtime_ns

    def find(self) -> Directories:
        """Return the directories of each partition, in the order of the roots.

        Of a set, those in unreachable roots are included: they may be reachable elsewhere, or
        later.

        Raises:
            UnknownTopicError: There is no log at the only path.
            InvalidRequestError: The only path is a file that is not a segment.
            NoReplicaOnlineError: No root of a set is reachable.
        """
        if not self.is_set:
            found = find_partitions(self.fs, self.paths[0])
            return {
                topic: {number: (path,) for number, path in numbers.items()}
                for topic, numbers in found.items()
            }
        self._load_list()
        by_root = self._by_root()
        topics = {topic for found in by_root.values() for topic in found}.union(self._found)
        kept = [topic for topic in sorted(topics) if not self._is_left_over(topic, by_root)]
        self._topic_ids = {topic: self._topic_id(topic, by_root) for topic in kept}
        self._found = {topic: self._directories_of(topic, by_root) for topic in kept}
        return self._found

    def _by_root(self) -> dict[str, dict[str, dict[int, str]]]:
        """Return the partitions of each reachable root."""
        found, errors = {}, []
        for root in self._roots:
            try:
                self.check_online(root)
                found[root.path] = find_partitions(self.fs, root.path)
            except (*REPLICA_FAILURES, UnavailableError) as error:
                errors.append(error)
        if not found:
            raise NoReplicaOnlineError(
                "no log root of the replica set is reachable",
                got="; ".join(error.sentence for error in errors),
                expected=f"one of {self.name}",
                hint="mount the disk of one of them",
            )
        return found

    def check_online(self, root: LogRoot) -> None:
        """Check that a root of a set is there; an unmounted one leaves an empty directory.

        Raises:
            UnavailableError: It is missing, cannot be read, or another root is in its place.
        """
        if not self.is_set:
            return
        if self._set is not None:
            self._set.check_online(self._node_of(root.path))
        elif self.fs.stat(root.meta_properties) is None:
            raise FileMissingError(
                "log root is unreachable: it has no meta.properties", path=root.path
            )

    def in_each(self, write: Callable[[LogRoot], object]) -> dict[str, StreamLogError]:
        """Write to each root that is reachable; returns the failures of the others by path.

        Raises:
            StreamLogError: The first failure, if there are only failures.
        """
        failures: dict[str, StreamLogError] = {}
        for root in self._roots:
            try:
                self.check_online(root)
                write(root)
            except (InvalidRequestError, UnavailableError) as error:
                failures[root.path] = error
        if len(failures) == len(self._roots):
            raise next(iter(failures.values()))
        return failures

    def recorded_readers(self) -> list[Reader]:
        """Return the recorded readers by name, each with its latest position in any root.

        Raises:
            CorruptCheckpointError: A file is malformed, so it is unknown what its reader needs.
        """
        latest: dict[str, Reader] = {}
        for root in self._roots:
            if self.is_set and not self._is_online(root):
                continue
            for each in list_readers(root):
                if each.name not in latest or each.committed_ms > latest[each.name].committed_ms:
                    latest[each.name] = each
        return [latest[name] for name in sorted(latest)]

    def _node_of(self, path: str) -> int:
        listed = () if self._set is None else self._set.list.roots
        return next((each.node for each in listed if each.path == path), NO_LEADER)

    def _is_left_over(self, topic: str, by_root: _ByRoot) -> bool:
        """Return whether a topic was deleted while a root that still has it was away.

        If its register is unknown, a majority of the roots must be known not to have it.
        """
        if not self._is_replicated(topic, by_root):
            return False
        register = self._register(TopicPartition(topic, 0))
        if register is not None and register.is_deleted():
            return True
        lacking = sum(topic not in found for found in by_root.values())
        return lacking > len(self._roots) // 2 and (register is None or not register.settled())

    def _is_replicated(self, topic: str, by_root: _ByRoot) -> bool:
        """Return whether a topic has registers; without a list of roots all count as copies."""
        if self._set is None:
            return True
        return any(root.path in by_root and is_replicated(root, topic) for root in self._roots)

    def _topic_id(self, topic: str, by_root: _ByRoot) -> str | None:
        """Return the id of a topic: that of its register, else the one that most roots have.

        The first root decides ties. Without a register, an id that was found before is replaced
        only if a majority of all roots has another one.
        """
        register = self._register(TopicPartition(topic, 0))
        state = None if register is None else register.settled()
        if state is not None:
            return state.topic_id
        before = self._topic_ids.get(topic)
        ids = Counter(
            self._read_topic_id(found[topic][min(found[topic])])
            for found in by_root.values()
            if found.get(topic)
        )
        best, count = ids.most_common(1)[0] if ids else (before, 0)
        return best if before is None or count > len(self._roots) // 2 else before

    def _read_topic_id(self, directory: str) -> str | None:
        """Return the topic id in a directory; one `stat` while its file is the same."""
        try:
            found = self.fs.stat(f"{directory}/{PARTITION_METADATA}")
            known = self._ids.get(directory)
            if known is not None and known[0] == found:
                return known[1]
            topic_id = read_topic_id(self.fs, directory)
        except (StorageError, CorruptDataError):
            return None
        if found is not None and topic_id is not None:
            self._ids[directory] = found, topic_id
        return topic_id

    def _directories_of(self, topic: str, by_root: _ByRoot) -> dict[int, tuple[str, ...]]:
        wanted, is_replicated = self._topic_ids[topic], self._is_replicated(topic, by_root)
        directories: dict[int, list[str]] = {
            number: []
            for number in sorted({n for found in by_root.values() for n in found.get(topic, ())})
        }
        for root in self._roots:
            online = by_root.get(root.path)
            for number, found in directories.items():
                directory = root.partition(TopicPartition(topic, number))
                if online is None:
                    found += [directory] * is_replicated
                elif number in online.get(topic, {}) and self._read_topic_id(directory) == wanted:
                    found.append(directory)
        reachable = {
            number: tuple(found)
            for number, found in directories.items()
            if any(os.path.dirname(each) in by_root for each in found)
        }
        return reachable or self._found.get(topic, {})  # all its roots may be unreachable for now

    def identity(self, topic: str, directories: Sequence[str]) -> object:
        """Return a value that differs once the directories are those of another partition.

        Args:
            topic: Its topic.
            directories: As returned by `find`.

        Returns:
            None if the only directory is gone.
        """
        if self.is_set:
            return self._topic_ids.get(topic), tuple(directories)
        found = stat_directory(self.fs, directories[0])
        return None if found is None else found.inode

    def open(
        self,
        partition: TopicPartition,
        directories: Sequence[str],
        *,
        max_decompressed_bytes: int | None = None,
    ) -> LogReader | ReplicaReader:
        """Open a partition that `find` returned.

        Raises:
            UnknownTopicError: It was deleted in the meantime.
            StorageError: It cannot be read.
            NoReplicaOnlineError: No replica of it can be read.
        """
        if not self.is_set:
            return LogReader.open(
                directories[0], fs=self.fs, max_decompressed_bytes=max_decompressed_bytes
            )
        return ReplicaReader(
            partition,
            directories,
            self,
            fs=self.fs,
            clock=self.clock,
            topic_id=self._topic_ids.get(partition.topic),
            max_decompressed_bytes=max_decompressed_bytes,
        )

    # ---- the leader --------------------------------------------------------------------------
    def leader_and_isr(self, partition: TopicPartition, directories: Sequence[str]) -> LeaderAndIsr:
        """Return which of a partition's directories leads and which are in sync.

        Without a register all are in sync; of mere copies of a log, if all roots are reachable.
        """
        register = self._register(partition)
        state = None if register is None else register.peek()
        if register is None or state is None:
            is_complete = self._set is not None or all(map(self._is_online, self._roots))
            return LeaderAndIsr(None, frozenset(directories if is_complete else ()))
        nodes = {self._node_of(os.path.dirname(each)): each for each in directories}
        in_sync = state.isr if register.settled() == state else ()
        return LeaderAndIsr(
            nodes.get(state.leader), frozenset(nodes[n] for n in in_sync if n in nodes)
        )

    def _register(self, partition: TopicPartition) -> QuorumRegister | None:
        if self._set is not None and partition not in self._registers:
            self._registers[partition] = self._set.register(partition)
        return self._registers.get(partition)

    def changes(self) -> int:
        """Return a number that grows when a register of the set may have changed.

        A change within the same clock tick as the last look leaves the time of the directory
        unchanged, so for a moment after each change more are assumed.
        """
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._looked_ms >= _LOOK_EVERY_MS:
            self._looked_ms = now_ms
            stamp = tuple(self._changed_at(root.replication) for root in self._roots)
            is_recent = max(stamp) > (self.clock.now_ms() - _SETTLED_AFTER_MS) * 1_000_000
            if stamp != self._stamp or is_recent:
                self._stamp = stamp
                self._changes += 1
        return self._changes

    def is_reachable(self, directory: str) -> bool:
        """Return whether the log root of a partition's directory is there."""
        parent = os.path.dirname(directory)
        return any(root.path == parent and self._is_online(root) for root in self._roots)

    def _is_online(self, root: LogRoot) -> bool:
        try:
            self.check_online(root)
        except UnavailableError:
            return False
        return True


def parse_roots(
    path: RootPaths, fs: FileSystem, *, resolve: Callable[[str], str] = os.path.abspath
) -> tuple[str, ...]:
    """Return the paths that `path` names: itself if it exists, else its parts between commas.

    Raises:
        InvalidOptionError: There is no path, or one of them is a URL.
    """
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        is_one = "," not in text or fs.stat(resolve(text)) is not None
        path = [text] if is_one else [each.strip() for each in text.split(",")]
    for each in path:
        refuse_url(each)
    paths = tuple(dict.fromkeys(resolve(os.fspath(each)) for each in path if os.fspath(each)))
    if not paths:
        raise InvalidOptionError("path is empty", expected="a root, a partition or a log file")
    return paths
