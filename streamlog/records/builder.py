"""Building v2 batches: record by record, or from whole columns.

`BatchBuilder` is for a few records and for unusual batches (control records, delete horizons).
`encode_columns` serves sinks, `produce` and copies: columns in, whole batches out, compiled.
`patch_batches` turns batches whose offsets start at 0 into those of a partition.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import read_only
from streamlog.binary.compression import check_level, compress
from streamlog.binary.crc import crc32c
from streamlog.errors import (
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
)
from streamlog.records.columns import InputArrays, InputColumns, RecordColumns, input_arrays
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    BATCH_HEADER,
    CONTROL_MASK,
    CRC_OFFSET,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    MAX_INT16,
    MAX_INT32,
    MAX_INT64,
    MAX_RECORD_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.plain_headers import header_loops
from streamlog.records.record import NO_TIMESTAMP, CompressionType, Record, checked_record
from streamlog.records.slot import OUT_OF_ROOM, RECORD_TOO_LARGE
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    WIDTH,
    BatchTable,
)

__all__ = [
    "DEFAULT_BATCH_SIZE",
    "BatchBuilder",
    "EncodedBatches",
    "InputColumns",
    "KeptOffsets",
    "encode_columns",
    "patch_batches",
    "rewrite_headers",
]

DEFAULT_BATCH_SIZE: Final = 1 << 20
MEANINGFUL_ATTRIBUTES: Final = 0x7F  # the bits that DefaultRecordBatch.computeAttributes writes
BATCHES_AT_FIRST: Final = 64  # initial room, when writing
MAX_SIZE_PREFIX: Final = 5  # of a header's key or value
MAX_OVERHEAD: Final = MAX_RECORD_OVERHEAD + 3 * MAX_SIZE_PREFIX  # sizes, number of headers
SEQUENCES: Final = MAX_INT32 + 1  # a sequence is 0 to 2**31 - 1


class KeptOffsets(NamedTuple):
    """Where records that have offsets already lie in their partition.

    Attributes:
        offsets: int64[k], those of the records, ascending.
        first_offset: Where the first batch begins, at most the offset of the first record.
        end_offset: Where the last batch ends, above the offset of the last record.
        leader_epoch: The epoch of all, -1 for none.
    """

    offsets: NDArray[np.int64]
    first_offset: int
    end_offset: int
    leader_epoch: int


class EncodedBatches(NamedTuple):
    """Whole batches: their bytes, uint8[m], and headers."""

    buffer: NDArray[np.uint8]
    table: BatchTable

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.table.count.sum())


# ---- record by record ------------------------------------------------------------------------
class BatchBuilder:
    """Builds one v2 batch, record by record.

    Args:
        base_offset: Offset of the first record, kept also if records start later.
        last_offset: Last offset of the batch if it is above that of its last record.
        compression: The codec, or its name.
        level: The codec's level, None for its default.
        log_append_time: Timestamp of all records (a LogAppendTime topic), None for their own.
        producer_id: The idempotent producer, -1 for none.
        producer_epoch: Its epoch.
        base_sequence: Sequence of the first record.
        is_transactional: Whether the batch belongs to a transaction.
        is_control: Whether it holds control records.
        partition_leader_epoch: The leader's epoch, -1 if unknown.
        delete_horizon_ms: When its tombstones may be dropped, None for no horizon.

    Raises:
        InvalidRequestError: A number out of its field's range, or a transaction without producer.

    Source: MemoryRecordsBuilder, DefaultRecordBatch.writeHeader.
    """

    def __init__(
        self,
        *,
        base_offset: int = 0,
        last_offset: int | None = None,
        compression: str | CompressionType = CompressionType.NONE,
        level: int | None = None,
        log_append_time: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        delete_horizon_ms: int | None = None,
    ) -> None:
        if producer_id == NO_PRODUCER_ID and is_transactional and not is_control:
            raise InvalidRequestError("a transactional batch needs a producer id")
        _check_field("base offset", base_offset, 0, MAX_INT64)
        _check_field("producer id", producer_id, NO_PRODUCER_ID, MAX_INT64)
        _check_field("producer epoch", producer_epoch, NO_PRODUCER_EPOCH, MAX_INT16)
        _check_field("base sequence", base_sequence, NO_SEQUENCE, MAX_INT32)
        _check_field("leader epoch", partition_leader_epoch, NO_PARTITION_LEADER_EPOCH, MAX_INT32)
        if last_offset is not None:
            _check_field("last offset", last_offset, base_offset, base_offset + MAX_INT32)
        for time in (log_append_time, delete_horizon_ms):
            if time is not None:
                _check_field("time", time, NO_TIMESTAMP, MAX_INT64)
        self._base_offset = base_offset
        self._next_offset = base_offset
        self._last_offset = last_offset
        self._compression = CompressionType.of(compression)
        check_level(self._compression, level)
        self._level = level
        self._log_append_time = log_append_time
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._partition_leader_epoch = partition_leader_epoch
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._attributes = (
            self._compression
            | (TIMESTAMP_TYPE_MASK if log_append_time is not None else 0)
            | (TRANSACTIONAL_MASK if is_transactional else 0)
            | (CONTROL_MASK if is_control else 0)
            | (DELETE_HORIZON_MASK if delete_horizon_ms is not None else 0)
        )
        self._records = bytearray()
        self._count = 0

    @property
    def count(self) -> int:
        """Records so far."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes so far, before compression."""
        return RECORD_BATCH_OVERHEAD + len(self._records)

    def size_with(self, record: Record) -> int:
        """Return an upper bound of the batch's bytes with `record`, before compression."""
        headers = sum(
            len(header.key.encode()) + len(header.value or b"") + 2 * MAX_SIZE_PREFIX
            for header in record.headers
        )
        fields = len(record.key or b"") + len(record.value or b"")
        return self.size + MAX_RECORD_OVERHEAD + fields + headers

    def append(self, record: Record) -> None:
        """Add a record.

        Args:
            record: Its offset, if any, must be above the last; its timestamp must be at least 0, or
                -1 (or None) for none.

        Raises:
            InvalidRecordError: An offset that does not ascend or lies too far from the base, or a
                field of a wrong type.
            InvalidTimestampError: A negative timestamp other than -1.
            MessageTooLargeError: The batch would reach 2 GiB.
        """
        record = checked_record(record, self._count)
        offset = record.offset if record.offset >= 0 else self._next_offset
        if offset < self._next_offset or offset - self._base_offset > MAX_INT32:
            raise InvalidRecordError(
                "offset does not follow in this batch",
                offset=offset,
                expected=f"{self._next_offset} to {self._base_offset + MAX_INT32}",
            )
        timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        if not NO_TIMESTAMP <= timestamp <= MAX_INT64:
            raise InvalidTimestampError(
                "timestamp is negative, or has more than 63 bits",
                offset=offset,
                got=timestamp,
                expected="0 and more, or -1",
            )
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        body = _encode_body(record, timestamp - self._base_timestamp, offset - self._base_offset)
        encoded = encode_varlong(len(body)) + body
        if len(encoded) > MAX_INT32 - self.size:
            raise MessageTooLargeError("batch would reach 2 GiB", got=self.size + len(encoded))
        self._records += encoded
        self._count += 1
        self._next_offset = offset + 1
        self._max_timestamp = max(self._max_timestamp, timestamp)

    def build(self) -> bytes:
        """Return the batch.

        Raises:
            InvalidRecordError: No record was added.
        """
        if not self._count:
            raise InvalidRecordError("a batch needs a record", got="none", expected="one or more")
        payload = compress(self._compression, self._records, level=self._level)
        last_offset = self._next_offset - 1 if self._last_offset is None else self._last_offset
        stamped = self._log_append_time is not None
        header = BATCH_HEADER.pack(
            self._base_offset,
            RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(payload),
            self._partition_leader_epoch,
            CURRENT_MAGIC,
            0,
            self._attributes,
            last_offset - self._base_offset,
            self._base_timestamp,
            self._log_append_time if stamped else self._max_timestamp,
            *self._producer,
            self._count,
        )
        batch = bytearray(header + payload)
        crc = crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:])
        batch[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
        return bytes(batch)


def _check_field(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequestError(
            f"invalid {name} for a batch", got=value, expected=f"{least} to {most}"
        )


def encode_varlong(value: int) -> bytes:
    """Return `value`, an int64, as varlong, without numba."""
    bits = value << 1 if value >= 0 else ~(value << 1)
    groups = bytearray()
    while bits > 0x7F:
        groups.append(bits & 0x7F | 0x80)
        bits >>= 7
    groups.append(bits)
    return bytes(groups)


def _encode_body(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    wrapped = (timestamp_delta + (1 << 63)) % (1 << 64) - (1 << 63)  # overflows like Java's long
    parts = [b"\0", encode_varlong(wrapped), encode_varlong(offset_delta)]
    parts += _encode_field(record.key)
    parts += _encode_field(record.value)
    parts.append(encode_varlong(len(record.headers)))
    for key, value in record.headers:
        parts += _encode_field(key.encode())
        parts += _encode_field(value)
    return b"".join(parts)


def _encode_field(field: bytes | None) -> tuple[bytes, ...]:
    if field is None:
        return (encode_varlong(-1),)
    return encode_varlong(len(field)), field


# ---- whole columns -----------------------------------------------------------------------------
def encode_columns(
    columns: InputColumns | RecordColumns,
    *,
    rows: NDArray[np.int64] | None = None,
    compression: CompressionType = CompressionType.NONE,
    level: int | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    max_decompressed: int = MAX_INT32,
    log_append_time: int | None = None,
    kept: KeptOffsets | None = None,
) -> EncodedBatches:
    """Write records as whole v2 batches, without producer.

    Args:
        columns: The records.
        rows: int64[k], which rows to take, in this order; None: all in order.
        compression: The codec.
        level: The codec's level, None for its default.
        batch_size: Limit of a batch in bytes; a larger record gets a batch of its own.
        max_decompressed: Limit of the uncompressed records of a compressed batch, in bytes.
        log_append_time: Timestamp of all records (a LogAppendTime topic), None for their own.
        kept: Offsets to keep, and the epoch; None: offsets from 0, no epoch.

    Returns:
        The batches; none if there are no records.

    Raises:
        InvalidTimestampError: A negative timestamp other than -1.
        InvalidRecordError: A header without a key.
        InvalidRequestError: A row out of range, columns of unequal length, offsets of fields that
            decrease or exceed the bytes, or kept offsets that cannot be those of the records.
        MessageTooLargeError: A record of 2 GiB or more, or one that is to be compressed and larger
            than `max_decompressed`; `offset` is then its index among the rows.

    Source: MemoryRecordsBuilder, as a producer uses it.
    """
    attributes = compression | (0 if log_append_time is None else TIMESTAMP_TYPE_MASK)
    target = batch_size
    if compression is not CompressionType.NONE:
        # Batches are cut before compression, so that none exceeds a limit after it.
        target = min(_size_before(batch_size), max_decompressed)
    records = input_arrays(columns, rows)
    buffer, fields = _write(records, min(target, MAX_INT32), attributes, kept)
    if kept is not None:
        _keep_end(fields, kept)
    if log_append_time is not None:
        fields[:, MAX_TIMESTAMP] = log_append_time
    table = BatchTable(fields)
    if compression is not CompressionType.NONE:
        _refuse_larger(table, max_decompressed)
        buffer = _compress_batches(buffer, fields, compression, level)
    rewrite_headers(buffer, table, are_new=True)
    return EncodedBatches(buffer, table)


def _checked_offsets(kept: KeptOffsets, count: int) -> NDArray[np.int64]:
    """Return the offset before the first batch, then those of `count` records; refuse others."""
    bounds = np.concatenate(([kept.first_offset - 1], kept.offsets, [kept.end_offset]))
    if len(kept.offsets) != count or kept.first_offset < 0 or (np.diff(bounds) <= 0).any():
        raise InvalidRequestError(
            "offsets do not ascend within their range, one for each record",
            got=f"{len(kept.offsets)} offsets for {count} records",
            expected=f"{kept.first_offset} to {kept.end_offset - 1}, ascending",
        )
    return read_only(bounds[:-1], np.int64)


def _keep_end(fields: NDArray[np.int64], kept: KeptOffsets) -> None:
    """Give batches their epoch; the last one covers the offsets without records after it."""
    fields[:, LEADER_EPOCH] = kept.leader_epoch
    if len(fields) and kept.end_offset - 1 - int(fields[-1, BASE_OFFSET]) <= MAX_INT32:
        fields[-1, LAST_OFFSET] = kept.end_offset - 1


def _write(
    records: InputArrays, batch_size: int, attributes: int, kept: KeptOffsets | None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return records as uncompressed batches without headers, and the fields of the headers."""
    from streamlog.records import write_kernels as kernels

    offsets = None if kept is None else _checked_offsets(kept, records.row_count)
    size = records.size + records.row_count * MAX_OVERHEAD
    room = BATCHES_AT_FIRST
    while True:
        fields = np.empty((room, WIDTH), np.int64)
        buffer = np.empty(size + room * RECORD_BATCH_OVERHEAD, np.uint8)
        count = kernels.write_records(
            records.rows,
            records.row_count,
            records.timestamps,
            records.key,
            records.value,
            records.headers,
            offsets,
            batch_size,
            attributes,
            fields,
            buffer,
        )
        if count != OUT_OF_ROOM:
            break
        room *= 16  # few attempts: each writes everything again
    if count == RECORD_TOO_LARGE:
        raise MessageTooLargeError("a record has 2 GiB or more", expected=f"below {MAX_INT32}")
    if count < 0:
        raise InvalidRequestError("a column's offsets decrease, or exceed its bytes")
    fields = fields[:count].copy()  # releases the unused rows
    return buffer[: BatchTable(fields).end], fields


def _refuse_larger(table: BatchTable, max_decompressed: int) -> None:
    """Refuse a record, alone in its batch, that no reader would decompress."""
    sizes = table.size - RECORD_BATCH_OVERHEAD
    if (sizes > max_decompressed).any():
        batch = int((sizes > max_decompressed).argmax())
        raise MessageTooLargeError(
            "a record is larger than a compressed batch may decompress to",
            offset=int(table.base_offset[batch]),
            got=f"{int(sizes[batch])} bytes",
            expected=f"at most {max_decompressed} (streamlog.max.decompressed.bytes)",
        )


def _size_before(batch_size: int) -> int:
    """Return the size before compression above which a batch might exceed `batch_size`.

    Incompressible data grows: by 4 bytes per block of 64 KiB (lz4), 10 per block of 32 KiB
    (snappy), 5 per block of 16 KiB (gzip), 3 per block of 128 KiB (zstd), and by a frame's header.
    """
    return batch_size - (batch_size >> 10) - 64


def _compress_batches(
    buffer: NDArray[np.uint8],
    fields: NDArray[np.int64],
    compression: CompressionType,
    level: int | None,
) -> NDArray[np.uint8]:
    """Return the batches with compressed records; updates sizes and positions in `fields`."""
    view = buffer.data
    room = bytes(RECORD_BATCH_OVERHEAD)  # for the header, which is written last
    parts: list[bytes] = []
    filled = 0
    for batch, (position, size) in enumerate(fields[:, POSITION : SIZE + 1].tolist()):
        records = view[position + RECORD_BATCH_OVERHEAD : position + size]
        payload = compress(compression, records, level=level)
        parts += (room, payload)
        fields[batch, POSITION] = filled
        fields[batch, SIZE] = RECORD_BATCH_OVERHEAD + len(payload)
        filled += RECORD_BATCH_OVERHEAD + len(payload)
    return np.frombuffer(bytearray().join(parts), np.uint8)


# ---- headers in place ----------------------------------------------------------------------------
def patch_batches(
    buffer: NDArray[np.uint8],
    table: BatchTable,
    *,
    base_offset: int,
    leader_epoch: int,
    producer_id: int | None = None,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
    max_timestamp: int | None = None,
) -> BatchTable:
    """Assign batches their place in a partition, in place.

    Base offset and epoch are outside the checksum; if a field inside it is given, the checksum is
    computed again.

    Args:
        buffer: uint8[m], writable.
        table: The batches in it; fields that differ from their headers are written, too.
        base_offset: Offset of the first record; the others follow consecutively.
        leader_epoch: The leader's epoch.
        producer_id: The producer, -1 for none; None keeps the present one, as for the next two.
        producer_epoch: Its epoch.
        base_sequence: Sequence of the first record; counts up, and from 2**31 - 1 to 0.
        max_timestamp: The append time that all records get, None to keep their own.

    Returns:
        The new headers.

    Source: DefaultRecordBatch.setLastOffset, setPartitionLeaderEpoch, setMaxTimestamp.
    """
    fields = table.fields.copy()
    if producer_id is not None:
        fields[:, PRODUCER_ID] = producer_id
    if producer_epoch is not None:
        fields[:, PRODUCER_EPOCH] = producer_epoch
    if base_sequence == NO_SEQUENCE:
        fields[:, BASE_SEQUENCE] = NO_SEQUENCE
    elif base_sequence is not None:
        spans = fields[:, LAST_OFFSET] - fields[:, BASE_OFFSET] + 1
        # Each batch starts after the records of the earlier ones; sequences wrap around.
        fields[:, BASE_SEQUENCE] = (base_sequence + np.cumsum(spans) - spans) % SEQUENCES
    if max_timestamp is not None:
        fields[:, ATTRIBUTES] |= TIMESTAMP_TYPE_MASK
        fields[:, ATTRIBUTES] &= MEANINGFUL_ATTRIBUTES  # as Kafka, which computes them again
        fields[:, MAX_TIMESTAMP] = max_timestamp
    loops = header_loops(len(fields))
    written = loops.place_batches(fields, buffer, base_offset, leader_epoch)
    assert written == len(fields), (written, len(fields))
    return BatchTable(fields)


def rewrite_headers(buffer: NDArray[np.uint8], table: BatchTable, *, are_new: bool = False) -> None:
    """Write the headers of `table` into `buffer`, with new checksums where they change.

    Args:
        buffer: uint8[m], writable, the batches.
        table: The headers; their checksums are updated.
        are_new: Whether `buffer` has no headers yet.
    """
    loops = header_loops(len(table))
    written = loops.write_headers(table.fields, buffer, are_new)
    assert written == len(table), (written, len(table))
