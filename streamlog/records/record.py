"""Values that users hold: records, headers, and the enumerations of a batch's attribute bits."""

from collections.abc import Sequence
from enum import Enum, IntEnum
from operator import attrgetter, index
from typing import Final, NamedTuple

from streamlog.errors import (
    InvalidOptionError,
    InvalidRecordError,
    UnsupportedCompressionError,
)

__all__ = [
    "NO_TIMESTAMP",
    "CompressionType",
    "Header",
    "IsolationLevel",
    "Record",
    "TimestampType",
    "are_plain",
    "checked_record",
]

NO_TIMESTAMP: Final = -1  # RecordBatch.NO_TIMESTAMP


class CompressionType(IntEnum):
    """A codec; the value is that of bits 0-2 of a batch's attributes.

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
            UnsupportedCompressionError: The codec is unknown.
        """
        if isinstance(name, CompressionType):
            return name
        if name is None:
            return cls.NONE
        try:
            return cls.NONE if name.lower() == "uncompressed" else cls[name.upper()]
        except (AttributeError, KeyError):
            raise UnsupportedCompressionError(
                "unknown compression type",
                got=repr(name),
                expected="none, gzip, snappy, lz4 or zstd",
            ) from None


class TimestampType(IntEnum):
    """Origin of a record's timestamp.

    Source: org.apache.kafka.common.record.TimestampType; the values are those of Spark's
    `timestampType` column.
    """

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """Kafka's printed name: NoTimestampType, CreateTime, LogAppendTime."""
        return _TIMESTAMP_LABELS[self]


_TIMESTAMP_LABELS: Final = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class IsolationLevel(Enum):
    """Limit of reading: the high watermark, or the last stable offset.

    Source: org.apache.kafka.common.IsolationLevel.
    """

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"

    @classmethod
    def of(cls, level: "str | IsolationLevel") -> "IsolationLevel":
        """Return the level called `level`: `read_uncommitted` or `read_committed`.

        Raises:
            InvalidOptionError: The level is unknown.
        """
        try:
            return cls(level)
        except ValueError:
            raise InvalidOptionError(
                "invalid value for isolation",
                got=repr(level),
                expected=" or ".join(each.value for each in cls),
            ) from None


class Header(NamedTuple):
    """A record header. The key may be empty, never None; keys may repeat and keep their order."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record.

    To append, set `key`, `value`, `headers` and `timestamp` (None: the time of the append).
    A record that was read has all fields; `timestamp` is in milliseconds since 1970, -1 for none.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    offset: int = -1
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    sequence: int = -1


def are_plain(records: Sequence[Record]) -> bool:
    """Return whether records to append have no headers, and fields of exactly the declared types.

    This is true of nearly all appends, so that only the others are checked record by record. Takes
    no step of Python per record.
    """
    return (
        _RECORD_TYPES.issuperset(map(type, records))
        and _FIELD_TYPES.issuperset(map(type, map(attrgetter("key"), records)))
        and _FIELD_TYPES.issuperset(map(type, map(attrgetter("value"), records)))
        and _TIMESTAMP_TYPES.issuperset(map(type, map(attrgetter("timestamp"), records)))
        and not any(map(attrgetter("headers"), records))
    )


_RECORD_TYPES: Final = frozenset({Record})
_FIELD_TYPES: Final = frozenset({bytes, type(None)})
_TIMESTAMP_TYPES: Final = frozenset({int, type(None)})


def checked_record(record: Record, number: int = 0) -> Record:
    """Return a record to append with all fields of the declared types.

    Args:
        record: Key, value and header values may be any buffer of bytes; headers may be pairs.
        number: Its index among those to append, for messages.

    Raises:
        InvalidRecordError: A field has another type.
    """
    try:
        return record._replace(
            key=_as_bytes(record.key, "key"),
            value=_as_bytes(record.value, "value"),
            headers=tuple(
                Header(_as_text(key), _as_bytes(value, "header value"))
                for key, value in record.headers
            ),
            timestamp=None if record.timestamp is None else _as_int(record.timestamp),
        )
    except (AttributeError, TypeError, ValueError) as error:
        what = error if isinstance(record, Record) else f"must be a Record, got {_kind(record)}"
        raise InvalidRecordError(
            f"record {number}: {what}",
            expected="Record(key=bytes, value=bytes, headers=[(str, bytes)], timestamp=int); key, "
            "value, timestamp and the value of a header may be None",
            hint="convert text to bytes: text.encode()",
        ) from None


def _as_bytes(field: object, name: str) -> bytes | None:
    if field is None or isinstance(field, bytes):
        return field
    if isinstance(field, bytearray | memoryview):
        return bytes(field)
    raise TypeError(f"{name} must be bytes or None, got {_kind(field)}")


def _as_text(field: object) -> str:
    if isinstance(field, str):
        return field
    raise TypeError(f"header key must be str, got {_kind(field)}")


def _as_int(field: int) -> int:
    try:
        return index(field)
    except TypeError:
        raise TypeError(f"timestamp must be int or None, got {_kind(field)}") from None


def _kind(field: object) -> str:
    return type(field).__name__
