"""Record batches: a view of one, and scanning many at once.

Of format v2:

     0  base offset            int64    43  producer id            int64
     8  batch length           int32    51  producer epoch         int16
    12  partition leader epoch int32    53  base sequence          int32
    16  magic = 2              int8     57  record count           int32
    17  CRC-32C of 21 …        uint32   61  records, compressed as one
    21  attributes             int16
    23  last offset delta      int32
    27  base timestamp         int64
    35  max timestamp          int64

A message of format v0 or v1 (`streamlog.records.legacy`) counts as a batch, of one record or, if
it is compressed, of many.

Two readers with different tasks. `read_batches` and `RecordBatch` look at one batch at a time
and show what Kafka's own reader shows. `scan_batches` fills a table of thousands for the log,
and is stricter: offsets must be sane, or a damaged header would poison whatever is built on it.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, as_source
from streamlog.binary.crc import crc32c
from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES
from streamlog.errors import CorruptRecordError
from streamlog.records import plain_headers
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
    NO_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.legacy import find_bad_message
from streamlog.records.legacy_batch import LegacyRecordBatch
from streamlog.records.plain_headers import compiled
from streamlog.records.record import CompressionType, Record, TimestampType
from streamlog.records.table import WIDTH, BatchTable, ScanStop

__all__ = [
    "BatchScan",
    "BatchTable",
    "LegacyRecordBatch",
    "RecordBatch",
    "ScanStop",
    "batch_of",
    "check_crc",
    "increment_sequence",
    "is_legacy",
    "read_batches",
    "scan_batches",
]

LENGTH: Final = struct.Struct(">i")
MAX_LENGTH: Final = MAX_INT32 - LOG_OVERHEAD
INT32_SPAN: Final = 1 << 32
INT64_SPAN: Final = 1 << 64


class BatchScan(NamedTuple):
    """What a scan found: the whole batches, why it stopped, and how many bytes they take."""

    table: BatchTable
    stop: ScanStop
    consumed: int


def scan_batches(buffer: Buffer) -> BatchScan:
    """Find the whole batches, messages of v0 and v1 included, at the front of `buffer`.

    Lengths, magic and offsets are checked, the CRC is not (`check_crc`).

    Args:
        buffer: Any bytes at all.

    Returns:
        The batches before the first thing that is not a whole, sane batch.

    Source: FileLogInputStream.nextBatch.
    """
    source = as_source(buffer)
    if not plain_headers.numba_is_loaded():
        rows, why, size = plain_headers.scan_batches(memoryview(source), plain_headers.FEW)
        if len(rows) < plain_headers.FEW:
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
    """Tell whether `source` begins with a message of v0 or v1, if with anything."""
    return len(source) > MAGIC_OFFSET and int(source[MAGIC_OFFSET]) < CURRENT_MAGIC


def _scan_run(source: NDArray[np.uint8]) -> BatchScan:
    """Find the batches at the front that are of v2, or the messages that are older."""
    kernels = compiled("legacy_header_kernels" if is_legacy(source) else "batch_kernels")
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
        The index of the first batch whose checksum is wrong, or `len(table)`.

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
    loops = plain_headers.header_loops(len(table))
    bad: int = loops.find_bad_checksum(source, table.fields)
    return bad


def increment_sequence(sequence: int, increment: int) -> int:
    """Return the sequence `increment` (an int32) after `sequence`; 0 follows 2**31 - 1.

    Source: DefaultRecordBatch.incrementSequence, with its behaviour for impossible increments.
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
        position: Where in that file, for messages.

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
        """Bytes, LOG_OVERHEAD included."""
        return len(self.buffer)

    @property
    def attributes(self) -> int:
        """The low byte of the attribute bits, the only one that means anything."""
        return int(self._attributes) & 0xFF

    @property
    def last_offset(self) -> int:
        """Offset of the last record, kept by compaction even if that record is gone."""
        return _wrap_int64(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> int:
        """The offset behind the batch."""
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
        """Who set the timestamps."""
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
        """From when on compaction may drop the tombstones of this batch; None where not set."""
        return int(self.base_timestamp) if self._attributes & DELETE_HORIZON_MASK else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 for none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def is_valid(self) -> bool:
        """Whether the stored checksum is that of the bytes."""
        return crc32c(self.buffer[ATTRIBUTES_OFFSET:]) == int(self.crc)

    def check(self) -> None:
        """Make sure that the bytes are those that were written.

        Raises:
            CorruptRecordError: The checksum says otherwise.
        """
        computed = crc32c(self.buffer[ATTRIBUTES_OFFSET:])
        if computed != self.crc:
            raise self._corrupt(
                "batch has a wrong checksum", got=f"{self.crc:#010x}", expected=f"{computed:#010x}"
            )

    def records(
        self, *, max_decompressed: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    ) -> Iterator[Record]:
        """Yield the records, also those of a control batch.

        Args:
            max_decompressed: The most bytes the records may decompress to.

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
        """Return the batch as a row of a table, its offsets such that every record is decoded."""
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


def read_batches(
    buffer: Buffer, *, path: str | None = None, position: int = 0
) -> Iterator[RecordBatch | LegacyRecordBatch]:
    """Yield the batches of `buffer`; one cut short at the end is left out, as Kafka leaves it.

    Checksums are compared when asked for (`RecordBatch.check`).

    Args:
        buffer: Batches, or messages of v0 and v1, one behind the other.
        path: The file they come from, for messages.
        position: Where `buffer` begins in that file, for messages.

    Raises:
        CorruptRecordError: A length or magic that no batch has.

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
        if length < plain_headers.MIN_LENGTHS[magic]:
            raise _bad_length(length, path, where)
        yield batch_of(view[start:][: LOG_OVERHEAD + length], path=path, position=where)
        start += LOG_OVERHEAD + length


def batch_of(
    buffer: Buffer, *, path: str | None = None, position: int = 0
) -> RecordBatch | LegacyRecordBatch:
    """Return a view of a batch of any format, whose length has been checked; see `RecordBatch`."""
    kind = RecordBatch if buffer[MAGIC_OFFSET] == CURRENT_MAGIC else LegacyRecordBatch
    return kind(buffer, path=path, position=position)


def _bad_length(length: int, path: str | None, position: int) -> CorruptRecordError:
    return CorruptRecordError(
        "batch length is impossible",
        path=path,
        position=position,
        got=length,
        expected=f"{MIN_LEGACY_LENGTH} to {MAX_LENGTH}, of v2 from {MIN_BATCH_LENGTH} on",
    )


def _wrap_int64(value: int) -> int:
    return (value + (1 << 63)) % INT64_SPAN - (1 << 63)
