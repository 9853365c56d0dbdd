"""Places in memory for images that are mounted, and the end of those whose process is gone.

    /dev/shm/power-XXXXXXXX/
        owner       locked by the process that made the place; forks do not inherit such a lock
        …           an image, a disk of its own, and what is mounted

Who is killed unmounts nothing. So whoever makes the next place first removes those that nobody
owns any more: what is mounted there, the loop devices with it, and the files.
"""

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
PREFIX: Final = "power-"
OWNER: Final = "owner"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_PR_SET_PDEATHSIG: Final = 1
_MINE: Final[set[Path]] = set()  # to open a locked file of one's own is to lose the lock


@contextmanager
def place() -> Iterator[Path]:
    """Make a directory in memory, and remove it with all that is mounted there.

    Raises:
        OSError: It cannot be made.
    """
    remove_dead()
    made = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}", dir=MEMORY))
    with (made / OWNER).open("wb") as owner:
        fcntl.lockf(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = MEMORY / made.name.removeprefix("new-")
        _MINE.add(path)
        made.rename(path)
        try:
            yield path
        finally:
            _remove(path)
            _MINE.remove(path)


def remove_dead() -> list[Path]:
    """Remove the places of processes that are gone; return which."""
    removed = []
    for path in {*MEMORY.glob(f"{PREFIX}*")} - _MINE:
        # Refused where it is in use; and somebody else may have been faster.
        with contextlib.suppress(OSError), (path / OWNER).open("r+b") as owner:
            fcntl.lockf(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
            removed.append(path)
    return removed


def _remove(path: Path) -> None:
    for mount_point in reversed(_mounted_below(path)):  # a file system before the disk below it
        subprocess.run(["umount", "-l", mount_point], check=False, capture_output=True)
    shutil.rmtree(path, ignore_errors=True)


def _mounted_below(path: Path) -> list[str]:
    """Return what is mounted below a path, in the order in which it was."""
    points = [line.split()[4] for line in _MOUNTS.read_text().splitlines()]
    return [each for each in points if each.startswith(f"{path}/")]


# ---- processes ---------------------------------------------------------------------------------
def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel end this process when `parent`, which has forked it, ends or has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it was faster
        signal.raise_signal(number)


def end_in_order() -> None:
    """Let SIGTERM end this process as an error does, so that it takes away what it has made."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"ended by signal {number}"))
