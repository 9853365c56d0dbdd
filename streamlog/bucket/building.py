"""When segments are built out of staged extents, and how they are swapped in.

The stretches after the last sealed segment are a partition's *tail*: what the active segment is in
a directory. It is built

    segment.bytes   when it is as large as a segment
    segment.ms      when its records span more time than a segment may
    extents         when 64 staged extents follow each other: each costs a reader a request, and
                    all of them are in every snapshot
    age             when a staged object is an hour old, so that staging stays small

For the first two the whole tail is built, and segments end where the topic's settings end them; the
last one stays open. For the others the staged extents become an open segment of their own, together
with open segments before them that are not larger. So a byte is copied as often as the size of the
tail doubles, not once for each build.

A build can pause between its steps: what queries do not notice, a single large one does not spoil.
Meanwhile its segments so far stay uploaded, and others leave its partitions alone for ten minutes.

A build is announced in the journal before its first upload. Whatever happens to the process, its
objects are found by the name, and none of them is named after the build is abandoned. The swap is
conditional: the journal takes it only if the same stretches are still there.
"""

import contextlib
import logging
import random as random_module
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamlog.bucket.actions import Action, BeginBuild, BucketSegment, EndBuilds, Swap
from streamlog.bucket.journal import RootJournal
from streamlog.bucket.keys import staged_ms
from streamlog.bucket.reading import BucketReader
from streamlog.bucket.segments import SegmentBuilder, SegmentUploads
from streamlog.bucket.state import BucketPartition, RootState, Stretch
from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.store.api import ObjectStore
from streamlog.topic import TopicPartition

__all__ = ["BucketBuilds", "DueBuild", "Replacement", "find_builds", "is_being_built"]

MAX_EXTENTS: Final = 64
MAX_AGE_MS: Final = 3600 * 1000
LEASE_MS: Final = 600 * 1000  # for which others leave the partitions of a build alone
_MAX_BYTES: Final = 8 << 30  # of one build

_logger = logging.getLogger(__name__)


