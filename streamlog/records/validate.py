"""Validation by the leader before an append, and the fields that it assigns.

Batches arrive with meaningless offsets. Here they get offsets, the leader's epoch and, if the topic
uses LogAppendTime, the time of the append. If the codec is accepted, the records stay byte for byte
and only header fields change; if the topic's `compression.type` demands another codec, or offsets
inside a batch are not consecutive, the batch is rebuilt. Messages of v0 and v1 become one batch of
v2, with their own codec unless the topic demands another. Followers skip all this: they keep the
bytes of their leader.

| rule | for | error |
|---|---|---|
| whole batches or messages, and nothing else | all | CorruptRecord, UnsupportedForMessageFormat |
| messages of v0 or v1 of one format, a compressed one alone | all | InvalidRecord |
| checksum matches, records are sound | all | CorruptRecord |
| batch at most `max.message.bytes`, also once rebuilt | all | MessageTooLarge |
| decompresses to at most `streamlog.max.decompressed.bytes` | all | MessageTooLarge |
| all batches at most `segment.bytes` | all | RecordListTooLarge |
| exactly one batch, base offset 0 | client | InvalidRecord |
| one or more records, one per offset | client | InvalidRecord |
| no control batch | client | InvalidRecord |
| a producer id comes with a sequence | client | InvalidRecord |
| every record has a key if `cleanup.policy` contains compact | all | InvalidRecord |
| CreateTime: timestamp -1 or within the topic's bounds | all | InvalidTimestamp |
| no batch claims LogAppendTime, unless a topic of CreateTime accepts its time | all | same |

Source: org.apache.kafka.storage.internals.log.LogValidator,
UnifiedLog.analyzeAndValidateRecords.
"""

from enum import Enum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, as_source
from streamlog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)
from streamlog.records import slot as s
from streamlog.records.batch import check_crc, is_legacy, scan_batches
from streamlog.records.builder import (
    EncodedBatches,
    encode_columns,
    patch_batches,
    rewrite_headers,
)
from streamlog.records.decode import decode_columns, decode_produced
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_OFFSET,
    CURRENT_MAGIC,
    MAGIC_OFFSET,
    MAX_INT32,
    MIN_INT64,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.plain_records import append_loops
from streamlog.records.record import NO_TIMESTAMP, CompressionType
from streamlog.records.slots import (
    ALL_RECORDS,
    check_status,
    decode_slots,
    records_of,
    refusing_larger,
)
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    COUNT,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    WIDTH,
    BatchTable,
    ScanStop,
)
from streamlog.records.topic_rules import TimeBounds, TopicRules

__all__ = ["AppendOrigin", "validate_append"]

NAMED_RECORDS: Final = 5  # how many bad records a message names
MIXED_FORMATS: Final = "an append mixes formats"


class AppendOrigin(Enum):
    """Sender of an append, which determines how strictly it is checked.

    Source: org.apache.kafka.storage.internals.log.AppendOrigin; COMMIT and CLIENT_V2 are ours: in
    Kafka a verification state says the latter.
    """

    CLIENT = "client"
    CLIENT_V2 = "client of transactions of version 2 (KIP-890)"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
    COMMIT = "commit"

    @property
    def is_client(self) -> bool:
        """Whether a client sent it."""
        return self in (AppendOrigin.CLIENT, AppendOrigin.CLIENT_V2)


