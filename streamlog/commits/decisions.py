"""Decisions: the files that make staged batches part of the log.

A decision contains everything needed to apply it: which extents of which staged files go where,
with which epoch, sequence and timestamp. Any process that takes a partition's lock can therefore
apply it, and every process writes the same bytes. A decision is a sealed file (see `sealed`) named
`<app>@<number>` in `.streamlog/commits/pending`, created with `link()`. The commit point is the
moment its name becomes durable. Retirement removes it.

    app, version, anonymous, revision, decided_ms
    fingerprint   {source, naming, files, query_id, rows, row_checksum}; all but rows may be null
    files         [{name, size}]                     in `.streamlog/staging/<app>/`
    parts         [{topic, partition, topic_id, base_offset, last_offset, leader_epoch,
                    base_sequence, last_sequence, append_time (null: records keep theirs),
                    extents [[file, position, size, batches, records]]}]
    standing      {number, last_version, unretired, unretired_since_ms, partitions
                    [{topic, partition, topic_id, next_sequence, end_offset, unretired_size}]}

The standing is the app's state after the decision. Each decision and the ledger carry it, so a
commit reads one file however long the app's history is.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamlog.binary.sealed import SealedValues, seal, unseal
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.identity import CommitIdentity, app_key, check_identity
from streamlog.commits.staging import is_staged_name
from streamlog.errors import InvalidRequestError
from streamlog.partition.partition_metadata import parse_topic_id
from streamlog.query.checkpoint import Naming
from streamlog.records.layout import MAX_INT32
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = [
    "DecidedExtent",
    "DecidedFile",
    "DecidedPart",
    "Decision",
    "PartitionStanding",
    "Standing",
    "format_decision",
    "format_fingerprint",
    "format_standing",
    "parse_decision",
    "parse_fingerprint",
    "parse_standing",
    "parse_topic_partition",
]

NO_VERSION: Final = -1
_KIND: Final = "decision"


class PartitionStanding(NamedTuple):
    """An app's state in one partition.

    Attributes:
        topic_id: The id of the topic at that time.
        next_sequence: Sequence of the app's next record.
        end_offset: The offset after the last record that the app has decided.
        unretired_size: Bytes decided and not retired.
    """

    topic_id: str
    next_sequence: int
    end_offset: int
    unretired_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """An app's state after a commit: everything the next commit needs to know of the earlier ones.

    Attributes:
        number: Number of decisions so far.
        last_version: The highest version committed, -1 if none.
        unretired: Number of decisions that are not retired.
        unretired_since_ms: When the oldest unretired decision was made; meaningless if there is
            none.
        partitions: Every partition the app has written.
    """

    number: int = 0
    last_version: int = NO_VERSION
    unretired: int = 0
    unretired_since_ms: int = 0
    partitions: Mapping[TopicPartition, PartitionStanding] = field(default_factory=dict)

    def after(
        self,
        version: int,
        steps: Iterable[tuple[TopicPartition, PartitionStanding]],
        now_ms: int,
    ) -> "Standing":
        """Return the standing after one more decision.

        Args:
            version: The version it commits.
            steps: The standing in each of its partitions, with only its own size as unretired.
            now_ms: When it was made.
        """
        partitions = dict(self.partitions)
        for partition, step in steps:
            before = self.find(partition, step.topic_id)
            older_size = 0 if before is None else before.unretired_size
            partitions[partition] = step._replace(unretired_size=older_size + step.unretired_size)
        return Standing(
            number=self.number + 1,
            last_version=max(self.last_version, version),
            unretired=self.unretired + 1,
            unretired_since_ms=self.unretired_since_ms if self.unretired else now_ms,
            partitions=partitions,
        )

    def find(self, partition: TopicPartition, topic_id: str) -> PartitionStanding | None:
        """Return the standing in a partition, None if the app never wrote this topic id there."""
        at = self.partitions.get(partition)
        return at if at is not None and at.topic_id == topic_id else None

    def has_decided_up_to(self, partition: TopicPartition, topic_id: str, offset: int) -> bool:
        """Return whether the app's unretired decisions in a partition end at `offset`."""
        at = self.find(partition, topic_id)
        return at is not None and at.unretired_size > 0 and at.end_offset == offset


