"""The state of a root in an object store: what all entries of its journal add up to.

`RootState.after` is the only place that knows what an action does. It is pure, so every process
that reads the same entries has the same state, and a snapshot can be checked against a replay.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from streamlog.bucket.actions import (
    NO_TRANSACTIONS,
    AbandonBuilds,
    Action,
    AlterTopic,
    BeginBuild,
    BeginCopy,
    BucketSegment,
    Collected,
    Commit,
    CommitPart,
    CreateRoot,
    CreateTopic,
    DeleteTopic,
    EndBuilds,
    EndCopy,
    PlaceSegments,
    SetJournalStart,
    SetLogStart,
    SetStagedHorizon,
    Swap,
)
from streamlog.bucket.keys import staged_ms
from streamlog.bucket.versions import Counts, Items
from streamlog.commits.decisions import PartitionStanding
from streamlog.commits.history import (
    KEPT_FINGERPRINTS,
    CommittedRange,
    Ledger,
    LedgerEntry,
)
from streamlog.config.log_config import LogConfig
from streamlog.config.server_config import ServerConfig
from streamlog.errors import CorruptCheckpointError
from streamlog.topic import TopicPartition

__all__ = [
    "SNAPSHOT_EVERY",
    "ArrivingTopic",
    "BucketPartition",
    "Build",
    "Garbage",
    "JournalMark",
    "RootState",
    "Stretch",
    "TopicState",
]

NO_EPOCH: Final = -1
SNAPSHOT_EVERY: Final = 16  # entries
JOURNAL_KEPT_MS: Final = 24 * 3600 * 1000  # a process that was silent for less reads on from there
_MARK_EVERY_MS: Final = JOURNAL_KEPT_MS // 24


class Stretch(NamedTuple):
    """Consecutive records of a partition in one object.

    Attributes:
        key: The object.
        position: Position of the first batch, in bytes.
        size: Size in bytes.
        base_offset: Offset of the first record, or of the segment's name.
        end_offset: The offset after the last one.
        max_timestamp: The largest timestamp in ms, -1 if there is none.
        leader_epoch: The epoch that readers write into staged batches; -1 for a segment, whose
            batches have their epochs and offsets.
        first_timestamp: The largest timestamp of a segment's first batch in ms, -1 if unknown.
        is_sealed: Whether this is a segment that the topic's settings ended.
        points: Some offsets and positions of batches in a segment.
        transactions: See `BucketSegment.transactions`.
    """

    key: str
    position: int
    size: int
    base_offset: int
    end_offset: int
    max_timestamp: int
    leader_epoch: int = NO_EPOCH
    first_timestamp: int = -1
    is_sealed: bool = False
    points: tuple[tuple[int, int], ...] = ()
    transactions: int = NO_TRANSACTIONS

    @property
    def is_staged(self) -> bool:
        """Whether the batches lie as a task staged them, with offsets that count from 0."""
        return self.leader_epoch != NO_EPOCH


class TopicState(NamedTuple):
    """A topic: its id, number of partitions, and own settings."""

    topic_id: str
    partitions: int
    config: Mapping[str, str]

    @classmethod
    def after(cls, action: CreateTopic | AlterTopic | BeginCopy) -> "TopicState":
        """Return the topic as an action makes it."""
        return cls(action.topic_id, action.partitions, action.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPartition:
    """A partition.

    Attributes:
        log_start_offset: The first offset that readers see.
        end_offset: The offset of the next record.
        epochs: Leader epochs and their first offsets, oldest first.
        stretches: Where the records lie, without gaps in what they cover; oldest first.
        cleaned_offset: The first offset that compaction has not processed.
    """

    log_start_offset: int = 0
    end_offset: int = 0
    cleaned_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    stretches: Items[Stretch] | tuple[Stretch, ...] = ()

    @property
    def leader_epoch(self) -> int:
        """The last leader epoch, -1 if there is none."""
        return self.epochs[-1][0] if self.epochs else NO_EPOCH

    @property
    def tail(self) -> int:
        """The index of the first stretch after the sealed segments: the active segment's part."""
        index = len(self.stretches)
        while index and not self.stretches[index - 1].is_sealed:
            index -= 1
        return index

    def at(self, offset: int) -> int:
        """Return the index of the stretch that covers an offset, or of the next one."""
        return bisect_right(self.stretches, offset, key=lambda each: each.end_offset)

    def after_commit(self, part: CommitPart, files: Sequence[str], path: str) -> "BucketPartition":
        """Return the partition after a commit."""
        if part.base_offset != self.end_offset:
            raise _unfit(path, "base_offset", part.base_offset, self.end_offset)
        new: list[Stretch] = []
        offset = part.base_offset
        for extent in part.extents:
            end = offset + extent.records
            new.append(
                Stretch(
                    files[extent.file],
                    extent.position,
                    extent.size,
                    offset,
                    end,
                    extent.max_timestamp,
                    part.leader_epoch,
                )
            )
            offset = end
        epochs = self.epochs
        if self.leader_epoch < part.leader_epoch:
            epochs = (*epochs, (part.leader_epoch, part.base_offset))
        return replace(self, end_offset=offset, epochs=epochs, stretches=self._with(new))

    def _with(self, new: Iterable[Stretch]) -> Items[Stretch]:
        """Return the stretches with more of them at the end."""
        old = self.stretches
        return (old if isinstance(old, Items) else Items(old)).appended(new)

    def after_swap(self, swap: Swap, path: str) -> tuple["BucketPartition", list[str]]:
        """Return the partition after a swap, and the keys that it no longer needs."""
        first = self._boundary(swap.first_offset, path)
        stop = self._boundary(swap.end_offset, path)
        old = self.stretches[first:stop]
        new = [_stretch_of(segment) for segment in swap.segments]
        _check_order(new, swap.first_offset, swap.end_offset, path)
        stretches = Items((*self.stretches[:first], *new, *self.stretches[stop:]))
        cleaned = self.cleaned_offset if swap.cleaned_offset is None else swap.cleaned_offset
        after = replace(self, stretches=stretches, cleaned_offset=cleaned)
        return after, [stretch.key for stretch in old]

    def after_place(self, place: PlaceSegments, path: str) -> "BucketPartition":
        """Return the partition after segments were copied to its end."""
        is_unused = self.end_offset == 0 and not self.epochs
        if place.first_offset != self.end_offset and not is_unused:
            raise _unfit(path, "first_offset", place.first_offset, self.end_offset)
        if not self.log_start_offset <= place.log_start_offset <= place.end_offset:
            expected = (self.log_start_offset, place.end_offset)
            raise _unfit(path, "log_start_offset", place.log_start_offset, expected)
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in itertools.pairwise(place.epochs)):
            raise _unfit(path, "epochs", place.epochs, "ascending numbers and offsets")
        new = [_stretch_of(segment) for segment in place.segments]
        _check_order(new, place.first_offset, place.end_offset, path)
        return replace(
            self,
            log_start_offset=place.log_start_offset,
            end_offset=place.end_offset,
            epochs=place.epochs,
            stretches=self._with(new),
        )

    def after_start(self, offset: int, path: str) -> tuple["BucketPartition", list[str]]:
        """Return the partition with a raised start, and the keys that it no longer needs."""
        if not self.log_start_offset <= offset <= self.end_offset:
            raise _unfit(path, "offset", offset, (self.log_start_offset, self.end_offset))
        first = self.at(offset)
        gone = [stretch.key for stretch in self.stretches[:first]]
        kept = Items(self.stretches[first:]) if gone else self.stretches
        return replace(self, log_start_offset=offset, stretches=kept), gone

    def _boundary(self, offset: int, path: str) -> int:
        """Return the index of the first stretch from `offset` on; no stretch may lie across it."""
        index = self.at(offset)
        if index < len(self.stretches) and self.stretches[index].base_offset < offset:
            raise _unfit(path, "offset", offset, "a boundary between stretches")
        return index


