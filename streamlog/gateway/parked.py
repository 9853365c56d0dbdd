"""Requests that wait for a partition to change: fetches without data, without polling.

Runs in the gateway's event loop only.

Source: org.apache.kafka.server.purgatory.DelayedOperationPurgatory.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator

from streamlog.topic import TopicPartition

__all__ = ["ParkedRequests"]


class ParkedRequests:
    """Wakes requests when one of their partitions changes.

    Attributes:
        changes: How many changes there were, of any partition.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._events: dict[TopicPartition, set[asyncio.Event]] = defaultdict(set)

    def wake(self, partition: TopicPartition) -> None:
        """Wake the requests that wait for a partition."""
        self.changes += 1
        for event in self._events.get(partition, ()):
            event.set()

    def wake_all(self) -> None:
        """Wake every request, as a stop does."""
        self.changes += 1
        for events in self._events.values():
            for event in events:
                event.set()

    @contextlib.contextmanager
    def of(self, partitions: Iterable[TopicPartition]) -> Iterator[asyncio.Event]:
        """Yield an event that is set when one of the partitions changes.

        Enter before looking at the partitions, or compare `changes`, so that no change falls in
        between.
        """
        event, wanted = asyncio.Event(), list(partitions)
        for partition in wanted:
            self._events[partition].add(event)
        try:
            yield event
        finally:
            for partition in wanted:
                events = self._events[partition]
                events.discard(event)
                if not events:
                    del self._events[partition]

    @property
    def awaited(self) -> list[TopicPartition]:
        """The partitions that requests wait for."""
        return list(self._events)

    def is_awaited(self, partition: TopicPartition) -> bool:
        """Whether a request waits for a partition."""
        return partition in self._events
