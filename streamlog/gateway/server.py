"""`serve`: Kafka's protocol on an address, for one log root, until it is stopped.

One process, one event loop; work that blocks runs in threads. A stop is graceful: requests in
progress are answered, parked ones at once, then everything is synced and the root is closed.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from streamlog.errors import InvalidOptionError, LockTimeoutError, StreamLogError
from streamlog.fs.api import FileLock
from streamlog.fs.files import read_lock_holder, write_lock_holder
from streamlog.gateway.broker import Broker, advertised
from streamlog.gateway.connection import ClientReader, Connection, MemoryBudget
from streamlog.gateway.security import tls_context
from streamlog.gateway.settings import Address, GatewaySettings
from streamlog.gateway.transactions.coordinator import TransactionCoordinator
from streamlog.root.manager import LogManager

if TYPE_CHECKING:
    from streamlog.maintenance.runner import Maintenance

__all__ = ["Gateway", "serve"]

_logger: Final = logging.getLogger(__name__)

_READ_AHEAD: Final = 1 << 20
_SWEEP_S: Final = 5.0
_BACKLOG: Final = 1024  # clients that connect at once
_TICK_S: Final = 1.0  # between looks at what maintenance is due; each takes microseconds
_TICK_BUDGET_MS: Final = 500


class Gateway:
    """A log root served to Kafka clients; `run` is the server, `serve` runs it beside a program.

    Args:
        root: The log root's directory.
        settings: How it listens.

    Attributes:
        address: Where it listens, once it does.
    """

    def __init__(self, root: str | os.PathLike[str], settings: GatewaySettings) -> None:
        self._root, self._settings = os.fspath(root), settings
        self.address = settings.listen
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: dict[Connection, asyncio.Task[None]] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The address for a client's `bootstrap.servers`."""
        return str(advertised(self._settings, self.address))

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until `stop`.

        Args:
            on_ready: Called once clients can connect.

        Raises:
            UnknownTopicError: There is no such root.
            InvalidOptionError: The address is taken, or a file of the settings is wrong.
            LockTimeoutError: The root has a server already.
            UnavailableError: The root cannot be opened.
        """
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        manager, lock = await self._loop.run_in_executor(None, self._open)
        broker = Broker(manager, self._settings, self._loop)
        upkeep = None if lock is None else asyncio.create_task(_maintain(broker))
        if lock is not None:
            broker.coordinator(TransactionCoordinator).start()
        try:
            budget = MemoryBudget(broker.config.serve.queued_max_request_bytes)
            async with await self._listen(broker, budget) as server:
                bound = server.sockets[0].getsockname()
                self.address = Address(bound[0], bound[1])
                broker.address = advertised(self._settings, self.address)
                on_ready()
                sweeper = asyncio.create_task(self._sweep(broker))
                await self._stop.wait()
                sweeper.cancel()
                server.close()
                broker.begin_to_stop()
                await self._let_finish()
        finally:
            if upkeep is not None:
                upkeep.cancel()
                await asyncio.wait([upkeep])
            await self._loop.run_in_executor(None, broker.close)
            if lock is not None:
                lock.release()

    def stop(self) -> None:
        """Begin to stop; from any thread or a signal handler."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(stop.set)

    def _open(self) -> tuple[LogManager, FileLock | None]:
        """Open the root; unless it is read only, as its one server."""
        if self._settings.is_read_only:
            return LogManager.open(self._root), None
        manager = LogManager.open(self._root, create=True)
        try:
            return manager, _only_server(manager)
        except BaseException:
            manager.close()
            raise

    async def _listen(self, broker: Broker, budget: MemoryBudget) -> asyncio.Server:
        settings, loop = self._settings, asyncio.get_running_loop()
        tls = tls_context(settings.tls_cert, settings.tls_key)

        def connecting() -> asyncio.StreamReaderProtocol:
            reader = ClientReader(limit=_READ_AHEAD, loop=loop)
            return asyncio.StreamReaderProtocol(
                reader, lambda _, writer: self._connected(broker, budget, reader, writer), loop=loop
            )

        try:
            return await loop.create_server(connecting, *settings.listen, ssl=tls, backlog=_BACKLOG)
        except OSError as error:
            raise InvalidOptionError(
                f"cannot listen on {settings.listen}", got=error.strerror
            ) from error

    async def _connected(
        self,
        broker: Broker,
        budget: MemoryBudget,
        reader: ClientReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        connection = Connection(broker, reader, writer, budget)
        task = asyncio.current_task()
        assert task is not None
        self._connections[connection] = task
        try:
            await connection.serve()
        except asyncio.CancelledError:
            pass  # the gateway stops
        finally:
            del self._connections[connection]

    async def _sweep(self, broker: Broker) -> None:
        """Disconnect clients that are gone or stuck, now and then."""
        while True:
            idle_s = broker.config.serve.connections_max_idle_ms / 1000
            receive_s = min(idle_s, self._settings.receive_timeout_s)
            await asyncio.sleep(min(_SWEEP_S, receive_s / 2))
            for connection in list(self._connections):
                if connection.is_stale(idle_s, receive_s):
                    connection.abort()

    async def _let_finish(self) -> None:
        """Wait for the requests in progress; connections without one are closed at once."""
        for connection, task in self._connections.items():
            if not connection.is_busy:
                task.cancel()
        tasks = list(self._connections.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._settings.stop_timeout_s)
            for task in late:
                task.cancel()
            if late:
                _logger.warning("%d requests were cut off by the stop", len(late))
                await asyncio.wait(late)


def _only_server(manager: LogManager) -> FileLock:
    """Take the lock of the root's server; raise LockTimeoutError if there is one."""
    path = manager.log_root.gateway_lock
    lock = manager.fs.try_lock(path, shared=False)
    if lock is None:
        holder = read_lock_holder(manager.fs, path)
        raise LockTimeoutError(
            "log root has a server already",
            path=manager.root,
            got="another process" if holder is None else f"process {holder.pid}",
            hint=f"streamlog serve --read-only {manager.root} serves it beside the other",
        )
    write_lock_holder(lock, now_ms=manager.clock.now_ms(), what="serve")
    return lock


def _maintenance(root: str) -> "Maintenance":
    """Return the maintenance of a root; its code is loaded when it is due, after the start."""
    from streamlog.maintenance.runner import Maintenance

    return Maintenance(root)


async def _maintain(broker: Broker) -> None:
    """Run due retention and compaction, in slices, beside the requests."""
    await asyncio.sleep(broker.config.serve.log_initial_task_delay_ms / 1000)
    maintenance = await broker.run(_maintenance, broker.manager.root)
    try:
        while True:
            try:
                report = await broker.run(maintenance.run_due, budget_ms=_TICK_BUDGET_MS)
            except StreamLogError as error:
                _logger.warning("maintenance: %s", error)
            else:
                for each in report.errors:
                    _logger.warning("maintenance: %s", each)
            await asyncio.sleep(_TICK_S)
    finally:
        maintenance.close()


@contextlib.contextmanager
def serve(
    root: str | os.PathLike[str], settings: GatewaySettings | None = None
) -> Iterator[Gateway]:
    """Serve a log root beside the calling program: for tests and notebooks.

        with serve("/tmp/log") as gateway:
            producer = Producer({"bootstrap.servers": gateway.bootstrap_servers})

    Args:
        root: The directory; created if it is missing.
        settings: How it listens; a free port on 127.0.0.1 by default.

    Yields:
        The running gateway.

    Raises:
        StreamLogError: It cannot start.
    """
    gateway = Gateway(root, settings or GatewaySettings())
    ready, failed = threading.Event(), []

    def work() -> None:
        try:
            asyncio.run(gateway.run(ready.set))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work, name="streamlog-gateway", daemon=True)
    thread.start()
    ready.wait()
    try:
        if not failed:
            yield gateway
    finally:
        gateway.stop()
        thread.join()
    if failed:
        raise failed[0]
