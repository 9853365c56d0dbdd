"""Opening the log root of a command, whether it is a directory or in an object store."""

from typing import TYPE_CHECKING, TypeAlias

from streamlog.bucket.places import is_bucket, root_paths
from streamlog.cli.verb import Settings
from streamlog.fs.local import LocalFileSystem
from streamlog.root.manager import LogManager

if TYPE_CHECKING:
    from streamlog.bucket.manager import BucketManager

    AnyManager: TypeAlias = LogManager | BucketManager

__all__ = ["bucket_url", "open_manager"]


def bucket_url(path: str, *, is_new: bool = False) -> str | None:
    """Return the URL of a root in an object store; None for a directory.

    Args:
        path: A path as the user gave it.
        is_new: Whether the root may be created.
    """
    if "://" not in path:
        return None
    first = root_paths(path, LocalFileSystem(), is_new=is_new)[0]
    return first if is_bucket(first) else None


def local_paths(path: str) -> str:
    """Return a path that `bucket_url` found to be a directory, without `file://`."""
    if "://" not in path:
        return path
    return root_paths(path, LocalFileSystem())[0]


def open_manager(settings: Settings, *, create: bool = False, adopt: bool = False) -> "AnyManager":
    """Open the log root of a command for changes.

    Args:
        settings: The shared options.
        create: Create the root if there is none.
        adopt: Take over a directory that streamlog did not make.
    """
    url = bucket_url(settings.root, is_new=create)
    if url is None:
        return LogManager.open(local_paths(settings.root), create=create, adopt=adopt)
    from streamlog.bucket.manager import BucketManager

    return BucketManager(url, create=create)
