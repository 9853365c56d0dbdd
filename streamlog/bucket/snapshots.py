"""Whole snapshots: the state of a root after an entry, so that opening it reads no history.

A snapshot is a function of the entries, so it does not matter which of two processes that write the
same one is last. It is a sealed text, compressed with zstd. `streamlog.bucket.entries` has those
that depend on another one.
"""

from collections.abc import Sequence
from typing import Final

import zstandard

from streamlog.binary.sealed import SealedValues, seal, unseal
from streamlog.bucket.actions import parse_pairs, parse_transactions
from streamlog.bucket.state import (
    ArrivingTopic,
    BucketPartition,
    Build,
    Garbage,
    JournalMark,
    RootState,
    Stretch,
    TopicState,
)
from streamlog.bucket.versions import Counts, Items
from streamlog.commits.decisions import parse_topic_partition
from streamlog.commits.history import format_ledger, parse_ledger
from streamlog.errors import CorruptCheckpointError
from streamlog.topic import TopicPartition

__all__ = [
    "MAX_SNAPSHOT_SIZE",
    "SNAPSHOT",
    "format_snapshot",
    "packed",
    "parse_snapshot",
    "unpacked",
]

MAX_SNAPSHOT_SIZE: Final = 256 << 20  # stored
_MAX_DECOMPRESSED: Final = 1 << 30
SNAPSHOT: Final = "snapshot"
_LEVEL: Final = 3


def format_snapshot(state: RootState) -> bytes:
    """Return the content of a state's snapshot."""
    keys = sorted({*state.uses, *(garbage.key for garbage in state.garbage)})
    numbers = {key: number for number, key in enumerate(keys)}
    sealed = seal(
        SNAPSHOT,
        {
            "number": state.number,
            "root_id": state.root_id,
            "config": dict(state.config),
            "keys": keys,
            "topics": [
                {
                    "topic": topic,
                    "config": dict(found.config),
                    "topic_id": found.topic_id,
                    "partitions": [
                        _format_partition(state.partitions[TopicPartition(topic, number)], numbers)
                        for number in range(found.partitions)
                    ],
                }
                for topic, found in sorted(state.topics.items())
            ],
            "arriving": [
                {
                    "topic": topic,
                    "config": dict(found.topic.config),
                    "topic_id": found.topic.topic_id,
                    "partitions": [_format_partition(each, numbers) for each in found.partitions],
                }
                for topic, found in sorted(state.arriving.items())
            ],
            "apps": [format_ledger(ledger) for _, ledger in sorted(state.apps.items())],
            "garbage": [
                {
                    "key": numbers[each.key],
                    "since_ms": each.since_ms,
                    "number": each.number,
                    "topic": each.topic,
                }
                for each in state.garbage
            ],
            "builds": [_format_build(*each) for each in sorted(state.builds.items())],
            "staged_horizon_ms": state.staged_horizon_ms,
            "journal_start": state.journal_start,
            "marks": state.marks,
        },
        copies=1,
    )
    return packed(sealed)


def parse_snapshot(content: bytes, path: str) -> RootState:
    """Return the state in a snapshot.

    Args:
        content: The whole object.
        path: Its URL, for errors.

    Raises:
        CorruptCheckpointError: The object is damaged, or a value is invalid.
    """
    return _parse_state(unseal(SNAPSHOT, unpacked(content, path), path))


