"""Reading planned ranges of offsets as Arrow record batches.

This also runs in Spark's Python workers, which have none of the planner's state: a range carries
everything as plain text and numbers. `object_reading` reads the ranges of object stores.

A range of a replica set carries the partition's directory in each root. If one fails, the next one
continues at the same offset. Leader epochs decide whether a replica holds the planned records: two
logs in which the record at an offset has the same epoch are equal up to there. So a replica is also
read above its own high watermark, which is one append late, but not in a tail that was abandoned.
"""

import logging
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.losses import (
    LossReporter,
    made_again,
    partitions_deleted,
    start_reset,
    unreadable,
)
from streamlog.arrow.planned import PlannedRange
from streamlog.bucket.places import is_bucket
from streamlog.errors import (
    CorruptRecordError,
    StorageError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition.read import READ_BEYOND, FetchInfo
from streamlog.partition.reader import LogReader
from streamlog.records.record import IsolationLevel
from streamlog.root.replica_reader import REPLICA_FAILURES, no_replica_error

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlog.arrow.object_reading import ReadBuffers

__all__ = ["FETCH_BYTES", "read_ranges"]

# Size of one read: large enough to hide its fixed cost, small enough for the CPU caches.
FETCH_BYTES: Final = 4 << 20

_log = logging.getLogger(__name__)


def read_ranges(
    ranges: Iterable[PlannedRange],
    *,
    decoder: ArrowDecoder,
    isolation: IsolationLevel,
    fail_on_data_loss: bool,
    fs: FileSystem | None = None,
    fetch_bytes: int = FETCH_BYTES,
    max_decompressed_bytes: int | None = None,
    buffers: "ReadBuffers | None" = None,
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
        buffers: Memory for reads of object stores, to share with other calls.

    Raises:
        DataLossError: Planned records no longer exist, under `fail_on_data_loss`.
        CorruptDataError: A batch is damaged, in all replicas; the batches before it were yielded.
        StorageError: The disk or the store failed.
        NoReplicaOnlineError: A replica failed, and no other one holds the records.
    """
    reporter = LossReporter(fail=fail_on_data_loss)
    parts = list(ranges)
    if parts and is_bucket(parts[0].directories[0]):
        from streamlog.arrow.object_reading import read_objects

        found = read_objects(
            parts,
            reporter=reporter,
            max_decompressed_bytes=max_decompressed_bytes,
            buffers=buffers,
            isolation=isolation,
        )
        for part, info in found:
            yield from decoder.decode(info, part.topic_partition)
        return
    for part in parts:
        reading = _RangeReading(
            part,
            isolation,
            reporter=reporter,
            fs=fs,
            fetch_bytes=fetch_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
        )
        for info in reading.reads():
            yield from decoder.decode(info, part.topic_partition)


class _RangeReading:
    """Reads one range, from one directory or from several in turn."""

    def __init__(
        self,
        part: PlannedRange,
        isolation: IsolationLevel,
        *,
        reporter: LossReporter,
        fs: FileSystem | None,
        fetch_bytes: int,
        max_decompressed_bytes: int | None,
    ) -> None:
        self._part, self._isolation = part, isolation
        self._reporter = reporter
        self._fs = fs or LocalFileSystem()
        self._fetch_bytes = fetch_bytes
        self._max_decompressed_bytes = max_decompressed_bytes
        self._offset = part.start_offset

    def reads(self) -> Iterator[FetchInfo]:
        """Yield the records of the range, read by read."""
        part = self._part
        if len(part.directories) > 1:
            yield from self._from_any_replica()
            if self._offset >= part.end_offset:
                return
        try:
            reader = self._open(part.directories[0])
        except UnknownTopicError:
            self._reporter.report([partitions_deleted([part.topic_partition])])
            return
        with reader:
            yield from self._existing(reader)

    def _open(self, directory: str) -> LogReader:
        limit = self._max_decompressed_bytes
        return LogReader.open(directory, fs=self._fs, max_decompressed_bytes=limit)

    def _from_any_replica(self) -> Iterator[FetchInfo]:
        """Yield the records; return early if no replica failed and yet none has them all.

        Raises:
            NoReplicaOnlineError: The missing records may be in a replica that cannot be read.
            CorruptDataError: They are damaged in all replicas.
        """
        failures: dict[str, StreamLogError] = {}
        for directory in self._part.directories:
            try:
                with self._open(directory) as reader:
                    if self._holds_all(reader):
                        yield from self._read(reader)
            except REPLICA_FAILURES as error:
                failures[directory] = error
                _log.warning("trying another replica of %s: %s", self._part.topic_partition, error)
            if self._offset >= self._part.end_offset:
                return
        was_deleted = all(isinstance(each, UnknownTopicError) for each in failures.values())
        if failures and not (was_deleted and all(map(self._is_reachable, failures))):
            raise no_replica_error(self._part.topic_partition, failures, self._is_reachable)

    def _is_reachable(self, directory: str) -> bool:
        root = LogRoot.at(os.path.dirname(directory), fs=self._fs)
        try:
            return self._fs.stat(root.meta_properties) is not None
        except StorageError:
            return False

    def _holds_all(self, reader: LogReader) -> bool:
        """Return whether a replica has the rest of the range, and no other records in its place."""
        part = self._part
        return (
            part.topic_id in ("", reader.topic_id)
            and reader.log_start_offset <= self._offset
            and reader.log_end_offset >= part.end_offset
            and part.end_epoch in (-1, reader.epoch_for_offset(part.end_offset - 1))
        )

    def _existing(self, reader: LogReader) -> Iterator[FetchInfo]:
        """Yield the records that still exist; report the others."""
        part, partition = self._part, self._part.topic_partition
        if part.topic_id and reader.topic_id not in (None, part.topic_id):
            self._reporter.report([made_again(part.topic)])
            return
        if self._offset < reader.log_start_offset:
            self._reporter.report([start_reset(partition, self._offset, reader.log_start_offset)])
            self._offset = reader.log_start_offset
        if part.end_epoch not in (-1, reader.epoch_for_offset(part.end_offset - 1)):
            self._reporter.report([unreadable(partition, self._offset, part.end_offset)])
        yield from self._read(reader)
        if self._offset < part.end_offset:
            self._reporter.report([unreadable(partition, self._offset, part.end_offset)])

    def _read(self, reader: LogReader) -> Iterator[FetchInfo]:
        """Yield records up to the end of the range, or of the log if that is lower."""
        part, fetch_bytes = self._part, self._fetch_bytes
        buffer = np.empty(fetch_bytes + READ_BEYOND, np.uint8)  # reused: decoding copies
        while self._offset < part.end_offset and self._offset <= reader.log_end_offset:
            try:
                info = reader.read(
                    self._offset,
                    fetch_bytes,
                    isolation=self._isolation,
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
            yield info
            if info.next_offset <= self._offset:
                return
            self._offset = info.next_offset
