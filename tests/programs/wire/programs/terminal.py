"""A terminal UI, kaskade, shows what a gateway has: run in tmux, and read from its screen."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from streamlog import LogManager, Record
from streamlog.gateway import serve
from tests.programs.wire.suites import CACHE
from tests.support.environments import environment

__all__ = ["PROGRAMS", "Screen", "on_screen"]

_PATIENCE_S: Final = 60
_TOPIC: Final = "0-orders"  # the first one in the list, where the cursor is
_SIZE: Final = ("-x", "140", "-y", "30")


class Screen:
    """A terminal of its own that shows a program.

    Args:
        socket: The path of tmux's socket.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        """Run a command of tmux; return its output."""
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        self.tmux("send-keys", *keys)

    def wait_for(self, *texts: str) -> str:
        """Wait until all texts are on the screen; return what it shows.

        Raises:
            RuntimeError: They do not appear.
        """
        until = time.monotonic() + _PATIENCE_S
        shown = ""
        while time.monotonic() < until:
            shown = self.tmux("capture-pane", "-p")
            if all(text in shown for text in texts):
                return shown
            time.sleep(0.2)
        raise RuntimeError(f"not on the screen: {texts}\n{shown}")


@contextmanager
def on_screen(scratch: Path, *command: str) -> Iterator[Screen]:
    """Show a program.

    Raises:
        FileNotFoundError: tmux is not installed.
    """
    if shutil.which("tmux") is None:
        raise FileNotFoundError("tmux is not installed")
    screen = Screen(scratch / "tmux")
    screen.tmux("new-session", "-d", *_SIZE, *command)
    screen.tmux("set-option", "remain-on-exit", "on")
    try:
        yield screen
    finally:
        screen.tmux("kill-server")


def kaskade(scratch: Path) -> str:
    """See topics, a topic with a group, and records."""
    root = scratch / "root"
    with LogManager.open(root, create=True) as manager:
        manager.create_topic(_TOPIC, 2)
        manager.create_topic("payments", 1)
        now = manager.clock.now_ms()
        rows = [Record(b"key %d" % n, b"order %d" % n, timestamp=now) for n in range(20)]
        manager.log(_TOPIC, 0).append(rows)
    program = str(environment("kaskade") / "kaskade")
    with serve(root) as gateway:
        server = ("-b", gateway.bootstrap_servers)
        consumer = Consumer({"bootstrap.servers": server[1], "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition(_TOPIC, 0, 5)], asynchronous=False)
        consumer.close()
        shots = []
        with on_screen(scratch, program, "admin", *server) as screen:
            shots.append(screen.wait_for("Topics [3]", f" {_TOPIC} ", " payments ", "≈20"))
            screen.press("d")
            screen.wait_for(f"Topic Details [{_TOPIC}]", "Partitions [2]", "Groups [1]")
            for key in ("BTab", "Tab", "Right", "Right"):  # to the tab of groups
                screen.press(key)
                time.sleep(1)
            shots.append(screen.wait_for(" billing ", "empty", " 15 "))
        with on_screen(
            scratch, program, "consumer", *server, "-t", _TOPIC, "--earliest", "-v", "string"
        ) as screen:
            shots.append(screen.wait_for(f"Records [{_TOPIC}][20]", " order 0 ", " order 9 "))
    kept = CACHE / "screens"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "kaskade.txt").write_text("\n".join(shots), "utf-8")
    return f"topics, a group with its lag, and records, seen on the screen ({kept / 'kaskade.txt'})"


PROGRAMS: Final[dict[str, Callable[[Path], str]]] = {"kaskade": kaskade}
