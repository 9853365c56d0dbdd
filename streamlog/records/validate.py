"""What a leader checks before it appends, and what it assigns.

Batches arrive with offsets that mean nothing yet. Here they get offsets, the leader's epoch and,
where the topic stamps the time of the append, that time. Where the codec fits, the records stay
byte for byte and only header fields change; where the topic's `compression.type` asks for another
codec, or offsets inside a batch are not consecutive, the batch is built anew. Messages of v0 and
v1 become one batch of v2, with the codec they came with unless the topic wants another; followers
keep them as they are.

| rule | for | error |
|---|---|---|
| whole batches or messages, and nothing else | all | CorruptRecord, UnsupportedForMessageFormat |
| messages of v0 or v1 of one format, a compressed one alone | not replication | InvalidRecord |
| checksum matches, records are sound | all | CorruptRecord |
| batch at most `max.message.bytes`, also once rebuilt | not replication | MessageTooLarge |
| all batches at most `segment.bytes` | not replication | RecordListTooLarge |
| exactly one batch, base offset 0 | client | InvalidRecord |
| records there, one an offset | client | InvalidRecord |
| no control batch | client | InvalidRecord |
| a producer id comes with a sequence | client | InvalidRecord |
| every record has a key where `cleanup.policy` has compact | not replication | InvalidRecord |
| CreateTime: timestamp -1 or within the topic's bounds | not replication | InvalidTimestamp |
| no batch says LogAppendTime, or a topic of CreateTime takes its time | not replication | same |

Source: org.apache.kafka.storage.internals.log.LogValidator,
UnifiedLog.analyzeAndValidateRecords.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

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
from streamlog.records.batch import ScanStop, check_crc, scan_batches
from streamlog.records.builder import (
    encode_columns,
    patch_batches,
    rewrite_headers,
)
from streamlog.records.columns import decode_columns, decode_produced
from streamlog.records.layout import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    MAX_INT32,
    MAX_INT64,
    MIN_INT64,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.record import NO_TIMESTAMP, CompressionType
from streamlog.records.slots import ALL_RECORDS, check_status, decode_slots, records_of
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    COUNT,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    BatchTable,
)

if TYPE_CHECKING:
    from streamlog.config import LogConfig

__all__ = ["AppendOrigin", "ValidatedBatches", "target_codec", "validate_append"]

NAMED_RECORDS: Final = 5  # how many bad records a message names


class AppendOrigin(Enum):
    """Who sends an append, which decides how strictly it is checked.

    Source: org.apache.kafka.storage.internals.log.AppendOrigin; COMMIT is ours.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
    COMMIT = "commit"


class ValidatedBatches(NamedTuple):
    """Batches ready to be written.

    Attributes:
        buffer: uint8[m], bytes of their own, never the caller's.
        table: Their headers.
        max_timestamp: The largest timestamp, -1 for none.
        offset_of_max_timestamp: Offset of the first record that has it, -1 for none.
    """

    buffer: NDArray[np.uint8]
    table: BatchTable
    max_timestamp: int
    offset_of_max_timestamp: int


