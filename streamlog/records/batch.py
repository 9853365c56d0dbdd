"""Record batches: a view of one, and scans over many at once.

Format v2:

     0  base offset            int64    43  producer id            int64
     8  batch length           int32    51  producer epoch         int16
    12  partition leader epoch int32    53  base sequence          int32
    16  magic = 2              int8     57  record count           int32
    17  CRC-32C of 21 …        uint32   61  records, compressed as one
    21  attributes             int16
    23  last offset delta      int32
    27  base timestamp         int64
    35  max timestamp          int64

A message of format v0 or v1 (`streamlog.records.legacy`) counts as a batch of one record, or of
many if it is compressed.

There are two ways to read. `read_batches` and `RecordBatch` show one batch at a time with the
values that Kafka's own reader shows. `scan_batches` fills a table of thousands for the log and is
stricter: offsets must be sane, or a damaged header would corrupt everything derived from it.
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, as_source
from streamlog.binary.crc import crc32, crc32c
from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES
from streamlog.errors import CorruptRecordError
from streamlog.records import plain_headers
from streamlog.records.columns import RecordColumns
from streamlog.records.decode import decode_columns
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    BATCH_HEADER,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    HEADER_SIZE_UP_TO_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MAX_INT64,
    MIN_BATCH_LENGTH,
    MIN_INT64,
    MIN_LEGACY_LENGTH,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.legacy import find_bad_message
from streamlog.records.legacy_layout import MAGIC_V0, MESSAGE_ATTRIBUTES_OFFSET
from streamlog.records.plain_headers import (
    FEW,
    MIN_LENGTHS,
    compiled,
    header_loops,
    numba_is_loaded,
    read_message_header,
)
from streamlog.records.record import CompressionType, Record, TimestampType
from streamlog.records.slot import OUT_OF_ROOM
from streamlog.records.table import (
    CRC,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    WIDTH,
    BatchTable,
    ScanStop,
)

__all__ = [
    "PIECE_SIZE",
    "BatchScan",
    "BatchScanner",
    "BatchTable",
    "CheckedScan",
    "LegacyRecordBatch",
    "RecordBatch",
    "ScanStop",
    "batch_of",
    "check_crc",
    "claimed_size",
    "increment_sequence",
    "is_legacy",
    "read_batches",
    "scan_batches",
]

PIECE_SIZE: Final = 1 << 20  # bytes to read at a time
_ROWS: Final = 1024  # of a scanner's table initially; rows that stay empty cost nothing
LENGTH: Final = struct.Struct(">i")
MAX_LENGTH: Final = MAX_INT32 - LOG_OVERHEAD
INT32_SPAN: Final = 1 << 32
INT64_SPAN: Final = 1 << 64


class BatchScan(NamedTuple):
    """Result of a scan: the whole batches, why it stopped, and the bytes they take."""

    table: BatchTable
    stop: ScanStop
    consumed: int


def scan_batches(buffer: Buffer) -> BatchScan:
    """Find the whole batches at the start of `buffer`, including messages of v0 and v1.

    Checks lengths, magic and offsets, but not the CRC (`check_crc`).

    Args:
        buffer: Any bytes.

    Returns:
        The batches before the first bytes that are no whole, sane batch.

    Source: FileLogInputStream.nextBatch.
    """
    source = as_source(buffer)
    if not numba_is_loaded():
        rows, why, size = plain_headers.scan_batches(memoryview(source), FEW)
        if len(rows) < FEW:
            return BatchScan(BatchTable(np.array(rows, np.int64).reshape(-1, WIDTH)), why, size)
    scan = _scan_run(source)
    tables, consumed = [scan.table], scan.consumed
    while scan.stop is ScanStop.BAD_MAGIC and scan.consumed:  # perhaps of another format
        scan = _scan_run(source[consumed:])
        tables.append(scan.table.moved(consumed))
        consumed += scan.consumed
    table = tables[0] if len(tables) == 1 else BatchTable.concatenate(tables)
    return BatchScan(table, scan.stop, consumed)


def is_legacy(source: NDArray[np.uint8]) -> bool:
    """Return whether `source` starts with a message of v0 or v1."""
    return len(source) > MAGIC_OFFSET and int(source[MAGIC_OFFSET]) < CURRENT_MAGIC


def _scan_run(source: NDArray[np.uint8]) -> BatchScan:
    """Find the leading batches of v2, or the leading older messages."""
    kernels = compiled("legacy_kernels" if is_legacy(source) else "batch_kernels")
    fields = np.empty((kernels.count_batches(source), WIDTH), np.int64)
    counts = np.zeros(2, np.int64)
    stop = kernels.scan_batches(source, fields, counts)
    found, consumed = counts.tolist()
    return BatchScan(BatchTable(fields[:found]), ScanStop(stop), consumed)


def check_crc(buffer: Buffer, table: BatchTable) -> int:
    """Compare stored and computed checksums.

    Args:
        buffer: The batches.
        table: Their headers, as `scan_batches` found them in `buffer`.

    Returns:
        The index of the first batch with a wrong checksum, or `len(table)`.

    Source: DefaultRecordBatch.isValid, LegacyRecord.isValid.
    """
    source = as_source(buffer)
    start = 0
    for run in table.by_format():
        bad = find_bad_message(source, run) if run.is_legacy else _find_bad_batch(source, run)
        start += bad
        if bad < len(run):
            break
    return start


def _find_bad_batch(source: NDArray[np.uint8], table: BatchTable) -> int:
    loops = header_loops(len(table))
    bad: int = loops.find_bad_checksum(source, table.fields)
    return bad


def increment_sequence(sequence: int, increment: int) -> int:
    """Return the sequence `increment` (an int32) after `sequence`; 0 follows 2**31 - 1.

    Source: DefaultRecordBatch.incrementSequence, with its behavior for impossible increments.
    """
    limit = (MAX_INT32 - increment + 2**31) % INT32_SPAN - 2**31
    if sequence > limit:
        return increment - (MAX_INT32 - sequence) - 1
    return sequence + increment


class RecordBatch:
    """One v2 batch: an immutable view of its bytes.

    Args:
        buffer: Exactly one batch; its length field has been checked against its size.
        path: The file it comes from, for messages.
        position: Its position in that file, for messages.

    Source: org.apache.kafka.common.record.DefaultRecordBatch.
    """

    __slots__ = (
        "_attributes",
        "_path",
        "_position",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "count",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, buffer: Buffer, *, path: str | None = None, position: int = 0) -> None:
        view = memoryview(buffer).cast("B")
        self.buffer: Final = view.toreadonly()
        self._path = path
        self._position = position
        (
            self.base_offset,
            _,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self._attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = BATCH_HEADER.unpack_from(view)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset} to {self.last_offset}, "
            f"{self.count} records, {self.compression_type.name.lower()}, {self.size} bytes)"
        )

    @property
    def size(self) -> int:
        """Size in bytes, including LOG_OVERHEAD."""
        return len(self.buffer)

    @property
    def attributes(self) -> int:
        """The low byte of the attribute bits, the only one with a meaning."""
        return int(self._attributes) & 0xFF

    @property
    def last_offset(self) -> int:
        """Offset of the last record, unchanged by compaction even if that record is gone."""
        return _wrap_int64(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return _wrap_int64(self.last_offset + 1)

    @property
    def compression_type(self) -> CompressionType:
        """The codec of the records.

        Raises:
            CorruptRecordError: The bits name no codec.
        """
        bits = self._attributes & COMPRESSION_MASK
        if bits > CompressionType.ZSTD:
            raise self._corrupt("unknown compression codec", got=bits, expected="0 to 4")
        return CompressionType(bits)

    @property
    def timestamp_type(self) -> TimestampType:
        """Origin of the timestamps."""
        if self._attributes & TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self._attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, which consumers never see."""
        return bool(self._attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may drop the tombstones of this batch; None if not set."""
        return int(self.base_timestamp) if self._attributes & DELETE_HORIZON_MASK else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 for none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def is_valid(self) -> bool:
        """Whether the stored checksum matches the bytes."""
        return crc32c(self.buffer[ATTRIBUTES_OFFSET:]) == int(self.crc)

    def check(self) -> None:
        """Verify the checksum.

        Raises:
            CorruptRecordError: It does not match.
        """
        computed = crc32c(self.buffer[ATTRIBUTES_OFFSET:])
        if computed != self.crc:
            raise self._corrupt(
                "batch has a wrong checksum", got=f"{self.crc:#010x}", expected=f"{computed:#010x}"
            )

    def records(
        self, *, max_decompressed: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    ) -> Iterator[Record]:
        """Yield the records, including those of a control batch.

        Args:
            max_decompressed: Limit of the decompressed size in bytes.

        Raises:
            CorruptRecordError: A record's structure is wrong.
            LimitExceededError: The records decompress to more than allowed.
        """
        if self.count < 0:
            raise self._corrupt("batch has a negative record count", got=self.count)
        table = BatchTable(np.array([self._fields()], np.int64))
        columns = decode_columns(
            self.buffer,
            table,
            start_offset=MIN_INT64,
            end_offset=MAX_INT64,
            drop_control=False,
            max_decompressed=max_decompressed,
            path=self._path,
            position=self._position,
        )
        if self.base_sequence == NO_SEQUENCE:
            return columns.records()
        return map(self._with_sequence, columns.records())

    def _with_sequence(self, record: Record) -> Record:
        increment = record.offset - self.base_offset
        return record._replace(sequence=increment_sequence(self.base_sequence, increment))

    def _fields(self) -> tuple[int, ...]:
        """Return the batch as a row of a table, with offsets such that every record is decoded."""
        return (
            0,
            self.size,
            self.base_offset,
            MAX_INT64,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self._attributes,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )

    def _corrupt(
        self, what: str, *, got: object = None, expected: object = None
    ) -> CorruptRecordError:
        return CorruptRecordError(
            what,
            path=self._path,
            position=self._position,
            offset=self.base_offset,
            got=got,
            expected=expected,
        )


class LegacyRecordBatch:
    """One message of v0 or v1: an immutable view of its bytes, with the names of `RecordBatch`.

    Attributes that the formats lack read as "none". A compressed message holds many records, and
    its first offset is known only from them.

    Args:
        buffer: Exactly one message; its length field has been checked against its size.
        path: The file it comes from, for messages.
        position: Its position in that file, for messages.

    Source: org.apache.kafka.common.record.AbstractLegacyRecordBatch.
    """

    partition_leader_epoch: Final = NO_PARTITION_LEADER_EPOCH
    producer_id: Final = NO_PRODUCER_ID
    producer_epoch: Final = NO_PRODUCER_EPOCH
    base_sequence: Final = NO_SEQUENCE
    last_sequence: Final = NO_SEQUENCE
    is_transactional: Final = False
    is_control: Final = False
    delete_horizon_ms: Final = None
    count: Final = None

    def __init__(self, buffer: Buffer, *, path: str | None = None, position: int = 0) -> None:
        self.buffer: Final = memoryview(buffer).cast("B").toreadonly()
        self._path = path
        self._position = position
        header = read_message_header(self.buffer, 0, len(self.buffer))
        self.last_offset: Final = header[LAST_OFFSET]
        self.magic: Final = header[MAGIC]
        self.crc: Final = header[CRC]
        self.max_timestamp: Final = header[MAX_TIMESTAMP]
        self.attributes: Final = self.buffer[MESSAGE_ATTRIBUTES_OFFSET]
        self._table = BatchTable(np.array([header], np.int64))

    def __repr__(self) -> str:
        return (
            f"LegacyRecordBatch(v{self.magic}, up to offset {self.last_offset}, "
            f"{self.compression_type.name.lower()}, {self.size} bytes)"
        )

    @property
    def size(self) -> int:
        """Size in bytes, including LOG_OVERHEAD."""
        return len(self.buffer)

    @cached_property
    def base_offset(self) -> int:
        """Offset of the first record.

        Raises:
            CorruptRecordError: The message is compressed, and its content is damaged.
            LimitExceededError: It decompresses to more than is ever read.
        """
        if not self.attributes & COMPRESSION_MASK:
            return self.last_offset
        return int(self._columns(DEFAULT_MAX_DECOMPRESSED_BYTES, ()).offset[0])

    @property
    def next_offset(self) -> int:
        """The offset after the message."""
        return self.last_offset + 1

    @property
    def compression_type(self) -> CompressionType:
        """The codec of the records.

        Raises:
            CorruptRecordError: The bits name no codec.
        """
        bits = self.attributes & COMPRESSION_MASK
        if bits > CompressionType.ZSTD:
            raise CorruptRecordError(
                "unknown compression codec",
                path=self._path,
                position=self._position,
                offset=self.last_offset,
                got=bits,
                expected="0 to 3",
            )
        return CompressionType(bits)

    @property
    def timestamp_type(self) -> TimestampType:
        """Origin of the timestamps; v0 has none."""
        if self.magic == MAGIC_V0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self.attributes & TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_valid(self) -> bool:
        """Whether the stored checksum matches the bytes."""
        return crc32(self.buffer[MAGIC_OFFSET:]) == self.crc

    def check(self) -> None:
        """Verify the checksum.

        Raises:
            CorruptRecordError: It does not match.
        """
        computed = crc32(self.buffer[MAGIC_OFFSET:])
        if computed != self.crc:
            raise CorruptRecordError(
                "message has a wrong checksum",
                path=self._path,
                position=self._position,
                offset=self.last_offset,
                got=f"{self.crc:#010x}",
                expected=f"{computed:#010x}",
            )

    def records(
        self, *, max_decompressed: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    ) -> Iterator[Record]:
        """Yield the records.

        Args:
            max_decompressed: Limit of the decompressed size in bytes.

        Raises:
            CorruptRecordError: A record's structure is wrong.
            LimitExceededError: They decompress to more than allowed.
        """
        return self._columns(max_decompressed, ("key", "value")).records()

    def _columns(self, max_decompressed: int, columns: tuple[str, ...]) -> RecordColumns:
        return decode_columns(
            self.buffer,
            self._table,
            columns=columns,
            start_offset=MIN_INT64,
            end_offset=MAX_INT64,
            max_decompressed=max_decompressed,
            path=self._path,
            position=self._position,
        )


# ---- batches one at a time ----------------------------------------------------------------------
def read_batches(
    buffer: Buffer, *, path: str | None = None, position: int = 0
) -> Iterator[RecordBatch | LegacyRecordBatch]:
    """Yield the batches of `buffer`; a truncated one at the end is left out, as in Kafka.

    Does not verify checksums; see `RecordBatch.check`.

    Args:
        buffer: Batches, or messages of v0 and v1, without gaps.
        path: The file they come from, for messages.
        position: Position of `buffer` in that file, for messages.

    Raises:
        CorruptRecordError: An invalid length or magic.

    Source: ByteBufferLogInputStream.nextBatch.
    """
    view = memoryview(buffer).cast("B")
    start = 0
    while len(view) - start >= LOG_OVERHEAD:
        where = position + start
        (length,) = LENGTH.unpack_from(view, start + LENGTH_OFFSET)
        if not MIN_LEGACY_LENGTH <= length <= MAX_LENGTH:
            raise _bad_length(length, path, where)
        if len(view) - start < HEADER_SIZE_UP_TO_MAGIC:
            return
        magic = view[start + MAGIC_OFFSET]
        if magic > CURRENT_MAGIC:
            raise CorruptRecordError(
                "unknown batch format", path=path, position=where, got=f"magic {magic}"
            )
        if length > len(view) - start - LOG_OVERHEAD:
            return
        if length < MIN_LENGTHS[magic]:
            raise _bad_length(length, path, where)
        yield batch_of(view[start:][: LOG_OVERHEAD + length], path=path, position=where)
        start += LOG_OVERHEAD + length


def batch_of(
    buffer: Buffer, *, path: str | None = None, position: int = 0
) -> RecordBatch | LegacyRecordBatch:
    """Return a view of a batch of any format with a checked length; see `RecordBatch`."""
    kind = RecordBatch if buffer[MAGIC_OFFSET] == CURRENT_MAGIC else LegacyRecordBatch
    return kind(buffer, path=path, position=position)


def _bad_length(length: int, path: str | None, position: int) -> CorruptRecordError:
    return CorruptRecordError(
        "invalid batch length",
        path=path,
        position=position,
        got=length,
        expected=f"{MIN_LEGACY_LENGTH} to {MAX_LENGTH}, of v2 from {MIN_BATCH_LENGTH} on",
    )


def _wrap_int64(value: int) -> int:
    return (value + (1 << 63)) % INT64_SPAN - (1 << 63)


# ---- a buffer that is being filled --------------------------------------------------------------
class CheckedScan(NamedTuple):
    """A scan, and how many of its batches, from the first, have the right checksum."""

    scan: BatchScan
    sound: int


class BatchScanner:
    """Finds and checks the whole batches at the start of a buffer that is being filled.

    The result equals that of `scan_batches` and `check_crc` on the whole buffer. A piece of up to a
    MiB is still in the processor's cache from the system's copy when its checksums are compared;
    reading megabytes first and checking afterwards would fetch each byte from memory once more,
    which takes as long as the checksum itself.

    Args:
        buffer: uint8[n]; its content is not trusted.
    """

    __slots__ = ("_fields", "_source", "_state", "_stop")

    def __init__(self, buffer: NDArray[np.uint8]) -> None:
        self._source = as_source(buffer)
        self._fields = np.empty((_ROWS, WIDTH), np.int64)  # only the first rows are filled
        self._state = np.zeros(4, np.int64)  # see the kernel `scan_sound`
        self._stop: int = ScanStop.END

    def go_on(self, filled: int) -> bool:
        """Check the batches that are whole, now that the first `filled` bytes are there.

        Returns:
            Whether another batch fits into the rest of the buffer.
        """
        source = self._source[:filled]
        if numba_is_loaded():
            self._scan_current(source)
        if self._stop == ScanStop.BAD_MAGIC or not numba_is_loaded():
            self._scan_any(source)
        if self._stop > ScanStop.PARTIAL:
            return False
        return int(self._state[3]) <= len(self._source)

    def _scan_current(self, source: NDArray[np.uint8]) -> None:
        scan_sound = compiled("batch_kernels").scan_sound
        self._stop = scan_sound(source, self._fields, self._state)
        while self._stop == OUT_OF_ROOM:
            spare = np.empty((len(self._fields) + _ROWS, WIDTH), np.int64)
            self._fields = np.concatenate((self._fields, spare))
            self._stop = scan_sound(source, self._fields, self._state)

    def _scan_any(self, source: NDArray[np.uint8]) -> None:
        count, sound, position, _ = self._state.tolist()
        scan = scan_batches(source[position:])
        table = scan.table.moved(position)
        if sound == count:
            sound += check_crc(source, table)
        self._fields = np.concatenate((self._fields[:count], table.fields))
        position += scan.consumed
        wanted = position + claimed_size(source[position:])
        self._state[:] = count + len(table), sound, position, wanted
        self._stop = scan.stop

    def finish(self) -> CheckedScan:
        """Return the result."""
        count, sound, consumed, _ = self._state.tolist()
        table = BatchTable(self._fields[:count])
        return CheckedScan(BatchScan(table, ScanStop(self._stop), consumed), sound)


def claimed_size(buffer: NDArray[np.uint8]) -> int:
    """Return the size that the first batch claims, 0 if it cannot be read."""
    if len(buffer) < LOG_OVERHEAD:
        return 0
    length = int.from_bytes(buffer[LENGTH_OFFSET:LOG_OVERHEAD].tobytes(), "big", signed=True)
    return LOG_OVERHEAD + length
