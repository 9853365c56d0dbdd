"""Opening the source and the target of a copy by their paths."""

from streamlog.bucket.places import is_bucket, root_paths, shared_store
from streamlog.bucket.root import BucketRoot
from streamlog.errors import InvalidOptionError
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.transfer.bucket_source import BucketSource
from streamlog.transfer.bucket_target import BucketTarget
from streamlog.transfer.directory_source import DirectorySource
from streamlog.transfer.directory_target import DirectoryTarget
from streamlog.transfer.ends import CopySource, CopyTarget

__all__ = ["open_source", "open_target"]


def open_source(path: str) -> CopySource:
    """Open a root, or a broker's log.dir, to copy from.

    Args:
        path: A directory or a URL.

    Raises:
        UnknownTopicError: There is nothing.
        InvalidOptionError: It names several roots.
        StorageError: It cannot be read.
    """
    place = _one(path, is_new=False)
    if not is_bucket(place):
        return DirectorySource(LogRoot.at(place))
    root = BucketRoot(shared_store(place))
    root.refresh()
    return BucketSource(root)


def open_target(path: str) -> CopyTarget:
    """Open a root to copy to; created if there is none.

    Args:
        path: A directory or a URL.

    Raises:
        InvalidRequestError: The directory is no root and cannot become one.
        StorageError: It cannot be written.
    """
    place = _one(path, is_new=True)
    if not is_bucket(place):
        return DirectoryTarget(LogRoot.at(place))
    root = BucketRoot(shared_store(place))
    root.create()
    root.refresh()
    return BucketTarget(root)


def _one(path: str, *, is_new: bool) -> str:
    places = root_paths(path, LocalFileSystem(), is_new=is_new)
    if len(places) > 1:
        raise InvalidOptionError(
            "a copy has one source and one target",
            got=f"{len(places)} roots",
            expected="one path or URL",
            hint="name the root that leads the partitions",
        )
    return places[0]
