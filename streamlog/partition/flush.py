"""The timer behind `flush.ms` in an open handle: what was appended is synced even when idle."""

import logging
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["FlushTimer"]

_logger = logging.getLogger(__name__)

_LONGEST_MS: Final = 86_400_000  # longer waits are left to the next append and to close


class FlushTimer:
    """Calls once, `flush.ms` after the first unflushed append; a thread only while one waits."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._timer: threading.Timer | None = None

    def arm(self, flush_ms: int, *, unflushed: bool) -> None:
        """Start waiting where something is unflushed and nobody waits yet; else stop."""
        if not unflushed:
            self.cancel()
        elif self._timer is None and flush_ms <= _LONGEST_MS:
            self._timer = timer = threading.Timer(flush_ms / 1000.0, self._fire)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError as error:  # the append that asks for it stands all the same
                self._timer = None
                _logger.warning("no thread is left to flush after flush.ms: %s", error)

    def cancel(self) -> None:
        """Stop waiting."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _fire(self) -> None:
        self._timer = None
        self._flush()
