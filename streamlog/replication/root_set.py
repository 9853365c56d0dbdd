"""The replica set: the log roots that hold replicas and registers, and which of them are online.

Each root keeps the whole list in `.streamlog/replicas.json`, a sealed file; its `node.id` names a
root, its `cluster.id` the set. A change raises the version of the list and is written to a majority
of the old list and of the new one. The highest version wins, so any reachable root names the
others.

The list only says where the roots are. What counts as a majority for a partition's state is part of
that state (`streamlog.replication.quorum.Accepted.voters`), so an outdated list harms nothing.

A root is *offline* while its directory is missing or unreadable, holds the `meta.properties` of
another root, or was a mount point and is not one now: the files would fill the disk below.
A root is *emptied* if its directory is there, mounted where it was, and holds nothing: a replaced
disk, to be filled again.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from streamlog.binary.sealed import MAX_SEALED_SIZE, SealedValues, seal, unseal
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidRequestError,
    NoQuorumError,
    StorageError,
    StreamLogError,
    UnavailableError,
)
from streamlog.fs.api import FileKind, FileLock, FileStat
from streamlog.fs.files import (
    make_directories,
    read_file,
    stat_directory,
    write_file_atomically,
)
from streamlog.fs.log_root import LogRoot
from streamlog.partition.locks import DEFAULT_LOCK_TIMEOUT_MS, Patience, take_partition_lock
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.replication.register import QuorumRegister
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.status import Node
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = [
    "COMMITS",
    "ListedRoot",
    "RootList",
    "RootSet",
    "device_of",
    "is_mount_point",
    "read_root_list",
]

COMMITS: Final = "commits"  # the register of the roots that keep commits; no partition's name
_KIND: Final = "replicas"
_LOST_AND_FOUND: Final = "lost+found"  # at the top of every ext4 file system


@dataclass(frozen=True, slots=True)
class ListedRoot:
    """A log root in the list.

    Attributes:
        node: Its `node.id`.
        path: Its directory, absolute.
        is_mount: Whether it was a mount point when it was added.
    """

    node: int
    path: str
    is_mount: bool


@dataclass(frozen=True, slots=True)
class RootList:
    """The content of `replicas.json`.

    Attributes:
        version: Raised by one with each change.
        cluster_id: The `cluster.id` of all roots.
        next_node: The node of the next root; none is given twice.
        roots: The roots, in the order in which replicas are assigned.
    """

    version: int
    cluster_id: str
    next_node: int
    roots: tuple[ListedRoot, ...]

    def with_root(self, added: ListedRoot) -> "RootList":
        """Return the next list, with a root added at the end, or at a new path."""
        kept = tuple(added if each.node == added.node else each for each in self.roots)
        if added not in kept:
            kept = (*kept, added)
        following = max(self.next_node, added.node + 1)
        return replace(self, version=self.version + 1, next_node=following, roots=kept)

    def without(self, node: int) -> "RootList":
        """Return the next list, without a root."""
        kept = tuple(each for each in self.roots if each.node != node)
        return replace(self, version=self.version + 1, roots=kept)


def read_root_list(root: LogRoot) -> RootList | None:
    """Return the list that a root holds, None if it has none.

    Raises:
        CorruptCheckpointError: The file is damaged.
        StorageError: It cannot be read.
    """
    try:
        content = read_file(root.fs, root.replica_roots, max_size=MAX_SEALED_SIZE)
    except FileMissingError:
        return None
    values = unseal(_KIND, content, root.replica_roots)
    return RootList(
        values.integer("version"),
        values.text("cluster_id"),
        values.integer("next_node"),
        tuple(map(_listed, values.objects("roots"))),
    )


def _listed(values: SealedValues) -> ListedRoot:
    path = values.text("path")
    if not os.path.isabs(path):
        raise values.malformed("path", path, "an absolute path")
    return ListedRoot(values.integer("node_id"), path, values.flag("is_mount"))


def _sealed(roots: RootList) -> bytes:
    return seal(
        _KIND,
        {
            "version": roots.version,
            "cluster_id": roots.cluster_id,
            "next_node": roots.next_node,
            "roots": [
                {"node_id": each.node, "path": each.path, "is_mount": each.is_mount}
                for each in roots.roots
            ],
        },
    )


# ---- directories ------------------------------------------------------------------------------
def device_of(root: LogRoot) -> int:
    """Return the number of the device that a root is on.

    Raises:
        FileMissingError: There is no such directory.
    """
    found = stat_directory(root.fs, root.path)
    if found is None:
        raise FileMissingError("log root is missing", path=root.path)
    return found.device


def is_mount_point(root: LogRoot) -> bool:
    """Return whether the directory of a root is the top of a mounted file system.

    Raises:
        FileMissingError: There is no such directory.
    """
    resolved = root.fs.resolve(root.path)
    parent = root.fs.stat(os.path.dirname(resolved))
    return parent is not None and parent.device != device_of(root)


# ---- the set ----------------------------------------------------------------------------------
class RootSet:
    """The log roots of a replica set; learns of roots that are added.

    Args:
        home: One of the roots; gives file system, clock and randomness to all.
        roots: The list in force.
        patience: Time limit for locks of other writers.
    """

    def __init__(self, home: LogRoot, roots: RootList, *, patience: Patience | None = None) -> None:
        self.home = home
        self.list = roots
        self._patience = patience or Patience(DEFAULT_LOCK_TIMEOUT_MS)
        self._roots = {each.node: replace(home, path=each.path) for each in roots.roots}
        self._list_stat: FileStat | None = None  # of the home's list, when it was read last

    @classmethod
    def load(cls, home: LogRoot, *, patience: Patience | None = None) -> "RootSet | None":
        """Return the replica set that a root belongs to, None if it has no list.

        Raises:
            CorruptCheckpointError: The list is damaged.
            StorageError: It cannot be read.
        """
        own = read_root_list(home)
        return None if own is None else cls(home, _in_force(home, own), patience=patience)

    @classmethod
    def open(
        cls, roots: Sequence[LogRoot], *, patience: Patience | None = None
    ) -> "RootSet | None":
        """Return the replica set that several roots belong to; the first reachable one is the home.

        Raises:
            InvalidRequestError: One of them does not belong to the set.
            UnavailableError: None of them can be read.
        """
        found: RootSet | None = None
        failure: StreamLogError | None = None
        for root in roots:
            try:
                found = cls.load(root, patience=patience)
            except (UnavailableError, CorruptDataError) as error:
                failure = error
                continue
            if found is not None:
                break
        if found is None and failure is not None:
            raise failure
        listed = [] if found is None else [each.path for each in found.list.roots]
        for root in roots if found is not None else ():
            if root.path not in listed:
                raise InvalidRequestError(
                    "log root does not belong to the replica set",
                    path=root.path,
                    expected=f"one of {', '.join(listed)}",
                    hint=f"add it: streamlog --path {found.home.path} replicas add {root.path}"
                    if found is not None
                    else None,
                )
        return found

    # ---- the roots ----------------------------------------------------------------------------
    @property
    def node_ids(self) -> tuple[int, ...]:
        """The listed nodes, in the order in which replicas are assigned."""
        return tuple(self._roots)

    @property
    def home_node(self) -> int:
        """The node of the home.

        Raises:
            InvalidRequestError: The home is not listed.
        """
        for each in self.list.roots:
            if each.path == self.home.path:
                return each.node
        raise InvalidRequestError("log root was removed from its replica set", path=self.home.path)

    def root(self, node: int) -> LogRoot:
        """Return the root of a listed node, online or not."""
        if node not in self._roots:
            self._refresh()
        return self._roots[node]

    def _refresh(self) -> None:
        """Take over a later list, if the home has one; a `stat` while its file does not change."""
        try:
            found = self.home.fs.stat(self.home.replica_roots)
            if found is None or found == self._list_stat:
                return
            own = read_root_list(self.home)
        except (UnavailableError, CorruptDataError):
            return  # the list in force stays
        self._list_stat = found
        if own is not None and own.version > self.list.version:
            self._roots = {each.node: replace(self.home, path=each.path) for each in own.roots}
            self.list = own

    def nodes(self) -> Mapping[int, Node]:
        """Return the listed roots by node, each with the reason why it is offline."""
        return {node: Node(node, root, self.problem(node)) for node, root in self._roots.items()}

    def online(self) -> dict[int, LogRoot]:
        """Return the roots that are online, by node."""
        return {node: root for node, root in self._roots.items() if self.problem(node) is None}

    def offline(self) -> list[str]:
        """Return the paths of the roots that are offline."""
        return [root.path for node, root in self._roots.items() if self.problem(node) is not None]

    def problem(self, node: int) -> StreamLogError | None:
        """Return why a root is offline, None if it is online."""
        try:
            self.check_online(node)
        except StreamLogError as error:
            return error
        return None

    def check_online(self, node: int) -> None:
        """Check that a root is there, and that it is the listed one.

        Raises:
            StorageError: It is missing, cannot be read, or is not mounted.
            UnavailableError: It is emptied, or another root is in its place.
        """
        if node not in self._roots:
            self._refresh()
        root = self._roots.get(node)
        if root is None:
            raise UnavailableError(
                "log root is not in the list of its replica set",
                path=self.home.replica_roots,
                got=f"node {node}",
                expected=f"one of nodes {list(self._roots)}",
            )
        self._check_mounted(node)
        try:
            meta = read_meta_properties(root.fs, root.path)
        except CorruptDataError as error:
            raise UnavailableError(error.what, path=error.path, got=error.got) from error
        if meta is None:
            what = "log root is empty" if self.is_emptied(node) else "not a log root"
            raise UnavailableError(what, path=root.path, expected=f"the log root of node {node}")
        if (meta.node_id, meta.cluster_id) != (node, self.list.cluster_id):
            raise UnavailableError(
                "another log root is in this place",
                path=root.path,
                got=f"node.id {meta.node_id}, cluster.id {meta.cluster_id}",
                expected=f"node.id {node}, cluster.id {self.list.cluster_id}",
            )

    def is_emptied(self, node: int) -> bool:
        """Return whether a root holds nothing: its disk was replaced.

        Raises:
            StorageError: It is missing, cannot be read, or is not mounted.
        """
        self._check_mounted(node)
        root = self._roots[node]
        return not [name for name in root.fs.list(root.path) if name != _LOST_AND_FOUND]

    def _check_mounted(self, node: int) -> None:
        root = self._roots[node]
        found = stat_directory(root.fs, root.path)
        if found is None or found.kind is not FileKind.DIRECTORY:
            raise FileMissingError("log root is missing", path=root.path)
        was_mount = next(each.is_mount for each in self.list.roots if each.node == node)
        if was_mount and not is_mount_point(root):
            raise StorageError(
                "log root is not mounted",
                path=root.path,
                expected="a mount point, as when it was added",
                hint=f"mount it: mount {root.path}",
            )

    # ---- registers and locks ------------------------------------------------------------------
    def register_files(self, partition: TopicPartition | str) -> dict[int, RegisterFile]:
        """Return the register of a partition in each listed root, by node."""

        def file(node: int, root: LogRoot) -> RegisterFile:
            return RegisterFile(root, str(partition), check=lambda: self.check_online(node))

        self._refresh()
        return {node: file(node, root) for node, root in self._roots.items()}

    @contextlib.contextmanager
    def locked(self, node: int, partition: TopicPartition | str) -> Iterator[FileLock]:
        """Hold the lock of a partition in the root of a node.

        Raises:
            UnavailableError: The root is offline, or the lock stayed held.
        """
        self.check_online(node)
        timeout_ms = self._patience.timeout_ms
        lock = take_partition_lock(self._roots[node], partition, timeout_ms=timeout_ms)
        try:
            yield lock
        finally:
            lock.release()

    def register(
        self, partition: TopicPartition | str, *, topic_id: str | None = None
    ) -> QuorumRegister:
        """Return the state of a partition over all roots, for a caller that holds no locks of it.

        Args:
            partition: The partition, or `commits`.
            topic_id: The id of its topic, to be checked.
        """
        return QuorumRegister(
            self.register_files(partition),
            locker=lambda node: self.locked(node, partition),
            random=self.home.random,
            topic_id=topic_id,
        )

    def register_names(self) -> list[str]:
        """Return the names of all registers in the roots that are online, by topic and number."""
        names: set[str] = set()
        for root in self.online().values():
            with contextlib.suppress(FileMissingError):
                listed = root.fs.list(root.replication)
                names |= {each for each in listed if _is_file(root, f"{root.replication}/{each}")}
        return sorted(names, key=lambda name: parse_partition_directory(name) or (name, -1))

    # ---- changing the list --------------------------------------------------------------------
    def check_majority(self, nodes: Collection[int], *, what: str) -> None:
        """Check that `nodes` are a majority of the list.

        Raises:
            NoQuorumError: They are not; names the others.
        """
        missing = [each for each in self.list.roots if each.node not in nodes]
        if 2 * len(missing) >= len(self.list.roots):
            raise NoQuorumError(
                f"too few log roots are online to {what}",
                path=self.home.path,
                got="; ".join(f"node {each.node} ({each.path})" for each in missing),
                expected=f"a majority of {len(self.list.roots)} log roots",
                hint="bring the missing log roots back; see them: streamlog replicas list",
            )

    def replace_list(self, changed: RootList) -> "RootSet":
        """Write the next list to all roots of both lists that are online; returns the new set.

        The caller holds the lists of topics of a majority of the roots.

        Raises:
            NoQuorumError: It reached no majority of the old list, or of the new one; the next
                change finishes or replaces it.
        """
        after = RootSet(self.home, changed, patience=self._patience)
        written = set()
        for node in {**self._roots, **after._roots}:
            owner = after if node in after._roots else self
            with contextlib.suppress(UnavailableError):
                owner.check_online(node)
                owner.write_list(node, changed)
                written.add(node)
        for each in (self, after):
            if each.list.roots:
                each.check_majority(written, what="change the list of log roots")
        return after

    def write_list(self, node: int, roots: RootList | None = None) -> None:
        """Write the list into the root of a node, durably."""
        root = self._roots[node]
        make_directories(root.fs, root.state)
        write_file_atomically(root.fs, root.replica_roots, _sealed(roots or self.list))


def _is_file(root: LogRoot, path: str) -> bool:
    found = root.fs.stat(path)
    name = os.path.basename(path)
    return found is not None and found.kind is FileKind.FILE and not name.startswith(".")


def _in_force(home: LogRoot, own: RootList) -> RootList:
    """Return the list with the highest version; of two the one that more roots hold."""
    found = Counter([own])
    for each in own.roots:
        if each.path != home.path:
            with contextlib.suppress(StreamLogError):
                other = read_root_list(replace(home, path=each.path))
                if other is not None and other.cluster_id == own.cluster_id:
                    found[other] += 1
    return max(found, key=lambda each: (each.version, found[each]))
