"""Directories in memory for mounted images, and removal of those whose process has died.

    /dev/shm/power-XXXXXXXX/
        owner       locked by the creating process; forks do not inherit such a lock
        …           an image, a disk of its own, and mount points

A killed process unmounts nothing. So before a new directory is created, those without an owner are
removed: their mounts, the loop devices and the files.
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
_MINE: Final[set[Path]] = set()  # opening and closing one's own locked file would release the lock


@contextmanager
def place() -> Iterator[Path]:
    """Create a directory in memory; on exit, remove it with everything mounted below it.

    Raises:
        OSError: It cannot be created.
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
    """Remove the directories of dead processes and return their paths."""
    removed = []
    for path in {*MEMORY.glob(f"{PREFIX}*")} - _MINE:
        # Locking fails if the directory is in use or another process has just removed it.
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
    """Return the mount points below a path, in mount order."""
    points = [line.split()[4] for line in _MOUNTS.read_text().splitlines()]
    return [each for each in points if each.startswith(f"{path}/")]


# ---- processes ---------------------------------------------------------------------------------
def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when `parent`, which forked it, ends or has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent died before the call above
        signal.raise_signal(number)


def end_in_order() -> None:
    """Turn SIGTERM into SystemExit, so that `finally` blocks clean up."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"ended by signal {number}"))
