"""The one door to obstore: every store that it can reach, as an `ObjectStore`."""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.crc import crc32c
from streamlog.errors import InvalidRequestError, LimitExceededError, StorageError
from streamlog.store.api import Content, ObjectRange, ObjectStore, StoredObject, Upload
from streamlog.store.failure import store_failure
from streamlog.store.urls import StoreUrl

if TYPE_CHECKING:
    from obstore import Bytes, WritableFile
    from obstore.store import ObjectStore as Handle

__all__ = ["RemoteStore", "open_store"]

PART_SIZE: Final = 8 << 20  # bytes buffered for an upload before a part of it is sent
PARTS_AT_ONCE: Final = 4
PIECE_SIZE: Final = 2 << 20  # bytes of one request, where a range is larger
REQUESTS_AT_ONCE: Final = 8
_LISTED_AT_ONCE: Final = 1000
_DELETED_AT_ONCE: Final = 1000
_RETRIES: Final = 5
_RETRY_FOR: Final = timedelta(seconds=30)
_DETAIL_LENGTH: Final = 200
_SAID: Final = {
    "lacked the necessary privileges": errno.EACCES,
    "lacked valid authentication credentials": errno.EPERM,
    "<Code>InvalidAccessKeyId": errno.EPERM,  # of a listing: obstore has no exception for those
    "<Code>SignatureDoesNotMatch": errno.EPERM,
    "401 Unauthorized": errno.EPERM,
    "403 Forbidden": errno.EACCES,
    "os error 13": errno.EACCES,
    "os error 28": errno.ENOSPC,
    "os error 30": errno.EACCES,
}


def open_store(url: str) -> ObjectStore:
    """Return the store behind a URL. Nothing is requested yet.

    Credentials, region and endpoint come from the environment, by the names that the cloud's own
    tools use (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS`,
    `AZURE_STORAGE_ACCOUNT_KEY` …), or from the machine's own identity.

    Args:
        url: `s3://BUCKET/PATH`, `gs://…`, `az://…`, `abfss://…` or `file:///PATH`.

    Raises:
        InvalidRequestError: The URL is invalid, or obstore is not installed.
    """
    parsed = StoreUrl.parse(url)
    try:
        import obstore.store as stores
    except ImportError as error:
        raise InvalidRequestError(
            "log roots in object storage need a library that is not installed",
            got=str(parsed),
            hint='install the extra: pip install "pyspark-streamlog[object-storage]"',
        ) from error
    try:
        if parsed.scheme == "memory":
            return RemoteStore(str(parsed), stores.MemoryStore(), is_remote=False)
        if parsed.scheme == "file":
            local = stores.LocalStore(f"/{parsed.prefix}", mkdir=True)
            return RemoteStore(str(parsed), local, is_sorted=False)
        handle = stores.from_url(
            str(parsed), retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_FOR}
        )
        return RemoteStore(str(parsed), handle)
    except _failures() as error:
        raise InvalidRequestError(
            "cannot open the object store", path=str(parsed), got=_detail(error)
        ) from error