def validate_append(
    buffer: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    config: "LogConfig",
    now_ms: int,
    origin: AppendOrigin,
) -> ValidatedBatches:
    """Check batches by the rules above and give them their place in the log.

    With `AppendOrigin.REPLICATION` offsets and epochs stay as they are.

    Args:
        buffer: Whole batches, or messages of v0 or v1; left as they are.
        base_offset: The log end: offset of the first record.
        leader_epoch: The leader's epoch.
        config: The topic's settings.
        now_ms: The time of the append.
        origin: Who sends them.

    Returns:
        The batches to write.

    Raises:
        InvalidRecordError: A record or batch that a leader refuses.
        InvalidTimestampError: A timestamp outside the topic's bounds, or of the wrong type.
        MessageTooLargeError: A batch above `max.message.bytes`.
        RecordListTooLargeError: Altogether above `segment.bytes`.
        CorruptRecordError: A checksum or a structure is wrong.
        LimitExceededError: A batch decompresses to more than is ever read.
        UnsupportedForMessageFormatError: A batch of an unknown format.

    Source: LogValidator.validateMessagesAndAssignOffsets.
    """
    source = as_source(buffer)
    table = _whole_batches(source)
    if origin is AppendOrigin.REPLICATION:
        return ValidatedBatches(source.copy(), table, *_largest_timestamp(source, table))
    is_stamped = config.message_timestamp_type == "LogAppendTime"
    _check_timestamp_types(table, is_stamped=is_stamped)
    codec, level = target_codec(config)
    if (table.magic < CURRENT_MAGIC).any():
        source, table = _convert(source, table, codec, level)
    if origin is AppendOrigin.CLIENT:
        _check_client(table)
    _check_sizes(table, config)
    found = _check_records(source, table, config, None if is_stamped else now_ms)
    stale = _to_rebuild(table, found, codec)
    if any(stale):
        bytes_, current = _rebuild(source, table, stale, codec, level)
        _check_sizes(current, config)
    else:
        bytes_, current = source.copy(), table
    if not is_stamped:
        current = _as_create_time(current, found)
    current = patch_batches(
        bytes_,
        current,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        max_timestamp=now_ms if is_stamped else None,
    )
    if is_stamped:
        return ValidatedBatches(bytes_, current, now_ms, base_offset)
    return ValidatedBatches(bytes_, current, *found.largest(current))


def target_codec(config: "LogConfig") -> tuple[CompressionType | None, int | None]:
    """Return the codec and level that a topic wants; None for whatever the producer chose.

    Source: BrokerCompressionType.targetCompression.
    """
    name = config.compression_type
    if name == "producer":
        return None, None
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return CompressionType.of(name), levels.get(name)


def _whole_batches(source: NDArray[np.uint8]) -> BatchTable:
    scan = scan_batches(source)
    if scan.stop is ScanStop.BAD_MAGIC:
        raise UnsupportedForMessageFormatError(
            "unknown batch format", position=scan.consumed, expected="magic 0, 1 or 2"
        )
    if scan.stop is not ScanStop.END:
        raise CorruptRecordError(
            "not whole record batches",
            position=scan.consumed,
            got=scan.stop.name.lower().replace("_", " "),
            expected="batches up to the end of the bytes",
        )
    if not len(scan.table):
        raise InvalidRecordError("an append needs a record batch", got="no bytes")
    bad = check_crc(source, scan.table)
    if bad < len(scan.table):
        raise CorruptRecordError(
            "record batch has a wrong checksum",
            position=int(scan.table.position[bad]),
            got=f"{int(scan.table.crc[bad]):#010x}",
        )
    return scan.table


def _check_timestamp_types(table: BatchTable, *, is_stamped: bool) -> None:
    """Make sure that no batch claims the time of an append that did not happen yet.

    A topic of CreateTime takes the claimed time for the producer's, if there is one.

    Source: LogValidator.validateTimestamp.
    """
    claims = table.attributes & TIMESTAMP_TYPE_MASK != 0
    if not is_stamped:
        claims &= table.max_timestamp == NO_TIMESTAMP
    if claims.any():
        raise InvalidTimestampError(
            "a producer must not say LogAppendTime",
            position=int(table.position[int(claims.argmax())]),
            expected="CreateTime",
        )


def _convert(
    source: NDArray[np.uint8],
    table: BatchTable,
    codec: CompressionType | None,
    level: int | None,
) -> tuple[NDArray[np.uint8], BatchTable]:
    """Build one v2 batch of messages of v0 or v1; what is wrong with it is found later.

    Source: LogValidator.convertAndAssignOffsetsNonCompressed, buildRecordsAndAssignOffsets.
    """
    if (table.magic != table.magic[0]).any():
        raise InvalidRecordError("an append mixes formats", got="more than one magic")
    codecs = table.codec.tolist()
    if any(codecs) and len(table) != 1:
        raise InvalidRecordError(
            "a compressed message comes alone", got=f"{len(table)} messages", expected=1
        )
    return encode_columns(
        decode_produced(source, table),
        batch_size=MAX_INT32,
        compression=CompressionType(codecs[0]) if codec is None else codec,
        level=level,
    )


