"""Decisions: the files that make staged bytes part of the log.

A decision says everything that applying it needs, so that anybody who takes a partition's lock
can do so and will write the same bytes: which extents of which staged files go where, with which
epoch, sequence and time. It is a sealed file (see `sealed`) called `<app>@<number>` in
`.streamlog/commits/pending`, made by `link()`; its name becoming durable is the commit point.
It goes when it is retired.

    app, version, anonymous, revision, decided_ms
    fingerprint   {source, naming, files, query_id, rows, row_checksum}; all but rows may be null
    files         [{name, size}]                     in `.streamlog/staging/<app>/`
    parts         [{topic, partition, topic_id, base_offset, last_offset, leader_epoch,
                    base_sequence, last_sequence, append_time (null: records keep theirs),
                    extents [[file, position, size, batches, records]]}]
    standing      where the app stands with it (`streamlog.commits.standing`)
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.identity import CommitIdentity, app_key, check_identity
from streamlog.commits.sealed import SealedValues, seal, unseal
from streamlog.commits.staging import is_staged_name
from streamlog.commits.standing import (
    PartitionStanding,
    Standing,
    format_standing,
    parse_standing,
    parse_topic_partition,
)
from streamlog.errors import InvalidRequestError
from streamlog.partition.partition_metadata import parse_topic_id
from streamlog.query.batch_source import Naming
from streamlog.records.layout import MAX_INT32
from streamlog.topic import TopicPartition

__all__ = [
    "DecidedExtent",
    "DecidedFile",
    "DecidedPart",
    "Decision",
    "format_decision",
    "format_fingerprint",
    "parse_decision",
    "parse_fingerprint",
]

_KIND: Final = "decision"


class DecidedFile(NamedTuple):
    """A staged file of the app, by its name, and its size in bytes."""

    name: str
    size: int


class DecidedExtent(NamedTuple):
    """Whole batches in a staged file; `file` is its index in the decision's files."""

    file: int
    position: int
    size: int
    batches: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedPart:
    """What a decision does to one partition.

    Attributes:
        topic_partition: The partition.
        topic_id: The id of its topic; a topic of the same name and another id is not meant.
        base_offset: Offset of the first record.
        last_offset: Offset of the last one.
        leader_epoch: The epoch all batches carry.
        base_sequence: Sequence of the first record.
        append_time: The time stamped on all records, in ms; None: they keep their own.
        extents: Where the batches are staged, in their order.
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
        """Bytes of all batches."""
        return sum(extent.size for extent in self.extents)

    @property
    def step(self) -> PartitionStanding:
        """Where it leads the app in this partition."""
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
        identity: Whose commit it is.
        revision: 0; above where a mismatch was appended (`onReplayMismatch=append`).
        fingerprint: What it was made from.
        decided_ms: When, in ms since 1970.
        files: The staged files it takes.
        parts: What it does, by partition, in the order of `TopicPartition`.
        standing: Where the app stands with it.
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
        """Which decision of its app it is, from 1."""
        return self.standing.number

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{app_key(self.identity.app)}@{self.number:020d}"


# ---- to bytes -------------------------------------------------------------------------------
def format_decision(decision: Decision) -> bytes:
    """Return the bytes of a decision's file."""
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
    """Return the decision that a file holds.

    Args:
        content: The whole file.
        path: Where it lies; its name has to be the one that the decision asks for.

    Raises:
        CorruptCheckpointError: It is damaged, or says what no decision can say.
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
        raise values.malformed("parts", partitions, "each partition once, in order")
    if not path.endswith(f"/{decision.name}"):
        raise values.malformed("app and number", decision.name, "what its file is called")
    return decision


def parse_fingerprint(values: SealedValues) -> Fingerprint:
    """Return the fingerprint of a JSON object.

    Earlier releases wrote `source`, `rows` and `checksum` only. Their checksum is left alone: it
    was computed in another way, or not at all and written as 0.

    Raises:
        CorruptCheckpointError: It cannot be one.
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
        raise values.malformed("app", identity.app, "the id of an app") from error
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
            raise values.malformed("extents", tuple(extent), "bytes of a file of this decision")
    records = sum(extent.records for extent in part.extents)
    if records == 0 or records != part.last_offset - part.base_offset + 1:
        raise values.malformed("extents", f"{records} records", "one for each offset")
    if values.integer("last_sequence") != part.last_sequence:
        raise values.malformed("last_sequence", values.integer("last_sequence"), part.last_sequence)
    return part