def format_standing(standing: Standing) -> dict[str, object]:
    """Return a standing as a JSON object."""
    return {
        "number": standing.number,
        "last_version": standing.last_version,
        "unretired": standing.unretired,
        "unretired_since_ms": standing.unretired_since_ms,
        "partitions": [
            {"topic": partition.topic, "partition": partition.partition, **at._asdict()}
            for partition, at in standing.partitions.items()
        ],
    }


def parse_standing(values: SealedValues) -> Standing:
    """Return the standing in a JSON object."""
    return Standing(
        number=values.integer("number", 1),
        last_version=values.integer("last_version"),
        unretired=values.integer("unretired"),
        unretired_since_ms=values.integer("unretired_since_ms"),
        partitions={
            parse_topic_partition(value): PartitionStanding(
                topic_id=parse_topic_id(value.text("topic_id"), path=value.path),
                next_sequence=value.integer("next_sequence", 0, MAX_INT32),
                end_offset=value.integer("end_offset"),
                unretired_size=value.integer("unretired_size"),
            )
            for value in values.objects("partitions")
        },
    )


def parse_topic_partition(values: SealedValues) -> TopicPartition:
    """Return the partition named by an object's `topic` and `partition`."""
    name = f"{values.text('topic')}-{values.integer('partition')}"
    found = parse_partition_directory(name)
    if found is None or str(found) != name:
        raise values.malformed("topic and partition", name, "a partition")
    return found


class DecidedFile(NamedTuple):
    """Name and size in bytes of a staged file."""

    name: str
    size: int


class DecidedExtent(NamedTuple):
    """Whole batches in a staged file; `file` is an index into the decision's files."""

    file: int
    position: int
    size: int
    batches: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedPart:
    """The effect of a decision on one partition.

    Attributes:
        topic_partition: The partition.
        topic_id: The id of its topic; the part does not apply to another topic of the same name.
        base_offset: Offset of the first record.
        last_offset: Offset of the last record.
        leader_epoch: Leader epoch of all batches.
        base_sequence: Sequence of the first record.
        append_time: Timestamp set on all records, in ms; None if records keep their own.
        extents: The staged batches, in order.
    """

    topic_partition: TopicPartition
    topic_id: str
    base_offset: int
    last_offset: int
    leader_epoch: int
    base_sequence: int
    append_time: int | None
    extents: tuple[DecidedExtent, ...]

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record."""
        return (self.base_sequence + self.last_offset - self.base_offset) & MAX_INT32

    @property
    def size(self) -> int:
        """Size of all batches in bytes."""
        return sum(extent.size for extent in self.extents)

    @property
    def step(self) -> PartitionStanding:
        """The app's standing in this partition after the part."""
        return PartitionStanding(
            topic_id=self.topic_id,
            next_sequence=(self.last_sequence + 1) & MAX_INT32,
            end_offset=self.last_offset + 1,
            unretired_size=self.size,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decided commit.

    Attributes:
        identity: The commit's identity.
        revision: 0, or higher if a mismatch was appended (`onReplayMismatch=append`).
        fingerprint: The commit's input.
        decided_ms: When it was decided, in ms since 1970.
        files: The staged files it takes.
        parts: Its effect on each partition, sorted by partition.
        standing: The app's standing after it.
    """

    identity: CommitIdentity
    revision: int
    fingerprint: Fingerprint
    decided_ms: int
    files: tuple[DecidedFile, ...]
    parts: tuple[DecidedPart, ...]
    standing: Standing

    @property
    def number(self) -> int:
        """The decision's number within its app, from 1."""
        return self.standing.number

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{app_key(self.identity.app)}@{self.number:020d}"


# ---- to bytes -------------------------------------------------------------------------------
def format_decision(decision: Decision) -> bytes:
    """Return the content of a decision's file."""
    identity = decision.identity
    return seal(
        _KIND,
        {
            "app": identity.app,
            "version": identity.version,
            "anonymous": identity.is_anonymous,
            "revision": decision.revision,
            "decided_ms": decision.decided_ms,
            "fingerprint": format_fingerprint(decision.fingerprint),
            "files": [{"name": file.name, "size": file.size} for file in decision.files],
            "parts": [_format_part(part) for part in decision.parts],
            "standing": format_standing(decision.standing),
        },
    )


def format_fingerprint(fingerprint: Fingerprint) -> dict[str, object]:
    """Return a fingerprint as a JSON object."""
    checksum = fingerprint.checksum
    return {
        "source": fingerprint.source,
        "naming": fingerprint.naming.value,
        "files": fingerprint.files,
        "query_id": fingerprint.query_id,
        "rows": fingerprint.rows,
        "row_checksum": None if checksum is None else f"{checksum:016x}",
    }


def _format_part(part: DecidedPart) -> dict[str, object]:
    return {
        "topic": part.topic_partition.topic,
        "partition": part.topic_partition.partition,
        "topic_id": part.topic_id,
        "base_offset": part.base_offset,
        "last_offset": part.last_offset,
        "leader_epoch": part.leader_epoch,
        "base_sequence": part.base_sequence,
        "last_sequence": part.last_sequence,
        "append_time": part.append_time,
        "extents": part.extents,
    }


# ---- from bytes -----------------------------------------------------------------------------
def parse_decision(content: bytes, path: str) -> Decision:
    """Return the decision in a file.

    Args:
        content: The whole file.
        path: The file's path, which must end in the decision's name.

    Raises:
        CorruptCheckpointError: The file is damaged, or a value is invalid.
    """
    values = unseal(_KIND, content, path)
    files = tuple(_parse_file(value) for value in values.objects("files"))
    decision = Decision(
        identity=_parse_identity(values),
        revision=values.integer("revision"),
        fingerprint=parse_fingerprint(values.nested("fingerprint")),
        decided_ms=values.integer("decided_ms"),
        files=files,
        parts=tuple(_parse_part(value, files) for value in values.objects("parts")),
        standing=parse_standing(values.nested("standing")),
    )
    partitions = [part.topic_partition for part in decision.parts]
    if partitions != sorted(set(partitions)):
        raise values.malformed("parts", partitions, "unique partitions in order")
    if not path.endswith(f"/{decision.name}"):
        raise values.malformed("app and number", decision.name, "the name of its file")
    return decision


def parse_fingerprint(values: SealedValues) -> Fingerprint:
    """Return the fingerprint in a JSON object.

    Earlier releases wrote only `source`, `rows` and `checksum`. Their checksum is ignored: it was
    computed differently, or not computed and written as 0.
    """
    naming = values.optional_text("naming")
    if naming is not None and naming not in {each.value for each in Naming}:
        raise values.malformed("naming", naming, [each.value for each in Naming])
    return Fingerprint(
        values.optional_text("source"),
        values.integer("rows"),
        _parse_checksum(values),
        values.optional_text("query_id"),
        Naming.NOTHING if naming is None else Naming(naming),
        values.optional_text("files"),
    )


def _parse_checksum(values: SealedValues) -> int | None:
    text = values.optional_text("row_checksum")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9a-f]{16}", text, re.ASCII):
        raise values.malformed("row_checksum", text, "16 hexadecimal digits")
    return int(text, 16)


