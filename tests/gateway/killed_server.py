"""A server in a process of its own, killed at random moments and started again."""

import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.gateway.wire_client import WireClient

KILLS = 3


class KilledServer:
    """A server in a process of its own that can be killed and started again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "streamlog", "--path", str(self.root), "serve"]
        self._process = subprocess.Popen(
            [*command, "--quiet", "--listen", self.address], stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 30
        while True:
            try:
                with WireClient(self.address) as client:
                    client.call("ApiVersions", 3)
                    return
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def kill_now_and_then(
    server: KilledServer, seed: int, is_over: threading.Event, progress: Callable[[], int]
) -> None:
    """Kill the server at random moments, each after the clients got somewhere."""
    choose = random.Random(seed)
    for _ in range(KILLS):
        start, until = progress(), time.monotonic() + 60
        while progress() < start + 4 and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(choose.uniform(0, 0.05))
        server.kill()
        server.start()
    is_over.set()
