"""Requests that wait for a partition to change: fetches without data, without polling.

Runs in the gateway's event loop only.

Source: org.apache.kafka.server.purgatory.DelayedOperationPurgatory.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

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

    def add(self, event: asyncio.Event, partitions: Iterable[TopicPartition]) -> None:
        """Set an event when one of the partitions changes, until `remove`.

        Add it before looking at the partitions, or compare `changes`, so that no change falls in
        between.
        """
        for partition in partitions:
            self._events[partition].add(event)

    def remove(self, event: asyncio.Event, partitions: Iterable[TopicPartition]) -> None:
        """Undo `add`."""
        for partition in partitions:
            events = self._events.get(partition)
            if events is not None:
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
