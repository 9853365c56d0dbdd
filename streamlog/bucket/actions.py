"""What an entry of the journal does to the root: a list of actions, all or none of them.

    create_root      root_id, config
    create_topic     topic, topic_id, partitions, config
    alter_topic      topic, topic_id, partitions, config
    delete_topic     topic, topic_id
    commit           app, version, anonymous, revision, made_ms, fingerprint, files [key …],
                     parts [{topic, partition, topic_id, base_offset, leader_epoch,
                             extents [[file, position, size, batches, records, max_timestamp]]}]
    begin_build      build, partitions [{topic, partition}]
    swap             topic, partition, topic_id, build, first_offset, end_offset, cleaned_offset,
                     segments [{key, size, base_offset, end_offset, first_timestamp,
                                max_timestamp, is_sealed, transactions,
                                points [[offset, position]]}]
    begin_copy       topic, topic_id, partitions, config
    place            topic, partition, topic_id, build, first_offset, end_offset,
                     log_start_offset, epochs [[epoch, offset]], segments as in a swap
    end_copy         topic, topic_id
    abandon_builds   builds
    end_builds       builds
    log_start        topic, partition, topic_id, offset
    staged_horizon   staged_ms
    journal_start    number
    collected        keys of objects that were deleted

Timestamps may be -1 (none); everything else is at least 0. `extents` stores a timestamp plus one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from streamlog.binary.sealed import SealedValues
from streamlog.commits.decisions import (
    format_fingerprint,
    parse_fingerprint,
    parse_topic_partition,
)
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.identity import CommitIdentity
from streamlog.partition.partition_metadata import parse_topic_id
from streamlog.records.layout import MAX_INT32
from streamlog.topic import TopicPartition

__all__ = [
    "Action",
    "AbandonBuilds",
    "AlterTopic",
    "BeginBuild",
    "BeginCopy",
    "BucketExtent",
    "BucketSegment",
    "Collected",
    "Commit",
    "CommitPart",
    "CreateRoot",
    "CreateTopic",
    "DeleteTopic",
    "EndBuilds",
    "EndCopy",
    "PlaceSegments",
    "SetJournalStart",
    "SetLogStart",
    "SetStagedHorizon",
    "Swap",
    "format_action",
    "parse_action",
]

NO_TRANSACTIONS: Final = -1  # see `BucketSegment.transactions`


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRoot:
    """Begin the root: its id, and the settings of its server."""

    root_id: str
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Create a topic with empty partitions."""

    topic: str
    topic_id: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopic:
    """Replace a topic's settings, and add partitions."""

    topic: str
    topic_id: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Delete a topic with all records."""

    topic: str
    topic_id: str


class BucketExtent(NamedTuple):
    """Whole batches of one partition in a staged object; `file` is an index into the commit's."""

    file: int
    position: int
    size: int
    batches: int
    records: int
    max_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPart:
    """The effect of a commit on one partition.

    Attributes:
        topic_partition: The partition.
        topic_id: The id of its topic.
        base_offset: Offset of the first record.
        leader_epoch: Leader epoch of all batches.
        extents: The staged batches, in order; their own offsets count from 0.
    """

    topic_partition: TopicPartition
    topic_id: str
    base_offset: int
    leader_epoch: int
    extents: tuple[BucketExtent, ...]

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(extent.records for extent in self.extents)

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.records


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Make staged batches part of the log.

    Attributes:
        identity: The commit's identity.
        revision: 0, or higher if a mismatch was appended (`onReplayMismatch=append`).
        made_ms: When it was decided, in ms since 1970.
        fingerprint: The commit's input.
        files: The keys of the staged objects.
        parts: Its effect on each partition, sorted by partition.
    """

    identity: CommitIdentity
    revision: int
    made_ms: int
    fingerprint: Fingerprint
    files: tuple[str, ...]
    parts: tuple[CommitPart, ...]


class BucketSegment(NamedTuple):
    """A segment in Kafka's format.

    Attributes:
        key: The key of its `.log`; its indexes have the same name with other suffixes.
        size: Size in bytes.
        base_offset: Offset of its name.
        end_offset: The offset after the last one that it covers.
        first_timestamp: The largest timestamp of its first batch in ms, -1 if there is none.
        max_timestamp: The largest timestamp in ms; the time of the build if no record has one.
        is_sealed: Whether the topic's settings ended it; if not, it is built again with what
            follows.
        points: Some offsets and positions of batches, so that a reader can start inside.
        transactions: How many aborted transactions its `.txnindex` lists; -1 if no batch of it
            belongs to a transaction.
    """

    key: str
    size: int
    base_offset: int
    end_offset: int
    first_timestamp: int
    max_timestamp: int
    is_sealed: bool
    points: tuple[tuple[int, int], ...]
    transactions: int = NO_TRANSACTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginBuild:
    """Announce that segments of some partitions will be uploaded under a name.

    If the process dies, its objects are found by this name. While the announcement is young, other
    processes leave the partitions alone.
    """

    build: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Replace a partition's extents and segments from `first_offset` to `end_offset`.

    Attributes:
        topic_partition: The partition.
        topic_id: The id of its topic.
        build: The build of the segments, which must have begun and not be abandoned.
        first_offset: The first offset that is replaced; nothing may lie across it.
        end_offset: The offset after the last one.
        cleaned_offset: Where the next compaction begins; None if this is no compaction.
        segments: The new segments, in order.
    """

    topic_partition: TopicPartition
    topic_id: str
    build: str
    first_offset: int
    end_offset: int
    cleaned_offset: int | None
    segments: tuple[BucketSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginCopy:
    """Begin a topic that is copied from elsewhere; it is invisible before `EndCopy`."""

    topic: str
    topic_id: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSegments:
    """Append segments that have their offsets and epochs already.

    Attributes:
        topic_partition: The partition, of a topic that is there or being copied.
        topic_id: The id of its topic.
        build: The build of the segments, which must have begun and not be abandoned.
        first_offset: The end of the partition; of an empty one that never held a record, any
            offset.
        end_offset: The end of the partition afterwards.
        log_start_offset: Its log start afterwards; not lower than before.
        epochs: All its leader epochs and their first offsets afterwards, oldest first.
        segments: The new segments, in order; between them there may be gaps.
    """

    topic_partition: TopicPartition
    topic_id: str
    build: str
    first_offset: int
    end_offset: int
    log_start_offset: int
    epochs: tuple[tuple[int, int], ...]
    segments: tuple[BucketSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCopy:
    """Make a topic that was copied a topic like any other, with all its partitions at once."""

    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonBuilds:
    """Refuse the swaps of some builds from now on, so that their objects can be deleted."""

    builds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndBuilds:
    """Forget builds: what they uploaded is swapped in or deleted."""

    builds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLogStart:
    """Raise a partition's log start offset."""

    topic_partition: TopicPartition
    topic_id: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStagedHorizon:
    """Refuse commits of objects staged before a time, so that those can be deleted."""

    staged_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetJournalStart:
    """Declare the entries before a number unneeded, so that they can be deleted."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Forget objects that were unused, and are deleted now."""

    keys: tuple[str, ...]


Action = (
    CreateRoot
    | CreateTopic
    | AlterTopic
    | DeleteTopic
    | Commit
    | BeginBuild
    | Swap
    | BeginCopy
    | PlaceSegments
    | EndCopy
    | AbandonBuilds
    | EndBuilds
    | SetLogStart
    | SetStagedHorizon
    | SetJournalStart
    | Collected
)


# ---- to JSON --------------------------------------------------------------------------------
_TOPIC_KINDS: Final = {
    CreateTopic: "create_topic",
    AlterTopic: "alter_topic",
    BeginCopy: "begin_copy",
}


def format_action(action: Action) -> dict[str, object]:
    """Return an action as a JSON object."""
    match action:
        case CreateRoot():
            return {"do": "create_root", "root_id": action.root_id, "config": dict(action.config)}
        case CreateTopic() | AlterTopic() | BeginCopy():
            return {
                "do": _TOPIC_KINDS[type(action)],
                "topic": action.topic,
                "topic_id": action.topic_id,
                "partitions": action.partitions,
                "config": dict(action.config),
            }
        case DeleteTopic() | EndCopy():
            kind = "delete_topic" if isinstance(action, DeleteTopic) else "end_copy"
            return {"do": kind, "topic": action.topic, "topic_id": action.topic_id}
        case Commit():
            return _format_commit(action)
        case Swap():
            return _format_swap(action)
        case PlaceSegments():
            return _format_place(action)
        case SetLogStart():
            place = _place(action.topic_partition, action.topic_id)
            return {"do": "log_start", **place, "offset": action.offset}
        case _:
            return _format_upkeep(action)


def _format_upkeep(
    action: BeginBuild | AbandonBuilds | EndBuilds | SetStagedHorizon | SetJournalStart | Collected,
) -> dict[str, object]:
    match action:
        case BeginBuild():
            partitions = [
                {"topic": each.topic, "partition": each.partition} for each in action.partitions
            ]
            return {"do": "begin_build", "build": action.build, "partitions": partitions}
        case AbandonBuilds():
            return {"do": "abandon_builds", "builds": action.builds}
        case EndBuilds():
            return {"do": "end_builds", "builds": action.builds}
        case SetStagedHorizon():
            return {"do": "staged_horizon", "staged_ms": action.staged_ms}
        case SetJournalStart():
            return {"do": "journal_start", "number": action.number}
        case Collected():
            return {"do": "collected", "keys": action.keys}


def _format_swap(swap: Swap) -> dict[str, object]:
    return {
        "do": "swap",
        **_format_built(swap),
        "cleaned_offset": swap.cleaned_offset,
    }


def _format_place(place: PlaceSegments) -> dict[str, object]:
    return {
        "do": "place",
        **_format_built(place),
        "log_start_offset": place.log_start_offset,
        "epochs": place.epochs,
    }


def _format_built(action: Swap | PlaceSegments) -> dict[str, object]:
    """Return the fields of an action that brings the segments of a build into a partition."""
    return {
        **_place(action.topic_partition, action.topic_id),
        "build": action.build,
        "first_offset": action.first_offset,
        "end_offset": action.end_offset,
        "segments": [format_segment(segment) for segment in action.segments],
    }


def format_segment(segment: BucketSegment) -> dict[str, object]:
    """Return a segment as a JSON object."""
    return segment._asdict()


def _format_commit(commit: Commit) -> dict[str, object]:
    return {
        "do": "commit",
        "app": commit.identity.app,
        "version": commit.identity.version,
        "anonymous": commit.identity.is_anonymous,
        "revision": commit.revision,
        "made_ms": commit.made_ms,
        "fingerprint": format_fingerprint(commit.fingerprint),
        "files": commit.files,
        "parts": [
            {
                **_place(part.topic_partition, part.topic_id),
                "base_offset": part.base_offset,
                "leader_epoch": part.leader_epoch,
                "extents": [(*extent[:5], extent.max_timestamp + 1) for extent in part.extents],
            }
            for part in commit.parts
        ],
    }


def _place(partition: TopicPartition, topic_id: str) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "topic_id": topic_id,
    }


# ---- from JSON ------------------------------------------------------------------------------
def parse_action(values: SealedValues) -> Action:
    """Return the action in a JSON object.

    Raises:
        CorruptCheckpointError: A value is invalid, or a later version of streamlog wrote it.
    """
    kind = values.text("do")
    parse = _PARSERS.get(kind)
    if parse is None:
        raise values.malformed("do", kind, f"one of {', '.join(_PARSERS)}")
    return parse(values)


def parse_segment(values: SealedValues) -> BucketSegment:
    """Return the segment in a JSON object."""
    return BucketSegment(
        key=values.text("key"),
        size=values.integer("size"),
        base_offset=values.integer("base_offset"),
        end_offset=values.integer("end_offset"),
        first_timestamp=values.integer("first_timestamp", -1),
        max_timestamp=values.integer("max_timestamp", -1),
        is_sealed=values.flag("is_sealed"),
        points=parse_pairs(values, "points"),
        transactions=parse_transactions(values),
    )


def parse_transactions(values: SealedValues) -> int:
    """Return `BucketSegment.transactions`; earlier versions wrote none, and had none."""
    name = "transactions"
    return NO_TRANSACTIONS if values.is_null(name) else values.integer(name, NO_TRANSACTIONS)


def parse_pairs(values: SealedValues, name: str) -> tuple[tuple[int, int], ...]:
    """Return pairs of integers."""
    return tuple((row[0], row[1]) for row in values.integers(name, 2))


def parse_config(values: SealedValues) -> dict[str, str]:
    """Return the settings in a JSON object."""
    return values.texts("config")


def _parse_root(values: SealedValues) -> CreateRoot:
    return CreateRoot(root_id=values.text("root_id"), config=parse_config(values))


def _parse_topic(values: SealedValues) -> dict[str, Any]:
    return {
        "topic": values.text("topic"),
        "topic_id": _parse_id(values),
        "partitions": values.integer("partitions", 1, MAX_INT32),
        "config": parse_config(values),
    }


def _parse_commit(values: SealedValues) -> Commit:
    files = tuple(values.text_list("files"))
    identity = CommitIdentity(
        values.text("app"), values.integer("version"), values.flag("anonymous")
    )
    return Commit(
        identity=identity,
        revision=values.integer("revision"),
        made_ms=values.integer("made_ms"),
        fingerprint=parse_fingerprint(values.nested("fingerprint")),
        files=files,
        parts=tuple(_parse_part(value, files) for value in values.objects("parts")),
    )


def _parse_part(values: SealedValues, files: tuple[str, ...]) -> CommitPart:
    extents = tuple(
        BucketExtent(row[0], row[1], row[2], row[3], row[4], row[5] - 1)
        for row in values.integers("extents", 6)
    )
    for extent in extents:
        if extent.file >= len(files) or extent.records == 0 or extent.size == 0:
            raise values.malformed("extents", tuple(extent), "bytes in an object of this commit")
    if not extents:
        raise values.malformed("extents", [], "at least one")
    return CommitPart(
        topic_partition=parse_topic_partition(values),
        topic_id=_parse_id(values),
        base_offset=values.integer("base_offset"),
        leader_epoch=values.integer("leader_epoch", 0, MAX_INT32),
        extents=extents,
    )


def _parse_swap(values: SealedValues) -> Swap:
    return Swap(
        **_parse_built(values),
        cleaned_offset=(
            None if values.is_null("cleaned_offset") else values.integer("cleaned_offset")
        ),
    )


def _parse_place(values: SealedValues) -> PlaceSegments:
    return PlaceSegments(
        **_parse_built(values),
        log_start_offset=values.integer("log_start_offset"),
        epochs=parse_pairs(values, "epochs"),
    )


def _parse_built(values: SealedValues) -> dict[str, Any]:
    return {
        "topic_partition": parse_topic_partition(values),
        "topic_id": _parse_id(values),
        "build": values.text("build"),
        "first_offset": values.integer("first_offset"),
        "end_offset": values.integer("end_offset"),
        "segments": tuple(parse_segment(value) for value in values.objects("segments")),
    }


def _parse_log_start(values: SealedValues) -> SetLogStart:
    return SetLogStart(
        topic_partition=parse_topic_partition(values),
        topic_id=_parse_id(values),
        offset=values.integer("offset"),
    )


def _parse_id(values: SealedValues) -> str:
    return parse_topic_id(values.text("topic_id"), path=values.path)


_PARSERS: Final[Mapping[str, Callable[[SealedValues], Action]]] = {
    "create_root": _parse_root,
    "create_topic": lambda values: CreateTopic(**_parse_topic(values)),
    "alter_topic": lambda values: AlterTopic(**_parse_topic(values)),
    "delete_topic": lambda values: DeleteTopic(
        topic=values.text("topic"), topic_id=_parse_id(values)
    ),
    "commit": _parse_commit,
    "begin_build": lambda values: BeginBuild(
        build=values.text("build"),
        partitions=tuple(parse_topic_partition(each) for each in values.objects("partitions")),
    ),
    "swap": _parse_swap,
    "begin_copy": lambda values: BeginCopy(**_parse_topic(values)),
    "place": _parse_place,
    "end_copy": lambda values: EndCopy(topic=values.text("topic"), topic_id=_parse_id(values)),
    "abandon_builds": lambda values: AbandonBuilds(builds=tuple(values.text_list("builds"))),
    "end_builds": lambda values: EndBuilds(builds=tuple(values.text_list("builds"))),
    "log_start": _parse_log_start,
    "staged_horizon": lambda values: SetStagedHorizon(staged_ms=values.integer("staged_ms")),
    "journal_start": lambda values: SetJournalStart(number=values.integer("number", 1)),
    "collected": lambda values: Collected(keys=tuple(values.text_list("keys"))),
}
