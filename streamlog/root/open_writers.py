r"""The writers that have a log root open, and whether all of them closed it in order.

Every writer holds `.streamlog/locks/open` shared while it has the root open. It counts itself in
the text of that file when it enters and when it leaves in order:

    <boot id> <came> <left>\n

The last writer to leave gets the lock exclusively. If as many left as came, it writes
`.kafka_cleanshutdown`, which lets a broker start without recovery. The first writer to enter
removes that file again, durably, before it writes anything. After a killed writer or a power cut
the two numbers differ and the file is missing, so a broker recovers the logs. streamlog itself
never relies on the file.
"""

import contextlib
import os
import re
from typing import Final, NamedTuple

from streamlog.errors import FileMissingError
from streamlog.fs.api import FileLock, OpenMode
from streamlog.fs.files import LOCK_TIMEOUT_MS, acquire_lock, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.partition.checkpoints import root_locked
from streamlog.root.roots import CLEAN_SHUTDOWN_CONTENT

__all__ = ["OpenWriter", "may_be_open"]

_TALLY: Final = re.compile(rb"([!-~]{1,64}) ([0-9]{1,18}) ([0-9]{1,18})\n")
_TALLY_SIZE_MAX: Final = 64 + 1 + 18 + 1 + 18 + 1


class _Tally(NamedTuple):
    boot_id: bytes
    came: int
    left: int


class OpenWriter:
    """One writer of a root, from `enter` to `leave`."""

    __slots__ = ("_lock", "_pid", "_root")

    def __init__(self, root: LogRoot, lock: FileLock) -> None:
        self._root = root
        self._lock: FileLock | None = lock
        self._pid = os.getpid()

    @classmethod
    def enter(cls, root: LogRoot) -> "OpenWriter":
        """Register a writer; the removal of the clean-shutdown file is durable.

        Raises:
            LockTimeoutError: Another process held a lock.
        """
        path = root.writers_lock
        what = f"the writers of {root.path}"
        lock = acquire_lock(
            root.fs, root.clock, path, shared=True, timeout_ms=LOCK_TIMEOUT_MS, what=what
        )
        try:
            with root_locked(root):
                _write(lock, _count_in(root, _read(lock)))
        except BaseException:
            lock.release()
            raise
        return cls(root, lock)

    def leave(self, *, in_order: bool) -> None:
        """Unregister; the last writer restores the clean-shutdown file if all left in order.

        Args:
            in_order: Everything this writer had open is closed, synced and sound.

        Raises:
            LockTimeoutError: Another process held a lock.
        """
        lock, self._lock = self._lock, None
        if lock is None:
            return
        is_sound = in_order and os.getpid() == self._pid
        try:
            if is_sound:
                with root_locked(self._root):
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
    """Return whether a process may have a root open for writing; takes no lock.

    Returns:
        True while fewer writers of this boot left in order than came: some are at work, or died.
        False for a root that streamlog did not make.
    """
    try:
        with root.fs.open(root.writers_lock, OpenMode.READ) as file:
            text = file.pread(_TALLY_SIZE_MAX, 0)
    except FileMissingError:
        return False
    tally = _parse(text)
    if tally is None:
        return bool(text)  # a write is in progress
    return tally.boot_id == root.fs.boot_id().encode("latin-1") and tally.came > tally.left


def _count_in(root: LogRoot, tally: _Tally | None) -> _Tally:
    """Return the tally with one more writer, and remove the clean-shutdown file."""
    boot_id = root.fs.boot_id().encode("ascii")
    mark = root.clean_shutdown
    known = tally if tally is not None and tally.boot_id == boot_id else None
    is_clean = root.fs.stat(mark) is not None
    if is_clean:
        with contextlib.suppress(FileMissingError):
            root.fs.remove(mark)
    if is_clean or known is None or known.came == known.left:
        root.fs.sync_directory(root.path)  # the remover may have died before its sync
    if known is None:
        # The first writer since the boot, or since the root was made: the process that made it
        # may have died before the last name in there, `server.properties`, was durable.
        root.fs.sync_directory(root.state)
    if is_clean:
        return _Tally(boot_id, 1, 0)
    if known is None:
        # It is unknown how earlier writers left: they count as one that did not leave in order.
        return _Tally(boot_id, 2, 0)
    return known._replace(came=known.came + 1)


def _read(lock: FileLock) -> _Tally | None:
    return _parse(lock.file.pread(_TALLY_SIZE_MAX, 0))


def _parse(text: bytes) -> _Tally | None:
    match = _TALLY.match(text)
    return None if match is None else _Tally(match[1], int(match[2]), int(match[3]))


def _write(lock: FileLock, tally: _Tally) -> None:
    # Bytes of an older, longer line after the newline are never read.
    lock.file.pwrite(b"%b %d %d\n" % tally, 0)
