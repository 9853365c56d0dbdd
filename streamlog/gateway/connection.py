"""One client's connection: requests in, responses out, in order.

    request   int32 size, then the request     one at a time, as Kafka's brokers process them
    response  int32 size, then the response    records go from the segment's file to the socket

Source: kafka.network.Processor.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Coroutine
from typing import IO, Any, Final, cast

from streamlog.errors import CorruptRecordError
from streamlog.gateway.broker import Broker
from streamlog.gateway.dispatch import Answer, serve_at_once, serve_request
from streamlog.gateway.request import FileRegion, Peer

__all__ = ["ClientReader", "Connection", "MemoryBudget"]

_logger: Final = logging.getLogger(__name__)

_SIZE: Final = 4
_PIECE: Final = 256 << 10
# struct tcp_info of linux/tcp.h, with tcpi_bytes_acked
_TCP_INFO_SIZE: Final = 128
_BYTES_ACKED: Final = slice(120, 128)
_RESET: Final = struct.pack("ii", 1, 0)  # what SO_LINGER takes to reset on close
_TURN: Final = 8  # requests of one client before those of others


class MemoryBudget:
    """Bounds the bytes of requests in memory; a connection waits for its share before it reads.

    Args:
        limit: Bytes of all requests together; a larger one is taken alone.

    Source: `queued.max.request.bytes`, org.apache.kafka.common.memory.MemoryPool.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._waiting: dict[asyncio.Future[None], int] = {}  # in the order in which they came

    async def take(self, size: int) -> None:
        """Wait until `size` bytes fit."""
        if self._fits(size):
            self._used += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = size
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None:
                self.give_back(size)  # the bytes came at the same time
            raise

    def give_back(self, size: int) -> None:
        """Free bytes that were taken."""
        self._used -= size
        for turn, wanted in list(self._waiting.items()):
            if self._fits(wanted):
                self._used += wanted
                del self._waiting[turn]
                turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._limit


class ClientReader(asyncio.StreamReader):
    """What a client sends; tells when it has closed its end, also while nobody reads.

    Attributes:
        on_arrival: Called with data that arrives where nothing is waiting to be read; returns
            whether it has dealt with them, so that they need not be read.
        on_end: Called at the end.
        has_ended: Whether that has come.
    """

    has_ended: bool = False
    on_end: Callable[[], None] | None = None
    on_arrival: Callable[[bytes], bool] | None = None
    _buffer: bytearray  # of `StreamReader`

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # an iterable, it says
        """Take what has arrived."""
        if self.on_arrival is None or self._buffer or not self.on_arrival(data):
            super().feed_data(data)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is waiting to be read."""
        return not self._buffer

    def hand_over(self, data: bytes) -> None:
        """Let data be read that `on_arrival` had dealt with."""
        super().feed_data(data)

    def feed_eof(self) -> None:
        """Take the end of the stream."""
        super().feed_eof()
        self._tell()

    def set_exception(self, exc: Exception) -> None:
        """Take the loss of the connection."""
        super().set_exception(exc)
        self._tell()

    def _tell(self) -> None:
        self.has_ended = True
        if self.on_end is not None:
            self.on_end()


class _Steps:
    """Runs a coroutine in the event loop without a task: that would take two turns more.

    Args:
        work: The coroutine; it must not ask for its task.
        done: Called once with its result, or its error; not after `close`.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, Answer | None],
        done: Callable[[Answer | BaseException | None], None],
    ) -> None:
        self._work, self._done, self._is_over = work, done, False

    def step(self, _: object = None) -> None:
        """Let it run until it waits for something."""
        if self._is_over:
            return
        try:
            awaited = self._work.send(None)
        except StopIteration as ended:
            self._end(ended.value)
        except BaseException as error:  # noqa: BLE001 - `done` deals with it
            self._end(error)
        else:
            if awaited is None:  # as `asyncio.sleep(0)` does
                asyncio.get_running_loop().call_soon(self.step)
            else:
                awaited._asyncio_future_blocking = False
                awaited.add_done_callback(self.step)

    def _end(self, outcome: Answer | BaseException | None) -> None:
        self._is_over = True
        self._done(outcome)

    def close(self) -> None:
        """End the coroutine where it waits."""
        if not self._is_over:
            self._is_over = True
            self._work.close()


