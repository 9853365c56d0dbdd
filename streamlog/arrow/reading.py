"""Reading planned ranges of offsets as Arrow record batches.

This also runs in Spark's Python workers, which have none of the planner's state: a range carries
everything as plain text and numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.losses import (
    LossReporter,
    made_again,
    partitions_deleted,
    start_reset,
    unreadable,
)
from streamlog.errors import CorruptRecordError, UnknownTopicError
from streamlog.fs.api import FileSystem
from streamlog.partition.read import READ_BEYOND
from streamlog.partition.reader import LogReader
from streamlog.records.record import IsolationLevel
from streamlog.segment.txn_index import AbortedTxn
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FETCH_BYTES", "PlannedRange", "read_ranges"]

# Size of one read: large enough to hide its fixed cost, small enough for the CPU caches.
FETCH_BYTES: Final = 4 << 20


class PlannedRange(NamedTuple):
    """A range in the form that a task carries: a tuple of text and numbers.

    Attributes:
        directory: The partition's directory.
        topic_id: Id of its topic at planning time; empty if unknown.
        start_offset: First offset.
        end_offset: Offset after the last.
        unindexed_aborts: Aborted transactions that the planner knew only from their markers; see
            `LogReader.unindexed_aborts`.
    """

    directory: str
    topic_id: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    unindexed_aborts: tuple[AbortedTxn, ...] = ()

    @classmethod
    def unpack(cls, fields: Sequence[Any]) -> "PlannedRange":
        """Return the range of a plain tuple, as a task carries it."""
        *front, aborts = fields
        return cls._make((*front, tuple(AbortedTxn(*each) for each in aborts)))

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the offsets belong to."""
        return TopicPartition(self.topic, self.partition)


def read_ranges(
    ranges: Iterable[PlannedRange],
    *,
    decoder: ArrowDecoder,
    isolation: IsolationLevel,
    fail_on_data_loss: bool,
    fs: FileSystem | None = None,
    fetch_bytes: int = FETCH_BYTES,
    max_decompressed_bytes: int | None = None,
) -> Iterator["pa.RecordBatch"]:
    """Yield the records of ranges, one range after another, and nothing outside of them.

    Args:
        ranges: The ranges.
        decoder: Converts the records.
        isolation: Whether aborted transactions are left out.
        fail_on_data_loss: Raise if records of a range no longer exist; otherwise log a warning.
        fs: The file system; the machine's own by default.
        fetch_bytes: Size of one read.
        max_decompressed_bytes: Limit of one decompressed batch; None: that of its topic.

    Raises:
        DataLossError: Planned records no longer exist, under `fail_on_data_loss`.
        CorruptDataError: A batch is damaged; the batches before it were yielded.
    """
    reporter = LossReporter(fail=fail_on_data_loss)
    for part in ranges:
        try:
            reader = LogReader.open(
                part.directory, fs=fs, max_decompressed_bytes=max_decompressed_bytes
            )
        except UnknownTopicError:
            reporter.report([partitions_deleted([part.topic_partition])])
            continue
        with reader:
            yield from _read_range(
                part, reader, decoder, isolation, reporter=reporter, fetch_bytes=fetch_bytes
            )


def _read_range(
    part: PlannedRange,
    reader: LogReader,
    decoder: ArrowDecoder,
    isolation: IsolationLevel,
    *,
    reporter: LossReporter,
    fetch_bytes: int,
) -> Iterator["pa.RecordBatch"]:
    partition = part.topic_partition
    if part.topic_id and reader.topic_id not in (None, part.topic_id):
        reporter.report([made_again(part.topic)])
        return
    offset = part.start_offset
    if offset < reader.log_start_offset:
        reporter.report([start_reset(partition, offset, reader.log_start_offset)])
        offset = reader.log_start_offset
    buffer = np.empty(fetch_bytes + READ_BEYOND, np.uint8)  # reused: decoding copies
    while offset < part.end_offset:
        if offset > reader.log_end_offset:
            reporter.report([unreadable(partition, offset, part.end_offset)])
            return
        try:
            info = reader.read(
                offset,
                fetch_bytes,
                isolation=isolation,
                end_offset=part.end_offset,
                end_is_stable=True,  # the planner never goes past the stable offset
                unindexed_aborts=part.unindexed_aborts,
                into=buffer,
            )
        except CorruptRecordError:
            if fetch_bytes == 1:
                raise
            fetch_bytes = 1  # read batch by batch, to yield those before the damaged one
            continue
        yield from decoder.decode(info, partition)
        if info.next_offset <= offset:
            reporter.report([unreadable(partition, offset, part.end_offset)])
            return
        offset = info.next_offset
