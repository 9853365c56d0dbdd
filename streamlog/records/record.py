"""The values users hold: records, headers, and the closed sets a batch's attribute bits name."""

from enum import Enum, IntEnum
from typing import Final, NamedTuple

from streamlog.errors import UnsupportedCompressionError

__all__ = [
    "NO_TIMESTAMP",
    "CompressionType",
    "Header",
    "IsolationLevel",
    "Record",
    "TimestampType",
]

NO_TIMESTAMP: Final = -1  # RecordBatch.NO_TIMESTAMP


class CompressionType(IntEnum):
    """A codec; the value is what bits 0-2 of a batch's attributes hold.

    Source: org.apache.kafka.common.record.CompressionType.
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, name: "str | CompressionType | None") -> "CompressionType":
        """Return the codec called `name` (`none`, `uncompressed`, `gzip` … in any case).

        Raises:
            UnsupportedCompressionError: There is no such codec.
        """
        if isinstance(name, CompressionType):
            return name
        if name is None or name.lower() in ("none", "uncompressed"):
            return cls.NONE
        try:
            return cls[name.upper()]
        except KeyError:
            raise UnsupportedCompressionError(
                "unknown compression type",
                got=repr(name),
                expected="none, gzip, snappy, lz4 or zstd",
            ) from None


class TimestampType(IntEnum):
    """Who set a record's timestamp.

    Source: org.apache.kafka.common.record.TimestampType; the values are those of Spark's
    `timestampType` column.
    """

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """The name Kafka prints: NoTimestampType, CreateTime, LogAppendTime."""
        return _TIMESTAMP_LABELS[self]


_TIMESTAMP_LABELS: Final = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class IsolationLevel(Enum):
    """How far a reader may read: to the high watermark, or to the last stable offset.

    Source: org.apache.kafka.common.IsolationLevel.
    """

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Header(NamedTuple):
    """A record header. The key may be empty, never None; keys may repeat and keep their order."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record.

    To append, give `key`, `value`, `headers` and `timestamp` (None: the time of the append).
    A record that was read has all fields; `timestamp` is in milliseconds since 1970, -1 for none.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    offset: int = -1
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    sequence: int = -1