class RemoteStore:
    """The objects below a URL, through obstore.

    Args:
        url: The URL, for errors.
        handle: The store that obstore opened.
        is_sorted: Whether the store lists keys in their order.
        is_remote: Whether requests leave this process, which takes threads of obstore.
    """

    __slots__ = ("_handle", "_idle", "_is_remote", "_is_sorted", "url")

    def __init__(
        self, url: str, handle: "Handle", *, is_sorted: bool = True, is_remote: bool = True
    ) -> None:
        self.url, self._handle, self._is_sorted = url, handle, is_sorted
        self._is_remote = is_remote
        self._idle: list[ThreadPoolExecutor] = []  # new threads cost as much as a copy of a MiB

    def create(self, key: str, content: Content) -> None:
        """See `ObjectStore.create`."""
        with self._translated("create", key):
            self._handle.put(key, _readable(content), mode="create", use_multipart=False)

    def put(self, key: str, content: Content) -> None:
        """See `ObjectStore.put`."""
        with self._translated("put", key):
            self._handle.put(key, _readable(content), use_multipart=False)

    def copy(self, keys: Mapping[str, str]) -> None:
        """See `ObjectStore.copy`."""
        with self._threads() as pool:
            done = [pool.submit(self._copy, *each) for each in keys.items()]
            wait(done)
            for each in done:
                each.result()

    def _copy(self, source: str, target: str) -> None:
        with self._translated("copy", source):
            self._handle.copy(source, target)

    def upload(self, key: str) -> Upload:
        """See `ObjectStore.upload`."""
        import obstore

        with self._translated("upload", key):
            writer = obstore.open_writer(
                self._handle, key, buffer_size=PART_SIZE, max_concurrency=PARTS_AT_ONCE
            )
        return _RemoteUpload(self, key, writer)

    def get(self, key: str, *, max_size: int) -> bytes:
        """See `ObjectStore.get`."""
        with self._translated("get", key):
            found = self._handle.get(key)
            size = found.meta["size"]
            if size <= max_size:
                return bytes(found.bytes())
        raise LimitExceededError(
            "object is larger than expected",
            path=self.path(key),
            got=f"{size} bytes",
            expected=f"at most {max_size}",
        )

    def read_into(self, ranges: Sequence[ObjectRange], target: NDArray[np.uint8]) -> None:
        """See `ObjectStore.read_into`."""
        pieces = list(_pieces(ranges))
        if len(pieces) == 1:
            self._read_piece(pieces[0], target)
            return
        with self._threads() as pool:
            done, at = [], 0
            for piece in pieces:
                done.append(pool.submit(self._read_piece, piece, target[at : at + piece.size]))
                at += piece.size
            wait(done)  # after an error, too: nothing may write into `target` later
            for each in done:
                each.result()

    def checksums(self, ranges: Sequence[ObjectRange]) -> list[int]:
        """See `ObjectStore.checksums`."""
        if len(ranges) == 1:
            return [self._checksum(ranges[0])]
        with self._threads() as pool:
            done = [pool.submit(self._checksum, each) for each in ranges]
            wait(done)
            return [each.result() for each in done]

    def _checksum(self, wanted: ObjectRange) -> int:
        return crc32c(memoryview(self._content(wanted)))

    @contextlib.contextmanager
    def _threads(self) -> Iterator[ThreadPoolExecutor]:
        """Lend threads that no other caller has meanwhile."""
        try:
            pool = self._idle.pop()
        except IndexError:
            pool = ThreadPoolExecutor(REQUESTS_AT_ONCE)
        yield pool
        self._idle.append(pool)

    def _read_piece(self, piece: ObjectRange, target: NDArray[np.uint8]) -> None:
        target[:] = np.frombuffer(self._content(piece), np.uint8)

    def _content(self, piece: ObjectRange) -> "Bytes":
        """Return a range that is read with one request."""
        with self._translated("read", piece.key):
            found = self._handle.get_range(piece.key, start=piece.position, length=piece.size)
        if len(found) != piece.size:
            raise StorageError(
                "object ends early",
                operation="read",
                path=self.path(piece.key),
                position=piece.position,
                got=f"{len(found)} bytes",
                expected=f"{piece.size}",
            )
        return found

    def stat(self, key: str) -> StoredObject | None:
        """See `ObjectStore.stat`."""
        with contextlib.suppress(FileNotFoundError), self._translated("stat", key, missing=True):
            return _stored(self._handle.head(key))
        return None

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See `ObjectStore.list`."""
        with self._translated("list", prefix):
            stream = self._handle.list(
                prefix or None, offset=after or None, chunk_size=_LISTED_AT_ONCE
            )
            if not self._is_sorted:
                found = [_stored(meta) for chunk in stream for meta in chunk]
                yield from sorted(found, key=lambda each: each.key)
                return
        while True:
            with self._translated("list", prefix):
                chunk = next(stream, None)
            if chunk is None:
                return
            # a store may ignore where to start, or name that key as well
            yield from (each for each in map(_stored, chunk) if each.key > after)

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`."""
        wanted = list(keys)
        for first in range(0, len(wanted), _DELETED_AT_ONCE):
            chunk = wanted[first : first + _DELETED_AT_ONCE]
            try:
                with self._translated("delete", chunk[0], missing=True):
                    self._handle.delete(chunk)
            except FileNotFoundError:  # some stores stop at a missing key
                self._delete_each(chunk)

    def path(self, key: str) -> str:
        """Return the URL of an object, for errors."""
        return f"{self.url}/{key}"

    def _delete_each(self, keys: Iterable[str]) -> None:
        for key in keys:
            with (
                contextlib.suppress(FileNotFoundError),
                self._translated("delete", key, missing=True),
            ):
                self._handle.delete(key)

    @contextlib.contextmanager
    def _translated(self, operation: str, key: str, *, missing: bool = False) -> Iterator[None]:
        """Raise typed errors; leave `FileNotFoundError` to the caller if `missing` is set."""
        if self._is_remote:
            _check_process(self.url)
        try:
            yield
        except FileNotFoundError as error:
            if missing:
                raise
            raise store_failure(errno.ENOENT, operation, self.path(key)) from error
        except _failures() as error:
            number = _number(error)
            raise store_failure(number, operation, self.path(key), detail=_detail(error)) from error


