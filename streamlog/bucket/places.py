"""Where a log root is: in a directory, or in an object store. The one place that decides.

A root is named by text. After `root_paths` the text itself shows the kind: an absolute path is a
directory, a URL is an object store. So is `file://` if there is such a root; otherwise it is the
directory, as in Spark.
"""

import functools
import os
import re
from collections.abc import Callable
from typing import Final

from streamlog.bucket.keys import JOURNAL
from streamlog.errors import InvalidOptionError
from streamlog.fs.api import FileSystem
from streamlog.root.read_roots import RootPaths, parse_roots
from streamlog.store.api import ObjectStore
from streamlog.store.remote import open_store
from streamlog.store.urls import StoreUrl, is_store_url

__all__ = ["is_bucket", "root_paths", "shared_store"]

_SEVERAL: Final = re.compile(r",\s*[a-zA-Z][a-zA-Z0-9+.-]*://")


def is_bucket(path: str) -> bool:
    """Return whether a path of `root_paths` names a root in an object store."""
    return is_store_url(path)


def root_paths(
    path: RootPaths,
    fs: FileSystem,
    *,
    resolve: Callable[[str], str] = os.path.abspath,
    is_new: bool = False,
) -> tuple[str, ...]:
    """Return the root, or the roots of a replica set, that a path names.

    Args:
        path: One path or several, as `parse_roots` takes them, or one URL.
        fs: The file system of directories.
        resolve: Makes the path of a directory absolute.
        is_new: Whether the root may be created: a `file://` URL at which nothing is yet is then a
            root in an object store.

    Raises:
        InvalidOptionError: There is no path, the URL is invalid, or there are other paths beside.
    """
    texts = [path] if isinstance(path, str | os.PathLike) else list(path)
    given = [os.fspath(each).strip() for each in texts]
    if not any(is_store_url(each) or _SEVERAL.search(each) for each in given):
        return parse_roots(path, fs, resolve=resolve)
    if len(given) > 1 or _SEVERAL.search(given[0]):
        raise InvalidOptionError(
            "a root in an object store has no replicas in other roots",
            got=f"{len(given) + sum(len(_SEVERAL.findall(each)) for each in given)} paths",
            expected="one URL",
            hint="the store keeps copies of its own",
        )
    url = StoreUrl.parse(given[0])
    if url.scheme == "file":
        directory = f"/{url.prefix}"
        is_there = fs.stat(f"{directory}/{JOURNAL.rstrip('/')}") is not None
        if not is_there and (not is_new or fs.stat(directory) is not None):
            return (directory,)
    return (str(url),)


def shared_store(url: str) -> ObjectStore:
    """Return the store of a URL: the same one for all callers of this process.

    A store has connections of its own, which a forked child must not use.
    """
    return _store_of(url, os.getpid())


@functools.lru_cache(maxsize=16)
def _store_of(url: str, pid: int) -> ObjectStore:
    del pid
    return open_store(url)
