"""What a leader checks before it appends, and what it assigns.

Batches arrive with offsets that mean nothing yet. Here they get offsets, the leader's epoch and,
where the topic stamps the time of the append, that time. Where the codec fits, the records stay
byte for byte and only header fields change; where the topic's `compression.type` asks for another
codec, or offsets inside a batch are not consecutive, the batch is built anew.

| rule | for | error |
|---|---|---|
| whole v2 batches, and nothing else | all | CorruptRecord, UnsupportedForMessageFormat |
| checksum matches, records are sound | all | CorruptRecord |
| batch at most `max.message.bytes`, also once rebuilt | not replication | MessageTooLarge |
| all batches at most `segment.bytes` | not replication | RecordListTooLarge |
| exactly one batch, base offset 0 | client | InvalidRecord |
| records there, one an offset | client | InvalidRecord |
| no control batch | client | InvalidRecord |
| a producer id comes with a sequence | client | InvalidRecord |
| every record has a key where `cleanup.policy` has compact | not replication | InvalidRecord |
| CreateTime: timestamp -1 or within the topic's bounds | not replication | InvalidTimestamp |
| topic of CreateTime: no batch says LogAppendTime | not replication | InvalidTimestamp |

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
from streamlog.records.builder import encode_slots, patch_batches, rewrite_headers
from streamlog.records.layout import (
    MAX_INT32,
    MAX_INT64,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.record import NO_TIMESTAMP, CompressionType
from streamlog.records.slots import RecordSlots, decode_slots
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    BatchTable,
)

if TYPE_CHECKING:
    from streamlog.config import LogConfig

__all__ = ["AppendOrigin", "ValidatedBatches", "target_codec", "validate_append"]

MIN_INT64: Final = -MAX_INT64 - 1
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
        buffer: Whole v2 batches; left as they are.
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
        UnsupportedForMessageFormatError: A message of format v0 or v1.

    Source: LogValidator.validateMessagesAndAssignOffsets.
    """
    source = as_source(buffer)
    table = _whole_batches(source)
    if origin is AppendOrigin.CLIENT:
        _check_client(table)
    replicated = origin is AppendOrigin.REPLICATION
    if not replicated:
        _check_sizes(table, config)
    found = decode_slots(source, table, start_offset=MIN_INT64, drop_control=False)
    if replicated:
        return ValidatedBatches(source.copy(), table, *_largest(table, found, table))
    is_stamped = config.message_timestamp_type == "LogAppendTime"
    _check_records(table, found, config, None if is_stamped else now_ms)
    codec, level = target_codec(config)
    stale = _to_rebuild(table, found, codec)
    if stale.any():
        bytes_, current = _rebuild(source, table, found, stale, codec, level)
        _check_sizes(current, config)
    else:
        bytes_, current = source.copy(), table
    if not is_stamped:
        current = _with_real_max_timestamps(bytes_, current, found)
    current = patch_batches(
        bytes_,
        current,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        max_timestamp=now_ms if is_stamped else None,
    )
    if is_stamped:
        return ValidatedBatches(bytes_, current, now_ms, base_offset)
    return ValidatedBatches(bytes_, current, *_largest(table, found, current))


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
            "only batches of format v2 can be appended", position=scan.consumed, expected="magic 2"
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


def _check_sizes(table: BatchTable, config: "LogConfig") -> None:
    largest = int(table.size.max())
    if largest > config.max_message_bytes:
        raise MessageTooLargeError(
            "record batch is larger than the topic takes",
            got=f"{largest} bytes",
            expected=f"at most {config.max_message_bytes} (max.message.bytes)",
        )
    if table.end > config.effective_segment_bytes:
        raise RecordListTooLargeError(
            "append is larger than a segment",
            got=f"{table.end} bytes",
            expected=f"at most {config.effective_segment_bytes} (segment.bytes)",
        )


def _check_client(table: BatchTable) -> None:
    if len(table) != 1:
        raise InvalidRecordError("a client appends one batch at a time", got=len(table), expected=1)
    base_offset, count = int(table.base_offset[0]), int(table.count[0])
    span = int(table.last_offset[0]) - base_offset + 1
    if base_offset:
        raise InvalidRecordError("a client's base offset must be 0", got=base_offset, expected=0)
    if count <= 0 or count != span:
        raise InvalidRecordError(
            "batch does not hold one record an offset",
            got=f"{count} records, {span} offsets",
        )
    if table.is_control[0]:
        raise InvalidRecordError("a client cannot write control records", got="a control batch")
    if table.producer_id[0] >= 0 and table.base_sequence[0] < 0:
        raise InvalidRecordError(
            "batch has a producer id but no sequence",
            got=f"base sequence {table.base_sequence[0]}",
            expected="0 and more",
        )


