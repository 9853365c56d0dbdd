"""A `with` block between two calls: what `contextlib.contextmanager` does, but made only once.

A generator costs several times what the calls do, at each entry, and an append enters two.
"""

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Concatenate, ParamSpec, Protocol, TypeVar

__all__ = ["Guarded", "Scope", "one_thread_at_a_time"]

P = ParamSpec("P")
R = TypeVar("R")


class Guarded(Protocol):
    """Something with a lock for its threads."""

    _guard: threading.RLock


G = TypeVar("G", bound=Guarded)


def one_thread_at_a_time(
    method: Callable[Concatenate[G, P], R],
) -> Callable[Concatenate[G, P], R]:
    """Run a method under its object's `_guard`, which one thread may take several times."""

    @functools.wraps(method)
    def alone(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._guard:
            return method(self, *args, **kwargs)

    return alone


class Scope:
    """A context manager that may be entered any number of times, also while it is entered.

    Args:
        enter: Called at the beginning; where it raises, the block was not entered.
        leave: Called at the end, with the error that ended the block, if one did.
    """

    __slots__ = ("_enter", "_leave")

    def __init__(
        self, enter: Callable[[], None], leave: Callable[[BaseException | None], None]
    ) -> None:
        self._enter = enter
        self._leave = leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)