def _largest_timestamp(source: NDArray[np.uint8], table: BatchTable) -> tuple[int, int]:
    """Return the largest timestamp of batches that stay as they are, and its first offset."""
    if not (table.magic < CURRENT_MAGIC).any():
        return _inspect(source, table, MIN_INT64, MAX_INT64).largest()
    records = decode_columns(source, table, columns=(), start_offset=MIN_INT64, drop_control=False)
    if not (records.timestamp != NO_TIMESTAMP).any():
        return NO_TIMESTAMP, -1
    at = int(records.timestamp.argmax())
    return int(records.timestamp[at]), int(records.offset[at])


def _check_sizes(table: BatchTable, config: "LogConfig") -> None:
    largest, end = max(table.size.tolist()), table.end
    if largest > config.max_message_bytes:
        raise MessageTooLargeError(
            "record batch is larger than the topic takes",
            got=f"{largest} bytes",
            expected=f"at most {config.max_message_bytes} (max.message.bytes)",
        )
    if end > config.effective_segment_bytes:
        raise RecordListTooLargeError(
            "append is larger than a segment",
            got=f"{end} bytes",
            expected=f"at most {config.effective_segment_bytes} (segment.bytes)",
        )


def _check_client(table: BatchTable) -> None:
    if len(table) != 1:
        raise InvalidRecordError("a client appends one batch at a time", got=len(table), expected=1)
    batch = table.fields[0].tolist()
    base_offset, count = batch[BASE_OFFSET], batch[COUNT]
    span = batch[LAST_OFFSET] - base_offset + 1
    if base_offset:
        raise InvalidRecordError("a client's base offset must be 0", got=base_offset, expected=0)
    if count <= 0 or count != span:
        raise InvalidRecordError(
            "batch does not hold one record an offset",
            got=f"{count} records, {span} offsets",
        )
    if batch[ATTRIBUTES] & CONTROL_MASK:
        raise InvalidRecordError("a client cannot write control records", got="a control batch")
    if batch[PRODUCER_ID] >= 0 and batch[BASE_SEQUENCE] < 0:
        raise InvalidRecordError(
            "batch has a producer id but no sequence",
            got=f"base sequence {batch[BASE_SEQUENCE]}",
            expected="0 and more",
        )


# ---- the records -------------------------------------------------------------------------------
class _Found(NamedTuple):
    """What was found in the records of each batch: lists of one number a batch."""

    rows: list[int]
    gaps: list[int]
    keyless: list[int]
    untimely: list[int]
    max_timestamp: list[int]
    max_row: list[int]
    max_offset: list[int]

    def largest(self, placed: BatchTable | None = None) -> tuple[int, int]:
        """Return the largest timestamp of all, and the offset of the first record that has it.

        Args:
            placed: The batches where they are now, one record an offset; None: where they were.
        """
        full = [batch for batch, rows in enumerate(self.rows) if rows]
        first = max(full, key=self.max_timestamp.__getitem__, default=None)
        if first is None or self.max_timestamp[first] == NO_TIMESTAMP:
            return NO_TIMESTAMP, -1
        if placed is None:
            return self.max_timestamp[first], self.max_offset[first]
        return self.max_timestamp[first], int(placed.base_offset[first]) + self.max_row[first]


def _inspect(source: NDArray[np.uint8], table: BatchTable, earliest: int, latest: int) -> _Found:
    """Check all records, and tell how they stand to the rules."""
    from streamlog.records import validate_kernels as kernels

    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    records, spans = records_of(source, table, limits=ALL_RECORDS, totals=totals)
    found = np.empty((len(table), kernels.FOUND_WIDTH), np.int64)
    bounds = np.array((earliest, latest), np.int64)
    status = kernels.inspect_records(records, table.fields, spans, bounds, found, totals)
    check_status(status, table, totals)
    return _Found(*found.T.tolist())


