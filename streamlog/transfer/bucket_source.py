"""Copying from an object store: what comes next is read while batches are written."""

from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import groupby
from typing import Final

from streamlog.bucket.actions import NO_TRANSACTIONS
from streamlog.bucket.reading import FETCH_BYTES, BucketReader
from streamlog.bucket.root import BucketRoot
from streamlog.bucket.scanning import BLOCKS_AHEAD
from streamlog.errors import FileMissingError, UnknownTopicError
from streamlog.partition.read import FetchInfo
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.record import IsolationLevel
from streamlog.segment.filenames import parse_log_file_name
from streamlog.segment.txn_index import AbortedTxn
from streamlog.topic import TopicPartition
from streamlog.transfer.ends import CopyTopic, Piece

__all__ = ["BucketSource", "pieces_of"]

_SEARCHES: Final = 10  # in the journal, for objects that maintenance replaced


class BucketSource:
    """A root in an object store to copy from; see `CopySource`.

    Args:
        root: The root, refreshed.
    """

    is_rebuilt = False

    def __init__(self, root: BucketRoot) -> None:
        self._root, self.name = root, root.url

    def topics(self) -> dict[str, CopyTopic]:
        """See `CopySource.topics`."""
        return {
            name: CopyTopic(name, at.topic_id, tuple(range(at.partitions)), at.config)
            for name, at in sorted(self._root.state.topics.items())
        }

    def open(self, partition: TopicPartition) -> "_BucketPartition":
        """See `CopySource.open`."""
        return _BucketPartition(self._root, partition)

    def close(self) -> None:
        """See `CopySource.close`."""


class _BucketPartition:
    """A partition in an object store, for reading; see `SourcePartition`."""

    may_overwrite = False

    def __init__(self, root: BucketRoot, partition: TopicPartition) -> None:
        self._root, self._partition = root, partition
        self._topic_id = root.state.topics[partition.topic].topic_id
        self._state = root.state.partitions[partition]
        self._reader = root.reader(partition)
        self.path = self._reader.path
        self.log_start_offset, self.end_offset = (
            self._reader.log_start_offset,
            self._state.end_offset,
        )
        self.epochs = self._state.epochs
        self.has_transactions = any(
            each.transactions != NO_TRANSACTIONS for each in self._state.stretches
        )

    @property
    def stable_offset(self) -> int:
        """See `SourcePartition.stable_offset`."""
        return self.end_offset

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[Piece]:
        """See `SourcePartition.pieces`."""
        offset, missed = start_offset, 0
        while offset < end_offset:
            try:
                for piece in pieces_of(self._reader, offset, end_offset):
                    yield piece
                    offset, missed = piece.next_offset, 0
                return
            except FileMissingError:
                missed += 1
                if missed > _SEARCHES:
                    raise
                self._look_again()

    def _look_again(self) -> None:
        """Learn where maintenance has put the records."""
        state = self._root.refresh()
        topic = state.topics.get(self._partition.topic)
        if topic is None or topic.topic_id != self._topic_id:
            raise UnknownTopicError("the topic was deleted during the copy", path=self.path)
        self._state = state.partitions[self._partition]
        self._reader.advance(self._state)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """See `SourcePartition.aborted_between`."""
        if not self.has_transactions:
            return []
        return self._reader.aborted_between(start_offset, end_offset)

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """See `SourcePartition.offset_for_timestamp`."""
        return self._reader.offset_for_timestamp(timestamp)

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """See `SourcePartition.size_between`."""
        return self._reader.size_between(start_offset, end_offset)

    def close(self) -> None:
        """See `SourcePartition.close`."""


def pieces_of(reader: BucketReader, start_offset: int, end_offset: int) -> Iterator[Piece]:
    """Yield the batches of a partition; see `SourcePartition.pieces`."""
    stretches = reader.stretches(start_offset, end_offset)
    with ThreadPoolExecutor(BLOCKS_AHEAD) as pool:
        for is_staged, run in groupby(stretches, key=lambda each: each.is_staged):
            together = tuple(run)
            if is_staged:
                start = max(start_offset, together[0].base_offset)
                end = min(end_offset, together[-1].end_offset)
                yield from _staged_pieces(reader, start, end, pool)
                continue
            for segment in together:
                base = parse_log_file_name(segment.key.rpartition("/")[2])
                for found in reader.scan(segment, start_offset, end_offset, pool):
                    yield Piece(
                        found.buffer,
                        found.table,
                        int(found.table.last_offset[-1]) + 1,
                        segment_base=None if found.position else base,
                    )


def _staged_pieces(
    reader: BucketReader, start_offset: int, end_offset: int, pool: Executor
) -> Iterator[Piece]:
    """Yield the batches of staged extents; the next ones are read meanwhile."""

    def read(offset: int) -> FetchInfo:
        isolation = IsolationLevel.READ_UNCOMMITTED
        return reader.read(offset, FETCH_BYTES, end_offset=end_offset, isolation=isolation)

    ahead: Future[FetchInfo] | None = None
    offset = start_offset
    while offset < end_offset:
        info = read(offset) if ahead is None else ahead.result()
        offset, ahead = info.next_offset, None
        if offset < end_offset:
            ahead = pool.submit(read, offset)
        if len(info.table):
            yield Piece(info.buffer, info.table, info.next_offset, is_staged=True)
