"""What `streamlog dump` prints of a root in an object store beside Kafka's files."""

import json
import os
import re
from collections.abc import Iterator
from typing import Any, Final

from streamlog.binary.sealed import unseal
from streamlog.bucket.journal import ENTRY, HINT, MAX_ENTRY_SIZE
from streamlog.bucket.keys import JOURNAL, LATEST, READERS, SNAPSHOTS, STAGING
from streamlog.bucket.places import shared_store
from streamlog.bucket.snapshots import MAX_SNAPSHOT_SIZE, SNAPSHOT, unpacked
from streamlog.errors import CorruptCheckpointError, InvalidRequestError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import read_file
from streamlog.fs.local import LocalFileSystem
from streamlog.root.readers import MAX_READER_SIZE
from streamlog.store.files import ObjectFiles
from streamlog.store.urls import StoreUrl, absolute, is_store_url
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = ["is_staged", "lines_of", "located", "partition_of", "values_in"]

_SEALED: Final = (
    (re.compile(rf".*/{re.escape(JOURNAL)}[0-9]{{20}}", re.ASCII), ENTRY, MAX_ENTRY_SIZE),
    (re.compile(rf".*/{re.escape(SNAPSHOTS)}[0-9]{{20}}", re.ASCII), SNAPSHOT, MAX_SNAPSHOT_SIZE),
    (re.compile(rf".*/{re.escape(LATEST)}", re.ASCII), HINT, MAX_READER_SIZE),
)
_STAGED: Final = re.compile(rf".*/{re.escape(STAGING)}[0-9]{{20}}/[^/]+/[^/]+")
_READER: Final = re.compile(rf".*/{re.escape(READERS)}[^/]+/[^/]+\.json")


def located(path: str) -> tuple[FileSystem, str]:
    """Return where a file or an object is, and its path there.

    Args:
        path: A path, or the URL of an object. `file://` is the machine's own file system.

    Raises:
        InvalidRequestError: The URL is invalid, or names no object.
    """
    if not is_store_url(path):
        return LocalFileSystem(), path
    url = StoreUrl.parse(path)
    if url.scheme == "file":
        return LocalFileSystem(), f"/{url.prefix}"
    if not url.prefix:
        raise InvalidRequestError("the URL names no object", path=path)
    return ObjectFiles(shared_store(str(url._replace(prefix="")))), str(url)


def partition_of(fs: FileSystem, directory: str) -> TopicPartition | None:
    """Return the partition whose files a directory holds; in an object store they lie in builds."""
    found = parse_partition_directory(os.path.basename(directory))
    if found is not None:
        return found
    above = os.path.dirname(directory)
    root = os.path.dirname(above)
    if not is_store_url(directory) and fs.stat(f"{root}/{JOURNAL.rstrip('/')}") is None:
        return None
    return parse_partition_directory(os.path.basename(above))


def is_staged(path: str) -> bool:
    """Return whether a path is that of a staged object: whole batches without a place yet."""
    return _STAGED.fullmatch(absolute(path)) is not None


def values_in(fs: FileSystem, path: str) -> dict[str, Any] | None:
    """Return what an object of a root's state says; None for an object of another kind.

    Raises:
        CorruptCheckpointError: The object is damaged.
        FileMissingError: There is no such object.
    """
    full = absolute(path)
    for pattern, kind, max_size in _SEALED:
        if pattern.fullmatch(full):
            content = read_file(fs, path, max_size=max_size)
            text = unpacked(content, path) if kind == SNAPSHOT else content
            return unseal(kind, text, path).as_read
    if not _READER.fullmatch(full):
        return None
    try:
        values = json.loads(read_file(fs, path, max_size=MAX_READER_SIZE))
    except ValueError as error:
        raise CorruptCheckpointError("reader file contains no JSON", path=path) from error
    return values if isinstance(values, dict) else {"value": values}


def lines_of(values: dict[str, Any]) -> Iterator[str]:
    """Yield values as lines to read."""
    yield from json.dumps(values, indent=2).splitlines()