def _check_order(stretches: Iterable[Stretch], first: int, end: int, path: str) -> None:
    """Refuse stretches that overlap or reach beyond two offsets."""
    edge = first
    for stretch in stretches:
        if stretch.base_offset < edge or stretch.end_offset > end:
            raise _unfit(path, "segments", stretch[3:5], (edge, end))
        edge = stretch.end_offset


class ArrivingTopic(NamedTuple):
    """A topic that is being copied here; only the copy knows it.

    Attributes:
        topic: What the topic will be.
        partitions: What its partitions hold by now, by number.
    """

    topic: TopicState
    partitions: tuple[BucketPartition, ...]


class Garbage(NamedTuple):
    """An object that the log no longer needs.

    Attributes:
        key: The object; `keys.files_of` names those that go with it.
        since_ms: When the entry was made that let go of it, in ms since 1970.
        number: The number of that entry: readers of earlier states may need the object.
        topic: The topic of the records.
    """

    key: str
    since_ms: int
    number: int
    topic: str


class Build(NamedTuple):
    """Segments that some process uploads, or has left behind.

    Attributes:
        begun_ms: When it was announced, in ms since 1970.
        partitions: Their partitions.
        is_abandoned: Whether its swaps are refused.
    """

    begun_ms: int
    partitions: tuple[TopicPartition, ...]
    is_abandoned: bool = False