def _check_records(
    table: BatchTable, found: RecordSlots, config: "LogConfig", now_ms: int | None
) -> None:
    """Check keys and, unless `now_ms` is None, timestamps of all records."""
    slots = found.slots
    if "compact" in config.cleanup_policy and found.totals[s.TOTAL_KEY_NULLS]:
        raise InvalidRecordError(
            "a compacted topic needs a key in every record",
            got=f"no key in {_name_records(slots[:, s.SLOT_KEY_SIZE] < 0)}",
            expected="keys (cleanup.policy has compact)",
        )
    if now_ms is None:
        return
    if (table.attributes & TIMESTAMP_TYPE_MASK).any():
        raise InvalidTimestampError(
            "batch says LogAppendTime where the topic says CreateTime",
            expected="CreateTime (message.timestamp.type)",
        )
    earliest = max(now_ms - config.message_timestamp_before_max_ms, MIN_INT64)
    latest = min(now_ms + config.message_timestamp_after_max_ms, MAX_INT64)
    timestamp = slots[:, s.SLOT_TIMESTAMP]
    wrong = (timestamp < earliest) | (timestamp > latest)
    wrong &= timestamp != NO_TIMESTAMP
    if wrong.any():
        first = int(timestamp[int(np.argmax(wrong))])
        raise InvalidTimestampError(
            "timestamp is outside the topic's bounds",
            got=f"{first} ms, in {_name_records(wrong)}",
            expected=f"{earliest} to {latest} ms (message.timestamp.before.max.ms, "
            "message.timestamp.after.max.ms)",
        )


def _name_records(wrong: NDArray[np.bool_]) -> str:
    """Return the indexes of the records where `wrong`, bool[n], in words."""
    indexes = np.flatnonzero(wrong).tolist()
    named = ", ".join(map(str, indexes[:NAMED_RECORDS]))
    more = f" and {len(indexes) - NAMED_RECORDS} more" if len(indexes) > NAMED_RECORDS else ""
    return f"record{'s' if len(indexes) > 1 else ''} {named}{more}"


def _to_rebuild(
    table: BatchTable, found: RecordSlots, codec: CompressionType | None
) -> NDArray[np.bool_]:
    """Return bool[b]: the batches that cannot stay as they are. Control batches always can."""
    first = np.repeat(np.cumsum(found.rows) - found.rows, found.rows)
    due = np.repeat(table.base_offset, found.rows) + np.arange(len(found.slots)) - first
    uneven = np.zeros(len(table), np.bool_)
    batch_of_row = np.repeat(np.arange(len(table)), found.rows)
    uneven[batch_of_row[found.slots[:, s.SLOT_OFFSET] != due]] = True
    uneven |= (found.rows > 0) & (found.rows != table.last_offset - table.base_offset + 1)
    if codec is not None:
        uneven |= (table.codec != codec) & (found.rows > 0)
    stale: NDArray[np.bool_] = uneven & ~table.is_control
    return stale


def _rebuild(
    source: NDArray[np.uint8],
    table: BatchTable,
    found: RecordSlots,
    stale: NDArray[np.bool_],
    codec: CompressionType | None,
    level: int | None,
) -> tuple[NDArray[np.uint8], BatchTable]:
    """Build the stale batches anew, one for one, and put all one behind the other.

    Records, producer and transaction stay; offsets become consecutive.

    Source: LogValidator.buildRecordsAndAssignOffsets.
    """
    buffers, tables = [], []
    filled = row = 0
    for batch, rows in enumerate(found.rows.tolist()):
        one = table.slice(batch, batch + 1)
        if stale[batch]:
            slots = found.slots[row : row + rows].copy()
            slots[:, s.SLOT_OFFSET] = np.arange(rows)
            built = encode_slots(
                slots,
                (found.source, found.source, found.source),
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
            rewrite_headers(built.buffer, built.table, None)
            buffers.append(built.buffer)
            tables.append(built.table.moved(filled))
        else:
            start, size = int(one.position[0]), int(one.size[0])
            buffers.append(source[start : start + size])
            tables.append(one.moved(filled - start))
        filled += len(buffers[-1])
        row += rows
    return np.concatenate(buffers), BatchTable.concatenate(tables)


def _with_real_max_timestamps(
    buffer: NDArray[np.uint8], table: BatchTable, found: RecordSlots
) -> BatchTable:
    """Return the table with the largest timestamps that the records have, written in place."""
    full = found.rows > 0
    first = (np.cumsum(found.rows) - found.rows)[full]
    if not len(first):
        return table
    largest = np.maximum.reduceat(found.slots[:, s.SLOT_TIMESTAMP], first)
    fields = table.fields.copy()
    fields[full, MAX_TIMESTAMP] = largest
    corrected = BatchTable(fields)
    rewrite_headers(buffer, corrected, table)
    return corrected


def _largest(before: BatchTable, found: RecordSlots, after: BatchTable) -> tuple[int, int]:
    """Return the largest timestamp of all records, and the offset of the first that has it."""
    if not len(found.slots):
        return NO_TIMESTAMP, -1
    timestamp = found.slots[:, s.SLOT_TIMESTAMP]
    row = int(np.argmax(timestamp))
    largest = int(timestamp[row])
    if largest == NO_TIMESTAMP:
        return NO_TIMESTAMP, -1
    ends = np.cumsum(found.rows)
    batch = int(np.searchsorted(ends, row, side="right"))
    if after is before:
        return largest, int(found.slots[row, s.SLOT_OFFSET])
    return largest, int(after.base_offset[batch] + row - (ends[batch] - found.rows[batch]))
