"""Add log roots to a replica set and remove them.

The first addition makes a set of one root and the new one. A new root gets the set's `cluster.id`,
the next free `node.id` and a `directory.id` of its own. After each change every register counts the
listed roots, one by one.
"""

import contextlib
import logging
import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from streamlog.errors import FileMissingError, InvalidRequestError, StreamLogError, command_at
from streamlog.fs.files import stat_directory
from streamlog.fs.log_root import LogRoot
from streamlog.partition.meta_properties import MetaProperties, read_meta_properties
from streamlog.partition.partition_metadata import new_topic_id, read_topic_id
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.root_set import (
    COMMITS,
    ListedRoot,
    RootList,
    RootSet,
    device_of,
    is_mount_point,
    read_root_list,
)
from streamlog.root.replicated_topics import lists_locked, restore
from streamlog.root.roots import (
    check_root,
    is_our_root,
    make_root,
    no_replica_set_error,
    registry_locked,
)
from streamlog.root.topics import list_topics, partition_directories
from streamlog.topic import parse_partition_directory
from streamlog.words import listed

__all__ = ["AddedRoot", "add_root", "remove_root"]

_FIRST_VERSION: Final = 1
_NAMED_MAX: Final = 5  # partitions quoted in an error

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AddedRoot:
    """A root that was added.

    Attributes:
        root: The root as listed.
        shares_disk_with: Listed roots on the same device, which fail with it.
    """

    root: ListedRoot
    shares_disk_with: tuple[str, ...]


# ---- adding -----------------------------------------------------------------------------------
def add_root(home: LogRoot, path: str | os.PathLike[str]) -> AddedRoot:
    """Add a log root to the replica set of `home`, durably; also one that has moved.

    A listed root is restored, which finishes an addition that was interrupted.

    Args:
        home: A root of the set, or a single log root.
        path: The directory of the new root: missing, empty, or a root of the set.

    Raises:
        InvalidRequestError: The directory is another name of a listed root, lies in one or contains
            one, belongs to another cluster, or holds partitions of the set under other topic ids.
        NoQuorumError: Less than a majority of the listed roots is online.
        UnavailableError: A lock was held, or a disk failed; the next call continues.
    """
    new = replace(home, path=os.path.abspath(path))
    roots = _set_of(home)
    for each in roots.list.roots:
        if each.path == new.path:  # the addition may have died after it was listed
            restore(roots)
            return AddedRoot(each, ())
    _refuse_overlap(roots, new)
    meta = _meta_of(roots, new)
    assert meta.node_id is not None
    with lists_locked(roots, what="add a log root"):
        _refuse_other_topics(roots, new)
        make_root(new, meta=meta)
        added = ListedRoot(meta.node_id, new.path, is_mount_point(new))
        sharing = _sharing(roots, new)
        after = roots
        if added not in roots.list.roots:
            changed = roots.list.with_root(added)
            RootSet(home, changed).write_list(added.node)  # the majority of the new list needs it
            after = roots.replace_list(changed)
    restore(after)
    _logger.info("added log root %s as node %d", added.path, added.node)
    return AddedRoot(added, sharing)


def _set_of(home: LogRoot) -> RootSet:
    """Return the set of a root; a root without one gets a list of its own."""
    check_root(home)
    if not is_our_root(home):
        raise InvalidRequestError(
            "replicas need a log root made by streamlog",
            path=home.path,
            hint=f"create it with its first topic: {command_at(home.path, 'topics create NAME')}",
        )
    roots = RootSet.load(home)
    if roots is not None:
        return roots
    with registry_locked(home):
        meta = read_meta_properties(home.fs, home.path)
        if read_root_list(home) is None:
            if meta is None or meta.node_id is None or meta.cluster_id is None:
                raise InvalidRequestError("log root has no ids", path=home.meta_properties)
            itself = ListedRoot(meta.node_id, home.path, is_mount_point(home))
            first = RootList(_FIRST_VERSION, meta.cluster_id, meta.node_id + 1, (itself,))
            RootSet(home, first).write_list(meta.node_id)
    roots = RootSet.load(home)
    assert roots is not None
    return roots


def _refuse_overlap(roots: RootSet, new: LogRoot) -> None:
    """Raise for a directory that is a listed root, or lies in one, or contains one."""
    itself = stat_directory(new.fs, new.path)
    wanted = new.fs.resolve(new.path)
    for each in roots.list.roots:
        listed = roots.root(each.node)
        other = listed.fs.resolve(each.path)
        there = stat_directory(listed.fs, each.path)
        is_same = wanted == other or (
            itself is not None
            and there is not None
            and (itself.device, itself.inode) == (there.device, there.inode)
        )
        above, below = f"{wanted.rstrip('/')}/", f"{other.rstrip('/')}/"
        if is_same or wanted.startswith(below) or other.startswith(above):
            raise InvalidRequestError(
                "directory is a log root of the set already"
                if is_same
                else "log roots of a set must not contain each other",
                path=new.path,
                got=f"node {each.node} is {each.path}",
                expected="a directory of its own, on a disk of its own",
            )


