"""Control records: what a transaction coordinator or a controller writes between the data.

    key     int16 version = 0, int16 type
    value   of an end-of-transaction marker: int16 version = 0, int32 coordinator epoch

A control batch holds one record, is never compressed, has no sequence, and occupies an offset
that no consumer sees. Its transactional bit is set for markers, not for KRaft's own records.
Higher versions are read as version 0, bytes behind the known ones are ignored.
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
    """What a control record says; the value is what its key holds.

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
        return cls.UNKNOWN  # a newer Kafka's: ignored, like Kafka itself does


class EndTransactionMarker(NamedTuple):
    """The end of a transaction, as its coordinator wrote it.

    Source: org.apache.kafka.common.record.EndTransactionMarker.
    """

    type: ControlRecordType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        """Whether the transaction was committed; otherwise it was aborted."""
        return self.type is ControlRecordType.COMMIT


def parse_control_key(key: bytes | None) -> ControlRecordType:
    """Return what kind of control record has this key.

    Raises:
        InvalidRecordError: Shorter than 4 bytes, or a negative version.

    Source: ControlRecordType.parse.
    """
    if key is None or len(key) < KEY.size:
        raise InvalidRecordError(
            "control record has a short key",
            got="null" if key is None else f"{len(key)} bytes",
            expected=f"{KEY.size} bytes",
        )
    version, kind = KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError("control record of a negative version", got=version)
    return ControlRecordType(kind)


def parse_marker(record: Record) -> EndTransactionMarker | None:
    """Return the end of a transaction that `record` is, or None for other control records.

    Raises:
        InvalidRecordError: Key or value is too short, or of a negative version.

    Source: EndTransactionMarker.deserialize.
    """
    kind = parse_control_key(record.key)
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    if record.value is None or len(record.value) < MARKER_VALUE.size:
        raise InvalidRecordError(
            "end of a transaction has a short value",
            offset=record.offset,
            got="null" if record.value is None else f"{len(record.value)} bytes",
            expected=f"{MARKER_VALUE.size} bytes",
        )
    version, coordinator_epoch = MARKER_VALUE.unpack_from(record.value)
    if version < 0:
        raise InvalidRecordError("end of a transaction of a negative version", got=version)
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
        producer_id: Whose transaction.
        producer_epoch: The producer's epoch; with transactions of version 2 the one after the
            data's.
        timestamp: The time of the end, ms since 1970.
        base_offset: Its offset.
        partition_leader_epoch: The leader's epoch, -1 unknown.

    Raises:
        InvalidRecordError: `marker` is neither a commit nor an abort.

    Source: MemoryRecords.withEndTransactionMarker.
    """
    if marker.type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise InvalidRecordError("not the end of a transaction", got=marker.type.name)
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
