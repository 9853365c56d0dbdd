"""Segments of a partition in an object store: built from staged extents, in Kafka's format.

The batches of a segment go straight into an upload. Its indexes are made by the same code as in a
directory, in a scratch directory of the machine, and uploaded when it is sealed, all under Kafka's
file names. No record is decompressed, and only base offsets and leader epochs are written: the
fields that a commit decides. A segment ends where the topic's settings end it if batches are
appended one by one, so it does not depend on how they were staged.

Nothing refers to the uploaded objects until an entry of the journal swaps them in. They lie below
the name of the build, so two processes that build the same segments do not disturb each other.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from streamlog.bucket.actions import NO_TRANSACTIONS, BucketSegment
from streamlog.bucket.keys import files_of, segment_directory
from streamlog.bucket.read_back import CheckedUpload, compare
from streamlog.bucket.reading import BucketReader
from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.errors import FileMissingError, StorageError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import make_directories, remove_tree
from streamlog.partition.epochs import LEADER_EPOCH_CHECKPOINT, EpochEntry, LeaderEpochCache
from streamlog.records.table import BatchTable
from streamlog.segment.file_records import FileRecords
from streamlog.segment.filenames import FileSuffix, segment_file_name
from streamlog.segment.segment import Segment
from streamlog.segment.txn_index import AbortedTxn
from streamlog.segment.walk import sound_chunks
from streamlog.store.api import ObjectStore

__all__ = [
    "APPENDS",
    "SealedSegment",
    "SegmentBuilder",
    "SegmentUploads",
    "SegmentWriter",
    "WholeBatches",
    "cut_batches",
    "points_of",
]

_READ_BYTES: Final = 16 << 20
APPENDS: Final = 100  # to a segment, so that it gets nearly full
_UPLOAD_BYTES: Final = 4 << 20
_SCAN_BYTES: Final = 1 << 20
_POINTS: Final = 128  # of an index in the journal; a reader of more than that looks through batches


class WholeBatches(NamedTuple):
    """Some whole batches."""

    buffer: memoryview
    table: BatchTable


class SegmentUploads:
    """Uploads the files of segments.

    Args:
        store: The root's objects.
        prefix: Where they go, see `segment_directory`.
        fs: The file system of the scratch directory.
        directory: The directory with the files.
    """

    def __init__(self, store: ObjectStore, prefix: str, *, fs: FileSystem, directory: str) -> None:
        self._store, self._prefix, self._fs, self.directory = store, prefix, fs, directory
        self._keys: list[str] = []

    def begin(self, base_offset: int) -> CheckedUpload:
        """Begin the log of a segment."""
        key = self._log_key(base_offset)
        self._keys.append(key)
        return CheckedUpload(self._store, key)

    def sealed(
        self,
        segment: Segment,
        log: CheckedUpload,
        end_offset: int,
        *,
        points: tuple[tuple[int, int], ...],
        has_transactions: bool,
    ) -> "SealedSegment":
        """Seal a segment whose log was written with `begin`, and remove its scratch files.

        Args:
            segment: The segment: its indexes, beside an empty file.
            log: Its log.
            end_offset: The offset after the last one that it covers.
            points: Some offsets and positions of its batches.
            has_transactions: Whether batches of transactions may be in it.
        """
        built = self._seal(segment, end_offset, points=points, has_transactions=has_transactions)
        indexes = []
        for key in reversed(files_of(built.key)[1:]):
            content = self._content(key)
            if content is not None:
                self._keys.append(key)
                indexes.append((key, content))
        segment.delete_files()
        return SealedSegment(self._store, built, log, indexes)

    def upload(
        self,
        segment: Segment,
        end_offset: int,
        *,
        points: tuple[tuple[int, int], ...],
        has_transactions: bool,
    ) -> BucketSegment:
        """Seal and close a segment of the scratch directory, and upload its files; the log last.

        Args:
            segment: The segment, not empty.
            end_offset: The offset after the last one that it covers.
            points: Some offsets and positions of its batches.
            has_transactions: Whether batches of transactions may be in it.

        Raises:
            StorageError: A request or the disk failed.
        """
        built = self._seal(segment, end_offset, points=points, has_transactions=has_transactions)
        for key in reversed(files_of(built.key)):
            self._upload_file(key)
        return built

    def _seal(
        self,
        segment: Segment,
        end_offset: int,
        *,
        points: tuple[tuple[int, int], ...],
        has_transactions: bool,
    ) -> BucketSegment:
        segment.seal()
        first = segment.first_batch_timestamp
        built = BucketSegment(
            key=self._log_key(segment.base_offset),
            size=segment.size,
            base_offset=segment.base_offset,
            end_offset=end_offset,
            first_timestamp=-1 if first is None else first,
            max_timestamp=segment.largest_timestamp,
            is_sealed=True,
            points=points,
            transactions=len(segment.txn_index) if has_transactions else NO_TRANSACTIONS,
        )
        segment.close()  # not synced: the scratch directory is nothing after a power cut
        return built

    def upload_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        """Upload the leader epochs of the partition.

        Args:
            epochs: Epochs and their first offsets, oldest first.
        """
        key = f"{self._prefix}{LEADER_EPOCH_CHECKPOINT}"
        cache = LeaderEpochCache(tuple(EpochEntry(*each) for each in epochs))
        self._keys.append(key)
        with self._store.upload(key) as upload:
            upload.write(cache.content())

    def remove(self) -> None:
        """Delete what was uploaded."""
        self._store.delete(self._keys)
        self._keys.clear()

    def _log_key(self, base_offset: int) -> str:
        return f"{self._prefix}{segment_file_name(base_offset, FileSuffix.LOG)}"

    def _content(self, key: str) -> bytes | None:
        """Return the content of an index, None if it has no entry."""
        try:
            with self._fs.open(self._path(key), OpenMode.READ) as file:
                return file.pread(file.stat().size, 0)
        except FileMissingError:
            return None

    def _path(self, key: str) -> str:
        return f"{self.directory}/{key.rpartition('/')[2]}"

    def _upload_file(self, key: str) -> None:
        path = self._path(key)
        try:
            file = self._fs.open(path, OpenMode.READ)
        except FileMissingError:
            return  # an index without entries
        with file:
            self._keys.append(key)
            with self._store.upload(key) as upload:
                size, position = file.stat().size, 0
                while position < size:
                    piece = np.empty(min(_UPLOAD_BYTES, size - position), np.uint8)
                    if file.pread_into(piece, position) < len(piece):
                        raise StorageError("scratch file has become shorter", path=path)
                    position += len(piece)
                    upload.write(piece)


class SealedSegment:
    """A segment that gets no more batches. The rest of its upload needs nothing but the store.

    Args:
        store: The root's objects.
        built: What the journal will know of it.
        log: Its log, of which parts may be on their way.
        indexes: Keys and contents of its indexes.
    """

    def __init__(
        self,
        store: ObjectStore,
        built: BucketSegment,
        log: CheckedUpload,
        indexes: Sequence[tuple[str, bytes]],
    ) -> None:
        self._store, self.built, self._log, self._indexes = store, built, log, indexes
        self._is_abandoned = False

    def complete(self, *, is_compared: bool = False) -> BucketSegment:
        """Upload the indexes and what is left of the log.

        Args:
            is_compared: Whether to read everything back, and to compare it.

        Raises:
            CorruptRecordError: The store has other bytes than it was given.
            StorageError: A request failed.
        """
        written = []
        try:
            for key, content in self._indexes:
                index = CheckedUpload(self._store, key)
                index.write(content)
                index.close()
                written.append(index)
            self._log.close()
        except BaseException:
            self.abandon()
            raise
        if is_compared:
            uploads = [*written, self._log]
            compare(self._store, uploads, is_given_up=lambda: self._is_abandoned)
        return self.built

    def abandon(self) -> None:
        """Give it up, from any thread; harmless after `complete`."""
        self._is_abandoned = True
        self._log.abandon()


class SegmentBuilder:
    """Builds segments of one partition and uploads them.

    Args:
        store: The root's objects.
        reader: The partition.
        build: The name of the build.
        config: The settings of its topic.
        epochs: The leader epochs of the partition and their first offsets, oldest first.
        clock: The clock.
        fs: The file system of the scratch directory.
        scratch: A directory that does not exist yet; removed afterwards.
    """

    def __init__(
        self,
        store: ObjectStore,
        reader: BucketReader,
        build: str,
        *,
        config: LogConfig,
        epochs: Sequence[tuple[int, int]],
        clock: Clock,
        fs: FileSystem,
        scratch: str,
    ) -> None:
        self._reader, self._config, self._epochs = reader, config, epochs
        self._clock, self._fs, self._scratch = clock, fs, scratch
        prefix = segment_directory(reader.topic_partition, build)
        self.uploads = SegmentUploads(store, prefix, fs=fs, directory=scratch)

    def build(self, first_offset: int, end_offset: int) -> Iterator[BucketSegment | None]:
        """Build the segments with the records between two offsets, step by step.

        A step reads 16 MiB, or uploads a segment. Closing the iterator gives the build up.

        Args:
            first_offset: The first offset, at the beginning of a batch.
            end_offset: The offset after the last, at the end of a batch.

        Yields:
            Each segment when it is uploaded, and None after other steps.

        Raises:
            CorruptDataError: A batch is damaged.
            StorageError: A request or the disk failed.
        """
        make_directories(self._fs, self._scratch)
        try:
            yield from self._build(first_offset, end_offset)
        finally:
            remove_tree(self._fs, self._scratch)

    def _build(self, first_offset: int, end_offset: int) -> Iterator[BucketSegment | None]:
        writer = SegmentWriter(self.uploads, self._config, self._clock, self._fs)
        try:
            for part in self._parts(first_offset, end_offset):
                for sealed in writer.write(part):
                    yield sealed.complete()
                yield None
            if writer.is_open:
                yield writer.finish(end_offset, is_sealed=False).complete()
        finally:
            writer.abandon()
        self.uploads.upload_epochs([each for each in self._epochs if each[1] < end_offset])

    def _parts(self, offset: int, end_offset: int) -> Iterator[WholeBatches]:
        while offset < end_offset:
            info = self._reader.read(offset, _READ_BYTES, end_offset=end_offset)
            yield WholeBatches(info.buffer, info.table)
            offset = info.next_offset


class SegmentWriter:
    """Writes segments of one partition, one at a time, into uploads.

    Args:
        uploads: Uploads them; its directory is where the indexes are made.
        config: The settings of the topic.
        clock: The clock.
        fs: The file system of the directory.

    Attributes:
        uploads: Those of the next segment; may be replaced.
    """

    def __init__(
        self, uploads: SegmentUploads, config: LogConfig, clock: Clock, fs: FileSystem
    ) -> None:
        self.uploads, self._config, self._clock, self._fs = uploads, config, clock, fs
        self._open: tuple[Segment, CheckedUpload] | None = None
        self._points = _Points()
        self._has_transactions = False

    @property
    def is_open(self) -> bool:
        """Whether a segment has been begun and not finished."""
        return self._open is not None

    def write(self, part: WholeBatches) -> Iterator[SealedSegment]:
        """Write batches into segments that end where the topic's settings end them.

        Args:
            part: The batches, of which no byte changes any more.

        Yields:
            Each segment that this finished.
        """
        for few in cut_batches(part, self._config.effective_segment_bytes // APPENDS):
            for each in [few] if self._fits(few) else _split(few):
                base = int(each.table.base_offset[0])
                if not self._fits(each):
                    yield self.finish(base, is_sealed=True)
                self.append(each, base)

    def append(self, part: WholeBatches, base_offset: int) -> None:
        """Write batches into the segment that is open, else into a new one.

        Args:
            part: The batches, of which no byte changes any more.
            base_offset: The base offset of a new segment.

        Raises:
            StorageError: A request or the disk failed.
        """
        segment, log = self._open or self._begun(base_offset)
        self._points.note(segment.size, part.table)
        self._has_transactions |= bool((part.table.is_transactional | part.table.is_control).any())
        segment.check_limits(part.table)
        log.write(part.buffer)
        segment.take_in(segment.size, part.table)

    def _begun(self, base_offset: int) -> tuple[Segment, CheckedUpload]:
        segment = Segment.create(
            self._fs,
            self.uploads.directory,
            base_offset,
            config=self._config,
            now_ms=self._clock.now_ms(),
        )
        self._open = segment, self.uploads.begin(base_offset)
        self._points = _Points()
        self._has_transactions = False
        return self._open

    def finish(
        self, end_offset: int, *, is_sealed: bool, aborted: Iterable[AbortedTxn] = ()
    ) -> SealedSegment:
        """Seal the open segment; `SealedSegment.complete` uploads what is left of it.

        Args:
            end_offset: The offset after the last one that it covers.
            is_sealed: Whether it is never built again with what follows. One with transactions
                never is: a build does not know which of them were aborted.
            aborted: The transactions that markers in it abort.
        """
        assert self._open is not None, "finish follows append"
        segment, log = self._open
        for each in aborted:
            segment.append_aborted(each)
        done = self.uploads.sealed(
            segment,
            log,
            end_offset,
            points=self._points.chosen,
            has_transactions=self._has_transactions,
        )
        self._open = None
        done.built = done.built._replace(is_sealed=is_sealed or self._has_transactions)
        return done

    def abandon(self) -> None:
        """Give the open segment up."""
        opened, self._open = self._open, None
        if opened is not None:
            opened[0].close()
            opened[1].abandon()

    def _fits(self, part: WholeBatches) -> bool:
        if self._open is None:
            return True
        reason = self._open[0].roll_reason(
            part.table.outline(),
            now_ms=self._clock.now_ms(),
            max_wait_ms=self._config.effective_segment_ms,
        )
        return reason is None


class _Points:
    """Where some batches of a segment lie; of too many, every second one stays."""

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []

    @property
    def chosen(self) -> tuple[tuple[int, int], ...]:
        """Offsets and positions."""
        return tuple(self._points)

    def note(self, position: int, table: BatchTable) -> None:
        """Note batches of which the first lies at a position."""
        places = (table.position - table.position[0] + position).tolist()
        self._points += zip(table.base_offset.tolist(), places, strict=True)
        while len(self._points) > _POINTS:
            self._points = self._points[::2]


def points_of(fs: FileSystem, segment: Segment) -> tuple[tuple[int, int], ...]:
    """Return some offsets and positions of the batches in a segment.

    Raises:
        CorruptRecordError: A batch is damaged.
    """
    points = _Points()
    records = FileRecords(fs, segment.path, writable=False)
    for chunk in sound_chunks(records, 0, segment.size, chunk_size=_SCAN_BYTES):
        points.note(chunk.position, chunk.scan.table)
    records.close()
    return points.chosen


def _split(part: WholeBatches) -> list[WholeBatches]:
    """Return each batch of some alone."""
    starts = part.table.position.tolist()
    ends = (part.table.position + part.table.size).tolist()
    return [
        WholeBatches(part.buffer[start:end], part.table.slice(at, at + 1).moved(-start))
        for at, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def cut_batches(part: WholeBatches, size: int) -> Iterator[WholeBatches]:
    """Yield batches in appends that are small beside a segment."""
    table = part.table
    ends = table.position + table.size
    first = 0
    while first < len(table):
        start = int(table.position[first])
        stop = max(first + 1, int(np.searchsorted(ends, start + size, side="right")))
        few = table.slice(first, stop).moved(-start)
        yield WholeBatches(part.buffer[start : int(ends[stop - 1])], few)
        first = stop
