"""Looks for records that other processes append to partitions that fetches wait for.

Only while fetches wait, and only at their partitions: two `stat` calls each, in intervals short
enough for clients to see such records within 100 ms, on every file system.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from streamlog.errors import StreamLogError
from streamlog.gateway.catalog import Catalog
from streamlog.gateway.parked import ParkedRequests
from streamlog.gateway.partitions import ServedPartition, ServedPartitions

__all__ = ["AppendWatch"]

_logger: Final = logging.getLogger(__name__)

_INTERVAL_S: Final = 0.025
_LONGEST_S: Final = 0.05
_SHARE: Final = 10  # a look may take a tenth of the interval after it

Refresh = Callable[[Sequence[ServedPartition]], None]


class AppendWatch:
    """Wakes fetches after appends, creations and deletions of other processes.

    Args:
        parked: The requests that wait.
        partitions: The partitions.
        catalog: The topics.
        run: Runs work in a thread.
    """

    def __init__(
        self,
        parked: ParkedRequests,
        partitions: ServedPartitions,
        catalog: Catalog,
        run: Callable[[Refresh, Sequence[ServedPartition]], Awaitable[None]],
    ) -> None:
        self._parked, self._partitions, self._catalog = parked, partitions, catalog
        self._run = run
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch until no request waits; called by each that begins to."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        loop, topics, interval = asyncio.get_running_loop(), self._catalog.topics(), _INTERVAL_S
        while True:
            await asyncio.sleep(interval)
            begun = loop.time()
            waiting = self._parked.awaited
            if not waiting:
                return
            if self._catalog.topics() is not topics:
                topics = self._catalog.topics()
                for gone in {each.name.topic for each in self._partitions} - topics.keys():
                    self._partitions.forget(gone)  # and the disk space of their open files
                self._parked.wake_all()
                continue
            known = (self._partitions.known(*each) for each in waiting)
            changed = [each for each in known if each and each.reader.may_have_changed()]
            interval = min(_LONGEST_S, max(_INTERVAL_S, _SHARE * (loop.time() - begun)))
            if changed:
                await self._run(_refresh, changed)


def _refresh(partitions: Sequence[ServedPartition]) -> None:
    for partition in partitions:
        try:
            partition.refresh()
        except StreamLogError as error:
            _logger.warning("%s: %s", partition.name, error)
            partition.wake()  # the fetches find out themselves