class JournalMark(NamedTuple):
    """An entry with a snapshot, and when it was made, in ms since 1970."""

    number: int
    made_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RootState:
    """A root after one of its entries.

    Attributes:
        number: The number of the entry, 0 before the first one.
        root_id: The id of the root.
        config: The settings of its server.
        topics: The topics by name.
        partitions: The partitions of all topics.
        arriving: Topics that are being copied here, by name.
        apps: What the apps have committed.
        uses: How many stretches lie in each object.
        garbage: Objects that wait for their deletion.
        builds: Builds that have begun and not ended, by name.
        staged_horizon_ms: Objects staged before this time are not committed any more.
        journal_start: Entries before this number may be missing.
        marks: Some entries with a snapshot of the last day, and one before; oldest first.
    """

    number: int = 0
    root_id: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, BucketPartition] = field(default_factory=dict)
    arriving: Mapping[str, ArrivingTopic] = field(default_factory=dict)
    apps: Mapping[str, Ledger] = field(default_factory=dict)
    uses: Counts = field(default_factory=Counts)
    garbage: tuple[Garbage, ...] = ()
    builds: Mapping[str, Build] = field(default_factory=dict)
    staged_horizon_ms: int = 0
    journal_start: int = 1
    marks: tuple[JournalMark, ...] = ()

    def config_of(self, topic: str) -> LogConfig:
        """Return the settings of a topic: its own override the root's, these Kafka's defaults.

        Raises:
            InvalidConfigError: The root has a setting that this version does not know.
        """
        server = ServerConfig.from_properties(self.config)
        return server.log_config(self.topics[topic].config)

    def after(self, actions: Iterable[Action], made_ms: int, path: str) -> "RootState":
        """Return the state after the next entry.

        Args:
            actions: What the entry does.
            made_ms: When it was made, in ms since 1970.
            path: The entry's URL, for errors.

        Raises:
            CorruptCheckpointError: An action does not fit this state.
        """
        change = _Change(self, made_ms, path)
        for action in actions:
            change.apply(action)
        return change.done()