class _RemoteUpload:
    """An upload through obstore; parts are sent in the background."""

    __slots__ = ("_is_open", "_store", "_writer", "key")

    def __init__(self, store: RemoteStore, key: str, writer: "WritableFile") -> None:
        self.key, self._store, self._writer, self._is_open = key, store, writer, True

    def write(self, content: Content) -> None:
        """See `Upload.write`."""
        with self._store._translated("upload", self.key):
            self._writer.write(_readable(content))

    def close(self) -> None:
        """See `Upload.close`."""
        if self._is_open:
            self._is_open = False
            with self._store._translated("upload", self.key):
                self._writer.close()

    def abandon(self) -> None:
        """See `Upload.abandon`."""
        self._is_open = False  # dropping the writer leaves parts that never become an object

    def __enter__(self) -> "_RemoteUpload":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        self.abandon()


_processes: Final[list[int]] = []  # the first one that made requests, as a forked child sees it


def _check_process(url: str) -> None:
    """Refuse a request that would never end: the threads of obstore do not survive a fork.

    Raises:
        InvalidRequestError: This process was forked from one that had made requests.
    """
    pid = os.getpid()
    if not _processes:
        _processes.append(pid)
    if _processes[0] != pid:
        raise InvalidRequestError(
            "a forked process cannot use an object store that its parent has used",
            path=url,
            got=f"process {pid}, forked from {_processes[0]} or a child of it",
            expected="a process that was started, or forked before the first request",
            hint='multiprocessing.get_context("spawn") starts such processes',
        )


def _failures() -> tuple[type[Exception], ...]:
    """Return the kinds of error that obstore raises."""
    from obstore.exceptions import BaseError

    return (BaseError, OSError, ValueError, TypeError)


def _number(error: Exception) -> int:
    """Return the `errno` that says the same as an error of obstore."""
    from obstore import exceptions

    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return errno.EEXIST
    if isinstance(error, exceptions.PermissionDeniedError):
        return errno.EACCES
    if isinstance(error, exceptions.UnauthenticatedError):
        return errno.EPERM
    if isinstance(error, exceptions.NotSupportedError):
        return errno.EOPNOTSUPP
    text = str(error)  # an upload's errors have no class of their own
    return next((number for said, number in _SAID.items() if said in text), errno.EIO)


def _detail(error: BaseException) -> str:
    """Return what a store said, without the source's debug form."""
    return str(error).partition("\n")[0][:_DETAIL_LENGTH]


def _readable(content: Content) -> "bytes | bytearray | memoryview":
    return memoryview(content) if isinstance(content, np.ndarray) else content


def _pieces(ranges: Iterable[ObjectRange]) -> Iterator[ObjectRange]:
    """Yield the ranges, large ones in several pieces of about the same size."""
    for key, position, size in ranges:
        count = max(1, -(-size // PIECE_SIZE))
        each = max(1, -(-size // count))
        for start in range(0, size, each):
            yield ObjectRange(key, position + start, min(each, size - start))


def _stored(meta: Any) -> StoredObject:
    return StoredObject(
        meta["path"], int(meta["size"]), int(meta["last_modified"].timestamp() * 1000)
    )
