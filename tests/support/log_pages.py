"""The server of the pages, really listening, in a thread of this process."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlencode

import uvicorn

from streamlog.web.server import LogPages


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class Browser(NamedTuple):
    """A client that says what it is told to."""

    port: int

    @property
    def url(self) -> str:
        """The address of the first page."""
        return f"http://127.0.0.1:{self.port}/"

    def get(self, path: str, **headers: str) -> Answer:
        """Ask for a page."""
        return self._ask("GET", path, None, headers)

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        """Send a form."""
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, urlencode(fields).encode(), {**kind, **headers})

    def _ask(self, verb: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(verb, path, body, headers)
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read())


@contextlib.contextmanager
def serving(pages: LogPages) -> Iterator[Browser]:
    """Serve pages until the block ends."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(pages.app(), log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            while not server.started:
                thread.join(0.01)
                assert thread.is_alive()
            yield Browser(door.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
