"""A message of format v0 or v1 as a batch: what `RecordBatch` is for v2."""

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np

from streamlog.binary.arrays import Buffer
from streamlog.binary.crc import crc32
from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES
from streamlog.errors import CorruptRecordError
from streamlog.records.columns import RecordColumns
from streamlog.records.decode import decode_columns
from streamlog.records.layout import (
    COMPRESSION_MASK,
    MAGIC_OFFSET,
    MAX_INT64,
    MIN_INT64,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
)
from streamlog.records.legacy_layout import MAGIC_V0, MESSAGE_ATTRIBUTES_OFFSET
from streamlog.records.plain_headers import read_message_header
from streamlog.records.record import CompressionType, Record, TimestampType
from streamlog.records.table import CRC, LAST_OFFSET, MAGIC, MAX_TIMESTAMP, BatchTable

__all__ = ["LegacyRecordBatch"]


class LegacyRecordBatch:
    """One message of v0 or v1: an immutable view of its bytes, with the names of `RecordBatch`.

    What the formats do not have reads as "none". A compressed one holds many records, and only
    they say what its first offset is.

    Args:
        buffer: Exactly one message; its length field has been checked against its size.
        path: The file it comes from, for messages.
        position: Where in that file, for messages.

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
        """Bytes, LOG_OVERHEAD included."""
        return len(self.buffer)

    @cached_property
    def base_offset(self) -> int:
        """Offset of the first record.

        Raises:
            CorruptRecordError: The message is compressed, and what is in it is damaged.
            LimitExceededError: It decompresses to more than is ever read.
        """
        if not self.attributes & COMPRESSION_MASK:
            return self.last_offset
        return int(self._columns(DEFAULT_MAX_DECOMPRESSED_BYTES, ()).offset[0])

    @property
    def next_offset(self) -> int:
        """The offset behind the message."""
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
        """Who set the timestamps; v0 has none."""
        if self.magic == MAGIC_V0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self.attributes & TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_valid(self) -> bool:
        """Whether the stored checksum is that of the bytes."""
        return crc32(self.buffer[MAGIC_OFFSET:]) == self.crc

    def check(self) -> None:
        """Make sure that the bytes are those that were written.

        Raises:
            CorruptRecordError: The checksum says otherwise.
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
            max_decompressed: The most bytes they may decompress to.

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
