"""A planned range of offsets, in the form in which a task carries it: text and numbers.

This module is light: Spark's source imports it in processes that never read a record.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from streamlog.bucket.state import Stretch
    from streamlog.segment.txn_index import AbortedTxn

__all__ = ["PlannedRange"]


class PlannedRange(NamedTuple):
    """A range with all that a task needs to read it.

    Attributes:
        directories: The partition's directory in each root, in the order in which to try them. Of
            a root in an object store: its URL.
        topic_id: Id of its topic at planning time; empty if unknown.
        start_offset: First offset.
        end_offset: Offset after the last.
        end_epoch: Leader epoch of the last record; -1 if unknown or if there is one directory.
        unindexed_aborts: Aborted transactions that the planner knew only from their markers; see
            `LogReader.unindexed_aborts`.
        max_decompressed_bytes: Limit of one decompressed batch in an object store, by the topic's
            settings; 0: a reader of the directory knows.
        stretches: Where the records lie in an object store.
    """

    directories: tuple[str, ...]
    topic_id: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    end_epoch: int = -1
    unindexed_aborts: "tuple[AbortedTxn, ...]" = ()
    max_decompressed_bytes: int = 0
    stretches: "tuple[Stretch, ...]" = ()

    def pack(self) -> tuple[Any, ...]:
        """Return the range as a plain tuple, which pickles smaller and faster than our classes."""
        *front, aborts, limit, stretches = self
        return (*front, tuple(map(tuple, aborts)), limit, tuple(map(tuple, stretches)))

    @classmethod
    def unpack(cls, fields: Sequence[Any]) -> "PlannedRange":
        """Return the range of a plain tuple."""
        *front, aborts, limit, stretches = fields
        if aborts:
            from streamlog.segment.txn_index import AbortedTxn

            aborts = tuple(AbortedTxn(*each) for each in aborts)
        if stretches:
            from streamlog.bucket.state import Stretch

            stretches = tuple(Stretch(*each) for each in stretches)
        return cls._make((*front, aborts, limit, stretches))

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the offsets belong to."""
        return TopicPartition(self.topic, self.partition)