class Connection:
    """A connected client; `serve` runs until it leaves."""

    def __init__(
        self,
        broker: Broker,
        reader: ClientReader,
        writer: asyncio.StreamWriter,
        budget: MemoryBudget,
    ) -> None:
        self._broker, self._reader, self._writer, self._budget = broker, reader, writer, budget
        host, *_ = writer.get_extra_info("peername") or ("unknown",)
        listener = writer.get_extra_info("sockname") or ("unknown", 0)
        principal = "ANONYMOUS" if broker.users is None else None
        self.peer = Peer(f"/{host}", (listener[0], listener[1]), principal)
        reader.on_end = self.peer.end
        if reader.has_ended:
            self.peer.end()
        self._is_encrypted = writer.get_extra_info("ssl_object") is not None
        self._socket: socket.socket = writer.get_extra_info("socket")
        self.is_busy = self._is_corked = False
        self._loop = asyncio.get_running_loop()
        self._active_at = self._loop.time()
        self._is_receiving = self._is_sending = False
        self._taken = 0
        self._task: asyncio.Task[None] | None = asyncio.current_task()
        self._is_given_up = self._is_waiting = False
        self._begun: Answer | None = None  # the answer to the request that is to be read next
        self._going_on: _Steps | None = None  # an earlier request that waits, without a task
        self._late: Answer | None = None  # to it
        self._turn: asyncio.Future[None] | None = None  # of the task, behind it
        reader.on_arrival = self._answer_at_once

    def is_stale(self, idle_s: float, receive_s: float) -> bool:
        """Whether the client is gone or stuck, by the time since its last byte, sent or taken.

        Args:
            idle_s: How long a client may be silent between requests, or take no byte of an answer,
                in seconds.
            receive_s: How long within a request: it holds its share of the memory meanwhile.
        """
        now = self._loop.time()
        if self._is_sending and (taken := self._bytes_taken()) != self._taken:
            self._active_at, self._taken = now, taken
        silent_s = now - self._active_at
        if self._is_receiving:
            return silent_s > receive_s
        return (self._is_sending or not self.is_busy) and silent_s > idle_s

    def abort(self) -> None:
        """Disconnect the client at once."""
        if self._is_sending and self._task is not None:
            self._task.cancel()  # a file that is being sent would wait for the socket for ever
            self._is_given_up = True
        else:
            self._writer.transport.abort()

    def _bytes_taken(self) -> int:
        """Return how many bytes the client has acknowledged so far."""
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
        return int.from_bytes(info[_BYTES_ACKED], sys.byteorder)

    async def serve(self) -> None:
        """Serve requests until the client disconnects, sends nonsense, or the gateway stops."""
        served = 0
        try:
            while not self._broker.is_stopping and await self._serve_one():
                served += 1
                if served % _TURN == 0:  # requests that are here already make nothing wait
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, ssl.SSLError):
            pass  # the client is gone
        except CorruptRecordError as error:
            _logger.warning("closing the connection of %s: %s", self.peer.host, error)
        finally:
            self._forget_begun()
            if self._is_given_up:  # without a reset, the kernel would keep what was not taken
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._writer.transport.abort()
            self._writer.close()

    def _forget_begun(self) -> None:
        if self._going_on is not None:
            self._going_on.close()
        for answer in (self._begun, self._late):
            for region in () if answer is None else answer.regions:
                region.close()
        self._begun = self._late = self._going_on = None

    # ---- where a request arrives -----------------------------------------------------------------
    def _answer_at_once(self, data: bytes) -> bool:
        """Answer a request where it arrives, or begin to, if it is alone.

        Returns:
            Whether nothing else is to be done; if not, the task is to read and to serve it, as far
            as that has not `_begun`.
        """
        size = len(data) - _SIZE
        if not self._is_waiting or int.from_bytes(data[:_SIZE], "big", signed=True) != size:
            return False
        transport, broker = self._writer.transport, self._broker
        if self._going_on is not None or broker.is_stopping or transport.is_closing():
            return False
        limit = broker.recent_config.serve.socket_request_max_bytes
        if size > limit or transport.get_write_buffer_size():
            return False
        found = serve_at_once(broker, self.peer, data[_SIZE:])
        if found is None:
            return False
        if isinstance(found, Answer):
            if not self._is_sent(found):
                self._begun = found
                return False
            return True
        self.is_busy = True
        self._going_on = _Steps(found, lambda outcome: self._go_off(outcome, data))
        self._going_on.step()
        return True

    def _go_off(self, outcome: Answer | BaseException | None, data: bytes) -> None:
        """Take the answer to a request that had to wait; let what came behind it be served."""
        self._going_on, self.is_busy = None, self._turn is not None
        if isinstance(outcome, BaseException):
            if not isinstance(outcome, ConnectionError):
                _logger.error("a request of %s failed", self.peer.host, exc_info=outcome)
            self._writer.close()
        elif outcome is not None and not self._is_sent(outcome):
            if self._turn is not None or not self._reader.is_empty:
                self._late = outcome
            else:
                self._begun = outcome
                self._reader.hand_over(data)
        if self._turn is not None:
            self._turn.set_result(None)
        elif self._broker.is_stopping and self._is_waiting and self._begun is None:
            assert self._task is not None
            self._task.cancel()

    def _is_sent(self, answer: Answer) -> bool:
        """Send an answer that needs no file and no end of the connection; else return False."""
        if answer.regions or answer.is_last:
            return False
        self._active_at = self._loop.time()
        self._writer.write(len(answer.data).to_bytes(_SIZE, "big") + answer.data)
        return True

    # ---- in the task -----------------------------------------------------------------------------
    async def _serve_one(self) -> bool:
        """Serve one request; return whether the connection can be used further."""
        self._is_waiting = True
        try:
            head = await self._reader.readexactly(_SIZE)
        except asyncio.IncompleteReadError:
            if self._going_on or self._late:  # the client only takes an answer still
                await self._let_go_first()
            raise
        finally:
            self._is_waiting = False
        size = int.from_bytes(head, "big", signed=True)
        limit = self._broker.recent_config.serve.socket_request_max_bytes
        if not 0 <= size <= limit:
            raise CorruptRecordError("request size", got=size, expected=f"0 to {limit}")
        self.is_busy = True
        if self._going_on or self._late:
            if not await self._let_go_first():
                return False
            self.is_busy = True
        await self._budget.take(size)
        try:
            data, begun = await self._receive(size), self._begun
            self._begun = None
            answer = begun or await serve_request(self._broker, self.peer, data)
        finally:
            self._budget.give_back(size)
        return await self._answer(answer)

    async def _let_go_first(self) -> bool:
        """Wait until an earlier request is answered; return whether the connection goes on."""
        if self._going_on is not None:
            self._turn = self._loop.create_future()
            try:
                await self._turn
            finally:
                self._turn = None
        late, self._late = self._late, None
        return await self._answer(late)

    async def _answer(self, answer: Answer | None) -> bool:
        self._is_sending, self._active_at = True, self._loop.time()
        try:
            return answer is None or await self._send(answer)
        finally:
            self.is_busy = self._is_sending = False
            self._active_at = self._loop.time()

    async def _receive(self, size: int) -> bytes:
        """Return the rest of a request."""
        self._is_receiving, self._active_at = True, self._loop.time()
        data = await self._reader.read(size)
        if len(data) < size:
            pieces, missing = [data], size - len(data)
            while missing:
                piece = await self._reader.read(missing)
                if not piece:
                    raise ConnectionResetError("closed within a request")
                self._active_at = self._loop.time()
                pieces.append(piece)
                missing -= len(piece)
            data = b"".join(pieces)
        self._is_receiving = False
        return data

    async def _send(self, answer: Answer) -> bool:
        size = len(answer.data) + sum(region.size for region in answer.regions)
        data, sent = memoryview(size.to_bytes(_SIZE, "big") + answer.data), 0
        self._cork(is_corked=bool(answer.regions))
        try:
            for region in answer.regions:
                end = _SIZE + region.position
                self._writer.write(data[sent:end])
                sent = end
                await self._writer.drain()
                await (self._encrypt(region) if self._is_encrypted else self._send_file(region))
        finally:
            for region in answer.regions:
                region.close()
        self._writer.write(data[sent:])
        self._cork(is_corked=False)
        await self._writer.drain()
        return not answer.is_last

    def _cork(self, *, is_corked: bool) -> None:
        """Let the pieces of a response leave together: each packet wakes the client."""
        if is_corked != self._is_corked and not self._is_encrypted:
            self._is_corked = is_corked
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, is_corked)

    async def _send_file(self, region: FileRegion) -> None:
        """Send a region without reading it.

        Raises:
            ConnectionError: The client is gone, or the file has become shorter or unreadable.
        """
        transport, sent = self._writer.transport, 0
        try:
            if transport.get_write_buffer_size() == 0:
                with contextlib.suppress(BlockingIOError):
                    sent = region.send(self._socket.fileno())
            if sent < region.size:
                # A corked socket sends full packets only, and they may exceed the client's window.
                self._cork(is_corked=False)
                if transport.is_closing():
                    raise ConnectionAbortedError("closed within a response")
                sent += await self._loop.sendfile(
                    transport,
                    cast(IO[bytes], region),
                    region.offset + sent,
                    region.size - sent,
                    fallback=False,  # it would read the file: after a reset, and for nobody
                )
        except ConnectionError:
            raise
        except (OSError, asyncio.SendfileNotAvailableError) as error:
            raise ConnectionAbortedError(f"a segment cannot be read: {error}") from error
        if sent < region.size:
            raise ConnectionAbortedError(f"sent {sent} of {region.size} bytes")

    async def _encrypt(self, region: FileRegion) -> None:
        """Send a region over TLS, which the kernel cannot.

        Raises:
            ConnectionAbortedError: The file has become shorter.
        """
        sent = 0
        while sent < region.size:
            piece = await self._broker.run(region.read, min(_PIECE, region.size - sent), sent)
            if not piece:
                raise ConnectionAbortedError(f"sent {sent} of {region.size} bytes")
            self._writer.write(piece)
            sent += len(piece)
            await self._writer.drain()
