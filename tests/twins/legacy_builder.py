"""Builder of message sets in formats v0 and v1, as written by Kafka before 0.11.

The package never writes them: a leader converts messages of old producers to v2, as Kafka does.
"""

import struct
from typing import Final

from streamlog.binary.compression import compress
from streamlog.binary.crc import crc32
from streamlog.binary.lz4_frame import MAGIC, header_checksum
from streamlog.errors import (
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
)
from streamlog.records.layout import LOG_OVERHEAD, MAX_INT32, MAX_INT64, TIMESTAMP_TYPE_MASK
from streamlog.records.legacy_layout import MAGIC_V0, MAGIC_V1
from streamlog.records.record import NO_TIMESTAMP, CompressionType, Record

__all__ = ["LegacyBuilder", "with_wrong_checksum"]

START: Final = struct.Struct(">qiI")  # offset, length, CRC-32
FIXED: Final = struct.Struct(">bb")  # magic, attributes
TIMESTAMP: Final = struct.Struct(">q")
FIELD_SIZE: Final = struct.Struct(">i")
NULL_SIZE: Final = -1


class LegacyBuilder:
    """Builds one message set, record by record.

    Without compression each record is a message of the log; with it, all records are in one
    wrapper.

    Args:
        magic: The format, 0 or 1.
        base_offset: Offset of the first record.
        compression: The codec; formats v0 and v1 have no zstd.
        level: The codec's level, None for its default.
        log_append_time: Timestamp of all records (a LogAppendTime topic), None for their own.

    Raises:
        UnsupportedCompressionError: The format has no such codec.
        UnsupportedForMessageFormatError: The format has no timestamps.
        InvalidRequestError: There is no such format.

    Source: MemoryRecordsBuilder, LegacyRecord.write.
    """

    def __init__(
        self,
        magic: int,
        *,
        base_offset: int = 0,
        compression: CompressionType = CompressionType.NONE,
        level: int | None = None,
        log_append_time: int | None = None,
    ) -> None:
        if magic not in (MAGIC_V0, MAGIC_V1):
            raise InvalidRequestError("not a format of messages", got=magic, expected="0 or 1")
        if compression is CompressionType.ZSTD:
            raise UnsupportedCompressionError(f"format v{magic} has no zstd", expected="up to lz4")
        if magic == MAGIC_V0 and log_append_time is not None:
            raise UnsupportedForMessageFormatError("format v0 has no timestamps")
        self._magic = magic
        self._base_offset = base_offset
        self._next_offset = base_offset
        self._compression = compression
        self._level = level
        self._log_append_time = log_append_time
        self._max_timestamp = NO_TIMESTAMP
        self._messages: list[bytes] = []

    def append(self, record: Record) -> None:
        """Add a record.

        Args:
            record: Its offset, where it has one, must be above the last; its timestamp must be
                at least 0, or -1 (or None) for none; v0 does not keep it.

        Raises:
            InvalidRecordError: An offset that does not rise.
            InvalidTimestampError: A negative timestamp other than -1.
            MessageTooLargeError: The message would reach 2 GiB.
            UnsupportedForMessageFormatError: The record has headers.
        """
        offset = record.offset if record.offset >= 0 else self._next_offset
        if not self._next_offset <= offset <= MAX_INT64:
            raise InvalidRecordError(
                "offset cannot follow in this set",
                offset=offset,
                expected=f"{self._next_offset} to {MAX_INT64}",
            )
        if record.headers:
            raise UnsupportedForMessageFormatError(
                f"format v{self._magic} has no headers", offset=offset, expected="format v2"
            )
        timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        if timestamp < NO_TIMESTAMP:
            raise InvalidTimestampError(
                "timestamp is negative", offset=offset, got=timestamp, expected="0 and more, or -1"
            )
        self._max_timestamp = max(self._max_timestamp, timestamp)
        is_relative = self._magic == MAGIC_V1 and self._compression is not CompressionType.NONE
        place = offset - self._base_offset if is_relative else offset
        self._messages.append(self._message(place, timestamp, record.key, record.value))
        self._next_offset = offset + 1

    def build(self) -> bytes:
        """Return the message set.

        Raises:
            InvalidRecordError: No record was added.
            MessageTooLargeError: The wrapper would reach 2 GiB.
        """
        if not self._messages:
            raise InvalidRecordError("a message set needs a record", got="none")
        messages = b"".join(self._messages)
        if self._compression is CompressionType.NONE:
            return messages
        packed = compress(self._compression, messages, level=self._level)
        if self._magic == MAGIC_V0 and self._compression is CompressionType.LZ4:
            packed = with_wrong_checksum(packed)
        return self._message(
            self._next_offset - 1, self._max_timestamp, None, packed, codec=self._compression
        )

    def _message(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        *,
        codec: CompressionType = CompressionType.NONE,
    ) -> bytes:
        is_stamped = self._log_append_time is not None
        parts = [FIXED.pack(self._magic, codec | (TIMESTAMP_TYPE_MASK if is_stamped else 0))]
        if self._magic == MAGIC_V1:
            parts.append(TIMESTAMP.pack(self._log_append_time if is_stamped else timestamp))
        for field in (key, value):
            parts.append(FIELD_SIZE.pack(NULL_SIZE if field is None else len(field)))
            parts.append(field or b"")
        body = b"".join(parts)
        if len(body) > MAX_INT32 - LOG_OVERHEAD:
            raise MessageTooLargeError("message would reach 2 GiB", got=len(body))
        return START.pack(offset, 4 + len(body), crc32(body)) + body


def with_wrong_checksum(frame: bytes) -> bytes:
    """Return an LZ4 frame, without content size, with the header checksum that v0 has."""
    place = len(MAGIC) + 2  # after FLG and BD
    return frame[:place] + bytes((header_checksum(frame[:place]),)) + frame[place + 1 :]
