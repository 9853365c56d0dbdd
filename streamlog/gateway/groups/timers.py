"""Timers of groups: session timeouts, rebalance timeouts, delays.

A key has one timer at most; scheduling it again replaces the former one.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Protocol

__all__ = ["LoopTimers", "Timers"]


class Timers(Protocol):
    """Calls functions later, in the event loop."""

    def schedule(self, key: Hashable, delay_ms: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay_ms` in place of what the key had scheduled."""
        ...

    def cancel(self, key: Hashable) -> None:
        """Forget what a key has scheduled, if anything."""
        ...

    def is_scheduled(self, key: Hashable) -> bool:
        """Whether a key has scheduled anything."""
        ...


class LoopTimers:
    """Timers of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handles: dict[Hashable, asyncio.TimerHandle] = {}

    def schedule(self, key: Hashable, delay_ms: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay_ms` in place of what the key had scheduled."""
        self.cancel(key)
        self._handles[key] = self._loop.call_later(delay_ms / 1000, self._fire, key, action)

    def cancel(self, key: Hashable) -> None:
        """Forget what a key has scheduled, if anything."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def is_scheduled(self, key: Hashable) -> bool:
        """Whether a key has scheduled anything."""
        return key in self._handles

    def cancel_all(self) -> None:
        """Forget everything."""
        for key in list(self._handles):
            self.cancel(key)

    def _fire(self, key: Hashable, action: Callable[[], None]) -> None:
        del self._handles[key]
        action()