def validate_append(
    buffer: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    rules: TopicRules,
    now_ms: int,
    origin: AppendOrigin,
) -> EncodedBatches:
    """Check batches by the rules above and assign their place in the log.

    Args:
        buffer: Whole batches, or messages of v0 or v1; not changed.
        base_offset: The log end: offset of the first record.
        leader_epoch: The leader's epoch.
        rules: What the topic accepts.
        now_ms: The time of the append.
        origin: Their sender.

    Returns:
        The batches to write, in new memory.

    Raises:
        InvalidRecordError: A record or batch that a leader refuses.
        InvalidTimestampError: A timestamp outside the topic's bounds, or of the wrong type.
        MessageTooLargeError: A batch above `max.message.bytes`, or one that decompresses to more
            than `streamlog.max.decompressed.bytes`.
        RecordListTooLargeError: Altogether above `segment.bytes`.
        CorruptRecordError: A checksum or a structure is wrong.
        UnsupportedForMessageFormatError: A batch of an unknown format.

    Source: LogValidator.validateMessagesAndAssignOffsets.
    """
    source = as_source(buffer)
    if is_legacy(source):
        source = _convert(source, rules)
    times = rules.times(now_ms)
    append = _look_at(source, times)
    _check_headers(append, rules, origin)
    append = _look_inside(append, times, rules.max_decompressed_bytes)
    _check_records(append, rules, times)
    stale = _to_rebuild(append, rules.codec)
    if any(stale):
        bytes_, table = _rebuild(source, append.table, stale, rules)
        _check_sizes(max(table.size.tolist()), table.end, rules)
    else:
        bytes_, table = source.copy(), append.table
    if not rules.is_stamped:
        table = _as_create_time(table, append)
    table = patch_batches(
        bytes_,
        table,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        max_timestamp=now_ms if rules.is_stamped else None,
    )
    return EncodedBatches(bytes_, table)


class _Append(NamedTuple):
    """Facts about an append; for the arrays see `streamlog.records.slot`.

    Attributes:
        source: uint8[m], its bytes.
        table: The headers, up to the batch of the first bad record.
        found: int64[b, 3], facts about each batch.
        seen: Facts about all batches.
        status: The error of a record, or OK.
    """

    source: NDArray[np.uint8]
    table: BatchTable
    found: NDArray[np.int64]
    seen: list[int]
    status: int


def _look_at(source: NDArray[np.uint8], times: TimeBounds) -> _Append:
    """Read the headers, compare the checksums, check the records that are not compressed.

    Args:
        source: Whole batches of v2.
        times: The timestamps that the topic accepts.
    """
    loops = append_loops(source)
    rows = loops.count_batches(source)
    fields = np.empty((rows, WIDTH), np.int64)
    found = np.empty((rows, s.FOUND_WIDTH), np.int64)
    counts = np.zeros(s.SEEN_WIDTH, np.int64)
    status = loops.inspect_batches(source, *times, fields, found, counts)
    seen = counts.tolist()
    if status > s.OK:
        raise _no_batch(status, source, seen[s.SEEN_END])
    if rows == 0:
        raise InvalidRecordError("append contains no record batch", got="no bytes")
    table = BatchTable(fields if status == s.OK else fields[: seen[s.SEEN_BATCHES]])
    return _Append(source, table, found, seen, status)


def _no_batch(
    status: int, source: NDArray[np.uint8], position: int
) -> CorruptRecordError | InvalidRecordError | UnsupportedForMessageFormatError:
    """Return the error about the bytes at `position`, which are no sound batch of v2."""
    if status == s.BAD_CHECKSUM:
        stored = bytes(source[position + CRC_OFFSET : position + ATTRIBUTES_OFFSET])
        return CorruptRecordError(
            "record batch has a wrong checksum",
            position=position,
            got="another checksum over its bytes",
            expected=f"0x{stored.hex()}",
        )
    if status != ScanStop.BAD_MAGIC:
        return CorruptRecordError(
            "not whole record batches",
            position=position,
            got=ScanStop(status).name.lower().replace("_", " "),
            expected="batches up to the end of the bytes",
        )
    if int(source[position + MAGIC_OFFSET]) < CURRENT_MAGIC:
        return InvalidRecordError(MIXED_FORMATS, got="more than one magic")
    return UnsupportedForMessageFormatError(
        "unknown batch format",
        position=position,
        got=f"magic {source[position + MAGIC_OFFSET]}",
        expected="magic 0, 1 or 2",
    )


def _look_inside(append: _Append, times: TimeBounds, limit: int) -> _Append:
    """Check the compressed records, too."""
    source, table, found, seen, status = append
    if status != s.OK:
        check_status(status, table, seen)
    if not seen[s.ALL_ATTRIBUTES] & COMPRESSION_MASK:
        return append
    counts = np.array(seen, np.int64)
    with refusing_larger(limit):
        records, spans, _ = records_of(
            source, table, limits=ALL_RECORDS, totals=counts, max_decompressed=limit
        )
    inspect = append_loops(source, len(records)).inspect_records
    status = inspect(records, table.fields, spans, *times, found, counts)
    seen = counts.tolist()
    check_status(status, table, seen)
    return append._replace(seen=seen)


