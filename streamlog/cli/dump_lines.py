"""The lines that Kafka's DumpLogSegments prints, word for word.

Where its output depends on what is in a record (a value with a line break, a character that
steers a terminal), escapes stand here instead. Of messages of v0 and v1 the checksum of each
single record is left out.
"""

import struct
from typing import Any, Final

from streamlog.cli.output import safe_text, to_json
from streamlog.cli.record_writers import encoded_text
from streamlog.errors import InvalidRecordError
from streamlog.health.contents import Content, KnownFile
from streamlog.records.batch import LegacyRecordBatch, RecordBatch
from streamlog.records.control import parse_control_key, parse_marker
from streamlog.records.layout import CURRENT_MAGIC, MAX_INT32
from streamlog.records.record import Record

__all__ = [
    "batch_line",
    "content_text",
    "control_key",
    "decoded_text",
    "log_header",
    "record_line",
    "row_line",
]

_CONTROL_KEY: Final = struct.Struct(">hh")
_NOT_SHOWN: Final = -1  # a number for "none" that Kafka prints as OptionalLong.empty


def log_header(path: str, known: KnownFile) -> str | None:
    """Return the line above the batches of a file, None where there is none."""
    if known.epoch is not None:
        return f"Snapshot end offset: {known.base_offset}, epoch: {known.epoch}"
    if known.base_offset is not None:
        return f"Log starting offset: {known.base_offset}"
    return None if not path.endswith(".checkpoint") else "KRaft bootstrap snapshot"


def batch_line(batch: RecordBatch | LegacyRecordBatch, position: int) -> str:
    """Return the line of a batch."""
    if batch.magic >= CURRENT_MAGIC:
        start = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
            f"count: {batch.count} baseSequence: {batch.base_sequence} "
            f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
            f"producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.partition_leader_epoch} "
            f"isTransactional: {_flag(batch.is_transactional)} "
            f"isControl: {_flag(batch.is_control)} "
            f"deleteHorizonMs: {_optional(batch.delete_horizon_ms)}"
        )
    else:
        start = f"offset: {batch.last_offset}"
    return (
        f"{start} position: {position} {batch.timestamp_type.label}: {batch.max_timestamp} "
        f"size: {batch.size} magic: {batch.magic} "
        f"compresscodec: {batch.compression_type.name.lower()} crc: {batch.crc} "
        f"isvalid: {_flag(batch.is_valid)}"
    )


def record_line(batch: RecordBatch | LegacyRecordBatch, record: Record) -> str:
    """Return the line of a record, without what it holds."""
    line = (
        f"| offset: {record.offset} {batch.timestamp_type.label}: {record.timestamp} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if batch.magic >= CURRENT_MAGIC:
        keys = ",".join(safe_text(header.key) for header in record.headers)
        line += f" sequence: {record.sequence} headerKeys: [{keys}]"
    if batch.is_control:
        line += _control_text(record)
    return line


def _control_text(record: Record) -> str:
    try:
        kind = parse_control_key(record.key)
        marker = parse_marker(record)
    except InvalidRecordError:
        return " controlType: UNKNOWN"
    if marker is not None:
        return f" endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    _, type_id = control_key(record)
    return f" controlType: {kind.name}({type_id})"


def control_key(record: Record) -> tuple[int, int]:
    """Return version and type of a control record's key, which has been parsed before."""
    version, type_id = _CONTROL_KEY.unpack_from(record.key or bytes(_CONTROL_KEY.size))
    return version, type_id


def content_text(record: Record, encoding: str) -> str:
    """Return what the line of a record says about key and value."""
    key = "" if record.key is None else f" key: {encoded_text(record.key, encoding)}"
    value = "" if record.value is None else f" payload: {encoded_text(record.value, encoding)}"
    return key + value


def decoded_text(key: dict[str, Any], value: dict[str, Any] | None) -> str:
    """Return the same for a record of an internal topic, taken apart."""
    payload = "<DELETE>" if value is None else to_json(value).decode()
    return f" key: {to_json(key).decode()} payload: {payload}"


def row_line(kind: Content, row: dict[str, Any]) -> str:
    """Return the line of anything that is no batch."""
    if kind is Content.PRODUCER_SNAPSHOT:
        return _producer_line(row)
    return " ".join(f"{key}: {safe_text(str(value))}" for key, value in row.items())


def _producer_line(row: dict[str, Any]) -> str:
    first_offset = row["currentTxnFirstOffset"]
    line = (
        f"producerId: {row['producerId']} producerEpoch: {row['producerEpoch']} "
        f"coordinatorEpoch: {row['coordinatorEpoch']} currentTxnFirstOffset: "
        f"{_optional(None if first_offset == _NOT_SHOWN else first_offset)} "
        f"lastTimestamp: {row['timestamp']} "
    )
    if row["lastOffset"] < 0:
        return line
    first_sequence = (row["lastSequence"] - row["offsetDelta"]) & MAX_INT32
    return (
        f"{line}firstSequence: {first_sequence} lastSequence: {row['lastSequence']} "
        f"lastOffset: {row['lastOffset']} offsetDelta: {row['offsetDelta']} "
        f"timestamp: {row['timestamp']}"
    )


def _flag(value: bool) -> str:  # noqa: FBT001 - the value that is shown
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)