def packed(sealed: bytes) -> bytes:
    """Return the content of a snapshot with a sealed text."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(sealed)


def unpacked(content: bytes, path: str) -> bytes:
    """Return the sealed text in a snapshot.

    Args:
        content: The whole object.
        path: Its URL, for errors.

    Raises:
        CorruptCheckpointError: The object is damaged.
    """
    try:
        return zstandard.ZstdDecompressor().decompress(content, max_output_size=_MAX_DECOMPRESSED)
    except zstandard.ZstdError as error:
        raise CorruptCheckpointError("snapshot is damaged", path=path, got=str(error)) from error


def _parse_state(values: SealedValues) -> RootState:
    keys = values.text_list("keys")
    topics: dict[str, TopicState] = {}
    partitions: dict[TopicPartition, BucketPartition] = {}
    for value in values.objects("topics"):
        topic, found = value.text("topic"), value.objects("partitions")
        topics[topic] = TopicState(value.text("topic_id"), len(found), value.texts("config"))
        for number, partition in enumerate(found):
            partitions[TopicPartition(topic, number)] = _parse_partition(partition, keys)
    arriving = {} if values.is_null("arriving") else _parse_arriving(values, keys)
    uses: dict[str, int] = {}
    copied = (each for found in arriving.values() for each in found.partitions)
    for state in (*partitions.values(), *copied):
        for stretch in state.stretches:
            uses[stretch.key] = uses.get(stretch.key, 0) + 1
    ledgers = [parse_ledger(value) for value in values.objects("apps")]
    return RootState(
        number=values.integer("number", 1),
        root_id=values.text("root_id"),
        config=values.texts("config"),
        topics=topics,
        partitions=partitions,
        arriving=arriving,
        apps={ledger.app: ledger for ledger in ledgers},
        uses=Counts(uses),
        garbage=tuple(
            Garbage(
                _key(keys, value.integer("key"), values),
                value.integer("since_ms"),
                value.integer("number"),
                value.text("topic"),
            )
            for value in values.objects("garbage")
        ),
        builds={value.text("build"): _parse_build(value) for value in values.objects("builds")},
        staged_horizon_ms=values.integer("staged_horizon_ms"),
        journal_start=values.integer("journal_start", 1),
        marks=tuple(JournalMark(*row) for row in values.integers("marks", 2)),
    )


def _parse_arriving(values: SealedValues, keys: list[str]) -> dict[str, ArrivingTopic]:
    found = {}
    for value in values.objects("arriving"):
        partitions = tuple(_parse_partition(each, keys) for each in value.objects("partitions"))
        topic = TopicState(value.text("topic_id"), len(partitions), value.texts("config"))
        found[value.text("topic")] = ArrivingTopic(topic, partitions)
    return found


def _format_build(name: str, build: Build) -> dict[str, object]:
    return {
        "build": name,
        "begun_ms": build.begun_ms,
        "is_abandoned": build.is_abandoned,
        "partitions": [
            {"topic": each.topic, "partition": each.partition} for each in build.partitions
        ],
    }


def _parse_build(values: SealedValues) -> Build:
    partitions = tuple(parse_topic_partition(each) for each in values.objects("partitions"))
    return Build(values.integer("begun_ms"), partitions, values.flag("is_abandoned"))


def _format_partition(state: BucketPartition, numbers: dict[str, int]) -> dict[str, object]:
    return {
        "log_start_offset": state.log_start_offset,
        "end_offset": state.end_offset,
        "cleaned_offset": state.cleaned_offset,
        "epochs": state.epochs,
        # -1 is stored as 0: an epoch of a segment, a time of records without one
        "stretches": [
            (
                numbers[each.key],
                each.position,
                each.size,
                each.base_offset,
                each.end_offset,
                each.max_timestamp + 1,
                each.leader_epoch + 1,
            )
            for each in state.stretches
        ],
        "segments": [
            {
                "stretch": at,
                "first_timestamp": each.first_timestamp,
                "is_sealed": each.is_sealed,
                "points": each.points,
                "transactions": each.transactions,
            }
            for at, each in enumerate(state.stretches)
            if not each.is_staged
        ],
    }


def _parse_partition(values: SealedValues, keys: list[str]) -> BucketPartition:
    segments = {value.integer("stretch"): value for value in values.objects("segments")}
    return BucketPartition(
        log_start_offset=values.integer("log_start_offset"),
        end_offset=values.integer("end_offset"),
        cleaned_offset=values.integer("cleaned_offset"),
        epochs=parse_pairs(values, "epochs"),
        stretches=Items(
            _parse_stretch(row, _key(keys, row[0], values), segments.get(at))
            for at, row in enumerate(values.integers("stretches", 7))
        ),
    )


def _parse_stretch(row: Sequence[int], key: str, segment: SealedValues | None) -> Stretch:
    stretch = Stretch(key, row[1], row[2], row[3], row[4], row[5] - 1, row[6] - 1)
    if segment is None:
        return stretch
    return stretch._replace(
        first_timestamp=segment.integer("first_timestamp", -1),
        is_sealed=segment.flag("is_sealed"),
        points=parse_pairs(segment, "points"),
        transactions=parse_transactions(segment),
    )


def _key(keys: list[str], number: int, values: SealedValues) -> str:
    if number >= len(keys):
        raise values.malformed("keys", number, f"one of {len(keys)} keys")
    return keys[number]
