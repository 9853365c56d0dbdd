"""Copying into an object store.

Segments are put in place by entries of the journal, which are refused unless the partition still
ends where they begin. A new topic is hidden until one entry shows all its partitions. See "Copies"
in `streamlog/bucket/BUCKET.md`.

    this thread     read, send: segment 3        send: segment 4          place 1 and 2
    other threads   read back: 1   rest of 2     read back: 2   rest of 3

An entry names nothing but what was read back from the store and compared with what was read from
the source. Entries are made in the order of offsets, by the thread that reads.
"""

import contextlib
import os
import random as random_module
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from streamlog.bucket.actions import (
    Action,
    AlterTopic,
    BeginBuild,
    BeginCopy,
    BucketSegment,
    EndBuilds,
    EndCopy,
    PlaceSegments,
)
from streamlog.bucket.keys import segment_directory
from streamlog.bucket.reading import BucketReader
from streamlog.bucket.root import BucketRoot, check_bucket_configs
from streamlog.bucket.segments import SealedSegment, SegmentUploads, SegmentWriter, WholeBatches
from streamlog.bucket.state import BucketPartition, RootState, TopicState
from streamlog.config.log_config import LogConfig
from streamlog.config.server_config import ServerConfig
from streamlog.errors import (
    InconsistentTopicIdError,
    InvalidRequestError,
    StreamLogError,
    UnavailableError,
    UnsupportedForMessageFormatError,
    command_at,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.files import make_directories, remove_tree
from streamlog.fs.local import LocalFileSystem
from streamlog.partition.partition_metadata import new_topic_id
from streamlog.records.legacy_layout import MAGIC_V1
from streamlog.topic import TopicPartition, check_new_topic_name
from streamlog.transfer.bucket_source import pieces_of
from streamlog.transfer.configs import accepted_configs
from streamlog.transfer.ends import CopyTopic, Epochs, Piece, SourcePartition, merged_epochs
from streamlog.transfer.segment_pipeline import SegmentPipeline

__all__ = ["BucketTarget"]

PLACED_BYTES: Final = 256 << 20  # at least, before an entry puts them in place
_PLACED_SEGMENTS: Final = 16
_TEMPORARY: Final = "/tmp"


class BucketTarget:
    """A root in an object store to copy to; see `CopyTarget`.

    Args:
        root: The root, refreshed.
        random: Makes names; `SystemRandom` by default.
        fs: The file system of the scratch directory; local by default.
        scratch: A directory for this process alone, for the indexes of a segment; by default below
            `TMPDIR`, or `/tmp`.
    """

    is_stable_only = True

    def __init__(
        self,
        root: BucketRoot,
        *,
        random: random_module.Random | None = None,
        fs: FileSystem | None = None,
        scratch: str | None = None,
    ) -> None:
        self._root, self.name = root, root.url
        self._random = random or random_module.SystemRandom()
        self._fs = fs or LocalFileSystem()
        temporary = os.environ.get("TMPDIR") or _TEMPORARY
        self._scratch = scratch or f"{temporary}/streamlog-{self._random.getrandbits(64):016x}"
        self._pipeline = SegmentPipeline()

    def begin(self, topic: CopyTopic) -> tuple[str, ...]:
        """See `CopyTarget.begin`."""
        count = max(topic.partitions, default=0) + 1
        topic_id = topic.topic_id or new_topic_id(self._random)
        remarks: tuple[str, ...] = ()

        def decide(state: RootState) -> tuple[Sequence[Action], None]:
            nonlocal remarks
            known = _known(state, topic.name)
            if known is None:
                server = ServerConfig.from_properties(state.config)
                check_new_topic_name(topic.name)
                configs, remarks = accepted_configs(
                    topic.configs, lambda one: server.log_config(check_bucket_configs(one))
                )
                begin = BeginCopy(
                    topic=topic.name, topic_id=topic_id, partitions=count, config=configs
                )
                return [begin], None
            self._check(topic, known, count, is_hidden=topic.name in state.arriving)
            if count <= known.partitions:
                return [], None
            alter = AlterTopic(
                topic=topic.name,
                topic_id=known.topic_id,
                partitions=count,
                config=known.config,
            )
            return [alter], None

        self._root.journal.change(decide)
        return remarks

    def _check(self, topic: CopyTopic, known: TopicState, count: int, *, is_hidden: bool) -> None:
        delete = command_at(self.name, f"topics delete {topic.name}")
        if topic.topic_id not in (None, known.topic_id):
            raise InconsistentTopicIdError(
                f"the target has another topic of the name {topic.name}",
                path=self.name,
                got=f"topic id {known.topic_id}",
                expected=topic.topic_id,
                hint=delete,
            )
        if is_hidden and count > known.partitions:
            raise InvalidRequestError(
                f"topic {topic.name} got partitions since its copy began",
                path=self.name,
                got=f"{count} partitions",
                expected=f"{known.partitions}",
                hint=f"begin again: {delete}",
            )

    def open(self, partition: TopicPartition) -> "_BucketTargetPartition":
        """See `CopyTarget.open`."""
        name = f"{self._scratch}/{partition}"
        return _BucketTargetPartition(
            self._root, partition, self._random, self._fs, name, self._pipeline
        )

    def is_hidden(self, topic: str) -> bool:
        """See `CopyTarget.is_hidden`."""
        return topic in self._root.state.arriving

    def reveal(self, topic: str) -> None:
        """See `CopyTarget.reveal`."""

        def decide(state: RootState) -> tuple[Sequence[Action], None]:
            found = state.arriving.get(topic)
            if found is None:
                return [], None
            return [EndCopy(topic=topic, topic_id=found.topic.topic_id)], None

        self._root.journal.change(decide)

    def close(self) -> None:
        """See `CopyTarget.close`."""
        self._pipeline.close()
        remove_tree(self._fs, self._scratch)


def _known(state: RootState, topic: str) -> TopicState | None:
    arriving = state.arriving.get(topic)
    return state.topics.get(topic) if arriving is None else arriving.topic


def _partition_of(state: RootState, partition: TopicPartition) -> BucketPartition | None:
    arriving = state.arriving.get(partition.topic)
    if arriving is None:
        return state.partitions.get(partition)
    return arriving.partitions[partition.partition]


@dataclass(slots=True, kw_only=True)
class _Group:
    """Segments that one entry puts in place.

    Attributes:
        build: The name below which they are uploaded.
        uploads: Their uploads.
        first_offset: Where they begin.
        segments: They, when they have been read back.
        size: Their bytes.
        end_offset: Where they end, as the next fields as soon as there will be no more of them.
        log_start_offset: The log start of the partition with them.
        epochs: Its leader epochs with them.
    """

    build: str
    uploads: SegmentUploads
    first_offset: int
    segments: list["Future[BucketSegment]"] = field(default_factory=list)
    size: int = 0
    end_offset: int = -1
    log_start_offset: int = 0
    epochs: Epochs = ()


class _BucketTargetPartition:
    """A partition in an object store that is copied to; see `TargetPartition`.

    Two builds are announced: segments of the second one are written while what belongs to the first
    is finished. The entry that puts a group in place announces the build after the next.
    """

    reads_back = keeps_pieces = True

    def __init__(
        self,
        root: BucketRoot,
        partition: TopicPartition,
        random: random_module.Random,
        fs: FileSystem,
        scratch: str,
        pipeline: SegmentPipeline,
    ) -> None:
        self._root, self._partition, self._random = root, partition, random
        self._fs, self._scratch, self._pipeline = fs, scratch, pipeline
        self.path = f"{root.url}/{partition}"
        at, topic = _partition_of(root.state, partition), _known(root.state, partition.topic)
        assert at is not None and topic is not None, "begin made them"
        self._topic_id = topic.topic_id
        self._config = _config_of(root.state, topic)
        self.log_start_offset, self.end_offset = at.log_start_offset, at.end_offset
        self.is_unused = at.end_offset == 0 and not at.epochs
        self._epochs: Epochs = at.epochs  # as of the last group, like the log start
        self._log_start = at.log_start_offset
        self._source: SourcePartition | None = None
        self._writer: SegmentWriter | None = None
        self._spare: str | None = None
        self._group: _Group | None = None
        self._waiting: deque[_Group] = deque()
        self._has_groups = self._is_staged = False
        self._segment_start = self._next_offset = self.end_offset

    def is_finished(self, source: SourcePartition) -> bool:
        """See `TargetPartition.is_finished`: one entry does everything."""
        del source
        return True

    def begin(self, source: SourcePartition) -> None:
        """See `TargetPartition.begin`."""
        self._source = source
        make_directories(self._fs, self._scratch)
        first, self._spare = self._new_name(), self._new_name()
        builds = [self._announced(each) for each in (first, self._spare)]
        self._root.journal.change(lambda state: (builds, None))
        self._group = self._opened(first, self.end_offset)
        self._writer = SegmentWriter(self._group.uploads, self._config, self._root.clock, self._fs)

    def _new_name(self) -> str:
        return f"{self._random.getrandbits(64):016x}"

    def _announced(self, build: str) -> BeginBuild:
        return BeginBuild(build=build, partitions=(self._partition,))

    def _opened(self, build: str, first_offset: int) -> _Group:
        prefix = segment_directory(self._partition, build)
        uploads = SegmentUploads(self._root.store, prefix, fs=self._fs, directory=self._scratch)
        return _Group(build=build, uploads=uploads, first_offset=first_offset)

    # ---- segments ----------------------------------------------------------------------------
    def write(self, piece: Piece) -> None:
        """See `TargetPartition.write`."""
        if (piece.table.magic <= MAGIC_V1).any():
            raise UnsupportedForMessageFormatError(
                "a root in an object store holds no messages of format v0 and v1",
                path=self.path,
                offset=int(piece.table.base_offset[0]),
                hint="copy into a directory, or let compaction or a broker rewrite them",
            )
        writer, group = self._writer, self._group
        assert writer is not None and group is not None, "begin comes first"
        base = int(piece.table.base_offset[0])
        if self._is_blank and not group.segments and not writer.is_open and not group.first_offset:
            first = base if piece.segment_base is None else piece.segment_base
            group.first_offset = self._segment_start = self._next_offset = first
        begins = piece.segment_base is not None or piece.is_staged != self._is_staged
        if writer.is_open and begins:
            self._finish_segment(max(piece.segment_base or base, self._next_offset))
        self._is_staged = piece.is_staged
        part = WholeBatches(piece.buffer, piece.table)
        if piece.is_staged:
            for sealed in writer.write(part):
                self._add(sealed)
        else:
            is_aligned = piece.segment_base is not None and piece.segment_base >= group.first_offset
            writer.append(part, piece.segment_base if is_aligned and piece.segment_base else base)
        self._next_offset = piece.next_offset

    @property
    def _is_blank(self) -> bool:
        """Whether the partition has no record, and no group is on its way."""
        return self.is_unused and not self._has_groups

    def _finish_segment(self, end_offset: int, *, is_sealed: bool = True) -> None:
        """Seal the open segment."""
        writer, source = self._writer, self._source
        assert writer is not None and source is not None, "begin comes first"
        aborted = sorted(
            {
                each
                for each in source.aborted_between(self._segment_start, end_offset)
                if self._segment_start <= each.last_offset < end_offset
            },
            key=lambda each: each.last_offset,
        )
        self._add(writer.finish(end_offset, is_sealed=is_sealed, aborted=aborted))

    def _add(self, sealed: SealedSegment) -> None:
        """Let a segment be finished; begin the next group if this one is large enough."""
        group, source, end_offset = self._group, self._source, sealed.built.end_offset
        assert group is not None and source is not None, "begin comes first"
        group.segments.append(self._pipeline.add(sealed))
        group.size += sealed.built.size
        self._segment_start = end_offset
        is_enough = group.size >= PLACED_BYTES or len(group.segments) >= _PLACED_SEGMENTS
        if is_enough and not _is_inside_aborted(source, end_offset):
            self._next_group(end_offset)

    # ---- groups ------------------------------------------------------------------------------
    def _next_group(self, end_offset: int) -> None:
        """Close a group; the one before it is put in place first: it had most time to be sent."""
        assert self._writer is not None, "begin comes first"
        self._close_group(end_offset)
        if self._spare is None:
            self._place()
        assert self._spare is not None, "placing a group announces a build"
        self._group, self._spare = self._opened(self._spare, end_offset), None
        self._writer.uploads = self._group.uploads

    def _close_group(self, end_offset: int) -> None:
        group, source = self._group, self._source
        assert group is not None and source is not None, "begin comes first"
        if self._is_blank:
            self._log_start = min(source.log_start_offset, end_offset)
        self._epochs = merged_epochs(self._epochs, source.epochs, self._log_start, end_offset)
        group.end_offset, group.log_start_offset = end_offset, self._log_start
        group.epochs = self._epochs
        self._waiting.append(group)
        self._group, self._has_groups = None, True

    def _place(self, ended: Sequence[str] | None = None) -> None:
        """Put the oldest group in place, with one entry.

        Args:
            ended: Builds that end as well; None: another one is announced.
        """
        group = self._waiting[0]
        segments = tuple(each.result() for each in group.segments)
        if segments:
            group.uploads.upload_epochs(group.epochs)
        place = PlaceSegments(
            topic_partition=self._partition,
            topic_id=self._topic_id,
            build=group.build,
            first_offset=group.first_offset,
            end_offset=group.end_offset,
            log_start_offset=group.log_start_offset,
            epochs=group.epochs,
            segments=segments,
        )
        actions: list[Action] = [place, EndBuilds(builds=(group.build, *(ended or ())))]
        spare = None
        if ended is None:
            spare = self._new_name()
            actions.append(self._announced(spare))

        def decide(state: RootState) -> tuple[Sequence[Action], None]:
            self._check_unchanged(state, place)
            return actions, None

        self._waiting.popleft()  # `close` leaves it: the entry may be made without an answer
        self._root.journal.change(decide)
        self._spare = spare or self._spare
        self.end_offset, self.log_start_offset = group.end_offset, group.log_start_offset
        self.is_unused = False

    def _check_unchanged(self, state: RootState, place: PlaceSegments) -> None:
        topic, at = _known(state, self._partition.topic), _partition_of(state, self._partition)
        build = state.builds.get(place.build)
        is_same = topic is not None and topic.topic_id == self._topic_id and at is not None
        is_at_end = at is not None and (at.end_offset == place.first_offset or self.is_unused)
        if at is not None and self.is_unused:
            is_at_end = at.end_offset == 0 and not at.epochs
        if not is_same or not is_at_end or build is None or build.is_abandoned:
            raise UnavailableError(
                "another process changes the partition that is copied to",
                path=self.path,
                got="nothing" if at is None else f"end offset {at.end_offset}",
                expected=place.first_offset,
                hint="stop its writers, then copy again",
            )

    def finish(self, end_offset: int) -> None:
        """See `TargetPartition.finish`."""
        writer = self._writer
        assert writer is not None, "begin comes first"
        if writer.is_open:
            self._finish_segment(end_offset, is_sealed=False)
        group = self._group
        assert group is not None, "there always is one"
        unused = [each for each in (group.build, self._spare) if each is not None]
        if group.segments or group.first_offset < end_offset or self._is_blank:
            if self._is_blank and not group.segments:
                group.first_offset = end_offset
            self._close_group(end_offset)
            unused.remove(group.build)
        while len(self._waiting) > 1:
            self._place(ended=())
        if self._waiting:
            self._place(ended=unused)
        else:
            end = EndBuilds(builds=tuple(unused))
            self._root.journal.change(lambda state: ([end], None))
        self._group = self._writer = None

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[Piece]:
        """See `TargetPartition.pieces`."""
        at = _partition_of(self._root.state, self._partition)
        assert at is not None, "begin made it"
        reader = BucketReader(self._root.store, self._partition, at)
        return pieces_of(reader, start_offset, end_offset)

    def close(self) -> None:
        """See `TargetPartition.close`."""
        self._pipeline.stop()
        writer, group = self._writer, self._group
        self._writer = self._group = None
        if writer is not None:  # not finished
            writer.abandon()
        for each in [*self._waiting, *([group] if group is not None else [])]:
            with contextlib.suppress(StreamLogError):  # the build is given up by and by
                each.uploads.remove()
        self._waiting.clear()
        remove_tree(self._fs, self._scratch)


def _is_inside_aborted(source: SourcePartition, offset: int) -> bool:
    """Return whether an aborted transaction reaches across an offset."""
    return any(each.last_offset >= offset for each in source.aborted_between(offset - 1, offset))


def _config_of(state: RootState, topic: TopicState) -> LogConfig:
    return ServerConfig.from_properties(state.config).log_config(topic.config)