class Replacement(NamedTuple):
    """The stretches of a partition that a build replaces.

    Attributes:
        topic_partition: The partition.
        topic_id: The id of its topic.
        stretches: The stretches as they were planned.
    """

    topic_partition: TopicPartition
    topic_id: str
    stretches: tuple[Stretch, ...]

    @property
    def first_offset(self) -> int:
        """The first offset that is replaced."""
        return self.stretches[0].base_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last one."""
        return self.stretches[-1].end_offset

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(each.size for each in self.stretches)

    def holds(self, state: RootState) -> bool:
        """Return whether exactly these stretches are still there."""
        topic = state.topics.get(self.topic_partition.topic)
        at = state.partitions.get(self.topic_partition)
        if topic is None or topic.topic_id != self.topic_id or at is None:
            return False
        first = at.at(self.first_offset)
        return at.stretches[first : first + len(self.stretches)] == self.stretches

    def swap(
        self, build: str, segments: Sequence[BucketSegment], cleaned_offset: int | None = None
    ) -> Swap:
        """Return the action that puts segments in their place."""
        return Swap(
            topic_partition=self.topic_partition,
            topic_id=self.topic_id,
            build=build,
            first_offset=self.first_offset,
            end_offset=self.end_offset,
            cleaned_offset=cleaned_offset,
            segments=tuple(segments),
        )


class DueBuild(NamedTuple):
    """A build that is due, and why."""

    replacement: Replacement
    reason: str


# ---- which -----------------------------------------------------------------------------------
def find_builds(state: RootState, now_ms: int) -> list[DueBuild]:
    """Return the builds that are due, one for each partition at most.

    Raises:
        InvalidConfigError: The root has a setting that this version does not know.
    """
    configs = {topic: state.config_of(topic) for topic in state.topics}
    found = []
    for partition, at in state.partitions.items():
        tail = at.stretches[at.tail :]
        if not tail or not tail[-1].is_staged or is_being_built(state, partition, now_ms):
            continue
        chosen, reason = _choose(tail, configs[partition.topic], now_ms)
        if chosen:
            topic_id = state.topics[partition.topic].topic_id
            found.append(DueBuild(Replacement(partition, topic_id, _capped(chosen)), reason))
    return found


def is_being_built(state: RootState, partition: TopicPartition, now_ms: int) -> bool:
    """Return whether a process has announced segments of a partition lately."""
    return any(
        partition in build.partitions and not build.is_abandoned and now_ms - begun < LEASE_MS
        for build in state.builds.values()
        if (begun := build.begun_ms) <= now_ms
    )


def _choose(
    tail: tuple[Stretch, ...], config: LogConfig, now_ms: int
) -> tuple[tuple[Stretch, ...], str]:
    """Return the end of a tail that is to be built now, and why; empty if nothing is."""
    if sum(each.size for each in tail) >= config.effective_segment_bytes:
        return tail, "segment.bytes"
    first = tail[0].max_timestamp if tail[0].is_staged else tail[0].first_timestamp
    newest = max(each.max_timestamp for each in tail)
    if first >= 0 and newest - first > config.effective_segment_ms:
        return tail, "segment.ms"
    start = next(at for at, each in enumerate(tail) if each.is_staged)
    oldest_ms = staged_ms(tail[start].key)
    if len(tail) - start >= MAX_EXTENTS:
        return _with_smaller(tail, start), "extents"
    if oldest_ms is not None and now_ms - oldest_ms >= MAX_AGE_MS:
        return _with_smaller(tail, start), "age"
    return (), ""


def _with_smaller(tail: tuple[Stretch, ...], start: int) -> tuple[Stretch, ...]:
    """Return the stretches from `start` on, with open segments before them that are not larger."""
    size = sum(each.size for each in tail[start:])
    while start and tail[start - 1].size <= size:
        start -= 1
        size += tail[start].size
    return tail[start:]


def _capped(stretches: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    size = 0
    for at, each in enumerate(stretches):
        size += each.size
        if size >= _MAX_BYTES:
            return stretches[: at + 1]
    return stretches


# ---- building --------------------------------------------------------------------------------
class _Unfinished(NamedTuple):
    """A partition whose build has begun: the segments so far, and the steps that are left."""

    uploads: SegmentUploads
    steps: Generator[BucketSegment | None, None, None]
    segments: list[BucketSegment]


@dataclass(slots=True)
class _Running:
    """An announced build.

    Attributes:
        name: Its name.
        wanted: What is left of it; the first may have begun.
        at: How far that is.
        is_clean: Whether no partition failed, so that no object is left behind.
    """

    name: str
    wanted: list[DueBuild]
    at: _Unfinished | None = None
    is_clean: bool = True


class BucketBuilds:
    """Announces builds, and swaps their segments in.

    Args:
        store: The root's objects.
        journal: Its journal.
        clock: The clock.
        random: Makes the names.
        fs: The file system of the scratch directory.
        scratch: A directory for this process alone; created and emptied as needed.
    """

    def __init__(
        self,
        store: ObjectStore,
        journal: RootJournal,
        clock: Clock,
        *,
        random: random_module.Random,
        fs: FileSystem,
        scratch: str,
    ) -> None:
        self._store, self._journal, self._clock = store, journal, clock
        self._random, self.fs, self.scratch = random, fs, scratch
        self._running: _Running | None = None

    def begin(self, wanted: Sequence[Replacement]) -> tuple[str, list[Replacement]]:
        """Announce a build; return its name, and the replacements that no other process has begun.

        Raises:
            UnknownOutcomeError: The announcement may have been made; it is forgotten by and by.
        """
        name = f"{self._random.getrandbits(64):016x}"

        def decide(state: RootState) -> tuple[Sequence[Action], list[Replacement]]:
            now_ms = self._clock.now_ms()
            free = [
                each
                for each in wanted
                if each.holds(state) and not is_being_built(state, each.topic_partition, now_ms)
            ]
            partitions = tuple(each.topic_partition for each in free)
            return [BeginBuild(build=name, partitions=partitions)] if free else [], free

        return name, self._journal.change(decide)

    @property
    def is_paused(self) -> bool:
        """Whether `build` has begun a partition and not finished it."""
        return self._running is not None and self._running.at is not None

    def build(
        self,
        due: Sequence[DueBuild],
        *,
        done: Callable[[DueBuild, int], None],
        failed: Callable[[TopicPartition, StreamLogError], None],
        is_late: Callable[[], bool],
    ) -> bool:
        """Build what is due, and swap it in; or continue where the last call has paused.

        Args:
            due: The result of `find_builds`; ignored by a call that continues.
            done: Called with each finished build and its number of segments.
            failed: Called for each partition that cannot be built; the others are.
            is_late: Whether to pause, asked after each step; no partition is begun then.

        Returns:
            Whether all was done that is due, here or by another process.

        Raises:
            StorageError: The journal cannot be read or written.
        """
        if self._running is None:
            if not due:
                return True
            name, free = self.begin([each.replacement for each in due])
            if not free:
                return True
            self._running = _Running(name, [each for each in due if each.replacement in free])
        elif self._running.at is not None:
            self._journal.refresh()
        running = self._running
        while running.wanted and (running.at is not None or not is_late()):
            if not self._go_on(running, done, failed, is_late):
                return False
        self._running = None
        if running.is_clean:
            self.end(running.name)
        return not running.wanted

    def _go_on(
        self,
        running: "_Running",
        done: Callable[[DueBuild, int], None],
        failed: Callable[[TopicPartition, StreamLogError], None],
        is_late: Callable[[], bool],
    ) -> bool:
        """Build the first partition of those that are left; return False to pause."""
        each = running.wanted[0]
        wanted = each.replacement
        try:
            if not wanted.holds(self._journal.state):
                self._drop(running)
            else:
                at = running.at = running.at or self._started(running.name, wanted)
                for segment in at.steps:
                    if segment is not None:
                        at.segments.append(segment)
                    if is_late():
                        return False
                if self.swap_in(wanted, wanted.swap(running.name, at.segments), at.uploads):
                    done(each, len(at.segments))
        except StreamLogError as error:
            running.is_clean = False
            failed(wanted.topic_partition, error)
        running.at = None
        running.wanted.pop(0)
        return True

    def _started(self, name: str, wanted: Replacement) -> "_Unfinished":
        state, partition = self._journal.state, wanted.topic_partition
        builder = SegmentBuilder(
            self._store,
            BucketReader(self._store, partition, _only(state.partitions[partition], wanted)),
            name,
            config=state.config_of(partition.topic),
            epochs=state.partitions[partition].epochs,
            clock=self._clock,
            fs=self.fs,
            scratch=f"{self.scratch}/{name}",
        )
        return _Unfinished(builder.uploads, _built(builder, wanted), [])

    def _drop(self, running: "_Running") -> None:
        """Give up the partition that has been begun, if any: nothing of it is left."""
        if running.at is not None:
            running.at.steps.close()
            running.at.uploads.remove()

    def close(self) -> None:
        """Give up what is paused.

        Raises:
            StorageError: A request failed; the build is given up by and by.
        """
        running, self._running = self._running, None
        if running is not None:
            self._drop(running)
            if running.is_clean:
                self.end(running.name)

    def swap_in(self, wanted: Replacement, swap: Swap, uploads: SegmentUploads) -> bool:
        """Put uploaded segments in place; remove them if the partition has changed meanwhile.

        Raises:
            StorageError: The journal cannot be read or written. The objects stay: the swap may
                have been made; if not, the build is given up by and by.
        """

        def decide(state: RootState) -> tuple[Sequence[Action], bool]:
            build = state.builds.get(swap.build)
            is_good = build is not None and not build.is_abandoned and wanted.holds(state)
            return ([swap] if is_good else []), is_good

        is_in = self._journal.change(decide)
        if not is_in:
            _logger.info("%s has changed: the new segments are not used", wanted.topic_partition)
            uploads.remove()
        return is_in

    def end(self, name: str) -> None:
        """Forget a build of which nothing is left that the journal does not name."""
        self._journal.change(
            lambda state: ([EndBuilds(builds=(name,))] if name in state.builds else [], None)
        )


def _built(
    builder: SegmentBuilder, wanted: Replacement
) -> Generator[BucketSegment | None, None, None]:
    """Build segments step by step; remove what was uploaded if that fails."""
    try:
        yield from builder.build(wanted.first_offset, wanted.end_offset)
    except StreamLogError:
        with contextlib.suppress(StreamLogError):  # the build is given up by and by
            builder.uploads.remove()
        raise


def _only(at: BucketPartition, wanted: Replacement) -> BucketPartition:
    """Return a partition as a reader sees it that reads a replacement's stretches whole."""
    return BucketPartition(
        log_start_offset=wanted.first_offset,
        end_offset=wanted.end_offset,
        epochs=at.epochs,
        stretches=wanted.stretches,
    )
