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
from collections.abc import Callable, Mapping
from typing import Final

from streamlog.clock import Clock
from streamlog.fs.log_root import LogRoot
from streamlog.root.read_roots import ReadRoots
from streamlog.root.readers import check_progress, write_progress
from streamlog.topic import TopicPartition

__all__ = ["GroupProgress"]

# An idle query must not expire: half of the minimum of offsets.retention.minutes.
_REPEAT_AFTER_MS: Final = 30_000

_log = logging.getLogger(__name__)


class GroupProgress:
    """Records the position of one running query.

    Args:
        roots: The log root, or the log roots of a replica set.
        group: The name, `kafka.group.id`.
        clock: For the time of the record.

    Raises:
        InvalidOptionError: No root is a streamlog root; others are never written to.
        StorageError: No directory of readers is writable.
    """

    def __init__(self, roots: ReadRoots, group: str, clock: Clock) -> None:
        self._roots = roots
        self._failed: set[str] = set()
        self._group, self._clock = group, clock
        self._finished: Mapping[str, object] | None = None
        self._unread: Mapping[TopicPartition, int] = {}
        self._written_ms = 0.0
        self._in_each_root(lambda root: check_progress(root, group))

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
        self._in_each_root(lambda root: write_progress(root, self._group, document, now_ms=now_ms))
        self._written_ms = self._clock.monotonic_ms()

    def _in_each_root(self, write: Callable[[LogRoot], None]) -> None:
        """Write to all roots that are reachable; log the failure of each of the others once."""
        failures = self._roots.in_each(write)
        for path in failures.keys() - self._failed:
            _log.warning("position of %s not recorded: %s", self._group, failures[path])
        self._failed = set(failures)
