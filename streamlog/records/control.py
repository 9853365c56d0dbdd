"""Control records, which a transaction coordinator or a controller writes between the data.

    key     int16 version = 0, int16 type
    value   of an end-of-transaction marker: int16 version = 0, int32 coordinator epoch

A control batch holds one record, is never compressed, has no sequence, and occupies an offset
that no consumer sees. Its transactional bit is set for markers, not for KRaft's own records.
Higher versions are read as version 0, ignoring bytes after the known ones.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from streamlog.errors import InvalidRecordError
from streamlog.records.builder import BatchBuilder
from streamlog.records.layout import NO_PARTITION_LEADER_EPOCH
from streamlog.records.record import Record

__all__ = [
    "ControlRecordType",
    "EndTransactionMarker",
    "build_marker",
    "parse_control_key",
    "parse_marker",
]

VERSION: Final = 0
KEY: Final = struct.Struct(">hh")
MARKER_VALUE: Final = struct.Struct(">hi")


class ControlRecordType(IntEnum):
    """Type of a control record; the value is the one in its key.

    Source: org.apache.kafka.common.record.ControlRecordType.
    """

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1

    @classmethod
    def _missing_(cls, value: object) -> "ControlRecordType":
        return cls.UNKNOWN  # of a newer Kafka: ignored, as in Kafka itself


class EndTransactionMarker(NamedTuple):
    """The end of a transaction, as written by its coordinator.

    Source: org.apache.kafka.common.record.EndTransactionMarker.
    """

    type: ControlRecordType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        """Whether the transaction was committed; otherwise it was aborted."""
        return self.type is ControlRecordType.COMMIT


def parse_control_key(key: bytes | None) -> ControlRecordType:
    """Return the type of the control record with this key.

    Raises:
        InvalidRecordError: Shorter than 4 bytes, or a negative version.

    Source: ControlRecordType.parse.
    """
    if key is None or len(key) < KEY.size:
        raise InvalidRecordError(
            "control record key is too short",
            got="null" if key is None else f"{len(key)} bytes",
            expected=f"{KEY.size} bytes",
        )
    version, kind = KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError("control record has a negative version", got=version)
    return ControlRecordType(kind)


def parse_marker(record: Record) -> EndTransactionMarker | None:
    """Return the end-of-transaction marker in `record`, None for other control records.

    Raises:
        InvalidRecordError: Key or value is too short, or has a negative version.

    Source: EndTransactionMarker.deserialize.
    """
    kind = parse_control_key(record.key)
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    if record.value is None or len(record.value) < MARKER_VALUE.size:
        raise InvalidRecordError(
            "end-of-transaction marker value is too short",
            offset=record.offset,
            got="null" if record.value is None else f"{len(record.value)} bytes",
            expected=f"{MARKER_VALUE.size} bytes",
        )
    version, coordinator_epoch = MARKER_VALUE.unpack_from(record.value)
    if version < 0:
        raise InvalidRecordError("end-of-transaction marker has a negative version", got=version)
    return EndTransactionMarker(kind, coordinator_epoch)


def build_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """Return the control batch, always 78 bytes, that ends a producer's transaction.

    Args:
        marker: Commit or abort, and the coordinator's epoch.
        producer_id: The transaction's producer.
        producer_epoch: The producer's epoch; with transactions of version 2 the one after the
            data's.
        timestamp: End time, ms since 1970.
        base_offset: Its offset.
        partition_leader_epoch: The leader's epoch, -1 if unknown.

    Raises:
        InvalidRecordError: `marker` is neither a commit nor an abort.

    Source: MemoryRecords.withEndTransactionMarker.
    """
    if marker.type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise InvalidRecordError("not an end-of-transaction marker", got=marker.type.name)
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
    key = KEY.pack(VERSION, marker.type)
    value = MARKER_VALUE.pack(VERSION, marker.coordinator_epoch)
    builder.append(Record(key, value, timestamp=timestamp))
    return builder.build()
