"""An S3 server that holds one request, at which a host is to be killed."""

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.support.s3 import S3Server


@dataclass
class Gate:
    """A request that is held.

    Attributes:
        path: A pattern of its path.
        is_done: Whether it is done before it is held, so that only its answer is missing.
        skip: The number of such requests that pass before it.
        reached: Set when it is held.
        released: To be set when it may go on.
        is_lost: Whether it is not done then.
        client: The address that it came from.
    """

    path: re.Pattern[str]
    is_done: bool
    skip: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    is_lost: bool = False
    client: str = ""


class GatedServer(S3Server):
    """A server with at most one gate.

    Attributes:
        gate: It, while no request has reached it.
    """

    def __init__(self, endpoint: str) -> None:
        self.gate: Gate | None = None
        self._lock = threading.Lock()
        super().__init__(endpoint)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request, or hold it."""
        self.requests.clear()  # they would fill the memory
        gate = self._gate_of(environ)
        if gate is None:
            return super().__call__(environ, start)
        answer: Iterable[bytes] = ()
        if gate.is_done:
            answer = super().__call__(environ, start)
        gate.client = environ["REMOTE_ADDR"]
        gate.reached.set()
        gate.released.wait()
        if gate.is_done:
            return answer  # which nobody receives if the client is dead
        if gate.is_lost:
            start("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        return super().__call__(environ, start)

    def _gate_of(self, environ: dict[str, Any]) -> Gate | None:
        with self._lock:
            gate = self.gate
            if gate is None or environ["REQUEST_METHOD"] != "PUT":
                return None
            if gate.path.search(environ["PATH_INFO"]) is None:
                return None
            if gate.skip:
                gate.skip -= 1
                return None
            self.gate = None
            return gate
