"""Our answers about a partition's directory, in the shape of the oracle's answers."""

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamlog.fs.local import LocalFileSystem
from streamlog.partition.producers import ProducerStateManager
from streamlog.partition.read import aborted_between
from streamlog.partition.reader import LogReader
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.batch import LegacyRecordBatch, RecordBatch
from streamlog.records.record import IsolationLevel, Record

__all__ = ["MAX_TIMESTAMP", "batches_of", "encoded", "producers_of", "state_told", "told_by_reader"]

MAX_TIMESTAMP = -3  # requests the record with the largest one, as ListOffsetsRequest.MAX_TIMESTAMP


def told_by_reader(path: Path, *, now: int, timestamps: Iterable[int]) -> dict[str, Any]:
    """Return what a `LogReader` finds."""
    with LogReader.open(path) as reader:
        return {
            **state_told(reader, now=now),
            "offsetsForTimes": {
                str(timestamp): list(_found(reader, timestamp) or ()) for timestamp in timestamps
            },
            "committed": _committed(reader),
            "batches": [_batch(each) for each in batches_of(reader)],
        }


def state_told(reader: LogReader, *, now: int) -> dict[str, Any]:
    """Return the facts about a log other than its records."""
    return {
        "logStartOffset": reader.log_start_offset,
        "logEndOffset": reader.log_end_offset,
        "lastStableOffset": reader.last_stable_offset,
        "topicId": reader.topic_id,
        "segments": [[each.base_offset, each.size] for each in reader.segments],
        "producers": producers_of(reader, now=now),
        "leaderEpochs": [
            [epoch, start, reader.end_offset_for_epoch(epoch)[1]]
            for epoch, start in reader.leader_epochs.entries
        ],
        "aborted": [
            list(entry)
            for entry in aborted_between(
                reader.segments, reader.log_start_offset, reader.log_end_offset
            )
        ],
    }


def batches_of(reader: LogReader) -> list[RecordBatch | LegacyRecordBatch]:
    """Return all batches, read in small pieces."""
    found: list[RecordBatch | LegacyRecordBatch] = []
    at = reader.log_start_offset
    while at < reader.log_end_offset:
        info = reader.read(at, 1000)
        found += info.batches()
        at = info.next_offset
    return found


def _found(reader: LogReader, timestamp: int) -> OffsetAndTimestamp | None:
    if timestamp == MAX_TIMESTAMP:
        return reader.max_timestamp()
    return reader.offset_for_timestamp(timestamp)


def _committed(reader: LogReader) -> list[int]:
    """Return the offsets that `read_committed` returns, read in small pieces."""
    found: list[int] = []
    at = reader.log_start_offset
    while at < reader.last_stable_offset:
        info = reader.read(at, 900, isolation=IsolationLevel.READ_COMMITTED)
        if info.next_offset == at:
            break  # truncation inside a batch removed the batch but kept the log end
        found += [record.offset for record in info.records()]
        at = info.next_offset
    return found


def producers_of(reader: LogReader, *, now: int) -> list[dict[str, Any]]:
    """Return the state of each producer, loaded with the snapshots."""
    manager = ProducerStateManager.load(
        LocalFileSystem(),
        reader.path,
        segments=reader.segments,
        log_start_offset=reader.log_start_offset,
        log_end_offset=reader.log_end_offset,
        now_ms=now,
    )
    return [
        {
            "producerId": state.producer_id,
            "producerEpoch": state.producer_epoch,
            "lastSequence": state.last_sequence,
            "lastOffset": state.last_offset,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTxnFirstOffset": (
                -1 if state.current_txn_first_offset is None else state.current_txn_first_offset
            ),
        }
        for _, state in sorted(manager.producers.items())
    ]


def _batch(batch: RecordBatch | LegacyRecordBatch) -> dict[str, Any]:
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "size": batch.size,
        "isValid": batch.is_valid,
        "compressionType": batch.compression_type.name.lower(),
        "timestampType": batch.timestamp_type.label,
        "maxTimestamp": batch.max_timestamp,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "records": [encoded(record) for record in batch.records()],
    }


def encoded(record: Record) -> dict[str, Any]:
    """Return a record in the notation in which the oracle writes and reads it."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": record.sequence,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[header.key, _base64(header.value)] for header in record.headers],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
