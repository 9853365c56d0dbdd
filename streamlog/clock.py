"""Injected time: below the Spark layer only `SystemClock` reads the machine's clocks."""

import time
from datetime import datetime, timedelta, timezone
from operator import index
from typing import Final, Protocol

from streamlog.errors import InvalidRequestError

__all__ = ["Clock", "ManualClock", "SystemClock", "epoch_ms"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Clock(Protocol):
    """Wall and monotonic time, both in milliseconds."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970."""
        ...

    def monotonic_ms(self) -> float:
        """Return a monotonic time in milliseconds."""
        ...

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait for `duration_ms`."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return a monotonic time in milliseconds."""
        return time.monotonic() * 1000.0

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait for `duration_ms`."""
        time.sleep(duration_ms / 1000.0)


class ManualClock:
    """A clock that moves only by calls, for tests and simulations."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970."""
        return self._now_ms

    def monotonic_ms(self) -> float:
        """Return a monotonic time in milliseconds."""
        return self._monotonic_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Move both clocks by `duration_ms`."""
        self.advance(int(duration_ms))

    def advance(self, duration_ms: int) -> None:
        """Move both clocks forward by `duration_ms`."""
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set(self, now_ms: int) -> None:
        """Set the wall clock, as an administrator can; the monotonic time stays."""
        self._now_ms = now_ms


def epoch_ms(time: int | datetime) -> int:
    """Return a point in time as whole milliseconds since 1970, rounded up.

    Record timestamps are whole milliseconds, so rounding up preserves the meaning of "at this time
    or later".

    Args:
        time: Milliseconds since 1970, or a datetime with a time zone.

    Raises:
        InvalidRequestError: A datetime without a time zone, or another type.
    """
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise InvalidRequestError(
                "datetime without a time zone",
                got=repr(time),
                expected="a datetime with a time zone, or milliseconds since 1970",
                hint="time.astimezone() interprets it as local time",
            )
        return -((_EPOCH - time) // timedelta(milliseconds=1))
    try:
        return index(time)
    except TypeError:
        raise InvalidRequestError(
            "not a point in time", got=repr(time), expected="milliseconds since 1970, or a datetime"
        ) from None
