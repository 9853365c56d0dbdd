"""A wrapper around an object store that counts requests, fails, or dies, at chosen ones.

Every request is recorded. A `StoreFault` selects one and its failure: an error or the death of the
process; before the store does the work, or after it. The second is a lost answer: the caller gets
an error, and the object is there. A late request is the third way: the caller gets an error, and
the store does the work when the caller has gone on, or is dead. A dead process does nothing more:
each further request raises `SimulatedCrash` again.
"""

import errno
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import RLock
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import StorageError
from streamlog.fs.faults import Moment, SimulatedCrash
from streamlog.store.api import Content, ObjectRange, ObjectStore, StoredObject, Upload
from streamlog.store.failure import store_failure

__all__ = ["FaultyStore", "StoreRequest", "StoreFault"]


class StoreRequest(NamedTuple):
    """One recorded request, numbered from 1."""

    number: int
    operation: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFault:
    """Which requests fail, and how.

    Attributes:
        operation: `create`, `put`, `copy`, `upload`, `get`, `read`, `stat`, `list` or `delete`;
            any if empty.
        key: A part of the key; any if empty.
        first: The first matching request that fails, from 1.
        count: How many fail.
        moment: BEFORE: the store does nothing; AFTER: it does the work and the answer is lost;
            TORN: only a part of a body arrives.
        number: The `errno` of the error.
        is_crash: Whether the process dies instead.
        late_by: The number of requests after which a change that failed takes place all the same,
            unless `deliver` is called before; 0 for never.
    """

    operation: str = ""
    key: str = ""
    first: int = 1
    count: int = 1
    moment: Moment = Moment.BEFORE
    number: int = errno.EIO
    is_crash: bool = False
    late_by: int = 0


class FaultyStore:
    """An object store behind a network and a process that may fail.

    Args:
        store: The store that does the work.
        faults: The faults; more than one may select a request, the first one counts.
    """

    def __init__(self, store: ObjectStore, faults: Sequence[StoreFault] = ()) -> None:
        self.url, self._store = store.url, store
        self._faults = tuple(faults)
        self._matches = [0] * len(faults)
        self._is_dead = False
        self._lock = RLock()  # requests may come from several threads
        self._late: list[tuple[int, Callable[[], None]]] = []  # and before which request
        self.requests: list[StoreRequest] = []

    def count(self, *operations: str) -> int:
        """Return the number of requests of some kinds, or of all."""
        return sum(not operations or each.operation in operations for each in self.requests)

    # ---- the protocol ------------------------------------------------------------------------
    def create(self, key: str, content: Content) -> None:
        """See `ObjectStore.create`."""
        with self._request("create", key, lambda: partial(self._store.create, key, bytes(content))):
            self._store.create(key, content)

    def put(self, key: str, content: Content) -> None:
        """See `ObjectStore.put`."""
        with self._request("put", key, lambda: partial(self._store.put, key, bytes(content))):
            self._store.put(key, content)

    def copy(self, keys: Mapping[str, str]) -> None:
        """See `ObjectStore.copy`; each key is a request."""
        for source, target in keys.items():
            self._change("copy", source, partial(self._store.copy, {source: target}))

    def upload(self, key: str) -> Upload:
        """See `ObjectStore.upload`. The request is recorded, and can fail, when it is closed."""
        self._check_alive()
        return _FaultyUpload(self, self._store.upload(key))

    def get(self, key: str, *, max_size: int) -> bytes:
        """See `ObjectStore.get`."""
        with self._request("get", key):
            return self._store.get(key, max_size=max_size)

    def read_into(self, ranges: Sequence[ObjectRange], target: NDArray[np.uint8]) -> None:
        """See `ObjectStore.read_into`; each range is a request."""
        at = 0
        for each in ranges:
            with self._request("read", each.key):
                self._store.read_into([each], target[at : at + each.size])
            at += each.size

    def checksums(self, ranges: Sequence[ObjectRange]) -> list[int]:
        """See `ObjectStore.checksums`; each range is a request."""
        found = []
        for each in ranges:
            with self._request("read", each.key):
                found += self._store.checksums([each])
        return found

    def stat(self, key: str) -> StoredObject | None:
        """See `ObjectStore.stat`."""
        with self._request("stat", key):
            return self._store.stat(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See `ObjectStore.list`."""
        with self._request("list", prefix):
            found = list(self._store.list(prefix, after=after))
        return iter(found)

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`; each key is a request, so that a crash can fall between two."""
        for key in keys:
            self._change("delete", key, partial(self._store.delete, [key]))

    def deliver(self) -> None:
        """Do what is still late, as if no process were there any more to wait for it."""
        self._deliver_before(sys.maxsize)

    # ---- faults ------------------------------------------------------------------------------
    def _change(self, operation: str, key: str, work: Callable[[], None]) -> None:
        with self._request(operation, key, lambda: work):
            work()

    @contextmanager
    def _request(
        self, operation: str, key: str, change: Callable[[], Callable[[], None]] | None = None
    ) -> Iterator[None]:
        """Record a request, and perform it in the context.

        Args:
            operation: Its name in `StoreFault`.
            key: Its key.
            change: Returns what changes the store later, if the request is late.
        """
        with self._lock:
            self._check_alive()
            self._deliver_before(len(self.requests) + 1)
            self.requests.append(StoreRequest(len(self.requests) + 1, operation, key))
            fault = self._due(operation, key)
            self._is_dead |= fault is not None and fault.is_crash
        if fault is None:
            yield
            return
        if fault.late_by:
            if change is not None:
                self._late.append((len(self.requests) + fault.late_by, change()))
        elif fault.moment is not Moment.BEFORE:
            yield  # the store does the work; an error of its own comes first
        self._fail(fault, operation, key)

    def _deliver_before(self, number: int) -> None:
        due = [each for each in self._late if each[0] <= number]
        self._late = [each for each in self._late if each[0] > number]
        for _, work in due:
            with suppress(StorageError):  # an answer that goes nowhere
                work()

    def _due(self, operation: str, key: str) -> StoreFault | None:
        due = None
        for index, rule in enumerate(self._faults):
            if rule.operation in ("", operation) and rule.key in key:
                self._matches[index] += 1
                if due is None and 0 <= self._matches[index] - rule.first < rule.count:
                    due = rule
        return due

    def _fail(self, fault: StoreFault, operation: str, key: str) -> None:
        if fault.is_crash:
            raise SimulatedCrash(f"{operation} {key}")
        if fault.moment is Moment.TORN:
            raise StorageError("object ends early", operation=operation, path=f"{self.url}/{key}")
        raise store_failure(fault.number, operation, f"{self.url}/{key}", detail="injected")

    def _check_alive(self) -> None:
        if self._is_dead:
            raise SimulatedCrash("the process is dead")


class _FaultyUpload:
    """An upload whose last request may fail."""

    __slots__ = ("_is_open", "_store", "_upload", "key")

    def __init__(self, store: FaultyStore, upload: Upload) -> None:
        self.key, self._store, self._upload, self._is_open = upload.key, store, upload, True

    def write(self, content: Content) -> None:
        """See `Upload.write`."""
        self._store._check_alive()
        self._upload.write(content)

    def close(self) -> None:
        """See `Upload.close`."""
        if self._is_open:
            self._is_open = False
            with self._store._request("upload", self.key, lambda: self._upload.close):
                self._upload.close()

    def abandon(self) -> None:
        """See `Upload.abandon`."""
        if self._is_open:
            self._is_open = False
            self._upload.abandon()

    def __enter__(self) -> "_FaultyUpload":
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
