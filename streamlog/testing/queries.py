"""Intercepts the queries of a job when they start.

A job builds its query freely and calls `start` or `toTable`. Inside `started_through` both call
into the test, in the whole process; the end of the block restores them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from streamlog.errors import InvalidRequestError
from streamlog.fs.api import FileSystem

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

__all__ = ["DiskFactory", "KilledError", "Start", "replaced", "started_through"]

Start = Callable[[], "StreamingQuery"]
DiskFactory = Callable[[], FileSystem]


class KilledError(Exception):
    """A test ended the query here, like the end of its process would."""


@contextmanager
def started_through(way: "Callable[[DataStreamWriter, Start], StreamingQuery]") -> Iterator[None]:
    """Start every query of this block through `way`.

    Args:
        way: Called with the writer and a function that starts its query.

    Raises:
        InvalidRequestError: pyspark is not installed.
    """
    try:
        from pyspark.sql.streaming import DataStreamWriter
    except ImportError as error:
        raise InvalidRequestError(
            "streaming queries need Spark", hint="pip install 'pyspark-streamlog[spark]'"
        ) from error

    def through(original: Callable[..., Any]) -> Callable[..., Any]:
        def start(writer: DataStreamWriter, *arguments: Any, **options: Any) -> Any:
            return way(writer, lambda: original(writer, *arguments, **options))

        return start

    with ExitStack() as stack:
        for name in ("start", "toTable"):
            stack.enter_context(replaced(DataStreamWriter, name, through))
        yield


@contextmanager
def replaced(owner: type, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a method of a class by `change(method)` until the block ends."""
    original = getattr(owner, name)
    setattr(owner, name, change(original))
    try:
        yield
    finally:
        setattr(owner, name, original)
