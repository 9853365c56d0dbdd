"""Batches for tests, in the notation of the golden files."""

import base64
import hashlib
from typing import Any

from streamlog.records.batch import LegacyRecordBatch, RecordBatch
from streamlog.records.record import CompressionType, Header, Record, TimestampType
from tests.twins.legacy_builder import LegacyBuilder

TYPES = {kind.label: kind for kind in TimestampType}


def header_facts(batch: RecordBatch | LegacyRecordBatch, position: int) -> dict[str, Any]:
    """Return the header of a batch under the names of Kafka's dump tool."""
    facts = {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "position": position,
        "timestampType": batch.timestamp_type.label,
        "maxTimestamp": batch.max_timestamp,
        "size": batch.size,
        "magic": batch.magic,
        "compresscodec": batch.compression_type.name.lower(),
        "crc": batch.crc,
        "isvalid": batch.is_valid,
        "attributes": batch.attributes,
    }
    if isinstance(batch, RecordBatch):
        facts["lastOffsetDelta"] = batch.last_offset_delta
        facts["baseTimestamp"] = batch.base_timestamp
    return facts


def record_facts(record: Record) -> dict[str, Any]:
    """Return a record in the notation of golden files."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type.label,
        "sequence": record.sequence,
        "key": text_of(record.key),
        "value": text_of(record.value),
        "headers": [[key, text_of(value)] for key, value in record.headers],
    }


def text_of(field: bytes | None) -> Any:
    """Return a field as golden files write it: base64, or size and hash if it is long."""
    if field is None:
        return None
    if len(field) > 400:
        return {"size": len(field), "sha256": hashlib.sha256(field).hexdigest()}
    return base64.b64encode(field).decode()


def record_of(facts: dict[str, Any]) -> Record:
    """Return the record that a golden file describes; its fields must be short."""
    return Record(
        _bytes(facts["key"]),
        _bytes(facts["value"]),
        tuple(Header(key, _bytes(value)) for key, value in facts["headers"]),
        facts["timestamp"],
        facts["offset"],
        TYPES[facts["timestampType"]],
        facts["sequence"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def message_set(
    magic: int,
    records: list[Record],
    *,
    base_offset: int = 0,
    compression: CompressionType = CompressionType.NONE,
    log_append_time: int | None = None,
) -> bytes:
    builder = LegacyBuilder(
        magic,
        base_offset=base_offset,
        compression=compression,
        log_append_time=log_append_time,
    )
    for record in records:
        builder.append(record)
    return builder.build()
