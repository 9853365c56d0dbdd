"""A program in a process of its own, which writes a log."""

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["Running", "free_port"]

_PATIENCE_S: Final = 180


class Running:
    """A running program; a context manager that ends it.

    Args:
        started: The command.
        log: The file to which its output is appended.
        environment: Its environment; None: that of this process.
    """

    def __init__(
        self, started: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(started, stdout=file, stderr=file, env=environment)

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Wait for something that the program does.

        Raises:
            RuntimeError: It ended before, or takes too long.
        """
        until = time.monotonic() + _PATIENCE_S
        while not is_done():
            if self._process.poll() is not None or time.monotonic() > until:
                said = self._log.read_text("utf-8", "replace")
                raise RuntimeError(f"the program ended or is stuck: {said[-3000:]}")
            time.sleep(0.2)

    def wait(self) -> None:
        """Wait until it ends by itself.

        Raises:
            RuntimeError: It failed, or takes too long.
        """
        if self._process.wait(_PATIENCE_S):
            raise RuntimeError(f"the program failed: {self._log.read_text('utf-8')[-3000:]}")

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