def _check_headers(append: _Append, rules: TopicRules, origin: AppendOrigin) -> None:
    seen = append.seen
    if seen[s.ALL_ATTRIBUTES] & TIMESTAMP_TYPE_MASK:
        _check_timestamp_types(append.table, is_stamped=rules.is_stamped)
    if origin.is_client:
        _check_client(append.table)
    _check_sizes(seen[s.SEEN_LARGEST], seen[s.SEEN_END], rules)


def _check_timestamp_types(table: BatchTable, *, is_stamped: bool) -> None:
    """Refuse batches that claim the time of an append that has not happened yet.

    A topic of CreateTime takes the claimed time as the producer's, if there is one.

    Source: LogValidator.validateTimestamp.
    """
    claims = table.attributes & TIMESTAMP_TYPE_MASK != 0
    if not is_stamped:
        claims &= table.max_timestamp == NO_TIMESTAMP
    if claims.any():
        raise InvalidTimestampError(
            "a producer must not claim LogAppendTime",
            position=int(table.position[int(claims.argmax())]),
            expected="CreateTime",
        )


def _convert(source: NDArray[np.uint8], rules: TopicRules) -> NDArray[np.uint8]:
    """Build one v2 batch from messages of v0 or v1; its errors are found later.

    Source: LogValidator.convertAndAssignOffsetsNonCompressed, buildRecordsAndAssignOffsets.
    """
    table, stop, end = scan_batches(source)
    if stop is not ScanStop.END:
        raise _no_batch(stop, source, end)
    if (table.magic != table.magic[0]).any():
        raise InvalidRecordError(MIXED_FORMATS, got="more than one magic")
    bad = check_crc(source, table)
    if bad < len(table):
        raise _no_batch(s.BAD_CHECKSUM, source, int(table.position[bad]))
    _check_timestamp_types(table, is_stamped=rules.is_stamped)
    codecs = table.codec.tolist()
    if any(codecs) and len(table) != 1:
        raise InvalidRecordError(
            "a compressed message must come alone", got=f"{len(table)} messages", expected=1
        )
    limit = rules.max_decompressed_bytes
    with refusing_larger(limit):
        records = decode_produced(source, table, max_decompressed=limit)
    built = encode_columns(
        records,
        batch_size=MAX_INT32,
        compression=rules.codec_for(CompressionType(codecs[0])),
        level=rules.level,
    )
    return as_source(built.buffer)


def _check_sizes(largest: int, total: int, rules: TopicRules) -> None:
    if largest > rules.max_batch_bytes:
        raise MessageTooLargeError(
            "record batch is larger than the topic accepts",
            got=f"{largest} bytes",
            expected=f"at most {rules.max_batch_bytes} (max.message.bytes)",
        )
    if total > rules.max_append_bytes:
        raise RecordListTooLargeError(
            "append is larger than a segment",
            got=f"{total} bytes",
            expected=f"at most {rules.max_append_bytes} (segment.bytes)",
        )


def _check_client(table: BatchTable) -> None:
    if len(table) != 1:
        raise InvalidRecordError(
            "a client must append one batch at a time", got=len(table), expected=1
        )
    batch = table.fields[0].tolist()
    base_offset, count = batch[BASE_OFFSET], batch[COUNT]
    span = batch[LAST_OFFSET] - base_offset + 1
    if base_offset:
        raise InvalidRecordError("a client's base offset must be 0", got=base_offset, expected=0)
    if count <= 0 or count != span:
        raise InvalidRecordError(
            "batch must hold one record per offset",
            got=f"{count} records, {span} offsets",
            expected="equal numbers, at least one",
        )
    if batch[ATTRIBUTES] & CONTROL_MASK:
        raise InvalidRecordError(
            "a client cannot write control records", got="a control batch", expected="data"
        )
    if batch[PRODUCER_ID] >= 0 and batch[BASE_SEQUENCE] < 0:
        raise InvalidRecordError(
            "batch has a producer id but no sequence",
            got=f"base sequence {batch[BASE_SEQUENCE]}",
            expected="0 and more",
        )


