"""What the handlers of requests share: the root, its partitions, threads, and the coordinators."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

from streamlog.clock import Clock
from streamlog.commits.identity import PRODUCER_ID_BASE
from streamlog.config.server_config import ServerConfig
from streamlog.errors import PolicyViolationError
from streamlog.gateway.catalog import Catalog
from streamlog.gateway.fetch_sessions import FetchSessions
from streamlog.gateway.parked import ParkedRequests
from streamlog.gateway.partitions import ServedPartitions
from streamlog.gateway.security import Users
from streamlog.gateway.settings import Address, GatewaySettings
from streamlog.gateway.watch import AppendWatch
from streamlog.handover.cluster_image import read_cluster_image
from streamlog.handover.plan import kept_metadata_path
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.root.manager import LogManager
from streamlog.root.producer_ids import ProducerIds, read_next_producer_id
from streamlog.topic import TopicPartition

__all__ = ["Broker", "Coordinator"]

P = ParamSpec("P")
R = TypeVar("R")


class Coordinator(Protocol):
    """What keeps state for clients: of groups, of transactions."""

    async def prepare(self) -> None:
        """Create the topic that the state is kept in, unless it exists."""
        ...

    def begin_to_stop(self) -> None:
        """Let requests that wait answer now, and end timers."""
        ...


C = TypeVar("C", bound=Coordinator)

_RECENT_MS: Final = 20.0
_NODE_ID: Final = 0  # of a root without meta.properties


class Broker:
    """A log root as one broker of Kafka's protocol.

    Args:
        manager: The open root.
        settings: How the gateway listens.
        loop: The event loop that handlers run in, in this thread.

    Attributes:
        manager: The open root.
        settings: How the gateway listens.
        node_id: The id of this broker.
        cluster_id: The id of the cluster it belongs to.
        address: Where clients are told to connect.
        catalog: The topics.
        partitions: The partitions.
        parked: The requests that wait for partitions.
        watch: Wakes them after appends of other processes.
        fetch_sessions: What consumers fetch.
        producer_ids: Assigns the ids of producers.
        clock: The root's clock.
        users: The users that may connect; None: no authentication.
        is_stopping: Whether requests that wait should answer now.
    """

    def __init__(
        self, manager: LogManager, settings: GatewaySettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.manager, self.settings, self._loop = manager, settings, loop
        self._thread = threading.get_ident()
        meta = read_meta_properties(manager.fs, manager.root)
        self.node_id = _NODE_ID if meta is None or meta.node_id is None else meta.node_id
        self.cluster_id = None if meta is None else meta.cluster_id
        self.address = settings.advertise or settings.listen
        self.clock: Clock = manager.clock
        self._recent_config, self._recent_until_ms = self.config, 0.0
        self.catalog = Catalog(manager.log_root)
        self.parked = ParkedRequests()
        self.partitions = ServedPartitions(manager, self._wake)
        self.producer_ids = ProducerIds(manager.log_root, self._producer_ids_in_use)
        self._threads = ThreadPoolExecutor(settings.threads, "streamlog-gateway")
        self._coordinators: dict[Any, Coordinator] = {}
        self.watch = AppendWatch(self.parked, self.partitions, self.catalog, self.run)
        self.fetch_sessions = FetchSessions(
            lambda: self.config.serve.max_incremental_fetch_session_cache_slots,
            self.clock,
            manager.log_root.random,
        )
        self.is_stopping = False
        path = settings.sasl_users
        self.users = None if path is None else Users.load(manager.fs, path)

    @property
    def config(self) -> ServerConfig:
        """The root's settings as of now."""
        return self.manager.server_config

    @property
    def recent_config(self) -> ServerConfig:
        """The root's settings as they were up to 20 ms ago: what every request asks for."""
        now_ms = self.clock.monotonic_ms()
        if now_ms >= self._recent_until_ms:
            self._recent_config, self._recent_until_ms = self.config, now_ms + _RECENT_MS
        return self._recent_config

    def coordinator(self, kind: Callable[["Broker"], C]) -> C:
        """Return the coordinator of a class, made when it is first asked for; in the event loop."""
        found = self._coordinators.get(kind)
        if found is None:
            found = self._coordinators[kind] = kind(self)
        return cast(C, found)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch for clients; 0, a topic's first, before any is written."""
        served = self.partitions.known(topic, partition)
        if served is not None:
            return max(0, served.reader.leader_epoch)
        return self.catalog.leader_epoch(topic, partition)

    def check_writable(self) -> None:
        """Raise PolicyViolationError if the root is served read-only."""
        if self.settings.is_read_only:
            raise PolicyViolationError("the log root is served read-only", path=self.manager.root)

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run blocking work in a thread: files opened, appended to or synced."""
        if kwargs:
            return await self._loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))
        return await self._loop.run_in_executor(self._threads, work, *args)

    def run_beside(self, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run blocking work in a thread without waiting for it; it must not raise."""
        self._threads.submit(work, *args, **kwargs)

    def _producer_ids_in_use(self) -> int:
        """Return the first id above those of the last broker and of the producers of all logs."""
        root = self.manager.log_root
        kept = kept_metadata_path(root)
        first = 0
        if root.fs.stat(kept) is not None:
            first = read_cluster_image(root.fs, kept).next_producer_id
        if read_next_producer_id(root) is None:
            for entry in self.catalog.topics().values():
                for number in entry.partitions:
                    known = self.partitions.get(entry.name, number).reader.producers
                    assigned = [each for each in known if each < PRODUCER_ID_BASE]
                    first = max(first, max(assigned, default=-1) + 1)
        return first

    def _wake(self, partition: TopicPartition) -> None:
        """Wake what waits for a partition; called in any thread."""
        if threading.get_ident() == self._thread:
            self.parked.wake(partition)
            return
        self._loop.call_soon_threadsafe(self.parked.wake, partition)

    def begin_to_stop(self) -> None:
        """Let parked requests answer now."""
        self.is_stopping = True
        self.parked.wake_all()
        self.watch.begin_to_stop()
        for coordinator in self._coordinators.values():
            coordinator.begin_to_stop()

    def close(self) -> None:
        """Wait for work in threads and close the root: everything acknowledged is then durable."""
        self._threads.shutdown()
        self.manager.close()


def advertised(settings: GatewaySettings, bound: Address) -> Address:
    """Return the address that clients are given, once the port is known."""
    if settings.advertise is None:
        return bound
    return settings.advertise._replace(port=settings.advertise.port or bound.port)
