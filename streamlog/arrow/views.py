"""Opening a log for a query, whether it is in directories or in an object store."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from streamlog.arrow.log_view import OpenLogView, TopicChoice
from streamlog.bucket.places import is_bucket
from streamlog.clock import Clock
from streamlog.fs.api import FileSystem
from streamlog.records.record import IsolationLevel
from streamlog.root.read_roots import ReadRoots

if TYPE_CHECKING:
    from streamlog.bucket.read_roots import BucketReadRoots

    AnyReadRoots: TypeAlias = ReadRoots | BucketReadRoots

__all__ = ["open_read_roots", "open_view"]


def open_read_roots(
    paths: Sequence[str], *, fs: FileSystem | None = None, clock: Clock | None = None
) -> "AnyReadRoots":
    """Return the roots at paths of `root_paths`, for reading.

    Args:
        paths: The root, or the roots of a replica set.
        fs: The file system of directories; the machine's own by default.
        clock: The clock; the machine's own by default.

    Raises:
        InvalidRequestError: Several roots are not one replica set, or a URL is invalid.
    """
    if is_bucket(paths[0]):
        from streamlog.bucket.read_roots import BucketReadRoots  # most programs have directories

        return BucketReadRoots(paths[0], clock=clock)
    return ReadRoots(paths, fs=fs, clock=clock)


def open_view(
    roots: "AnyReadRoots",
    choice: TopicChoice,
    isolation: IsolationLevel,
    *,
    clock: Clock | None = None,
    max_decompressed_bytes: int | None = None,
) -> OpenLogView:
    """Open the chosen partitions.

    Args:
        roots: The roots.
        choice: The topics and partitions.
        isolation: Determines the end of each partition.
        clock: Limits how often there is a look for news; the machine's own by default.
        max_decompressed_bytes: Limit of one decompressed batch, for lookups by time.

    Raises:
        UnknownTopicError: There is no log, or a topic given by name does not exist.
        NoReplicaOnlineError: No root of a replica set is reachable.
        StorageError: The disk or the store cannot be read.
    """
    if isinstance(roots, ReadRoots):
        from streamlog.arrow.subscription import Subscription

        return Subscription(
            roots,
            choice,
            isolation,
            clock=clock,
            max_decompressed_bytes=max_decompressed_bytes,
        )
    from streamlog.arrow.bucket_view import BucketLogView

    return BucketLogView(roots, choice, clock=clock, max_decompressed_bytes=max_decompressed_bytes)
