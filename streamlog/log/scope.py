"""A `with` block between two calls: what `contextlib.contextmanager` does, but made only once.

A generator costs several times what the calls do, at each entry, and an append enters two.
"""

from collections.abc import Callable
from types import TracebackType

__all__ = ["Scope"]


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
