"""An S3 server of its own for tests, which counts requests and can answer late."""

import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


_doors: dict[str, socket.socket] = {}  # of servers that have not started yet


def choose_endpoint() -> str:
    """Set the environment of an S3 client, for a server that may be started later.

    Spark passes its environment on when it starts, long before the first test needs the server.
    Until then the port is held, or another process would get it.
    """
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    endpoint = f"http://127.0.0.1:{door.getsockname()[1]}"
    _doors[endpoint] = door
    os.environ.update(SETTINGS)
    os.environ["AWS_ENDPOINT"] = endpoint
    return endpoint


class S3Server:
    """moto behind an endpoint.

    Args:
        endpoint: Where to listen, by `choose_endpoint`.

    Attributes:
        delay_s: Seconds by which each answer is late.
        requests: Method and path of each request.
        answer: The application that answers them.
    """

    def __init__(self, endpoint: str) -> None:
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            create_backend_app,
        )
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            """Keeps connections open, as S3 does, and logs nothing."""

            protocol_version = "HTTP/1.1"

            def log(self, *_: object) -> None:
                """Log nothing."""

        self.endpoint = endpoint
        self.delay_s = 0.0
        self.requests: list[tuple[str, str]] = []
        self.answer: Callable[..., Any] = DomainDispatcherApplication(create_backend_app)
        with _doors.pop(endpoint) as door:
            door.listen(128)
            self._server = make_server(
                *door.getsockname(),
                self,
                threaded=True,
                request_handler=Quiet,
                fd=door.fileno(),  # copied
            )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._buckets = 0

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        if self.delay_s:
            time.sleep(self.delay_s)
        return self.answer(environ, start)

    def new_bucket(self) -> str:
        """Create a bucket, and return the URL of a root in it."""
        self._buckets += 1
        return f"s3://{self.make_bucket(f'bucket-{self._buckets}')}/root"

    def make_bucket(self, name: str) -> str:
        """Create a bucket with a name, and return the name."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request).close()
        return name

    def stop(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._thread.join()
