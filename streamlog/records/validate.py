"""What a leader checks before it appends, and what it assigns.

Batches arrive with offsets that mean nothing yet. Here they get their offsets, the leader's epoch
and, where the topic stamps the time of the append, that time. Where codec and timestamps fit, the
bytes stay as they are and only header fields change; where the topic's `compression.type` asks
for another codec, the batch is built anew. Source: org.apache.kafka.storage.internals.log.
LogValidator, UnifiedLog.analyzeAndValidateRecords.
"""

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer
from streamlog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedForMessageFormatError,
)
from streamlog.records.batch import BatchTable, ScanStop, check_crc, scan_batches
from streamlog.records.builder import InputColumns, encode_columns, patch_batches
from streamlog.records.columns import RecordColumns, decode_columns
from streamlog.records.layout import TIMESTAMP_TYPE_MASK
from streamlog.records.record import NO_TIMESTAMP, CompressionType

if TYPE_CHECKING:
    from streamlog.config import LogConfig

__all__ = ["AppendOrigin", "ValidatedBatches", "validate_append"]


class AppendOrigin(Enum):
    """Who sends an append; decides how strictly it is checked.

    Source: org.apache.kafka.storage.internals.log.AppendOrigin; COMMIT is ours.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
    COMMIT = "commit"


class ValidatedBatches(NamedTuple):
    """Batches ready to be written: bytes of our own, and their headers."""

    buffer: NDArray[np.uint8]
    table: BatchTable


def validate_append(
    batches: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    config: "LogConfig",
    now_ms: int,
    origin: AppendOrigin,
) -> ValidatedBatches:
    """Check batches as a leader does and give them their place in the log.

    Args:
        batches: Whole v2 batches; left as they are.
        base_offset: The log end, offset of the first record.
        leader_epoch: The leader's epoch.
        config: The topic's settings.
        now_ms: The time of the append.
        origin: Who sends them.

    Returns:
        The batches to write.

    Raises:
        InvalidRecordError: A record or batch that this topic refuses.
        InvalidTimestampError: A timestamp outside the topic's bounds.
        MessageTooLargeError: A batch above `max.message.bytes`.
        CorruptRecordError: A checksum or a structure is wrong.
        UnsupportedForMessageFormatError: Format v0 or v1.
    """
    table = _whole(batches)
    _check_headers(table, config, origin)
    buffer = np.array(np.frombuffer(batches, np.uint8))
    stamped = config.message_timestamp_type == "LogAppendTime"
    columns = _check_records(buffer, table, config, now_ms, stamped=stamped)
    target, level = target_codec(config)
    if target is not None and (table.codec != target).any() and not table.is_control.any():
        if columns is None:
            columns = decode_columns(buffer, table)
        buffer, table = _rebuild(columns, table, target, level)
        _check_sizes(table, config)
    table = _assign(buffer, table, base_offset, leader_epoch, now_ms if stamped else None)
    return ValidatedBatches(buffer, table)


def target_codec(config: "LogConfig") -> tuple[CompressionType | None, int | None]:
    """Return the codec and level a topic wants, None for whatever the producer chose."""
    kind = config.compression_type
    if kind == "producer":
        return None, None
    level = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }.get(kind)
    return CompressionType.of(kind), level


def _whole(batches: Buffer) -> BatchTable:
    scan = scan_batches(batches)
    if scan.stop is ScanStop.BAD_MAGIC:
        raise UnsupportedForMessageFormatError(
            "only batches of format v2 can be appended", position=scan.consumed, expected="magic 2"
        )
    if scan.stop is not ScanStop.END or len(scan.table) == 0:
        raise CorruptRecordError(
            "not whole record batches",
            position=scan.consumed,
            got=scan.stop.name.lower(),
            expected="one or more batches up to the end of the bytes",
        )
    good = check_crc(batches, scan.table)
    if good < len(scan.table):
        raise CorruptRecordError(
            "record batch fails its checksum",
            position=int(scan.table.position[good]),
            got="another CRC-32C over its bytes",
            expected=f"{int(scan.table.crc[good]):#010x}",
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


def _check_headers(table: BatchTable, config: "LogConfig", origin: AppendOrigin) -> None:
    _check_sizes(table, config)
    spans = table.last_offset - table.base_offset + 1
    if (table.count <= 0).any() or (table.count != spans).any():
        at = int(np.flatnonzero((table.count <= 0) | (table.count != spans))[0])
        _refuse(
            table,
            at,
            "batch does not hold one record an offset",
            f"{int(table.count[at])} records, {int(spans[at])} offsets",
        )
    if origin is not AppendOrigin.CLIENT:
        return
    if table.is_control.any():
        _refuse(table, 0, "a client cannot write control records", "a control batch")
    nameless = (table.producer_id >= 0) & (table.base_sequence < 0)
    if nameless.any():
        at = int(np.flatnonzero(nameless)[0])
        _refuse(table, at, "an idempotent producer's batch needs a sequence", "none")
    create_time = config.message_timestamp_type != "LogAppendTime"
    if create_time and (table.attributes & TIMESTAMP_TYPE_MASK).any():
        raise InvalidTimestampError(
            "batch says LogAppendTime while the topic says CreateTime",
            expected="CreateTime (message.timestamp.type)",
        )


def _refuse(table: BatchTable, at: int, what: str, got: str) -> NoReturn:
    raise InvalidRecordError(what, position=int(table.position[at]), got=got)


def _check_records(
    buffer: NDArray[np.uint8],
    table: BatchTable,
    config: "LogConfig",
    now_ms: int,
    *,
    stamped: bool,
) -> RecordColumns | None:
    """Check every record's structure, key and timestamp; return the records if they were needed."""
    compacted = "compact" in config.cleanup_policy
    columns = decode_columns(
        buffer, table, columns=("key",) if compacted else (), drop_control=False
    )
    plain = ~table.is_control
    if compacted and columns.key is not None and columns.key.null_count and plain.all():
        raise InvalidRecordError(
            "a compacted topic needs a key in every record",
            got=f"{columns.key.null_count} records without a key",
            expected="none (cleanup.policy has compact)",
        )
    if not stamped and columns.count:
        _check_timestamps(columns.timestamp, config, now_ms)
    return None


