"""Compaction in an object store: the cleaner for directories, in a scratch root of this machine.

    announce the build → download the sealed segments → clean them until no key is left out
    → upload what the rounds have written → swap it in

The scratch root has the topic's settings, the partition's cleaner checkpoint and an empty active
segment, so a round sees what it would see in a directory, and writes the same segments. The swap is
conditional on the same segments being there, as for every build. The work is done in steps, so that
it can pause between them; what a process has not swapped in when it ends is done again by another.

Retention may raise the log start during a compaction, or delete whole segments: then the work was
in vain, and the next run begins again.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

import numpy as np

from streamlog.bucket.actions import NO_TRANSACTIONS, BucketSegment
from streamlog.bucket.building import BucketBuilds, Replacement
from streamlog.bucket.keys import segment_directory
from streamlog.bucket.segments import SegmentUploads, points_of
from streamlog.bucket.state import RootState, Stretch
from streamlog.cleaner.choosing import Cleanable
from streamlog.cleaner.cleaner import LogCleaner
from streamlog.cleaner.round import CleanReport
from streamlog.clock import Clock
from streamlog.config.properties import format_properties
from streamlog.errors import CorruptDataError, CorruptRecordError, InvalidRecordError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import make_directories, remove_tree, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.maintenance.compaction import COMPACTION_REASONS
from streamlog.partition.checkpoints import write_cleaner_offsets, write_log_start_offsets
from streamlog.records.layout import MAX_INT64
from streamlog.root.deeds import Deed
from streamlog.root.manager import LogManager
from streamlog.segment.filenames import FileSuffix, parse_segment_file_name, segment_file_name
from streamlog.segment.segment import Segment
from streamlog.store.api import ObjectRange, ObjectStore
from streamlog.topic import TopicPartition

__all__ = ["BucketCompaction"]

_PIECE: Final = 32 << 20


class BucketCompaction:
    """The compaction of one partition, in steps.

    Args:
        store: The root's objects.
        builds: Announces the build and swaps it in.
        clock: The clock.
        state: The root by which the compaction was chosen.
        cleanable: What to clean.
        held_from: Recorded readers need all records from this offset on.
        done: Called with the deed when it is swapped in.
    """

    def __init__(
        self,
        store: ObjectStore,
        builds: BucketBuilds,
        clock: Clock,
        *,
        state: RootState,
        cleanable: Cleanable,
        held_from: int = MAX_INT64,
        done: Callable[[Deed], None],
    ) -> None:
        self._store, self._builds, self._clock = store, builds, clock
        self._state, self._cleanable, self._held_from = state, cleanable, held_from
        self._done = done
        self.topic_partition = cleanable.topic_partition
        at = state.partitions[self.topic_partition]
        sealed = at.stretches[: at.tail]
        self._sealed = tuple(each for each in sealed if each.base_offset < cleanable.end_offset)
        # All partitions look alike to the cleaner, so the scratch root has only one.
        self._scratch_partition = TopicPartition(self.topic_partition.topic, 0)
        self._steps = self._run()

    def go_on(self, is_late: Callable[[], bool]) -> bool:
        """Work until everything is done or it is late; return whether it is done.

        Raises:
            CorruptRecordError: A batch is damaged.
            StorageError: A request or the disk failed; the compaction is given up.
        """
        return all(not is_late() for _ in self._steps)

    def close(self) -> None:
        """Give up, if it is not done; another run begins again."""
        self._steps.close()

    def _run(self) -> Generator[None, None, None]:
        topic_id = self._state.topics[self.topic_partition.topic].topic_id
        wanted = Replacement(self.topic_partition, topic_id, self._sealed)
        name, free = self._builds.begin([wanted])
        if not free:
            return
        fs, scratch = self._builds.fs, f"{self._builds.scratch}/{name}"
        manager: LogManager | None = None
        uploads = SegmentUploads(
            self._store,
            segment_directory(self.topic_partition, name),
            fs=fs,
            directory=LogRoot.at(scratch, fs=fs).partition(self._scratch_partition),
        )
        try:
            manager = self._open_scratch(scratch)
            yield from self._download(fs, uploads.directory)
            self._mark(manager.log_root)
            report = yield from self._clean(manager)
            log = manager.local_log(*self._scratch_partition)
            cleaned = [each for each in log.segments if each.base_offset < report.end_offset]
            replaced = self._replaced(report.end_offset)
            built = yield from self._upload(uploads, cleaned, replaced[-1].end_offset)
        except (CorruptDataError, InvalidRecordError, GeneratorExit):
            uploads.remove()
            self._builds.end(name)
            raise
        finally:
            if manager is not None:
                manager.close()
            remove_tree(fs, scratch)
        part = wanted._replace(stretches=replaced)
        if self._builds.swap_in(part, part.swap(name, built, report.end_offset), uploads):
            self._done(self._deed(replaced, built))
        self._builds.end(name)

    # ---- the scratch root --------------------------------------------------------------------
    def _open_scratch(self, scratch: str) -> LogManager:
        """Create the scratch root with the settings and the topic."""
        fs, topic = self._builds.fs, self.topic_partition.topic
        make_directories(fs, scratch)
        with LogManager.open(scratch, create=True, fs=fs, clock=self._clock) as manager:
            settings = format_properties(self._state.config).encode()
            write_file_atomically(fs, manager.log_root.server_properties, settings)
        with LogManager.open(scratch, fs=fs, clock=self._clock) as manager:
            manager.create_topic(topic, 1, dict(self._state.topics[topic].config))
            manager.local_log(*self._scratch_partition)  # creates its directory
        return LogManager.open(scratch, fs=fs, clock=self._clock)

    def _download(self, fs: FileSystem, directory: str) -> Iterator[None]:
        for name in fs.list(directory):
            if parse_segment_file_name(name) is not None:  # of the topic's first, empty segment
                fs.remove(f"{directory}/{name}")
        for stretch in self._sealed:
            path = f"{directory}/{segment_file_name(stretch.base_offset, FileSuffix.LOG)}"
            with fs.open(path, OpenMode.CREATE_OR_WRITE) as file:
                position = 0
                while position < stretch.size:
                    piece = np.empty(min(_PIECE, stretch.size - position), np.uint8)
                    where = ObjectRange(stretch.key, stretch.position + position, len(piece))
                    self._store.read_into([where], piece)
                    file.pwrite(piece, position)
                    position += len(piece)
                    yield
            # The age of a segment without timestamps is that of its file.
            fs.set_mtime(path, max(stretch.max_timestamp, 0))
        end = segment_file_name(self._cleanable.end_offset, FileSuffix.LOG)
        fs.open(f"{directory}/{end}", OpenMode.CREATE_OR_WRITE).close()

    def _mark(self, root: LogRoot) -> None:
        at = self._state.partitions[self.topic_partition]
        start = min(at.log_start_offset, self._cleanable.end_offset)
        write_cleaner_offsets(root, {self._scratch_partition: at.cleaned_offset})
        write_log_start_offsets(root, {self._scratch_partition: start})

    # ---- the work ----------------------------------------------------------------------------
    def _clean(self, manager: LogManager) -> Generator[None, None, CleanReport]:
        """Clean in rounds until all keys were in the map; return the last report."""
        with LogCleaner(manager) as cleaner:
            while True:
                report = cleaner.clean(
                    self._scratch_partition,
                    held_from=self._held_from,
                    should_pause=lambda: True,
                )
                assert report is not None, "nobody else knows the scratch root"
                yield
                if report.is_finished and not report.is_map_full:
                    return report

    def _upload(
        self, uploads: SegmentUploads, cleaned: list[Segment], end_offset: int
    ) -> Generator[None, None, list[BucketSegment]]:
        """Upload the cleaned segments, and the leader epochs up to their end."""
        ends = [*(each.base_offset for each in cleaned[1:]), end_offset]
        built = []
        has_transactions = any(each.transactions != NO_TRANSACTIONS for each in self._sealed)
        for segment, end in zip(cleaned, ends, strict=True):
            if segment.size:  # no record of a segment may be left
                points = points_of(self._builds.fs, segment)
                built.append(
                    uploads.upload(segment, end, points=points, has_transactions=has_transactions)
                )
            yield
        epochs = self._state.partitions[self.topic_partition].epochs
        uploads.upload_epochs([each for each in epochs if each[1] < end_offset])
        return built

    def _deed(self, replaced: Sequence[Stretch], built: Sequence[BucketSegment]) -> Deed:
        return Deed(
            ms=self._clock.now_ms(),
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            action="compaction",
            reason=COMPACTION_REASONS[self._cleanable.reason],
            segments=len(replaced) - len(built),
            bytes=sum(each.size for each in replaced) - sum(each.size for each in built),
            log_start_offset=self._state.partitions[self.topic_partition].log_start_offset,
        )

    def _replaced(self, end_offset: int) -> tuple[Stretch, ...]:
        """Return the stretches that rounds up to an offset have replaced."""
        found = tuple(each for each in self._sealed if each.base_offset < end_offset)
        if not found:
            raise CorruptRecordError(
                "compaction ended before its first segment",
                path=f"{self._store.url}/{self.topic_partition}",
                got=end_offset,
            )
        return found
