"""Building v2 batches: record by record, or whole columns at once.

`BatchBuilder` is for a few records and for every odd batch there may be (control records, offset
gaps, delete horizons). `encode_columns` is the way of the sink and of `produce`: columns in, whole
batches out, compiled. `patch_batches` turns such batches, whose offsets start at 0, into those of
a partition.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, read_only
from streamlog.binary.compression import compress
from streamlog.binary.crc import crc32c
from streamlog.binary.varint import plain_write_varlong
from streamlog.errors import InvalidRecordError, InvalidTimestampError
from streamlog.records.batch import BatchTable, scan_batches
from streamlog.records.columns import BinaryColumn, HeaderColumn
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    BATCH_HEADER,
    CONTROL_MASK,
    CRC_OFFSET,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    MAX_INT32,
    MAX_RECORD_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.record import NO_TIMESTAMP, CompressionType, Record

__all__ = [
    "BatchBuilder",
    "EncodedBatches",
    "InputColumns",
    "encode_columns",
    "patch_batches",
]


class InputColumns(NamedTuple):
    """n records to be written; a column that is None is null (or empty, for headers) throughout.

    `timestamp` is int64[n] in ms. A `RecordColumns` will do as well.
    """

    timestamp: NDArray[np.int64]
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeaderColumn | None


class EncodedBatches(NamedTuple):
    """Whole batches: their bytes (uint8[m]) and headers. Offsets run from 0 without a gap."""

    buffer: NDArray[np.uint8]
    table: BatchTable

    @property
    def count(self) -> int:
        """How many records."""
        return int(self.table.count.sum())


class BatchBuilder:
    """Builds one v2 batch, record by record.

    Args:
        base_offset: Offset of the first record; records without one count on from there.
        compression: The codec.
        level: The codec's level, None for its default.
        log_append_time: The timestamp all records get (a LogAppendTime topic), None for their own.
        producer_id: The idempotent producer, -1 for none.
        producer_epoch: Its epoch.
        base_sequence: Sequence of the first record.
        is_transactional: Whether the batch belongs to a transaction.
        is_control: Whether it holds control records.
        partition_leader_epoch: The leader's epoch, -1 unknown.
        delete_horizon_ms: When its tombstones may go, None for no horizon.

    Source: MemoryRecordsBuilder.
    """

    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression: CompressionType = CompressionType.NONE,
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
        self._base_offset = base_offset
        self._next_offset = base_offset
        self._compression, self._level = compression, level
        self._log_append_time = log_append_time
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._is_transactional, self._is_control = is_transactional, is_control
        self._partition_leader_epoch = partition_leader_epoch
        self._delete_horizon_ms = delete_horizon_ms
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._records: list[bytes] = []
        self._size = RECORD_BATCH_OVERHEAD

    @property
    def count(self) -> int:
        """Records so far."""
        return len(self._records)

    @property
    def size(self) -> int:
        """Bytes so far, before compression."""
        return self._size

    def size_with(self, record: Record) -> int:
        """Return at most how many bytes the batch would have with `record`, uncompressed."""
        headers = sum(len(h.key) * 4 + len(h.value or b"") + 10 for h in record.headers)
        content = len(record.key or b"") + len(record.value or b"")
        return self._size + MAX_RECORD_OVERHEAD + content + headers

    def append(self, record: Record) -> None:
        """Add a record.

        Args:
            record: Its offset, where it has one, must be above the last; its timestamp must be
                at least 0, or -1 (or None) for none.

        Raises:
            InvalidRecordError: An offset that does not rise or lies too far from the base.
            InvalidTimestampError: A negative timestamp other than -1.
        """
        offset = record.offset if record.offset >= 0 else self._next_offset
        if offset < self._next_offset or offset - self._base_offset > MAX_INT32:
            raise InvalidRecordError(
                "offset cannot follow in this batch",
                offset=offset,
                expected=f"{self._next_offset} to {self._base_offset + MAX_INT32}",
            )
        timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        if timestamp < NO_TIMESTAMP:
            raise InvalidTimestampError(
                "negative timestamp", offset=offset, got=str(timestamp), expected="at least 0, or -1"
            )
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        body = _encode_body(record, timestamp - self._base_timestamp, offset - self._base_offset)
        encoded = plain_write_varlong(len(body)) + body
        self._records.append(encoded)
        self._size += len(encoded)
        self._next_offset = offset + 1
        self._max_timestamp = max(self._max_timestamp, timestamp)

    def build(self) -> bytes:
        """Return the batch.

        Raises:
            InvalidRecordError: No record was added.
        """
        if not self._records:
            raise InvalidRecordError("a batch needs a record", got="none", expected="one or more")
        plain = b"".join(self._records)
        payload = (
            plain
            if self._compression is CompressionType.NONE
            else compress(self._compression, plain, level=self._level)
        )
        stamped = self._log_append_time is not None
        attributes = (
            self._compression
            | (TIMESTAMP_TYPE_MASK if stamped else 0)
            | (TRANSACTIONAL_MASK if self._is_transactional else 0)
            | (CONTROL_MASK if self._is_control else 0)
            | (DELETE_HORIZON_MASK if self._delete_horizon_ms is not None else 0)
        )
        header = BATCH_HEADER.pack(
            self._base_offset,
            RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(payload),
            self._partition_leader_epoch,
            CURRENT_MAGIC,
            0,
            attributes,
            self._next_offset - 1 - self._base_offset,
            self._base_timestamp,
            self._log_append_time if stamped else self._max_timestamp,
            *self._producer,
            len(self._records),
        )
        batch = bytearray(header + payload)
        _store_crc(batch, 0, len(batch))
        return bytes(batch)


def _encode_body(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    parts = [b"\0", plain_write_varlong(timestamp_delta), plain_write_varlong(offset_delta)]
    parts += _encode_field(record.key)
    parts += _encode_field(record.value)
    parts.append(plain_write_varlong(len(record.headers)))
    for header in record.headers:
        if header.key is None:
            raise InvalidRecordError("a header key cannot be null", offset=record.offset)
        parts += _encode_field(header.key.encode())
        parts += _encode_field(header.value)
    return b"".join(parts)


def _encode_field(field: bytes | None) -> list[bytes]:
    if field is None:
        return [plain_write_varlong(-1)]
    return [plain_write_varlong(len(field)), field]


def _store_crc(batch: bytearray | memoryview, start: int, end: int) -> None:
    crc = crc32c(memoryview(batch)[start + ATTRIBUTES_OFFSET : end])
    batch[start + CRC_OFFSET : start + ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")


def encode_columns(
    columns: InputColumns,
    *,
    rows: NDArray[np.int64] | None = None,
    compression: CompressionType = CompressionType.NONE,
    level: int | None = None,
    batch_size: int = 1 << 20,
) -> EncodedBatches:
    """Return records as whole batches with offsets from 0, no epoch and no producer.

    Args:
        columns: The records.
        rows: int64[k], which records in which order; None for all as they stand.
        compression: The codec.
        level: The codec's level, None for its default.
        batch_size: The most bytes of a batch before compression; a record that is larger alone
            gets a batch of its own.

    Returns:
        The batches; none for no records.
    """
    from streamlog.records import encode_kernels as kernels

    timestamp = read_only(columns.timestamp, np.int64)
    chosen = read_only(np.arange(timestamp.size) if rows is None else rows, np.int64)
    key, value = _flat(columns.key), _flat(columns.value)
    header = _flat_headers(columns.headers)
    room = 4
    while True:
        plan = np.empty((3, room), np.int64)
        count = kernels.plan_batches(chosen, timestamp, key, value, header, batch_size, plan)
        if count != kernels.OUT_OF_ROOM:
            break
        room *= 8
    writer = _BatchWriter(chosen, timestamp, (key, value, header), compression, level)
    target = np.empty(int(plan[1, :count].sum()), np.uint8)
    position = 0
    parts = []
    for end, size, largest in plan[:, :count].T.tolist():
        if compression is CompressionType.NONE:
            writer.write(target, position, end, largest, size)
            position += size
        else:
            parts.append(writer.pack(end, largest, size))
    buffer = target if compression is CompressionType.NONE else np.concatenate([_NO_ROOM, *parts])
    return EncodedBatches(buffer, scan_batches(buffer).table)


class _BatchWriter:
    """Writes one batch after the other from the chosen rows of some columns."""

    def __init__(
        self,
        rows: NDArray[np.int64],
        timestamp: NDArray[np.int64],
        columns: tuple[Any, Any, Any],
        compression: CompressionType,
        level: int | None,
    ) -> None:
        self._rows, self._timestamp, self._columns = rows, timestamp, columns
        self._compression, self._level = compression, level
        self._first = 0

    def write(
        self, target: NDArray[np.uint8], position: int, end: int, largest: int, size: int
    ) -> None:
        """Write the rows up to `end` as an uncompressed batch of `size` bytes."""
        self._write_records(target, position + RECORD_BATCH_OVERHEAD, end)
        self._write_header(target, position, end, largest, size)

    def pack(self, end: int, largest: int, size: int) -> NDArray[np.uint8]:
        """Return the rows up to `end` as a compressed batch, `size` bytes before compression."""
        plain = np.empty(size - RECORD_BATCH_OVERHEAD, np.uint8)
        self._write_records(plain, 0, end)
        packed = compress(self._compression, plain.data, level=self._level)
        batch = np.empty(RECORD_BATCH_OVERHEAD + len(packed), np.uint8)
        batch[RECORD_BATCH_OVERHEAD:] = np.frombuffer(packed, np.uint8)
        self._write_header(batch, 0, end, largest, batch.size)
        return batch

    def _write_records(self, target: NDArray[np.uint8], position: int, end: int) -> None:
        from streamlog.records import encode_kernels as kernels

        span = (self._first, end)
        kernels.write_records(
            target, position, self._rows, span, self._timestamp, *self._columns
        )

    def _write_header(
        self, target: NDArray[np.uint8], position: int, end: int, largest: int, size: int
    ) -> None:
        first, self._first = self._first, end
        BATCH_HEADER.pack_into(
            target.data,
            position,
            first,
            size - LOG_OVERHEAD,
            NO_PARTITION_LEADER_EPOCH,
            CURRENT_MAGIC,
            0,
            int(self._compression),
            end - first - 1,
            int(self._timestamp[self._rows[first]]),
            largest,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            end - first,
        )
        _store_crc(target.data, position, position + size)


_Flat = tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]
_NO_ROOM = np.zeros(0, np.uint8)
_NO_BYTES = read_only(_NO_ROOM, np.uint8)
_NO_OFFSETS = read_only(np.zeros(1, np.int32), np.int32)


def _flat(column: BinaryColumn | None) -> _Flat:
    if column is None:
        return _NO_OFFSETS, _NO_BYTES, _NO_BYTES
    validity = _NO_BYTES if column.validity is None else read_only(column.validity, np.uint8)
    return read_only(column.offsets, np.int32), read_only(column.data, np.uint8), validity


def _flat_headers(headers: HeaderColumn | None) -> tuple[NDArray[np.generic], ...]:
    if headers is None:
        return (_NO_OFFSETS, *_flat(None), *_flat(None))
    return (read_only(headers.offsets, np.int32), *_flat(headers.key), *_flat(headers.value))


def patch_batches(
    buffer: NDArray[np.uint8],
    table: BatchTable,
    *,
    base_offset: int,
    leader_epoch: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    max_timestamp: int | None = None,
) -> BatchTable:
    """Give batches the offsets, epoch and producer of a partition, in place.

    Args:
        buffer: uint8[m], writable.
        table: The batches in it; their offsets without gaps.
        base_offset: Offset of the first record.
        leader_epoch: The leader's epoch.
        producer_id: The producer, -1 for none.
        producer_epoch: Its epoch.
        base_sequence: Sequence of the first record; counts on and wraps behind 2³¹−1 to 0.
        max_timestamp: The append time all records get, None to keep their own.

    Returns:
        The headers as they are now.

    Source: DefaultRecordBatch.setLastOffset, setPartitionLeaderEpoch, setMaxTimestamp.
    """
    view = buffer.data
    offset, sequence = base_offset, base_sequence
    for position, size in zip(table.position.tolist(), table.size.tolist(), strict=True):
        fields = list(BATCH_HEADER.unpack_from(view, position))
        fields[0], fields[2] = offset, leader_epoch
        if max_timestamp is not None:
            fields[5] |= TIMESTAMP_TYPE_MASK
            fields[8] = max_timestamp
        fields[9:12] = producer_id, producer_epoch, sequence
        BATCH_HEADER.pack_into(view, position, *fields)
        _store_crc(view, position, position + size)
        taken = fields[6] + 1
        offset += taken
        if sequence >= 0:
            sequence = (sequence + taken) & MAX_INT32
    return scan_batches(buffer).table
