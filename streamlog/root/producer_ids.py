"""Producer ids: unique over restarts and over the processes that share a log root.

    .streamlog/producer-ids    the first id that no process has taken, in decimal

A process takes a block of ids durably before it assigns the first of them; what is left of a block
when the process ends is never assigned.

Source: org.apache.kafka.server.common.ProducerIdsBlock, ProducerIdManager.
"""

import threading
from collections.abc import Callable
from typing import Final

from streamlog.commits.identity import PRODUCER_ID_BASE
from streamlog.errors import CorruptDataError, FileMissingError
from streamlog.fs.files import locked, read_file, write_file_atomically
from streamlog.fs.log_root import LogRoot

__all__ = ["ProducerIds", "read_next_producer_id"]

BLOCK_SIZE: Final = 1000  # ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE
_SIZE_MAX: Final = 64


def read_next_producer_id(root: LogRoot) -> int | None:
    """Return the first id that no process has taken; None where none was ever assigned.

    Raises:
        CorruptDataError: The file does not hold a number.
    """
    path = root.producer_ids
    try:
        text = read_file(root.fs, path, max_size=_SIZE_MAX)
    except FileMissingError:
        return None
    if not text.strip().isdigit():
        raise CorruptDataError(
            "file of producer ids holds no number", path=path, got=repr(text), expected="digits"
        )
    return int(text)


class ProducerIds:
    """Assigns producer ids; may be used from any thread.

    Args:
        root: The log root.
        in_use: Returns the first id above those that the root's logs hold; called once.
    """

    def __init__(self, root: LogRoot, in_use: Callable[[], int]) -> None:
        self._root, self._in_use = root, in_use
        self._guard = threading.Lock()
        self._floor: int | None = None
        self._next = self._end = self._least = 0

    def keep_above(self, producer_id: int) -> None:
        """Do not assign ids up to this one: it belongs to a transactional id."""
        if producer_id < PRODUCER_ID_BASE:
            self._least = max(self._least, producer_id + 1)

    def assign(self) -> int:
        """Return an id that was never returned before.

        Raises:
            UnavailableError: Another process kept the lock, or the disk failed.
            CorruptDataError: The file of ids is damaged.
        """
        with self._guard:
            self._next = max(self._next, self._least)
            if self._next >= self._end:
                self._take_block()
            self._next += 1
            return self._next - 1

    def _take_block(self) -> None:
        root = self._root
        if self._floor is None:
            self._floor = self._in_use()
        what = f"the producer ids of {root.path}"
        with locked(root.fs, root.clock, root.producer_ids_lock, what=what):
            first = max(read_next_producer_id(root) or 0, self._floor, self._least)
            end = first + BLOCK_SIZE
            write_file_atomically(root.fs, root.producer_ids, b"%d\n" % end)
        self._next, self._end = first, end
