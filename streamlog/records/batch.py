"""A record batch of format v2, and tables of many: views of bytes, nothing decoded.

`RecordBatch` looks at one batch in a buffer. `scan_batches` finds all whole batches at the front
of a buffer and returns their headers as one `BatchTable`: an int64 array a field, an element a
batch. `FORMAT.md` beside this file has the layout.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, as_source
from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptRecordError, UnsupportedForMessageFormatError
from streamlog.records.layout import (
    BATCH_HEADER,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    ATTRIBUTES_OFFSET,
    HEADER_SIZE_UP_TO_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MIN_BATCH_LENGTH,
    MIN_LEGACY_LENGTH,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.record import CompressionType, Record, TimestampType

__all__ = [
    "BatchScan",
    "BatchTable",
    "RecordBatch",
    "ScanStop",
    "check_crc",
    "read_batches",
    "scan_batches",
]


class ScanStop(Enum):
    """Why a scan for batches stopped."""

    END = 0  # at the end of the bytes, behind a whole batch
    PARTIAL = 1  # inside a batch: a torn tail, or the end of what was read
    BAD_LENGTH = 2  # a length no batch can have
    BAD_MAGIC = 3  # not format v2
    BAD_HEADER = 4  # impossible offsets


class BatchTable:
    """The headers of many batches: an int64[n] a field, named as Kafka names them.

    Attributes:
        position: First byte in the scanned buffer.
        size: Bytes, the first twelve included.
        base_offset, last_offset: Offsets of the first and last record, also after compaction.
        leader_epoch: Epoch of the leader that appended it, -1 unknown.
        magic: 2.
        crc: Stored CRC-32C, 0 to 2³²−1.
        attributes: The raw bits.
        base_timestamp, max_timestamp: In ms; the base may be the delete horizon.
        producer_id, producer_epoch, base_sequence: -1 for none.
        count: Records the header claims.
    """

    FIELDS = (
        "position",
        "size",
        "base_offset",
        "last_offset",
        "leader_epoch",
        "magic",
        "crc",
        "attributes",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "count",
    )
    __slots__ = ("rows", *FIELDS)

    rows: NDArray[np.int64]
    position: NDArray[np.int64]
    size: NDArray[np.int64]
    base_offset: NDArray[np.int64]
    last_offset: NDArray[np.int64]
    leader_epoch: NDArray[np.int64]
    magic: NDArray[np.int64]
    crc: NDArray[np.int64]
    attributes: NDArray[np.int64]
    base_timestamp: NDArray[np.int64]
    max_timestamp: NDArray[np.int64]
    producer_id: NDArray[np.int64]
    producer_epoch: NDArray[np.int64]
    base_sequence: NDArray[np.int64]
    count: NDArray[np.int64]

    def __init__(self, rows: NDArray[np.int64]) -> None:
        self.rows = rows
        (
            self.position,
            self.size,
            self.base_offset,
            self.last_offset,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = rows

    @classmethod
    def empty(cls) -> "BatchTable":
        """Return a table of no batches."""
        return cls(np.empty((len(cls.FIELDS), 0), np.int64))

    @classmethod
    def concatenate(cls, tables: "list[BatchTable]") -> "BatchTable":
        """Return one table of all batches, positions as they are."""
        return cls(np.concatenate([table.rows for table in tables], axis=1))

    def __len__(self) -> int:
        return int(self.rows.shape[1])

    def slice(self, start: int, stop: int) -> "BatchTable":
        """Return batches `start` to `stop` - 1; a view."""
        return BatchTable(self.rows[:, start:stop])

    def select(self, keep: NDArray[np.bool_]) -> "BatchTable":
        """Return the batches where `keep` (bool[n]) holds."""
        return BatchTable(self.rows[:, keep])

    def moved(self, distance: int) -> "BatchTable":
        """Return a copy whose positions are `distance` bytes further on."""
        rows = self.rows.copy()
        rows[0] += distance
        return BatchTable(rows)

    @property
    def codec(self) -> NDArray[np.int64]:
        """Codec numbers, `CompressionType`'s and the illegal 5 to 7."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> NDArray[np.bool_]:
        """Whether each batch holds control records."""
        return (self.attributes & CONTROL_MASK) != 0

    @property
    def is_transactional(self) -> NDArray[np.bool_]:
        """Whether each batch belongs to a transaction."""
        return (self.attributes & TRANSACTIONAL_MASK) != 0

    @property
    def end(self) -> int:
        """The position behind the last batch, 0 where there is none."""
        return int(self.position[-1] + self.size[-1]) if len(self) else 0


