"""Removing files that nobody needs any more, in the way of the caller or out of it.

Where the disk is mounted with `discard`, removing a small file can take 2 ms: for the files of 64
commits that is as long as two triggers of a query. What is removed here is known to be done with
before it starts, so it may stop anywhere; who sweeps next removes the rest.
"""

import logging
import threading
from collections.abc import Callable

from streamlog.errors import StreamLogError

__all__ = ["BackgroundSweep", "Sweep", "sweep_now"]

Sweep = Callable[[Callable[[], None]], None]

_logger = logging.getLogger(__name__)


def sweep_now(remove: Callable[[], None]) -> None:
    """Remove at once; what goes wrong is the caller's."""
    remove()


class BackgroundSweep:
    """Removes in a thread, one sweep after the other; a process that ends in order waits for it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def __call__(self, remove: Callable[[], None]) -> None:
        """Start to remove, once the sweep before is done; what goes wrong is logged."""
        self.wait()
        self._thread = threading.Thread(target=_run, args=(remove,), name="streamlog-sweep")
        self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being removed."""
        if self._thread is not None:
            self._thread.join()


def _run(remove: Callable[[], None]) -> None:
    try:
        remove()
    except StreamLogError as error:
        _logger.warning("files that are done with stay for the next sweep: %s", error)
