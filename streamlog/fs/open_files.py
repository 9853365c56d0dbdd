"""Limit of files that this process keeps open between uses; the least recently used are released.

An open partition holds its lock file, the log of each segment that was read, and indexes. A few
hundred partitions would use up the 1,024 descriptors that most systems allow a process. So files
that stay open only for speed are listed here, and beyond a part of `RLIMIT_NOFILE` they are
released by the clock algorithm: a file used since the hand last passed is spared once.

Releasing drops a reference. The file is closed when its last user is done, so a thread that is
reading from it is not disturbed. Unsynced writes stay with the kernel: a later sync opens the file
again and is told of a write that failed in between.
"""

import contextlib
import os
import resource
import threading
from collections import deque
from typing import Final, Protocol
from weakref import ref

from streamlog.errors import StorageError

__all__ = ["Keeper", "OpenFiles", "open_files"]

_MOST: Final = 1 << 16


class Keeper(Protocol):
    """Keeps a file open that it can open again.

    Attributes:
        was_used: Set by each use.
        is_listed: Belongs to `OpenFiles`.
    """

    was_used: bool
    is_listed: bool

    def release_file(self) -> bool:
        """Release the file, from any thread; return False if it must stay open: a held lock."""
        ...


class OpenFiles:
    """The files that are kept open.

    Args:
        limit: Their maximum, including those that must stay open; None: three quarters of what the
            system allows this process.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._guard = threading.Lock()
        self._keepers: deque[ref[Keeper]] = deque()

    @property
    def limit(self) -> int:
        """Maximum of open files."""
        if self._limit is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            self._limit = min(_MOST, soft if soft > 0 else _MOST) * 3 // 4
        return self._limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        self._limit = limit

    def keep(self, keeper: Keeper) -> None:
        """List a keeper that has just opened its file; others may have to release theirs."""
        keeper.was_used = True
        if keeper.is_listed:
            return
        with self._guard:
            keeper.is_listed = True
            self._keepers.append(ref(keeper))
            self._make_room()

    def forget_threads(self) -> None:
        """Start with a free guard, in a child that was forked while another thread held it."""
        self._guard = threading.Lock()

    def _make_room(self) -> None:
        for _ in range(2 * len(self._keepers)):
            if len(self._keepers) <= self.limit:
                return
            each = self._keepers.popleft()
            keeper = each()
            if keeper is None:
                continue
            is_kept = keeper.was_used
            keeper.was_used = False
            if not is_kept:
                # An error here does not concern the caller, which only needs room.
                with contextlib.suppress(StorageError):
                    is_kept = not keeper.release_file()
            keeper.is_listed = is_kept
            if is_kept:
                self._keepers.append(each)


open_files: Final = OpenFiles()
os.register_at_fork(after_in_child=open_files.forget_threads)