class BatchScan(NamedTuple):
    """What a scan found: the batches, why it stopped, and where (bytes of whole batches)."""

    table: BatchTable
    stop: ScanStop
    consumed: int


def scan_batches(buffer: Buffer) -> BatchScan:
    """Find the whole batches at the front of `buffer`; checksums are not looked at.

    Args:
        buffer: Any bytes; nothing in them is trusted.

    Returns:
        The batches and why the scan stopped. Never raises.

    Source: ByteBufferLogInputStream, FileLogInputStream.
    """
    from streamlog.records import kernels

    array = as_source(buffer)
    end = np.zeros(2, np.int64)
    room = 16
    parts: list[NDArray[np.int64]] = []
    while True:
        rows = np.empty((kernels.ROWS, room), np.int64)
        count = kernels.scan(array, rows, end)
        parts.append(rows[:, :count])
        if end[1] != kernels.STOP_OUT_OF_ROOM:
            break
        # As many as the rest can hold if batches stay as large as the ones so far.
        left = array.size - int(end[0])
        mean = max(RECORD_BATCH_OVERHEAD, int(end[0]) // sum(part.shape[1] for part in parts))
        room = min(left // RECORD_BATCH_OVERHEAD + 1, left // mean * 5 // 4 + 64)
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return BatchScan(BatchTable(rows), ScanStop(int(end[1])), int(end[0]))


def check_crc(buffer: Buffer, table: BatchTable) -> int:
    """Return the index of the first batch whose stored checksum is wrong, len(table) for none.

    Args:
        buffer: The bytes that `table` was scanned from.
        table: The batches.
    """
    view = memoryview(buffer)
    for index, (position, size, crc) in enumerate(
        zip(table.position.tolist(), table.size.tolist(), table.crc.tolist(), strict=True)
    ):
        if crc32c(view[position + ATTRIBUTES_OFFSET : position + size]) != crc:
            return index
    return len(table)


class RecordBatch:
    """One v2 batch in a buffer; immutable. The header is parsed once, records on demand.

    Args:
        buffer: Bytes that start with the batch; what follows it is ignored.

    Raises:
        CorruptRecordError: Too short, or an impossible length.
        UnsupportedForMessageFormatError: Another magic than 2.

    Source: org.apache.kafka.common.record.DefaultRecordBatch.
    """

    __slots__ = ("_header", "buffer")

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        view = memoryview(buffer).toreadonly()
        size = _size_at_front(view)
        if view[MAGIC_OFFSET] != CURRENT_MAGIC:
            raise UnsupportedForMessageFormatError(
                "a batch of another format than v2", got=f"magic {view[MAGIC_OFFSET]}", expected="2"
            )
        if size < RECORD_BATCH_OVERHEAD or size > len(view):
            raise CorruptRecordError(
                "impossible batch length",
                got=f"{size - LOG_OVERHEAD} with {len(view) - LOG_OVERHEAD} bytes there",
                expected=f"at least {MIN_BATCH_LENGTH} and no more than are there",
            )
        self.buffer = view[:size]
        self._header = BATCH_HEADER.unpack_from(self.buffer)

    @property
    def base_offset(self) -> int:
        """Offset of the first record; kept when compaction removed that record."""
        return int(self._header[0])

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return len(self.buffer)

    @property
    def partition_leader_epoch(self) -> int:
        """Epoch of the leader that appended it, -1 unknown."""
        return int(self._header[2])

    @property
    def magic(self) -> int:
        """The format: 2."""
        return int(self._header[3])

    @property
    def crc(self) -> int:
        """The stored CRC-32C, 0 to 2³²−1."""
        return int(self._header[4])

    @property
    def attributes(self) -> int:
        """The raw attribute bits."""
        return int(self._header[5])

    @property
    def last_offset_delta(self) -> int:
        """Last offset minus base offset."""
        return int(self._header[6])

    @property
    def last_offset(self) -> int:
        """Offset of the last record; kept when compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset behind the last."""
        return self.last_offset + 1

    @property
    def base_timestamp(self) -> int:
        """What the records' timestamp deltas count from; the delete horizon where there is one."""
        return int(self._header[7])

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, or the append time; -1 for none."""
        return int(self._header[8])

    @property
    def producer_id(self) -> int:
        """The idempotent producer, -1 for none."""
        return int(self._header[9])

    @property
    def producer_epoch(self) -> int:
        """The producer's epoch, -1 for none."""
        return int(self._header[10])

    @property
    def base_sequence(self) -> int:
        """Sequence of the first record, -1 for none."""
        return int(self._header[11])

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 for none; 2³¹−1 is followed by 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & MAX_INT32

    @property
    def count(self) -> int:
        """Records the header claims."""
        return int(self._header[12])

    @property
    def compression_type(self) -> CompressionType:
        """The codec of the records.

        Raises:
            CorruptRecordError: A codec number that there is not.
        """
        number = self.attributes & COMPRESSION_MASK
        if number > max(CompressionType):
            raise CorruptRecordError(
                "unknown codec", offset=self.base_offset, got=str(number), expected="0 to 4"
            )
        return CompressionType(number)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps."""
        stamped = bool(self.attributes & TIMESTAMP_TYPE_MASK)
        return TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether it holds control records, which no consumer sees."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop its tombstones; None where nothing says so."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def is_valid(self) -> bool:
        """Whether the stored checksum is that of the bytes."""
        return crc32c(self.buffer[ATTRIBUTES_OFFSET:]) == self.crc

    def check(self, *, path: str | None = None, position: int | None = None) -> None:
        """Raise where the stored checksum is not that of the bytes.

        Raises:
            CorruptRecordError: It is not.
        """
        found = crc32c(self.buffer[ATTRIBUTES_OFFSET:])
        if found != self.crc:
            raise CorruptRecordError(
                "record batch fails its checksum",
                path=path,
                position=position,
                offset=self.base_offset,
                got=f"{found:#010x}",
                expected=f"{self.crc:#010x}",
            )

    def records(self) -> Iterator[Record]:
        """Yield the records, control records included.

        Raises:
            CorruptRecordError: The structure of the records is wrong.
        """
        from streamlog.records.columns import decode_columns

        table = scan_batches(self.buffer).table
        columns = decode_columns(self.buffer, table, drop_control=False)
        for record in columns.records():
            sequence = -1
            if self.base_sequence >= 0:
                sequence = (self.base_sequence + record.offset - self.base_offset) & MAX_INT32
            yield record._replace(sequence=sequence)

    def __repr__(self) -> str:
        return (
            f"<RecordBatch offsets {self.base_offset}..{self.last_offset}"
            f" count {self.count} size {self.size}>"
        )


def _size_at_front(view: memoryview) -> int:
    """Return the size that the batch at the front of `view` claims, within int32."""
    if len(view) < HEADER_SIZE_UP_TO_MAGIC:
        raise CorruptRecordError(
            "too few bytes for a batch",
            got=f"{len(view)} bytes",
            expected=f"at least {HEADER_SIZE_UP_TO_MAGIC}",
        )
    length = int.from_bytes(view[LENGTH_OFFSET:LOG_OVERHEAD], "big", signed=True)
    if length < MIN_LEGACY_LENGTH:
        raise CorruptRecordError(
            "impossible batch length", got=str(length), expected=f"at least {MIN_LEGACY_LENGTH}"
        )
    return LOG_OVERHEAD + length


def read_batches(
    buffer: bytes | bytearray | memoryview, *, path: str | None = None, position: int = 0
) -> Iterator[RecordBatch]:
    """Yield the whole batches of a buffer, one after the other; a cut last one ends it.

    Args:
        buffer: Record batches, as a segment file holds them.
        path: The file they come from, for errors.
        position: Where in that file `buffer` starts, for errors.

    Raises:
        CorruptRecordError: Bytes that start no batch; what came before has been yielded.
        UnsupportedForMessageFormatError: A batch of format v0 or v1.
    """
    view = memoryview(buffer)
    at = 0
    while len(view) - at >= HEADER_SIZE_UP_TO_MAGIC:
        try:
            if _size_at_front(view[at:]) > len(view) - at:
                return
            batch = RecordBatch(view[at:])
        except (CorruptRecordError, UnsupportedForMessageFormatError) as error:
            error.path, error.position = path, position + at
            raise
        yield batch
        at += batch.size
