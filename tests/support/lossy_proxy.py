"""A proxy that lets requests through and loses answers: the work is done, and nobody knows."""

import contextlib
import socket
import threading

SIZE = 1 << 16


class LossyProxy:
    """A proxy before an HTTP server. Use it as a context manager.

    Args:
        port: The port of the server on the loopback interface.

    Attributes:
        port: Its own port.
        wanted: The answers to requests whose first line contains this text get lost.
        left: How many more answers get lost.
        lost: The first lines of the requests without an answer.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.wanted, self.left = b"", 0
        self.lost: list[bytes] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> "LossyProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            connection = _Connection(self, client, server)
            for work in (connection.forward, connection.back):
                threading.Thread(target=work, daemon=True).start()

    def loses(self, first_line: bytes) -> bool:
        """Return whether the answer to a request gets lost, and note it."""
        with self._lock:
            if self.left and self.wanted in first_line:
                self.left -= 1
                self.lost.append(first_line)
                return True
        return False


class _Connection:
    """One client's connection; it sends a request when it has the answer to the one before."""

    def __init__(self, proxy: LossyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._request = b""

    def forward(self) -> None:
        """Pass requests on."""
        with contextlib.suppress(OSError):
            while data := self._client.recv(SIZE):
                self._request = self._request or data.partition(b"\r\n")[0]
                self._server.sendall(data)
        self._close()

    def back(self) -> None:
        """Pass answers back, or hang up instead."""
        with contextlib.suppress(OSError):
            while data := self._server.recv(SIZE):
                request, self._request = self._request, b""
                if request and self._proxy.loses(request):
                    break
                self._client.sendall(data)
        self._close()

    def _close(self) -> None:
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
