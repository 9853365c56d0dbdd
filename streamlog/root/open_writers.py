r"""Who has a log root open for writing, and whether all of them left in order.

Every writer holds `.streamlog/locks/open` shared while it has the root open, and counts itself
in its text when it comes and when it leaves in order:

    <boot id> <came> <left>\n

Who leaves last (it gets the lock exclusively), and finds that as many left as came, writes
`.kafka_cleanshutdown`, by which a broker starts without looking at the logs. Who comes first
removes it again, durably, before it writes anything. A writer that is killed, and a machine that
loses its power, leave the two numbers apart: then there is no such file, and a broker looks.
Nothing in streamlog itself believes that file.
"""

import contextlib
import os
import re
from typing import Final, NamedTuple

from streamlog.errors import FileMissingError
from streamlog.fs.api import FileLock, OpenMode
from streamlog.fs.files import acquire_lock, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.partition.checkpoints import root_locked
from streamlog.root.roots import CLEAN_SHUTDOWN_CONTENT

__all__ = ["OpenWriter", "may_be_open"]

_LOCK_TIMEOUT_MS: Final = 30_000
_TALLY: Final = re.compile(rb"([!-~]{1,64}) ([0-9]{1,18}) ([0-9]{1,18})\n")
_TALLY_SIZE_MAX: Final = 64 + 1 + 18 + 1 + 18 + 1


class _Tally(NamedTuple):
    boot_id: bytes
    came: int
    left: int


class OpenWriter:
    """One writer's presence in a root, from `enter` to `leave`."""

    __slots__ = ("_lock", "_pid", "_root")

    def __init__(self, root: LogRoot, lock: FileLock) -> None:
        self._root = root
        self._lock: FileLock | None = lock
        self._pid = os.getpid()

    @classmethod
    def enter(cls, root: LogRoot) -> "OpenWriter":
        """Come to a root as a writer; durable where it takes the clean mark away.

        Raises:
            LockTimeoutError: Another process kept a lock.
            StorageError: It failed.
        """
        path = root.writers_lock
        what = f"the writers of {root.path}"
        lock = acquire_lock(
            root.fs, root.clock, path, shared=True, timeout_ms=_LOCK_TIMEOUT_MS, what=what
        )
        try:
            with root_locked(root.fs, root.clock, root.path):
                _write(lock, _count_in(root, _read(lock)))
        except BaseException:
            lock.release()
            raise
        return cls(root, lock)

    def leave(self, *, in_order: bool) -> None:
        """Leave the root; the last of those who all left in order puts the clean mark back.

        Args:
            in_order: Everything this writer had open is closed, synced and sound.

        Raises:
            LockTimeoutError: Another process kept a lock.
            StorageError: The mark could not be written.
        """
        lock, self._lock = self._lock, None
        if lock is None:
            return
        is_sound = in_order and os.getpid() == self._pid
        try:
            if is_sound:
                with root_locked(self._root.fs, self._root.clock, self._root.path):
                    tally = _read(lock)
                    if tally is not None:
                        _write(lock, tally._replace(left=tally.left + 1))
        finally:
            lock.release()
        if is_sound:
            self._put_mark_back()

    def _put_mark_back(self) -> None:
        path = self._root.writers_lock
        exclusive = self._root.fs.try_lock(path, shared=False)
        if exclusive is None:
            return
        try:
            tally = _read(exclusive)
            boot_id = self._root.fs.boot_id().encode("ascii")
            if tally is not None and tally.boot_id == boot_id and tally.came == tally.left:
                mark = self._root.clean_shutdown
                write_file_atomically(self._root.fs, mark, CLEAN_SHUTDOWN_CONTENT)
        finally:
            exclusive.release()


def may_be_open(root: LogRoot) -> bool:
    """Tell whether somebody may have a root open for writing; nothing is locked.

    Returns:
        True while fewer writers of this boot have left in order than came: some are at work, or
        died. False for a root that is not ours.

    Raises:
        StorageError: The file cannot be read.
    """
    try:
        with root.fs.open(root.writers_lock, OpenMode.READ) as file:
            text = file.pread(_TALLY_SIZE_MAX, 0)
    except FileMissingError:
        return False
    tally = _parse(text)
    if tally is None:
        return bool(text)  # it is being written
    return tally.boot_id == root.fs.boot_id().encode("latin-1") and tally.came > tally.left


def _count_in(root: LogRoot, tally: _Tally | None) -> _Tally:
    """Return the tally with one more writer, and take the clean mark away."""
    boot_id = root.fs.boot_id().encode("ascii")
    mark = root.clean_shutdown
    known = tally if tally is not None and tally.boot_id == boot_id else None
    is_clean = root.fs.stat(mark) is not None
    if is_clean:
        with contextlib.suppress(FileMissingError):
            root.fs.remove(mark)
    if is_clean or known is None or known.came == known.left:
        root.fs.sync_directory(root.path)  # who took the mark away may have died, or failed, at it
    if known is None:
        # The first writer since the boot, or since the root was made: the process that made it
        # may have died before the last name in there, `server.properties`, was durable.
        root.fs.sync_directory(root.state)
    if is_clean:
        return _Tally(boot_id, 1, 0)
    if known is None:
        # Nobody knows how the last writers left: they count as one that never did.
        return _Tally(boot_id, 2, 0)
    return known._replace(came=known.came + 1)


def _read(lock: FileLock) -> _Tally | None:
    return _parse(lock.file.pread(_TALLY_SIZE_MAX, 0))


def _parse(text: bytes) -> _Tally | None:
    match = _TALLY.match(text)
    return None if match is None else _Tally(match[1], int(match[2]), int(match[3]))


def _write(lock: FileLock, tally: _Tally) -> None:
    # What an older, longer line leaves behind the newline is never read.
    lock.file.pwrite(b"%b %d %d\n" % tally, 0)
