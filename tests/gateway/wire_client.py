"""A client that sends one request after another and shows what comes back, field by field."""

import socket
from typing import Any

from streamlog.protocol.apis import API_VERSIONS_KEY, apis


class WireClient:
    """A connection to a gateway or a broker at `HOST:PORT`."""

    def __init__(self, address: str, timeout_s: float = 30) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._correlation_id = 0

    def call(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        """Send a request and return the fields of its response."""
        correlation_id = self.send(api, version, **values)
        return self.receive(api, version, correlation_id)

    def send(self, api: str, version: int, **values: Any) -> int:
        """Send a request without waiting; return its correlation id."""
        self._correlation_id += 1
        self.send_frame(frame(api, version, self._correlation_id, values))
        return self._correlation_id

    def send_frame(self, data: bytes) -> None:
        """Send bytes with their size in front."""
        self._socket.sendall(len(data).to_bytes(4, "big", signed=True) + data)

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive(self, api: str, version: int, correlation_id: int) -> dict[str, Any]:
        """Return the fields of the next response, which must answer this request."""
        data = self.receive_frame()
        assert int.from_bytes(data[:4], "big", signed=True) == correlation_id
        known = apis()[api]
        is_flexible = known.request.is_flexible(version) and known.key != API_VERSIONS_KEY
        decoded = known.response.decode(data, version, 4 + is_flexible)
        assert decoded.end == len(data)
        return decoded.values

    def receive_frame(self) -> bytes:
        """Return the next response without its size.

        Raises:
            ConnectionError: The other end closed the connection.
        """
        return self._read(int.from_bytes(self._read(4), "big"))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed")
            data += piece
        return data

    @property
    def port(self) -> int:
        """The port of this end of the connection."""
        name: tuple[str, int] = self._socket.getsockname()
        return name[1]

    def end(self) -> None:
        """Close this end: nothing more is sent, but answers can be received."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def frame(api: str, version: int, correlation_id: int, values: dict[str, Any]) -> bytes:
    """Return an encoded request with its header, without its size."""
    known = apis()[api]
    if api == "ApiVersions":
        values = {"clientSoftwareName": "test", "clientSoftwareVersion": "1"} | values
    head = known.key.to_bytes(2, "big") + version.to_bytes(2, "big")
    head += correlation_id.to_bytes(4, "big") + b"\x00\x04test"
    return head + b"\0" * known.request.is_flexible(version) + known.request.encode(values, version)
