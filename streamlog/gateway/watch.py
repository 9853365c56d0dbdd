"""Looks for records that other processes append to partitions that fetches wait for.

Only while fetches wait, and only at their partitions. The kernel notices what this machine writes
to a local file system. Elsewhere two `stat` calls per partition and look find out, in intervals
short enough for clients to see such records within 100 ms. Both ways find what the other has
missed: all partitions are looked at once in a while.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from streamlog.errors import StreamLogError
from streamlog.fs.notices import DirectoryNotices
from streamlog.gateway.catalog import Catalog
from streamlog.gateway.parked import ParkedRequests
from streamlog.gateway.partitions import ServedPartition, ServedPartitions
from streamlog.topic import TopicPartition

__all__ = ["AppendWatch"]

_logger: Final = logging.getLogger(__name__)

_INTERVAL_S: Final = 0.025
_LONGEST_S: Final = 0.05
_SHARE: Final = 10  # a look may take a tenth of the interval after it
_SWEEP_S: Final = 2.0  # between looks at partitions that the kernel watches

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
        self._notices: DirectoryNotices | None = None
        self._paths: dict[TopicPartition, str] = {}  # of the watched directories
        self._wanted: set[TopicPartition] = set()  # since the last look at all of them
        self._swept_s = 0.0

    def begin_to_stop(self) -> None:
        """Do without the kernel's notices from now on."""
        self._paths.clear()
        if self._notices is not None:
            self._notices.close()
            self._notices = None

    def start(self) -> None:
        """Watch until no request waits; called by each that begins to."""
        if self._task is None:
            self._notices = DirectoryNotices.open()
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
                for name in list(self._paths):  # others may have got the same name
                    self._forget(name)
                self._parked.wake_all()
                continue
            suspects = self._suspects(waiting, begun)
            changed = [each for each in suspects if each.reader.may_have_changed()]
            interval = min(_LONGEST_S, max(_INTERVAL_S, _SHARE * (loop.time() - begun)))
            if changed:
                await self._run(_refresh, changed)

    def _suspects(self, waiting: list[TopicPartition], now_s: float) -> list[ServedPartition]:
        """Return the partitions to look at: all that the kernel does not watch, or has noticed."""
        noticed = frozenset[str]() if self._notices is None else self._notices.take()
        if now_s - self._swept_s >= _SWEEP_S:
            self._swept_s, noticed = now_s, None
            for unwanted in self._paths.keys() - self._wanted:
                self._forget(unwanted)
            self._wanted.clear()
        self._wanted.update(waiting)
        suspects = []
        for name in waiting:
            path = self._paths.get(name)
            if path is None or noticed is None or path in noticed:
                served = self._partitions.known(*name)
                if served is not None:
                    self._watch_directory(served)
                    suspects.append(served)
        return suspects

    def _watch_directory(self, served: ServedPartition) -> None:
        if self._notices is not None and self._notices.add(served.reader.path):
            self._paths[served.name] = served.reader.path
        else:
            self._paths.pop(served.name, None)

    def _forget(self, name: TopicPartition) -> None:
        path = self._paths.pop(name, None)
        if path is not None and self._notices is not None:
            self._notices.discard(path)


def _refresh(partitions: Sequence[ServedPartition]) -> None:
    for partition in partitions:
        try:
            partition.refresh()
        except StreamLogError as error:
            _logger.warning("%s: %s", partition.name, error)
            partition.wake()  # the fetches find out themselves
