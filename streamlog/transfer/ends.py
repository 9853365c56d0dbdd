"""What a copy asks of its source and of its target, wherever they are."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.table import BatchTable
from streamlog.segment.txn_index import AbortedTxn
from streamlog.topic import TopicPartition

__all__ = [
    "CopySource",
    "CopyTarget",
    "CopyTopic",
    "Epochs",
    "Piece",
    "SourcePartition",
    "TargetPartition",
    "merged_epochs",
]

Epochs = tuple[tuple[int, int], ...]


class CopyTopic(NamedTuple):
    """A topic of a source.

    Attributes:
        name: Its name.
        topic_id: Its id; None if an old broker gave it none.
        partitions: The numbers of the partitions that the source holds, ascending.
        configs: Its own settings, by Kafka's keys.
    """

    name: str
    topic_id: str | None
    partitions: tuple[int, ...]
    configs: Mapping[str, str]


class Piece(NamedTuple):
    """Whole batches of one segment, whose checksums were compared.

    Attributes:
        buffer: The batches.
        table: Their headers; positions are relative to `buffer`.
        next_offset: The offset after the last one.
        segment_base: The base offset of the segment that begins here; None inside a segment.
        is_staged: Whether they lie in no segment yet, so that the target's settings divide them.
    """

    buffer: memoryview
    table: BatchTable
    next_offset: int
    segment_base: int | None = None
    is_staged: bool = False


class SourcePartition(Protocol):
    """A partition to copy, as of when it was opened; writers may go on.

    Attributes:
        path: Its directory or URL.
        log_start_offset: Its first offset.
        end_offset: The offset after its last committed record.
        has_transactions: Whether it may hold batches of transactions.
        may_overwrite: Whether the next piece may overwrite the memory of the last one; set by a
            caller that keeps none.
    """

    path: str
    log_start_offset: int
    end_offset: int
    has_transactions: bool
    may_overwrite: bool

    @property
    def epochs(self) -> Epochs:
        """Its leader epochs and their first offsets, oldest first."""
        ...

    @property
    def stable_offset(self) -> int:
        """No transaction is open below it."""
        ...

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[Piece]:
        """Yield the batches that begin below `end_offset`, from the one that holds `start_offset`.

        Unless `may_overwrite`, nothing changes the memory of a piece later.

        Raises:
            CorruptRecordError: A batch is damaged; names file and position.
            OffsetOutOfRangeError: Retention has deleted what comes next.
            StorageError: A file or an object cannot be read.
        """
        ...

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that may overlap with offsets from `start` to `end`."""
        ...

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp (ms) is at least `timestamp`, or None."""
        ...

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Return the approximate size in bytes of the records between two offsets."""
        ...

    def close(self) -> None:
        """Release files."""
        ...


class CopySource(Protocol):
    """A root to copy from; nothing in it is changed.

    Attributes:
        name: Its path or URL.
        is_rebuilt: Whether batches are built from records, so that two reads may divide them
            differently; sizes are then numbers of offsets.
    """

    name: str
    is_rebuilt: bool

    def topics(self) -> dict[str, CopyTopic]:
        """Return its topics by name."""
        ...

    def open(self, partition: TopicPartition) -> SourcePartition:
        """Open a partition, with everything that is committed now."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class TargetPartition(Protocol):
    """A partition that is copied to.

    Attributes:
        path: Its directory or URL.
        log_start_offset: Its first offset.
        end_offset: The offset that the next record gets.
        is_unused: Whether it never held a record, so that it may begin at any offset.
        reads_back: Whether `finish` returns only after everything that was written was read back
            and compared; else the caller does that with `pieces`.
        keeps_pieces: Whether the memory of a piece is needed after `write`, until it is sent.
    """

    path: str
    log_start_offset: int
    end_offset: int
    is_unused: bool
    reads_back: bool
    keeps_pieces: bool

    def is_finished(self, source: SourcePartition) -> bool:
        """Return whether a call that wrote the last batch here has also finished."""
        ...

    def begin(self, source: SourcePartition) -> None:
        """Prepare for the batches of a source."""
        ...

    def write(self, piece: Piece) -> None:
        """Append batches, with the offsets and epochs that they have."""
        ...

    def finish(self, end_offset: int) -> None:
        """Make everything durable, let the log end at `end_offset`, take over leader epochs."""
        ...

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[Piece]:
        """Read back what was written; see `SourcePartition.pieces`."""
        ...

    def close(self) -> None:
        """Release files; what is not finished stays for the next call, or is removed."""
        ...


class CopyTarget(Protocol):
    """A root to copy to.

    Attributes:
        name: Its path or URL.
        is_stable_only: Whether it can hold no open transactions.
    """

    name: str
    is_stable_only: bool

    def begin(self, topic: CopyTopic) -> tuple[str, ...]:
        """Prepare a topic: a new one stays hidden until `reveal`.

        Returns:
            Remarks about what is not taken over.

        Raises:
            InconsistentTopicIdError: There is a topic of this name with another id.
            InvalidRequestError: The topic cannot be created.
        """
        ...

    def open(self, partition: TopicPartition) -> TargetPartition:
        """Open a partition of a topic that was begun."""
        ...

    def is_hidden(self, topic: str) -> bool:
        """Return whether a topic is still invisible to readers."""
        ...

    def reveal(self, topic: str) -> None:
        """Show a topic with all its partitions at once, if it was hidden."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


def merged_epochs(old: Epochs, new: Epochs, log_start_offset: int, end_offset: int) -> Epochs:
    """Return the leader epochs of a copy.

    Args:
        old: Those of the target so far, which may begin earlier than the source does now.
        new: Those of the source.
        log_start_offset: The target's log start.
        end_offset: Its end.
    """
    kept = [each for each in old if not new or (each[0] <= new[0][0] and each[1] <= new[0][1])]
    for epoch, start in new:
        if (not kept or (epoch > kept[-1][0] and start > kept[-1][1])) and start < end_offset:
            kept.append((epoch, start))
    while len(kept) > 1 and kept[1][1] <= log_start_offset:
        del kept[0]
    return tuple((epoch, max(start, log_start_offset)) for epoch, start in kept)