def _check_records(
    source: NDArray[np.uint8], table: BatchTable, config: "LogConfig", now_ms: int | None
) -> _Found:
    """Check all records, their keys and, unless `now_ms` is None, their timestamps."""
    earliest, latest = MIN_INT64, MAX_INT64
    if now_ms is not None:
        earliest = max(now_ms - config.message_timestamp_before_max_ms, MIN_INT64)
        latest = min(now_ms + config.message_timestamp_after_max_ms, MAX_INT64)
    found = _inspect(source, table, earliest, latest)
    if any(found.keyless) and "compact" in config.cleanup_policy:
        slots = decode_slots(source, table).slots
        raise InvalidRecordError(
            "a compacted topic needs a key in every record",
            got=f"no key in {_name_records(slots[:, s.SLOT_KEY_SIZE] < 0)}",
            expected="keys (cleanup.policy has compact)",
        )
    if now_ms is None:
        return found
    if any(found.untimely):
        slots = decode_slots(source, table).slots
        timestamp = slots[:, s.SLOT_TIMESTAMP]
        wrong = (timestamp < earliest) | (timestamp > latest)
        wrong &= timestamp != NO_TIMESTAMP
        raise InvalidTimestampError(
            "timestamp is outside the topic's bounds",
            got=f"{timestamp[int(np.argmax(wrong))]} ms, in {_name_records(wrong)}",
            expected=f"{earliest} to {latest} ms (message.timestamp.before.max.ms, "
            "message.timestamp.after.max.ms)",
        )
    return found


def _name_records(wrong: NDArray[np.bool_]) -> str:
    """Return the indexes of the records where `wrong`, bool[n], in words."""
    indexes = np.flatnonzero(wrong).tolist()
    named = ", ".join(map(str, indexes[:NAMED_RECORDS]))
    more = f" and {len(indexes) - NAMED_RECORDS} more" if len(indexes) > NAMED_RECORDS else ""
    return f"record{'s' if len(indexes) > 1 else ''} {named}{more}"


def _to_rebuild(table: BatchTable, found: _Found, codec: CompressionType | None) -> list[bool]:
    """Tell of each batch whether it cannot stay as it is. Control batches always can."""
    return [
        rows > 0
        and not bits & CONTROL_MASK
        and (gaps > 0 or (codec is not None and bits & COMPRESSION_MASK != codec))
        for rows, gaps, bits in zip(found.rows, found.gaps, table.attributes.tolist(), strict=True)
    ]


def _rebuild(
    source: NDArray[np.uint8],
    table: BatchTable,
    stale: list[bool],
    codec: CompressionType | None,
    level: int | None,
) -> tuple[NDArray[np.uint8], BatchTable]:
    """Build the stale batches anew, one for one, and put all one behind the other.

    Records, producer and transaction stay; offsets become consecutive.

    Source: LogValidator.buildRecordsAndAssignOffsets.
    """
    buffers, tables = [], []
    filled = 0
    for batch, is_stale in enumerate(stale):
        one = table.slice(batch, batch + 1)
        if is_stale:
            built = encode_columns(
                decode_columns(source, one, start_offset=MIN_INT64, drop_control=False),
                batch_size=MAX_INT32,
                compression=CompressionType(int(one.codec[0])) if codec is None else codec,
                level=level,
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


def _as_create_time(table: BatchTable, found: _Found) -> BatchTable:
    """Return the table with CreateTime and the largest timestamps that the records have."""
    claims = bool((table.attributes & TIMESTAMP_TYPE_MASK).any())
    if not claims and table.max_timestamp.tolist() == found.max_timestamp:
        return table
    fields = table.fields.copy()
    fields[:, ATTRIBUTES] &= ~TIMESTAMP_TYPE_MASK
    full = np.array(found.rows) > 0
    fields[full, MAX_TIMESTAMP] = np.array(found.max_timestamp)[full]
    return BatchTable(fields)