def _check_timestamps(timestamp: NDArray[np.int64], config: "LogConfig", now_ms: int) -> None:
    earliest = max(0, now_ms - config.message_timestamp_before_max_ms)
    latest = min(2**63 - 1, now_ms + config.message_timestamp_after_max_ms)
    wrong = (timestamp != NO_TIMESTAMP) & ((timestamp < earliest) | (timestamp > latest))
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise InvalidTimestampError(
            f"timestamp of record {index} is outside the topic's bounds",
            got=f"{int(timestamp[index])} ms",
            expected=f"{earliest} to {latest} ms (message.timestamp.before.max.ms, "
            "message.timestamp.after.max.ms)",
        )


def _rebuild(
    columns: RecordColumns, table: BatchTable, codec: CompressionType, level: int | None
) -> tuple[NDArray[np.uint8], BatchTable]:
    """Build the batches anew with another codec, one for one, producers kept."""
    inputs = InputColumns(columns.timestamp, columns.key, columns.value, columns.headers)
    parts, first = [], 0
    producers = zip(
        table.count.tolist(),
        table.producer_id.tolist(),
        table.producer_epoch.tolist(),
        table.base_sequence.tolist(),
        strict=True,
    )
    for count, producer_id, producer_epoch, base_sequence in producers:
        rows = np.arange(first, first + count)
        built = encode_columns(inputs, rows=rows, compression=codec, level=level, batch_size=1 << 31)
        patch_batches(
            built.buffer,
            built.table,
            base_offset=0,
            leader_epoch=-1,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        parts.append(built.buffer)
        first += count
    buffer = np.concatenate(parts)
    return buffer, scan_batches(buffer).table


def _assign(
    buffer: NDArray[np.uint8],
    table: BatchTable,
    base_offset: int,
    leader_epoch: int,
    log_append_time: int | None,
) -> BatchTable:
    """Write offsets and epoch into the headers; only a stamped time touches the checksum."""
    if log_append_time is not None:
        offset = base_offset
        for at in range(len(table)):
            one = table.slice(at, at + 1)
            patch_batches(
                buffer,
                one,
                base_offset=offset,
                leader_epoch=leader_epoch,
                producer_id=int(one.producer_id[0]),
                producer_epoch=int(one.producer_epoch[0]),
                base_sequence=int(one.base_sequence[0]),
                max_timestamp=log_append_time,
            )
            offset += int(one.count[0])
        return scan_batches(buffer).table
    spans = table.last_offset - table.base_offset + 1
    offsets = base_offset + np.concatenate(([0], np.cumsum(spans)[:-1]))
    view = buffer.data
    for position, offset in zip(table.position.tolist(), offsets.tolist(), strict=True):
        view[position : position + 8] = int(offset).to_bytes(8, "big")
        view[position + 12 : position + 16] = leader_epoch.to_bytes(4, "big", signed=True)
    rows = table.rows.copy()
    rows[2], rows[3], rows[4] = offsets, offsets + spans - 1, leader_epoch
    return BatchTable(rows)
