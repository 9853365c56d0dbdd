"""How fast the cleaner reads and writes: not above a number of bytes per second."""

import math

from streamlog.clock import Clock

__all__ = ["Throttle"]

_WORTH_WAITING_MS = 10  # sleeping has a grain


class Throttle:
    """Waits where more was read and written than the time since allows.

    Args:
        clock: Measures, and waits.
        bytes_per_second: `log.cleaner.io.max.bytes.per.second`; infinite for no limit.

    Source: org.apache.kafka.storage.internals.utils.Throttler.
    """

    __slots__ = ("_bytes_per_ms", "_clock", "_due_ms")

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._bytes_per_ms = max(bytes_per_second, 1.0) / 1000.0
        self._due_ms = -math.inf  # when what was noted may be done with

    def note(self, size: int) -> None:
        """Take note of `size` bytes read or written; wait where that was too fast."""
        if math.isinf(self._bytes_per_ms):
            return
        now_ms = self._clock.monotonic_ms()
        self._due_ms = max(self._due_ms, now_ms) + size / self._bytes_per_ms
        if self._due_ms - now_ms >= _WORTH_WAITING_MS:
            self._clock.sleep_ms(self._due_ms - now_ms)