def _meta_of(roots: RootSet, new: LogRoot) -> MetaProperties:
    """Return the ids of the new root; those that it has if it belongs to the set."""
    found = None
    if stat_directory(new.fs, new.path) is not None:
        found = read_meta_properties(new.fs, new.path)
    if found is None:
        cluster_id, node = roots.list.cluster_id, roots.list.next_node
        return MetaProperties(1, cluster_id, node, new_topic_id(new.random))
    if found.cluster_id != roots.list.cluster_id or found.node_id is None:
        raise InvalidRequestError(
            "directory belongs to another cluster",
            path=new.path,
            got=f"cluster.id {found.cluster_id}",
            expected=f"cluster.id {roots.list.cluster_id}, a missing or an empty directory",
            hint="use a directory of its own",
        )
    if found.node_id in roots.node_ids and roots.problem(found.node_id) is None:
        raise InvalidRequestError(
            "directory is a copy of a log root that is online",
            path=new.path,
            got=f"node.id {found.node_id}",
            expected=f"another node.id than that of {roots.root(found.node_id).path}",
            hint="use an empty directory",
        )
    return found


def _refuse_other_topics(roots: RootSet, new: LogRoot) -> None:
    """Raise if the new root holds partitions that other roots hold under another topic id."""
    if stat_directory(new.fs, new.path) is None or not is_our_root(new):
        return
    foreign = []
    for topic in list_topics(new):
        for number, path in partition_directories(new, topic).items():
            own = read_topic_id(new.fs, path)
            for root in roots.online().values():
                other = partition_directories(root, topic).get(number)
                if other is not None and read_topic_id(root.fs, other) != own:
                    foreign.append(f"{topic}-{number}")
                    break
    if foreign:
        raise InvalidRequestError(
            "directory holds other partitions of the same names",
            path=new.path,
            got=listed(foreign, _NAMED_MAX),
            expected="no partition with another topic id",
            hint="move them away, or use an empty directory",
        )


def _sharing(roots: RootSet, new: LogRoot) -> tuple[str, ...]:
    """Return the listed roots that are online on the device of the new one."""
    device = device_of(new)
    online = roots.online().values()
    return tuple(each.path for each in online if device_of(each) == device)


# ---- removing ---------------------------------------------------------------------------------
def remove_root(home: LogRoot, name: str) -> ListedRoot:
    """Remove a log root without replicas from the replica set; its own topics stay.

    Args:
        home: Another root of the set.
        name: Its node or its path.

    Raises:
        InvalidRequestError: There is no such root, it is `home`, or it holds replicas.
        NoQuorumError: Less than a majority of the listed roots is online.
        UnavailableError: A lock was held, or a disk failed; the next call continues.
    """
    roots = RootSet.load(home)
    if roots is None:
        raise no_replica_set_error(home)
    removed = _named(roots, name)
    if removed.path == home.path:
        raise InvalidRequestError(
            "a log root cannot remove itself",
            path=home.path,
            hint="pass another log root of the set as --path",
        )
    with lists_locked(roots, what="remove a log root") as online:
        names = roots.register_names()
        _leave_commits(roots, removed.node)
        held = [each for each in names if _has_replica(_state_of(roots, each), removed.node)]
        if held:
            raise InvalidRequestError(
                "log root holds replicas",
                path=removed.path,
                got=listed(held, _NAMED_MAX),
                expected="a log root without replicas",
                hint="move them with `reassign`, or delete their topics",
            )
        after = roots.replace_list(roots.list.without(removed.node))
        for each in names:
            register = after.register(each)
            voters = [node for node in register.voters() if node != removed.node]
            roots.register(each).align(voters)
        if removed.node in online:
            _leave(online[removed.node], names)
    _logger.info("removed log root %s, node %d", removed.path, removed.node)
    return removed


def _leave(root: LogRoot, registers: Collection[str]) -> None:
    """Remove what a removed root keeps for the set, so that it is a single log root again."""
    for topic in {each.topic for each in map(parse_partition_directory, registers) if each}:
        with contextlib.suppress(FileMissingError):
            root.fs.remove(root.topic_properties(topic))
    for each in registers:
        RegisterFile(root, each).remove()
    root.fs.remove(root.replica_roots)
    root.fs.sync_directory(root.state)


def _named(roots: RootSet, name: str) -> ListedRoot:
    path = os.path.abspath(name)
    for each in roots.list.roots:
        if each.path == path or name == str(each.node):
            return each
    listed = ", ".join(f"{each.node} ({each.path})" for each in roots.list.roots)
    raise InvalidRequestError(
        "no such log root in the replica set",
        path=roots.home.path,
        got=name,
        expected=f"one of {listed}",
    )


def _leave_commits(roots: RootSet, node: int) -> None:
    """Take a root out of those that keep commits, unless it leads them."""
    state = _state_of(roots, COMMITS)
    if state is None or not _has_replica(state, node) or state.leader == node:
        return
    roots.register(COMMITS).change(
        lambda now: replace(
            now,
            replicas=tuple(each for each in now.replicas if each != node),
            isr=tuple(each for each in now.isr if each != node),
            partition_epoch=now.partition_epoch + 1,
        ),
        state.partition_epoch,
    )


def _state_of(roots: RootSet, name: str) -> PartitionState | None:
    try:
        return roots.register(name).read()
    except StreamLogError:
        return roots.register(name).peek()  # deleted, or too few voters


def _has_replica(state: PartitionState | None, node: int) -> bool:
    return state is not None and node in (*state.replicas, *state.adding)
