"""A bar with rate and time left for long work: on a terminal only, and never on stdout."""

import sys
from types import TracebackType
from typing import Any

from streamlog.cli.settings import Settings

__all__ = ["Progress"]


class Progress:
    """How far some work is, counted in bytes; shows nothing unless stderr is a terminal.

    Args:
        settings: The shared options; `--quiet` shows nothing.
        title: What is being done.
        total: Bytes to do, None when nobody knows.
        is_wanted: Whether a bar may be shown at all (not while data goes to the same terminal).
    """

    def __init__(
        self, settings: Settings, title: str, total: int | None, *, is_wanted: bool = True
    ) -> None:
        self._title, self._total = title, total
        self._is_shown = is_wanted and not settings.quiet and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self._is_shown:
            self._bar = _make_bar()
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total)
        return self

    def advance(self, size: int) -> None:
        """Count `size` bytes more as done."""
        if self._bar is not None:
            self._bar.advance(self._task, size)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
