"""Handing a log root over to a Kafka broker, and taking it back: what both ways share.

    /data/root/                    while it is a root           while a broker has it

        orders-0/ …                partitions                   the same
        meta.properties            cluster and node             the same
        .streamlog/                what Kafka has no file for   is called /data/root.streamlog
        bootstrap.checkpoint       -                            topics, for the broker's first start
        __cluster_metadata-0/      kept in .streamlog/kafka     what the broker knows

A broker does not start where it finds a directory that it does not know, so it starts here only
once `.streamlog` is out; and writers find a root only while it is in. That one rename is what
gives the directory to the other side. All steps before it can be done again, and all behind it.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
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
from streamlog.root.roots import MetaProperties, read_meta_properties

__all__ = [
    "Direction",
    "HandoverPlan",
    "PlannedPartition",
    "HandoverStep",
    "StepKind",
    "alone",
    "has_cluster_metadata",
    "is_handed_over",
    "remove_file",
    "kept_metadata_path",
    "meta_of",
    "move_state",
]


class Direction(Enum):
    """Which way a root goes."""

    TO_KAFKA = "to Kafka"
    FROM_KAFKA = "from Kafka"


class StepKind(Enum):
    """A step; the value says what it does."""

    SETTLE = "apply and retire what commits decided, sync and close every partition"
    DESCRIBE = "write down topics, partitions and epochs for the broker's first start"
    FORGET_RECOVERY_POINTS = "forget recovery points, so that the broker looks at every segment"
    UNMARK = "take away the mark of a clean shutdown, for the same reason"
    MOVE_OUT = "move streamlog's own state beside the root: from here on it is the broker's"
    ADOPT_TOPICS = "take over the broker's topics and their settings"
    START_EPOCHS = "see that writers look at each partition as after a reboot, and start an epoch"
    MOVE_IN = "move streamlog's own state back: from here on it is a root again"
    KEEP_METADATA = "keep the broker's cluster metadata with streamlog's own state"
    FORGET_FIRST_START = "remove what was written down for the broker's first start"


class HandoverStep(NamedTuple):
    """One step of a plan: what is done, and the file or directory that it is done to."""

    kind: StepKind
    path: str


class PlannedPartition(NamedTuple):
    """A partition that goes along."""

    topic: str
    partition: int
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverPlan:
    """What a handover is going to do; nothing is changed by making one.

    Attributes:
        direction: Which way.
        root: The log root.
        meta: Cluster, node and directory.
        steps: In their order; none where all of it is done already.
        partitions: What goes along.
        notes: What the user should know before.
    """

    direction: Direction
    root: str
    meta: MetaProperties
    steps: tuple[HandoverStep, ...]
    partitions: tuple[PlannedPartition, ...] = ()
    notes: tuple[str, ...] = ()


# ---- where things lie -----------------------------------------------------------------------
def kept_metadata_path(root: LogRoot) -> str:
    """Return where the metadata of the last broker is kept while the root is one."""
    return f"{root.broker_metadata}/{CLUSTER_METADATA}"


def is_handed_over(root: LogRoot) -> bool:
    """Tell whether a broker has the root: its state lies beside it and not in it.

    Raises:
        InvalidRequestError: It lies in both places.
    """
    is_beside = root.fs.stat(root.moved_server_properties) is not None
    if is_beside and root.fs.stat(root.state) is not None:
        raise InvalidRequestError(
            "streamlog's state lies in the root and beside it, and only one of them can be its own",
            path=root.moved_state,
            expected=f"either this or {root.state}",
            hint=f"move away the one that belongs elsewhere: mv {root.moved_state} ELSEWHERE",
        )
    return is_beside


def has_cluster_metadata(fs: FileSystem, root: str) -> bool:
    """Tell whether a broker has left its metadata in the root."""
    return fs.stat(f"{root}/{CLUSTER_METADATA}") is not None


def meta_of(fs: FileSystem, root: str) -> MetaProperties:
    """Return the cluster and node of a root that a broker can have.

    Raises:
        InvalidRequestError: There is no `meta.properties`, or it is of ZooKeeper's time.
        CorruptCheckpointError: The file cannot be understood.
    """
    meta = read_meta_properties(fs, root)
    if meta is None or meta.version == 0:
        raise InvalidRequestError(
            "no broker of KRaft can have this directory",
            path=f"{root}/meta.properties",
            got="no such file" if meta is None else "version 0",
            expected="version 1, with cluster.id and node.id",
            hint="write version=1, cluster.id=ID and node.id=N into it",
        )
    return meta


# ---- what both do ---------------------------------------------------------------------------
@contextlib.contextmanager
def alone(fs: FileSystem, state: str) -> Iterator[None]:
    """Keep writers out of a root; its state may be moved meanwhile.

    Args:
        fs: Where the root is.
        state: The directory of its state, wherever that lies now.

    Raises:
        UnavailableError: Somebody has it open for writing.
    """
    lock = fs.try_lock(f"{state}/locks/open", shared=False)
    if lock is None:
        raise UnavailableError(
            "somebody has this root open for writing; nothing was handed over",
            path=state,
            expected="no writers",
            hint="stop the queries and processes that write there, then do it again",
        )
    try:
        yield
    finally:
        lock.release()


def move_state(fs: FileSystem, source: str, target: str) -> None:
    """Move a root's state into the root or out of it; durable.

    Raises:
        StorageError: It cannot be moved; then it has not been.
    """
    try:
        fs.rename(source, target)
    except StorageError as error:
        error.hint = (
            f"{os.path.dirname(source)} and {os.path.dirname(target)} must be directories of one "
            "file system that you may write to: a root cannot be handed over where it is a mount"
        )
        raise
    fs.sync_directory(os.path.dirname(target))
    fs.sync_directory(os.path.dirname(source))


def remove_file(fs: FileSystem, path: str) -> None:
    """Remove a file, durably; harmless where it is gone.

    Raises:
        StorageError: It cannot be removed.
    """
    with contextlib.suppress(FileMissingError):
        fs.remove(path)
    fs.sync_directory(os.path.dirname(path))
