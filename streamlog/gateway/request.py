"""A request in progress, and the bytes of a response that come from a file."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamlog.protocol.messages import Deferred

__all__ = ["FileRegion", "Peer", "Request"]


class FileRegion(Deferred):
    """Part of a file in a response; sent without passing through Python.

    Attributes:
        descriptor: The open file; the sender closes it with `close`.
        offset: Where the region begins in the file.
    """

    __slots__ = ("_file", "descriptor", "offset")

    def __init__(self, file: Any, descriptor: int, offset: int, size: int) -> None:
        super().__init__(size)
        self._file, self.descriptor, self.offset = file, descriptor, offset

    def fileno(self) -> int:
        """Return the descriptor: `loop.sendfile` asks for it."""
        return self.descriptor

    def send(self, connection: int) -> int:
        """Send what fits into a connection's buffer; return the bytes sent.

        Raises:
            OSError: The connection is gone or its buffer full, or the file cannot be read.
        """
        count: int = self._file.send_to(connection, self.offset, self.size)
        return count

    def read(self, size: int, position: int) -> bytes:
        """Return bytes of the region, for a connection that encrypts them."""
        return bytes(self._file.pread(size, self.offset + position))

    def close(self) -> None:
        """Let go of the file."""
        self._file = None


@dataclass(slots=True)
class Peer:
    """The client at the other end of a connection.

    Attributes:
        host: Its address, as Kafka prints it in group descriptions: `/127.0.0.1`.
        listener: The address that it connected to.
        principal: Its user; None before it is authenticated.
        software: Its name and version, from ApiVersions.
        is_leaving: Whether the connection is to be closed after the current response.
        has_ended: Whether the client closed its end of the connection.
        state: What handlers keep for the connection, such as an authentication in progress.
    """

    host: str
    listener: tuple[str, int]
    principal: str | None
    software: str = ""
    is_leaving: bool = False
    has_ended: bool = False
    state: dict[str, Any] = field(default_factory=dict)
    _waiting: set[asyncio.Event] = field(default_factory=set)

    def end(self) -> None:
        """Note that the client closed its end: what it waits for is answered now."""
        self.has_ended = True
        for event in self._waiting:
            event.set()

    def add(self, event: asyncio.Event) -> None:
        """Set an event when the client closes its end, or has closed it, until `remove`."""
        self._waiting.add(event)
        if self.has_ended:
            event.set()

    def remove(self, event: asyncio.Event) -> None:
        """Undo `add`."""
        self._waiting.discard(event)


class Request(NamedTuple):
    """A decoded request.

    Attributes:
        api: The name of its API, as Kafka spells it.
        version: The version of its message.
        client_id: The client's name for itself.
        values: Its fields, by Kafka's names; defaults for those that its version lacks.
        peer: The connection that it came from.
        regions: The parts of files that its response contains; handlers add to it.
    """

    api: str
    version: int
    client_id: str
    values: dict[str, Any]
    peer: Peer
    regions: list[FileRegion]
