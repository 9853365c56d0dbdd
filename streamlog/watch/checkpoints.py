"""A query's checkpoint: a directory, or a URL of an object store.

To see how far a query is, the three files that hold its position are read from an object store (a
listing of `commits` and three requests), and looked at as if they were on a disk.
"""

import os
from typing import Final

from streamlog.bucket.places import shared_store
from streamlog.errors import FileMissingError, InvalidOptionError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.query.checkpoint import local_path
from streamlog.query.checkpoint_files import (
    CheckpointDirectory,
    CheckpointFiles,
    CheckpointObjects,
)
from streamlog.root.readers import Reader, reader_at
from streamlog.store.api import ObjectStore
from streamlog.store.urls import StoreUrl

__all__ = ["files_of_checkpoint", "reader_of_checkpoint"]

_SIZE_MAX: Final = 1 << 26


def reader_of_checkpoint(location: str) -> Reader:
    """Return a query as a reader, named after its checkpoint.

    Args:
        location: `checkpointLocation`: a local path, or a URL as object stores have it.

    Raises:
        InvalidRequestError: There is no checkpoint, or it holds no offsets of a log.
        InvalidOptionError: The URL is not one of an object store.
        StorageError: The store cannot be read.
    """
    if local_path(location) is not None:
        return reader_at(LocalFileSystem(), location, location, now_ms=0)
    url = StoreUrl.parse(location)
    path = f"/{url.scheme}/{url.bucket}/{url.prefix}".rstrip("/")
    fs = _files_of(shared_store(str(url)), path)
    return reader_at(fs, location, path, now_ms=0)


def files_of_checkpoint(location: str) -> CheckpointFiles:
    """Return a checkpoint that can be changed.

    Args:
        location: `checkpointLocation`: a local path, or a URL as object stores have it.

    Raises:
        InvalidOptionError: The URL is not one of an object store, or names a whole bucket.
    """
    path = local_path(location)
    if path is not None:
        return CheckpointDirectory(LocalFileSystem(), os.path.realpath(path))
    url = StoreUrl.parse(location)
    directory, _, name = url.prefix.rpartition("/")
    if not name:
        raise InvalidOptionError(
            "the copy of a checkpoint is kept beside it, so a whole bucket cannot be reset",
            got=location,
            expected=f"{url}/NAME",
        )
    return CheckpointObjects(shared_store(str(url._replace(prefix=directory))), name)


def _files_of(store: ObjectStore, path: str) -> FileSystem:
    """Return a disk with the newest finished batch of a checkpoint."""
    fs = MemoryFileSystem()
    directory = ""
    for part in f"{path}/commits".split("/")[1:]:
        directory += f"/{part}"
        fs.make_directory(directory)
    fs.make_directory(f"{path}/offsets")
    finished = {
        int(name): each.modified_ms
        for each in store.list("commits/")
        if (name := each.key.rpartition("/")[2]).isdecimal()
    }
    keys = ["metadata"]
    if finished:
        keys += [f"commits/{max(finished)}", f"offsets/{max(finished)}"]
    for key in keys:
        try:
            content = store.get(key, max_size=_SIZE_MAX)
        except FileMissingError:  # no checkpoint, or one that Spark is tidying up
            continue
        with fs.open(f"{path}/{key}", OpenMode.CREATE) as file:
            file.pwrite(content, 0)
        if key.startswith("commits/"):
            fs.set_mtime(f"{path}/{key}", finished[max(finished)])
    return fs
