"""The demo: processes that write are killed with SIGKILL, then every row is counted."""

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from random import Random
from threading import Thread
from typing import Final, NamedTuple

from streamlog.clock import SystemClock
from streamlog.demo.orders import COPIES, ORDERS, PARTITIONS, Count, count_orders
from streamlog.demo.writer import REPEATED, WRITTEN
from streamlog.errors import UnavailableError
from streamlog.fs.local import LocalFileSystem
from streamlog.health.findings import Finding
from streamlog.health.verify import verify
from streamlog.root.manager import LogManager

__all__ = ["Demo", "DemoReport"]

_COMMITS: Final = 40
_KILLS: Final = 3
_MICRO_BATCHES: Final = 10
_WITHIN_MS: Final = 50  # a kill comes so long after a commit: often within the next one
_POLL_MS: Final = 10
_SHOWN: Final = 20  # lines of what a failed process printed last


class DemoReport(NamedTuple):
    """The outcome.

    Attributes:
        kills: Processes that were killed.
        repeated: Commits that were repeated after a kill, and recognized.
        topics: What each topic holds.
        findings: What `verify` found to be wrong. What a dead process left is no such thing.
        seconds: Time taken.
    """

    kills: int
    repeated: int
    topics: dict[str, Count]
    findings: tuple[Finding, ...]
    seconds: float


class Demo:
    """A run of the demo.

    Args:
        root: A directory that does not exist yet; it becomes the log root.
        rows: Number of orders, at least 1,000.
        random: Chooses when processes are killed.
        on_step: Called with a line of text before each step.
    """

    def __init__(
        self, root: Path, *, rows: int, random: Random, on_step: Callable[[str], None]
    ) -> None:
        self._root, self._rows, self._random, self._say = root, rows, random, on_step
        self._clock = SystemClock()
        self._kills = self._repeated = 0

    def run(self, *, with_spark: bool) -> DemoReport:
        """Write, kill, write again, and count.

        Args:
            with_spark: Whether a Spark query copies the rows afterwards, and is killed as well.

        Raises:
            UnavailableError: A process ended by itself, with an error.
        """
        start_ms = self._clock.monotonic_ms()
        topics = [ORDERS, COPIES] if with_spark else [ORDERS]
        with LogManager.open(str(self._root), create=True) as manager:
            for topic in topics:
                # Every run writes the same timestamps, which are older than the default keeps.
                manager.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        self._write()
        if with_spark:
            self._copy()
        self._say("counting every row, and checking every byte of the log")
        counts = {topic: count_orders(str(self._root), topic, self._rows) for topic in topics}
        findings: list[Finding] = []
        verify(LocalFileSystem(), str(self._root), findings.append)
        wrong = tuple(each for each in findings if not each.is_note)
        seconds = (self._clock.monotonic_ms() - start_ms) / 1000
        return DemoReport(self._kills, self._repeated, counts, wrong, seconds)

    def _write(self) -> None:
        """Let a process write all orders; kill it a few times, each time a bit further on."""
        arguments = [str(self._root), str(self._rows), str(_COMMITS)]
        for stop in [_COMMITS * number // (_KILLS + 1) for number in range(1, _KILLS + 1)]:
            self._say(f"writing {self._rows:,} orders in {_COMMITS} commits, until SIGKILL")
            with _Child("writer", arguments) as child:
                for _ in range(stop):
                    self._repeated += child.commit() == REPEATED
                self._clock.sleep_ms(self._random.uniform(0, _WITHIN_MS))
                self._kills += child.kill()
        self._say("writing them again, from the first one to the last")
        with _Child("writer", arguments) as child:
            while said := child.commit():
                self._repeated += said == REPEATED
            child.wait()

    def _copy(self) -> None:
        """Let Spark stream the orders into another topic; kill it in the middle."""
        checkpoint = self._root.parent / f"{self._root.name}-checkpoint"
        batch = max(1, self._rows // _MICRO_BATCHES)
        arguments = [str(self._root), str(checkpoint), str(batch)]
        self._say("streaming them into another topic with Spark, until SIGKILL")
        with _Child("spark_copy", arguments) as child:
            while not (checkpoint / "commits" / str(_MICRO_BATCHES // 2)).exists():
                child.check()
                self._clock.sleep_ms(_POLL_MS)
            self._clock.sleep_ms(self._random.uniform(0, 10 * _WITHIN_MS))
            self._kills += child.kill()
        self._say("restarting Spark from its checkpoint")
        with _Child("spark_copy", arguments) as child:
            child.wait()


class _Child:
    """A process of the demo and its group: the JVM and the workers of Spark belong to it."""

    def __init__(self, module: str, arguments: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"streamlog.demo.{module}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._last = deque[str](maxlen=_SHOWN)
        self._commits: SimpleQueue[str] = SimpleQueue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "_Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        """Read what it prints, until the last process of the group is gone."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._last.append(line)
                if line.strip() in (WRITTEN, REPEATED):
                    self._commits.put(line.strip())
        self._commits.put("")

    def commit(self) -> str:
        """Return what it says of its next commit; empty after the last one.

        Raises:
            UnavailableError: It failed.
        """
        said = self._commits.get()
        if not said:
            self.wait()
        return said

    def kill(self) -> bool:
        """Kill the group with SIGKILL; return whether the process was alive."""
        was_alive = self._process.poll() is None
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return was_alive

    def wait(self) -> None:
        """Wait for its end.

        Raises:
            UnavailableError: It failed.
        """
        self._process.wait()
        self.check()

    def check(self) -> None:
        """Raise if it has failed.

        Raises:
            UnavailableError: It failed.
        """
        if self._process.poll():
            self._reader.join()
            said = "".join(self._last).strip()
            raise UnavailableError(
                f"a process of the demo ended with exit code {self._process.returncode}, "
                f"expected 0: {said}"
            )
