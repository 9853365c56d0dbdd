"""Partitions that cannot be read, beside others that can: all are tried, and then all are told of.

Who has the disk of a dead broker wants what is left of it, and to know what is not.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from streamlog.errors import InvalidRequestError, StreamLogError
from streamlog.topic import TopicPartition

__all__ = ["Unreadable"]

_MOST_NAMED: Final = 20


class Unreadable:
    """Takes note of what keeps partitions from being read; empty as long as nothing does.

    Args:
        path: What is read; for what to do next.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._errors: dict[TopicPartition, StreamLogError] = {}

    def __bool__(self) -> bool:
        return bool(self._errors)

    @contextlib.contextmanager
    def noting(self, partition: TopicPartition) -> Iterator[None]:
        """Take note of an error instead of raising it, unless it is the call that is wrong."""
        try:
            yield
        except InvalidRequestError:
            raise
        except StreamLogError as error:
            self._errors.setdefault(partition, error)

    def raise_if_any(self, wanted: Iterable[TopicPartition]) -> None:
        """Raise what is wrong with the first partition; it names all that cannot be read.

        Args:
            wanted: The partitions that were to be read.

        Raises:
            StreamLogError: One of those noted.
        """
        if not self._errors:
            return
        bad, everything = sorted(self._errors), {*wanted, *self._errors}
        error = self._errors[bad[0]]
        if len(everything) > 1:
            others = ", ".join(map(str, bad[:_MOST_NAMED]))
            more = f" and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
            error.what = (
                f"{len(bad)} of {len(everything)} partitions cannot be read ({others}{more}), "
                f"the first of them for: {error.what}"
            )
            error.hint = (
                f"what is wrong with each: streamlog verify {self._path}; the others: "
                f"{_selecting(everything.difference(bad)) or 'none'}"
            )
        raise error


def _selecting(partitions: Iterable[TopicPartition]) -> str:
    """Return the arguments that select partitions, topic by topic."""
    topics = itertools.groupby(sorted(partitions), key=lambda each: each.topic)
    calls = [
        f"topic={topic!r}, partitions={[each.partition for each in some]}" for topic, some in topics
    ]
    return "; ".join(calls[:_MOST_NAMED]) + (" …" if len(calls) > _MOST_NAMED else "")
