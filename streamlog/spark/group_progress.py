"""The recorded position of a query with `kafka.group.id`, for retention and lag.

It is written to every reachable root of a replica set: each root may come to lead, and the leader's
retention keeps what its own readers need. An older position in a root that returns keeps more.

Spark does not pass the location of the checkpoint to a Python source, and calls `commit` only with
the next batch. Two other calls reveal the content of the checkpoint:

    latestOffset(start)     no batch is running, so all batches up to `start` are committed. A
                            query over all available data makes this call once more after its last
                            batch, so its position is complete when it ends
    partitions(start, end)  for the batch that a restart repeats: everything before its start is
                            committed

A new query is recorded at its initial offset before it reads; a topic that newly matches a pattern
is recorded as soon as a running query sees it. The position is therefore never ahead of the
checkpoint. It is one batch behind while a batch runs, until the next trigger, and after a query
that was stopped or started with `trigger(once=True)`.

Source: org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution.constructNextBatch.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from streamlog.clock import Clock
from streamlog.errors import StreamLogError
from streamlog.root.read_roots import ReadRoots
from streamlog.root.readers import check_progress, write_progress
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from streamlog.arrow.views import AnyReadRoots
    from streamlog.bucket.read_roots import BucketReadRoots

__all__ = ["GroupProgress"]

# An idle query must not expire: half of the minimum of offsets.retention.minutes.
_REPEAT_AFTER_MS: Final = 30_000

_log = logging.getLogger(__name__)


class GroupProgress:
    """Records the position of one running query.

    Args:
        roots: The log root, the log roots of a replica set, or a root in an object store.
        group: The name, `kafka.group.id`.
        clock: For the time of the record.

    Raises:
        InvalidOptionError: No root is a streamlog root; others are never written to.
        StorageError: No directory of readers is writable.
    """

    def __init__(self, roots: "AnyReadRoots", group: str, clock: Clock) -> None:
        self._place = _place_of(roots, group)
        self._failed: set[str] = set()
        self._group, self._clock = group, clock
        self._finished: Mapping[str, object] | None = None
        self._unread: Mapping[TopicPartition, int] = {}
        self._written_ms = 0.0
        self._note_failures(self._place.check())

    @property
    def is_recorded(self) -> bool:
        """Whether this run has recorded a position."""
        return self._finished is not None

    def record(self, finished: Mapping[str, object]) -> None:
        """Record that everything before `finished` is done, unless that was recorded recently.

        Args:
            finished: Next offsets, as Spark stores them.
        """
        is_known = finished == self._finished
        if is_known and self._clock.monotonic_ms() - self._written_ms < _REPEAT_AFTER_MS:
            return
        if not is_known:
            self._finished, self._unread = finished, {}
        self._write()

    def add_unread(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record partitions that the last position does not contain yet.

        Args:
            offsets: The offset at which each of them starts.
        """
        if not offsets.keys() <= self._unread.keys():
            self._unread = offsets
            self._write()

    def _write(self) -> None:
        document = dict(self._finished or {})
        for (topic, partition), offset in sorted(self._unread.items()):
            known = document.get(topic)
            numbers = known if isinstance(known, Mapping) else {}
            document[topic] = {**numbers, str(partition): offset}
        now_ms = self._clock.now_ms()
        self._note_failures(self._place.write(document, now_ms))
        self._written_ms = self._clock.monotonic_ms()

    def _note_failures(self, failures: Mapping[str, StreamLogError]) -> None:
        """Log the failure of each root that is not reachable once."""
        for path in failures.keys() - self._failed:
            _log.warning("position of %s not recorded: %s", self._group, failures[path])
        self._failed = set(failures)


# ---- where a position is written --------------------------------------------------------------
class _Place(Protocol):
    """The readers of a root; both methods return the failures of roots that are not reachable."""

    def check(self) -> Mapping[str, StreamLogError]:
        """Check that positions can be written, so that a query fails at its start."""
        ...

    def write(self, document: Mapping[str, object], now_ms: int) -> Mapping[str, StreamLogError]:
        """Write the position."""
        ...


class _InDirectories:
    """The readers of a directory, or of each root of a replica set."""

    def __init__(self, roots: ReadRoots, group: str) -> None:
        self._roots, self._group = roots, group

    def check(self) -> Mapping[str, StreamLogError]:
        """See `_Place.check`."""
        return self._roots.in_each(lambda root: check_progress(root, self._group))

    def write(self, document: Mapping[str, object], now_ms: int) -> Mapping[str, StreamLogError]:
        """See `_Place.write`."""
        return self._roots.in_each(
            lambda root: write_progress(root, self._group, document, now_ms=now_ms)
        )


class _InStore:
    """The readers of a root in an object store: one request for each position."""

    def __init__(self, roots: "BucketReadRoots", group: str) -> None:
        from streamlog.bucket.readers import BucketReaders

        self._roots, self._group = roots, group
        self._readers = BucketReaders(roots.root.store, roots.clock)

    def check(self) -> Mapping[str, StreamLogError]:
        """Do nothing: the first position is written before the query reads."""
        return {}

    def write(self, document: Mapping[str, object], now_ms: int) -> Mapping[str, StreamLogError]:
        """Write the position, and the state of the root that tasks may still use."""
        del now_ms
        entry = self._roots.root.state.number
        self._readers.write_progress(self._group, document, entry=entry)
        return {}


def _place_of(roots: "AnyReadRoots", group: str) -> _Place:
    if isinstance(roots, ReadRoots):
        return _InDirectories(roots, group)
    return _InStore(roots, group)