def _parse_identity(values: SealedValues) -> CommitIdentity:
    identity = CommitIdentity(
        values.text("app"), values.integer("version"), values.flag("anonymous")
    )
    try:
        check_identity(identity)
    except InvalidRequestError as error:
        raise values.malformed("app", identity.app, "a valid app id") from error
    return identity


def _parse_file(values: SealedValues) -> DecidedFile:
    name = values.text("name")
    if not is_staged_name(name):
        raise values.malformed("name", name, "the name of a staged file")
    return DecidedFile(name, values.integer("size"))


def _parse_part(values: SealedValues, files: tuple[DecidedFile, ...]) -> DecidedPart:
    is_stamped = not values.is_null("append_time")
    part = DecidedPart(
        topic_partition=parse_topic_partition(values),
        topic_id=parse_topic_id(values.text("topic_id"), path=values.path),
        base_offset=values.integer("base_offset"),
        last_offset=values.integer("last_offset"),
        leader_epoch=values.integer("leader_epoch", 0, MAX_INT32),
        base_sequence=values.integer("base_sequence", 0, MAX_INT32),
        append_time=values.integer("append_time") if is_stamped else None,
        extents=tuple(DecidedExtent(*row) for row in values.integers("extents", 5)),
    )
    for extent in part.extents:
        if extent.file >= len(files) or extent.size > files[extent.file].size - extent.position:
            raise values.malformed("extents", tuple(extent), "bytes within a file of this decision")
    records = sum(extent.records for extent in part.extents)
    if records == 0 or records != part.last_offset - part.base_offset + 1:
        raise values.malformed("extents", f"{records} records", "one per offset")
    if values.integer("last_sequence") != part.last_sequence:
        raise values.malformed("last_sequence", values.integer("last_sequence"), part.last_sequence)
    return part
