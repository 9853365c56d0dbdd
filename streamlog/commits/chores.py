"""What a commit leaves to be done, in the way of the caller or out of it: retiring.

Retiring syncs megabytes of logs and removes the files of dozens of commits. A disk takes tenths of
a second for the first, and where it is mounted with `discard` as long for the second: more than
a trigger of a query. So the sink does it between its triggers.
"""

import logging
import threading
from collections.abc import Callable

from streamlog.errors import StreamLogError

__all__ = ["BackgroundChores", "Chores", "at_once"]

Chores = Callable[[Callable[[], None]], None]

_logger = logging.getLogger(__name__)


def at_once(chore: Callable[[], None]) -> None:
    """Do it now; what goes wrong is the caller's."""
    chore()


class BackgroundChores:
    """Does one chore at a time in a thread; a process that ends in order waits for it.

    What comes while one is being done is dropped: a chore has to be something that is due again
    at the next occasion. What goes wrong is logged.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def __call__(self, chore: Callable[[], None]) -> None:
        """Begin with a chore, unless one is being done."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=_do, args=(chore,), name="streamlog-chores")
            self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being done."""
        if self._thread is not None:
            self._thread.join()


def _do(chore: Callable[[], None]) -> None:
    try:
        chore()
    except StreamLogError as error:
        _logger.warning("put off until it is due again: %s", error)
