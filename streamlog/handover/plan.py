"""Handover of a log root to a Kafka broker and back: plans, steps and paths of both directions.

    /data/root/                    while it is a root           while a broker has it

        orders-0/ …                partitions                   the same
        meta.properties            cluster and node             the same
        .streamlog/                streamlog's own state        moved to /data/root.streamlog
        bootstrap.checkpoint       -                            topics, for the broker's first start
        __cluster_metadata-0/      kept in .streamlog/kafka     the broker's metadata log

A broker refuses to start with an unknown directory, so it starts here only after `.streamlog` has
been moved out; and writers accept a root only while it is in. So that one rename transfers the
ownership of the directory. All steps before it are idempotent, and so are all steps after it.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from streamlog.errors import (
    FileMissingError,
    InvalidRequestError,
    StorageError,
    UnavailableError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.handover.cluster_image import CLUSTER_METADATA
from streamlog.partition.meta_properties import MetaProperties, read_meta_properties

__all__ = [
    "Direction",
    "HandoverPlan",
    "HandoverStep",
    "PlannedPartition",
    "StepKind",
    "alone",
    "has_cluster_metadata",
    "is_handed_over",
    "kept_metadata_path",
    "meta_of",
    "move_state",
    "root_itself",
]


class Direction(Enum):
    """The direction of a handover."""

    TO_KAFKA = "to Kafka"
    FROM_KAFKA = "from Kafka"


class StepKind(Enum):
    """A kind of step; the value describes it."""

    LEAVE_SET = "remove the list of log roots and the state of replicas from this copy of a root"
    SETTLE = "apply and retire all decided commits, sync and close every partition"
    DESCRIBE = "write topics, partitions and epochs for the broker's first start"
    FORGET_RECOVERY_POINTS = "remove recovery points, so that the broker checks every segment"
    UNMARK = "remove the mark of a clean shutdown, for the same reason"
    MOVE_OUT = "move streamlog's state beside the root: from here on the broker owns the root"
    ADOPT_TOPICS = "adopt the broker's topics and their settings"
    START_EPOCHS = "make writers check each partition as after a reboot and start a leader epoch"
    MOVE_IN = "move streamlog's state back: from here on streamlog owns the root again"
    KEEP_METADATA = "keep the broker's cluster metadata with streamlog's state"
    FORGET_FIRST_START = "remove the file that was written for the broker's first start"


class HandoverStep(NamedTuple):
    """One step of a plan, with the file or directory that it changes."""

    kind: StepKind
    path: str


class PlannedPartition(NamedTuple):
    """A partition of a plan."""

    topic: str
    partition: int
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverPlan:
    """The steps of a handover; making a plan changes nothing.

    Attributes:
        direction: The direction.
        root: The log root.
        meta: Cluster, node and directory ids.
        steps: The steps in order; none if the handover is complete already.
        partitions: The partitions handed over.
        notes: Remarks for the user.
    """

    direction: Direction
    root: str
    meta: MetaProperties
    steps: tuple[HandoverStep, ...]
    partitions: tuple[PlannedPartition, ...] = ()
    notes: tuple[str, ...] = ()


# ---- paths ----------------------------------------------------------------------------------
def kept_metadata_path(root: LogRoot) -> str:
    """Return the path of the last broker's metadata while streamlog has the root."""
    return f"{root.broker_metadata}/{CLUSTER_METADATA}"


def is_handed_over(root: LogRoot) -> bool:
    """Return whether a broker has the root: its state is beside it, not in it.

    Raises:
        InvalidRequestError: There is state in both places.
    """
    is_beside = root.fs.stat(root.moved_server_properties) is not None
    if is_beside and root.fs.stat(root.state) is not None:
        raise InvalidRequestError(
            "streamlog's state is both in the root and beside it",
            path=root.moved_state,
            expected=f"either this directory or {root.state}",
            hint=f"move the foreign one away: mv {root.moved_state} ELSEWHERE",
        )
    return is_beside


def has_cluster_metadata(root: LogRoot) -> bool:
    """Return whether a broker has left its metadata in the root."""
    return root.fs.stat(f"{root.path}/{CLUSTER_METADATA}") is not None


def meta_of(root: LogRoot) -> MetaProperties:
    """Return the cluster and node ids of a root that a KRaft broker can use.

    Raises:
        InvalidRequestError: `meta.properties` is missing, or was written by a ZooKeeper broker.
        CorruptCheckpointError: The file is malformed.
    """
    meta = read_meta_properties(root.fs, root.path)
    if meta is None or meta.version == 0:
        raise InvalidRequestError(
            "a KRaft broker cannot use this directory",
            path=root.meta_properties,
            got="no such file" if meta is None else "version 0",
            expected="version 1, with cluster.id and node.id",
            hint="write version=1, cluster.id=ID and node.id=N into the file",
        )
    return meta


# ---- steps of both directions ---------------------------------------------------------------
@contextlib.contextmanager
def alone(fs: FileSystem, state: str) -> Iterator[None]:
    """Keep writers out of a root; its state may be moved meanwhile.

    Args:
        fs: The file system of the root.
        state: The current directory of its state.

    Raises:
        UnavailableError: Another process has the root open for writing.
    """
    lock = fs.try_lock(f"{state}/locks/open", shared=False)
    if lock is None:
        raise UnavailableError(
            "log root is open for writing; nothing was handed over",
            path=state,
            expected="no writers",
            hint="stop the queries and processes that write to it, then try again",
        )
    try:
        yield
    finally:
        lock.release()


def root_itself(root: LogRoot) -> LogRoot:
    """Return a root by its path without links: its state is moved beside it, not beside a link."""
    return replace(root, path=root.fs.resolve(root.path))


def move_state(fs: FileSystem, source: str, target: str) -> None:
    """Move a root's state into the root or out of it, durably and atomically."""
    try:
        fs.rename(source, target)
    except StorageError as error:
        error.hint = (
            f"{os.path.dirname(source)} and {os.path.dirname(target)} must be writable and in one "
            "file system: a root that is a mount point cannot be handed over"
        )
        raise
    fs.sync_directory(os.path.dirname(target))
    fs.sync_directory(os.path.dirname(source))


def remove_file(fs: FileSystem, path: str) -> None:
    """Remove a file durably, if it exists."""
    with contextlib.suppress(FileMissingError):
        fs.remove(path)
    fs.sync_directory(os.path.dirname(path))
