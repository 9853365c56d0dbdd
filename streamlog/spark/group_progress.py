"""What a query with `kafka.group.id` has finished, written down so that it is kept and counted.

Spark does not pass a Python source the location of its checkpoint, and its `commit` call comes only
with the next batch. Two other calls show what the checkpoint holds at that moment:

    latestOffset(start)     asked when no batch is under way: all batches up to `start` are
                            committed. A query over all that is there asks once more after its
                            last batch, so its position is complete when it ends
    partitions(start, end)  asked for the batch that a restart repeats: what lies before its start
                            is committed

A new query is recorded at its initial offset, before it reads, and a topic that a pattern gains as
soon as a running query sees it. The position is therefore never
ahead of the checkpoint. It is one batch behind while a batch runs, until the next trigger asks, and
after a query that is stopped or was started with `trigger(once=True)`.

Source: org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution.constructNextBatch.
"""

from collections.abc import Mapping
from typing import Final

from streamlog.clock import Clock
from streamlog.fs.log_root import LogRoot
from streamlog.root.readers import check_progress, write_progress
from streamlog.topic import TopicPartition

__all__ = ["GroupProgress"]

# An idle query is no silent one: half of the least that offsets.retention.minutes can say.
_REPEAT_AFTER_MS: Final = 30_000


class GroupProgress:
    """The record of one running query.

    Args:
        root: The log root.
        group: The name, `kafka.group.id`.
        clock: For the time of the record.

    Raises:
        InvalidOptionError: The root is not one of ours, which alone is written to.
        StorageError: The folder of readers cannot be written to.
    """

    def __init__(self, root: str, group: str, clock: Clock) -> None:
        self._root = LogRoot.at(root, clock=clock)
        self._group, self._clock = group, clock
        self._finished: Mapping[str, object] | None = None
        self._unread: Mapping[TopicPartition, int] = {}
        self._written_ms = 0.0
        check_progress(self._root, group)

    @property
    def is_recorded(self) -> bool:
        """Whether this run has written a position."""
        return self._finished is not None

    def record(self, finished: Mapping[str, object]) -> None:
        """Write down that everything before `finished` is done, unless that is written already.

        Args:
            finished: Next offsets, as Spark stores them.

        Raises:
            StorageError: It cannot be written.
        """
        is_known = finished == self._finished
        if is_known and self._clock.monotonic_ms() - self._written_ms < _REPEAT_AFTER_MS:
            return
        if not is_known:
            self._finished, self._unread = finished, {}
        self._write()

    def add_unread(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write down that partitions are read too which the last position does not know yet.

        Args:
            offsets: Where each of them is to be read from.

        Raises:
            StorageError: It cannot be written.
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
        write_progress(self._root, self._group, document, now_ms=self._clock.now_ms())
        self._written_ms = self._clock.monotonic_ms()