class _Change:
    """A state while the actions of one entry are applied to it."""

    def __init__(self, state: RootState, made_ms: int, path: str) -> None:
        self._state, self._made_ms, self._path = state, made_ms, path
        self._root_id, self._config = state.root_id, state.config
        self._topics, self._partitions = dict(state.topics), dict(state.partitions)
        self._arriving = dict(state.arriving)
        self._apps, self._builds = dict(state.apps), dict(state.builds)
        self._counted: dict[str, int] = {}  # of `uses`, where it changes
        self._garbage = state.garbage
        self._horizon_ms, self._journal_start = state.staged_horizon_ms, state.journal_start
        self._number = state.number + 1

    def done(self) -> RootState:
        """Return the state after the entry."""
        return RootState(
            number=self._number,
            root_id=self._root_id,
            config=self._config,
            topics=self._topics,
            partitions=self._partitions,
            arriving=self._arriving,
            apps=self._apps,
            uses=self._state.uses.changed(self._counted),
            garbage=self._garbage,
            builds=self._builds,
            staged_horizon_ms=self._horizon_ms,
            journal_start=self._journal_start,
            marks=_marked(self._state.marks, self._number, self._made_ms),
        )

    def apply(self, action: Action) -> None:
        """Apply one action."""
        if isinstance(action, CreateRoot) != (self._root_id == ""):
            raise _unfit(self._path, "do", type(action).__name__, "CreateRoot first, and only once")
        match action:
            case CreateRoot():
                self._root_id, self._config = action.root_id, action.config
            case CreateTopic():
                self._create(action)
            case AlterTopic():
                self._alter(action)
            case DeleteTopic():
                self._delete(action)
            case Commit():
                self._commit(action)
            case Swap():
                self._swap(action)
            case BeginCopy():
                self._begin_copy(action)
            case PlaceSegments():
                self._place(action)
            case EndCopy():
                self._end_copy(action)
            case SetLogStart():
                at = self._partition(action.topic_partition, action.topic_id)
                state, gone = at.after_start(action.offset, self._path)
                self._partitions[action.topic_partition] = state
                self._drop(gone, action.topic_partition.topic)
            case _:
                self._keep_up(action)

    def _keep_up(
        self,
        action: (
            BeginBuild | AbandonBuilds | EndBuilds | SetStagedHorizon | SetJournalStart | Collected
        ),
    ) -> None:
        """Apply an action that changes no partition."""
        match action:
            case BeginBuild():
                if action.build in self._builds:
                    raise _unfit(self._path, "build", action.build, "a name that is free")
                self._builds[action.build] = Build(self._made_ms, action.partitions)
            case AbandonBuilds():
                for name in action.builds:
                    if name in self._builds:
                        self._builds[name] = self._builds[name]._replace(is_abandoned=True)
            case EndBuilds():
                for name in action.builds:
                    self._builds.pop(name, None)
            case SetStagedHorizon():
                self._horizon_ms = max(self._horizon_ms, action.staged_ms)
            case SetJournalStart():
                if action.number >= self._number:
                    raise _unfit(self._path, "number", action.number, "an entry before this one")
                self._journal_start = max(self._journal_start, action.number)
            case Collected():
                keys = set(action.keys)
                self._garbage = tuple(each for each in self._garbage if each.key not in keys)

    def _create(self, action: CreateTopic) -> None:
        self._check_free(action.topic)
        self._topics[action.topic] = TopicState.after(action)
        for number in range(action.partitions):
            self._partitions[TopicPartition(action.topic, number)] = BucketPartition()

    def _check_free(self, topic: str) -> None:
        if topic in self._topics or topic in self._arriving:
            raise _unfit(self._path, "topic", topic, "a name that is free")

    def _begin_copy(self, action: BeginCopy) -> None:
        self._check_free(action.topic)
        self._arriving[action.topic] = ArrivingTopic(
            TopicState.after(action),
            (BucketPartition(),) * action.partitions,
        )

    def _end_copy(self, action: EndCopy) -> None:
        found = self._arriving.pop(action.topic, None)
        if found is None or found.topic.topic_id != action.topic_id:
            raise _unfit(self._path, "topic", action.topic, "a topic that is being copied")
        self._topics[action.topic] = found.topic
        for number, partition in enumerate(found.partitions):
            self._partitions[TopicPartition(action.topic, number)] = partition

    def _place(self, action: PlaceSegments) -> None:
        self._check_build(action.build, action.topic_partition)
        topic, number = action.topic_partition
        found = self._arriving.get(topic)
        if found is None or found.topic.topic_id != action.topic_id:
            at = self._partition(action.topic_partition, action.topic_id)
            self._partitions[action.topic_partition] = at.after_place(action, self._path)
        elif number >= found.topic.partitions:
            raise _unfit(self._path, "partition", number, f"below {found.topic.partitions}")
        else:
            partitions = list(found.partitions)
            partitions[number] = partitions[number].after_place(action, self._path)
            self._arriving[topic] = found._replace(partitions=tuple(partitions))
        for segment in action.segments:
            self._count(segment.key, 1)

    def _count(self, key: str, more: int) -> int:
        """Count a stretch into its object, or out of it; return how many lie in it then."""
        self._counted[key] = self._uses(key) + more
        return self._counted[key]

    def _uses(self, key: str) -> int:
        """Return how many stretches lie in an object."""
        counted = self._counted.get(key)
        return self._state.uses.get(key, 0) if counted is None else counted

    def _check_build(self, name: str, partition: TopicPartition) -> None:
        build = self._builds.get(name)
        if build is None or build.is_abandoned or partition not in build.partitions:
            raise _unfit(self._path, "build", name, "one of the partition that has begun")

    def _alter(self, action: AlterTopic) -> None:
        old = self._topic(action.topic, action.topic_id)
        if action.partitions < old.partitions:
            raise _unfit(self._path, "partitions", action.partitions, old.partitions)
        self._topics[action.topic] = TopicState.after(action)
        for number in range(old.partitions, action.partitions):
            self._partitions[TopicPartition(action.topic, number)] = BucketPartition()

    def _delete(self, action: DeleteTopic) -> None:
        arriving = self._arriving.get(action.topic)
        if arriving is not None and arriving.topic.topic_id == action.topic_id:
            del self._arriving[action.topic]
            for each in arriving.partitions:
                self._drop([stretch.key for stretch in each.stretches], action.topic)
            return
        old = self._topic(action.topic, action.topic_id)
        del self._topics[action.topic]
        for number in range(old.partitions):
            gone = self._partitions.pop(TopicPartition(action.topic, number))
            self._drop([stretch.key for stretch in gone.stretches], action.topic)

    def _commit(self, action: Commit) -> None:
        self._check_staged(action.files)
        steps = []
        for part in action.parts:
            at = self._partition(part.topic_partition, part.topic_id)
            self._partitions[part.topic_partition] = at.after_commit(part, action.files, self._path)
            for extent in part.extents:
                self._count(action.files[extent.file], 1)
            steps.append(
                (
                    part.topic_partition,
                    PartitionStanding(part.topic_id, 0, part.end_offset, 0),
                )
            )
        if action.identity.is_anonymous:
            return
        app = action.identity.app
        ledger = self._apps.get(app) or Ledger.empty(app)
        entry = LedgerEntry(action.identity.version, action.revision, action.fingerprint)
        standing = ledger.standing.after(action.identity.version, steps, action.made_ms)
        self._apps[app] = Ledger(
            app=app,
            entries=(*ledger.entries, entry)[-KEPT_FINGERPRINTS:],
            last_parts=tuple(
                CommittedRange(part.topic_partition, part.base_offset, part.end_offset - 1)
                for part in action.parts
            ),
            standing=replace(standing, unretired=0, unretired_since_ms=0),
        )

    def _check_staged(self, files: Sequence[str]) -> None:
        """Refuse objects that may be deleted already, or soon."""
        garbage = {each.key for each in self._garbage}
        for key in files:
            time_ms = staged_ms(key)
            if time_ms is None or time_ms < self._horizon_ms:
                expected = f"an object staged at {self._horizon_ms} or later"
                raise _unfit(self._path, "files", key, expected)
            if self._uses(key) or key in garbage:
                raise _unfit(self._path, "files", key, "an object that is not committed yet")

    def _swap(self, action: Swap) -> None:
        self._check_build(action.build, action.topic_partition)
        at = self._partition(action.topic_partition, action.topic_id)
        state, gone = at.after_swap(action, self._path)
        self._partitions[action.topic_partition] = state
        for segment in action.segments:
            self._count(segment.key, 1)
        self._drop(gone, action.topic_partition.topic)

    def _drop(self, keys: Iterable[str], topic: str) -> None:
        """Count stretches out of their objects; an object without any is garbage."""
        unused = [key for key in keys if self._count(key, -1) == 0]
        new = (Garbage(key, self._made_ms, self._number, topic) for key in unused)
        self._garbage = (*self._garbage, *new)

    def _topic(self, topic: str, topic_id: str) -> TopicState:
        found = self._topics.get(topic)
        if found is None or found.topic_id != topic_id:
            raise _unfit(self._path, "topic", f"{topic} ({topic_id})", "a topic of this root")
        return found

    def _partition(self, partition: TopicPartition, topic_id: str) -> BucketPartition:
        self._topic(partition.topic, topic_id)
        found = self._partitions.get(partition)
        if found is None:
            raise _unfit(self._path, "partition", partition, "a partition of this root")
        return found


def _stretch_of(segment: BucketSegment) -> Stretch:
    return Stretch(
        segment.key,
        0,
        segment.size,
        segment.base_offset,
        segment.end_offset,
        segment.max_timestamp,
        first_timestamp=segment.first_timestamp,
        is_sealed=segment.is_sealed,
        points=segment.points,
        transactions=segment.transactions,
    )


def _marked(marks: tuple[JournalMark, ...], number: int, made_ms: int) -> tuple[JournalMark, ...]:
    """Return the marks after an entry: few, and none that a later one replaces."""
    if number % SNAPSHOT_EVERY == 0 and (not marks or made_ms - marks[-1][1] >= _MARK_EVERY_MS):
        marks = (*marks, JournalMark(number, made_ms))
    while len(marks) > 1 and marks[1].made_ms <= made_ms - JOURNAL_KEPT_MS:
        marks = marks[1:]
    return marks


def _unfit(path: str, name: str, got: object, expected: object) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"entry of the journal does not follow the one before it: {name}",
        path=path,
        got=str(got),
        expected=str(expected),
    )
