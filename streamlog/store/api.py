"""The operations on an object store that the package uses, and the promises of each.

An object is written as a whole and never changed in place: a reader sees all of it or nothing. The
store has to offer three things: `create`, a write that fails if the key exists; reads that see
every finished write; and reads of a byte range. S3, Google Cloud Storage, Azure Blob, MinIO, Ceph
and R2 do.

A key is a path below the store's URL, such as `.streamlog/journal/00000000000000000042`. Any
operation can fail with `StorageError` or one of its leaves. If a write fails, its outcome is
unknown: the answer may have been lost after the object was written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Content", "ObjectRange", "ObjectStore", "ReadableObjects", "StoredObject", "Upload"]

Content = bytes | bytearray | memoryview | NDArray[np.uint8]


class StoredObject(NamedTuple):
    """An object in a listing: key, size in bytes, and time of the write in ms since 1970."""

    key: str
    size: int
    modified_ms: int


class ObjectRange(NamedTuple):
    """A range of bytes in an object."""

    key: str
    position: int
    size: int


class Upload(Protocol):
    """An object that is being written piece by piece, with a bounded buffer.

    It appears under its key when `close` returns. Leaving the context with an error abandons it.
    """

    key: str

    def write(self, content: Content) -> None:
        """Append bytes, which must not change until `close`: they are sent without a copy."""
        ...

    def close(self) -> None:
        """Finish the object; closing twice is harmless."""
        ...

    def abandon(self) -> None:
        """Give the object up, so that it never appears; harmless after `close`."""
        ...

    def __enter__(self) -> "Upload": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class ReadableObjects(Protocol):
    """Objects of which ranges can be read; `url` names them in errors."""

    url: str

    def read_into(self, ranges: Sequence[ObjectRange], target: NDArray[np.uint8]) -> None:
        """See `ObjectStore.read_into`."""
        ...


class ObjectStore(ReadableObjects, Protocol):
    """The objects below one URL. Safe for use by several threads."""

    def create(self, key: str, content: Content) -> None:
        """Write a new object with one request.

        Raises:
            FileExistsAlreadyError: The key exists. After a lost answer that may be the object of
                this very call, since requests are repeated: compare the content.
            StorageError: The request failed; its outcome is unknown.
        """
        ...

    def put(self, key: str, content: Content) -> None:
        """Write an object with one request, replacing any of the same key."""
        ...

    def copy(self, keys: Mapping[str, str]) -> None:
        """Copy objects within the store, several at a time, replacing any of the same key.

        Args:
            keys: The new key of each; its content never leaves the store.

        Raises:
            FileMissingError: There is no such object.
            StorageError: A request failed; some copies may have been made.
        """
        ...

    def upload(self, key: str) -> Upload:
        """Begin an object of any size under a key that nothing else uses."""
        ...

    def get(self, key: str, *, max_size: int) -> bytes:
        """Return a whole object with one request.

        Raises:
            FileMissingError: There is no such object.
            LimitExceededError: It is larger than `max_size` bytes.
        """
        ...

    def read_into(self, ranges: Sequence[ObjectRange], target: NDArray[np.uint8]) -> None:
        """Read byte ranges, several at a time, one after another into `target`.

        Args:
            ranges: The ranges, of any objects.
            target: As many bytes as all ranges together.

        Raises:
            FileMissingError: There is no such object.
            StorageError: A range reaches beyond its object, or a request failed.
        """
        ...

    def checksums(self, ranges: Sequence[ObjectRange]) -> list[int]:
        """Read byte ranges, several at a time, and return the CRC-32C of each.

        Args:
            ranges: The ranges, of any objects; each is one request, and is held in memory whole.

        Raises:
            FileMissingError: There is no such object.
            StorageError: A range reaches beyond its object, or a request failed.
        """
        ...

    def stat(self, key: str) -> StoredObject | None:
        """Return facts about an object, None if it does not exist."""
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Yield the objects below a prefix that ends with `/`, sorted by key.

        Args:
            prefix: A path; empty for all objects.
            after: Only keys greater than this one.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; keys that do not exist are ignored."""
        ...