# ---- the records -------------------------------------------------------------------------------
def _check_records(append: _Append, rules: TopicRules, times: TimeBounds) -> None:
    if append.seen[s.SEEN_KEYLESS] and rules.needs_keys:
        keyless = np.flatnonzero(_slots(append, rules)[:, s.SLOT_KEY_SIZE] < 0).tolist()
        raise InvalidRecordError(
            "a compacted topic needs a key in every record",
            got=f"no key in {_name_records(keyless)}",
            expected="keys (cleanup.policy has compact)",
            records=keyless,
        )
    if append.seen[s.SEEN_UNTIMELY]:
        timestamp = _slots(append, rules)[:, s.SLOT_TIMESTAMP]
        wrong = np.flatnonzero(times.outside(timestamp)).tolist()
        raise InvalidTimestampError(
            "timestamp is outside the topic's bounds",
            got=f"{timestamp[wrong[0]]} ms, in {_name_records(wrong)}",
            expected=str(times),
            records=wrong,
        )


def _slots(append: _Append, rules: TopicRules) -> NDArray[np.int64]:
    """Return one slot per record."""
    limit = rules.max_decompressed_bytes
    return decode_slots(append.source, append.table, max_decompressed=limit).slots


def _name_records(indexes: list[int]) -> str:
    """Return the indexes of records as text."""
    named = ", ".join(map(str, indexes[:NAMED_RECORDS]))
    more = f" and {len(indexes) - NAMED_RECORDS} more" if len(indexes) > NAMED_RECORDS else ""
    return f"record{'s' if len(indexes) > 1 else ''} {named}{more}"


def _to_rebuild(append: _Append, codec: CompressionType | None) -> list[bool]:
    """Return for each batch whether it must be rebuilt. Control batches never are."""
    if codec is None and not append.seen[s.SEEN_GAPS]:
        return []
    return [
        rows > 0
        and not bits & CONTROL_MASK
        and (gaps > 0 or (codec is not None and bits & COMPRESSION_MASK != codec))
        for (rows, gaps, _), bits in zip(
            append.found.tolist(), append.table.attributes.tolist(), strict=True
        )
    ]


def _rebuild(
    source: NDArray[np.uint8],
    table: BatchTable,
    stale: list[bool],
    rules: TopicRules,
) -> tuple[NDArray[np.uint8], BatchTable]:
    """Rebuild the stale batches one by one and concatenate all batches.

    Records, producer and transaction stay; offsets become consecutive.

    Source: LogValidator.buildRecordsAndAssignOffsets.
    """
    buffers, tables = [], []
    filled = 0
    for batch, is_stale in enumerate(stale):
        one = table.slice(batch, batch + 1)
        if is_stale:
            built = encode_columns(
                decode_columns(
                    source,
                    one,
                    start_offset=MIN_INT64,
                    drop_control=False,
                    max_decompressed=rules.max_decompressed_bytes,
                ),
                batch_size=MAX_INT32,
                compression=rules.codec_for(CompressionType(int(one.codec[0]))),
                level=rules.level,
            )
            fields = built.table.fields
            fields[:, PRODUCER_ID : BASE_SEQUENCE + 1] = one.fields[
                :, PRODUCER_ID : BASE_SEQUENCE + 1
            ]
            fields[:, ATTRIBUTES] |= one.attributes & TRANSACTIONAL_MASK
            fields[:, LEADER_EPOCH] = one.leader_epoch
            rewrite_headers(built.buffer, built.table, are_new=True)
            buffers.append(built.buffer)
            tables.append(built.table.moved(filled))
        else:
            start, size = int(one.position[0]), int(one.size[0])
            buffers.append(source[start : start + size])
            tables.append(one.moved(filled - start))
        filled += len(buffers[-1])
    return np.concatenate(buffers), BatchTable.concatenate(tables)


def _as_create_time(table: BatchTable, append: _Append) -> BatchTable:
    """Return the table with CreateTime and the largest timestamps of the records."""
    claims = append.seen[s.ALL_ATTRIBUTES] & TIMESTAMP_TYPE_MASK
    if not claims and not append.seen[s.SEEN_WRONG_MAX]:
        return table
    fields = table.fields.copy()
    fields[:, ATTRIBUTES] &= ~TIMESTAMP_TYPE_MASK
    full = append.found[:, s.FOUND_ROWS] > 0
    fields[full, MAX_TIMESTAMP] = append.found[full, s.FOUND_MAX_TIMESTAMP]
    return BatchTable(fields)
