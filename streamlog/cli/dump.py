"""`streamlog dump`: prints files as rows, or as lines like those of Kafka's DumpLogSegments."""

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import click

from streamlog.cli.dump_objects import is_staged, lines_of, located, partition_of, values_in
from streamlog.cli.output import (
    Findings,
    Output,
    Row,
    encoded_text,
    record_object,
    safe_text,
    to_json,
)
from streamlog.cli.verb import Settings
from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES, LogConfig
from streamlog.errors import (
    CorruptRecordError,
    FileMissingError,
    InvalidRecordError,
    InvalidRequestError,
    StreamLogError,
)
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.files import read_file
from streamlog.health.contents import Content, KnownFile, identify
from streamlog.health.findings import Finding, Severity, as_error
from streamlog.health.verify import verify
from streamlog.partition.checkpoints import read_offsets
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.partition.producer_snapshot import MAX_SNAPSHOT_SIZE, decode_snapshot
from streamlog.protocol.internal_topics import Decoder, decode_internal
from streamlog.records.batch import LegacyRecordBatch, RecordBatch, ScanStop, read_batches
from streamlog.records.control import parse_control_key, parse_marker
from streamlog.records.layout import CURRENT_MAGIC, MAX_INT32
from streamlog.records.record import Record
from streamlog.segment.file_records import FileRecords
from streamlog.segment.index_entries import (
    MAX_INDEX_FILE,
    offset_entries,
    time_entries,
    txn_entries,
)
from streamlog.segment.offset_index import OffsetIndex
from streamlog.segment.time_index import TimeIndex
from streamlog.segment.txn_index import TxnIndex
from streamlog.store.urls import absolute

__all__ = ["dump"]


def dump(
    settings: Settings,
    *,
    files: tuple[str, ...],
    print_data_log: bool,
    encoding: str,
    deep_iteration: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_bytes: int | None,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    max_decompressed_bytes: int | None,
) -> None:
    """Print the contents of files; report errors after all files."""
    if offsets_decoder and transaction_log_decoder:
        raise click.UsageError(
            "--offsets-decoder and --transaction-log-decoder are mutually exclusive"
        )

    decoder = None
    if offsets_decoder or transaction_log_decoder:
        decoder = Decoder.OFFSETS if offsets_decoder else Decoder.TRANSACTIONS
    wanted = Dumping(
        encoding=encoding,
        with_records=print_data_log or decoder is not None,
        is_deep=deep_iteration or print_data_log or decoder is not None,
        entries=not (verify_index_only or index_sanity_check),
        only_sanity=index_sanity_check,
        max_bytes=max_bytes,
        decoder=decoder,
        max_decompressed=max_decompressed_bytes or DEFAULT_MAX_DECOMPRESSED_BYTES,
    )
    dump_files(Output(settings), files, wanted)


_INDEXES: Final = (Content.OFFSET_INDEX, Content.TIME_INDEX, Content.TXN_INDEX)
Batch = RecordBatch | LegacyRecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumping:
    """What to print of the files.

    Attributes:
        encoding: One of `ENCODINGS`.
        with_records: Whether to print keys and values of records.
        is_deep: Whether to decode records.
        entries: Whether to print index entries.
        only_sanity: Whether to check indexes only as far as opening a log for reading does.
        max_bytes: Maximum bytes to read of a log file; None: all.
        decoder: The internal topic that the records belong to; None: an ordinary topic.
        max_decompressed: Maximum decompressed size of a batch.
    """

    encoding: str = "utf8"
    with_records: bool = False
    is_deep: bool = False
    entries: bool = True
    only_sanity: bool = False
    max_bytes: int | None = None
    decoder: Decoder | None = None
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED_BYTES


def dump_files(output: Output, paths: tuple[str, ...], wanted: Dumping) -> None:
    """Print the readable contents of files; then raise Findings if any file has errors."""
    errors: list[StreamLogError] = []
    files = (_File(*located(path), wanted, errors) for path in paths)
    if output.format == "table":
        for file in files:
            _print_file(output, file)
        output.flush()
    else:
        rows = (row for file in files for row in _rows(file))
        output.rows(rows, ())
    if errors:
        raise Findings(errors)


class _File:
    """One file to dump.

    Args:
        fs: The file system.
        path: The path as given by the user, or the URL of an object.
        wanted: What to print.
        errors: Collects the errors found in the file.
    """

    def __init__(
        self, fs: FileSystem, path: str, wanted: Dumping, errors: list[StreamLogError]
    ) -> None:
        self.fs, self.path, self.wanted, self.errors = fs, path, wanted, errors
        self.directory = os.path.dirname(absolute(path))
        self.partition = partition_of(fs, self.directory)

    def identify(self) -> KnownFile:
        """Return the kind of file that its name says."""
        known = KnownFile(Content.LOG) if is_staged(self.path) else identify(self.path)
        if known is None:
            raise InvalidRequestError(
                "not a file of a partition or a log root",
                path=self.path,
                expected="a segment, an index, a snapshot, a checkpoint or a metadata file",
                hint="streamlog dump DIRECTORY/*.log",
            )
        found = self.fs.stat(self.path)
        if found is None:
            raise FileMissingError("no such file", path=self.path)
        if found.kind is not FileKind.FILE:
            raise InvalidRequestError(
                "not a regular file",
                path=self.path,
                got=f"a {found.kind.value}",
                hint="links are not followed; pass the file itself",
            )
        return known

    def base_offset(self, known: KnownFile) -> int:
        """Return the base offset of an index's segment."""
        return 0 if known.base_offset is None else known.base_offset


def _rows(file: _File) -> Iterator[Row]:
    """Yield the rows of a file; add its errors to `file.errors`."""
    try:
        values = values_in(file.fs, file.path)
        if values is not None:
            yield {**values, "file": file.path}
            return
        known = file.identify()
        if known.kind is Content.LOG:
            for batch, position in _batches(file):
                yield _batch_row(file, batch, position)
        elif known.kind in _INDEXES and not file.wanted.entries:
            _check_index(file, known)
        else:
            for row in _ROWS[known.kind](file, known):
                yield {**row, "file": file.path}
            if known.kind in _INDEXES:
                _check_index(file, known)
    except StreamLogError as error:
        file.errors.append(error)


def _print_file(output: Output, file: _File) -> None:
    """Print a file as Kafka's tool does."""

    def say(line: str) -> None:
        output.write(line.encode("utf-8", "surrogateescape") + b"\n")

    say(f"Dumping {file.path}")
    try:
        values = values_in(file.fs, file.path)
        if values is not None:
            for line in lines_of(values):
                say(line)
            return
        known = file.identify()
        if known.kind is Content.LOG:
            _print_log(file, known, say)
        elif known.kind in _INDEXES and not file.wanted.entries:
            _check_index(file, known)
            if file.wanted.only_sanity:
                say(f"{file.path} passed sanity check.")
        else:
            is_empty = True
            for row in _ROWS[known.kind](file, known):
                say(row_line(known.kind, row))
                is_empty = False
            if known.kind in _INDEXES:
                if is_empty and known.kind is Content.OFFSET_INDEX:
                    say(f"{file.path} is empty.")
                _check_index(file, known)
    except StreamLogError as error:
        file.errors.append(error)


# ---- log files ------------------------------------------------------------------------------
def _print_log(file: _File, known: KnownFile, say: Callable[[str], None]) -> None:
    header = log_header(file.path, known)
    if header is not None:
        say(header)
    end = 0
    try:
        for batch, position in _batches(file):
            say(batch_line(batch, position))
            end = position + batch.size
            for record in _records(file, batch):
                say(_record_line(file, batch, record))
    finally:
        rest = _size(file) - end
        if rest > 0 and file.wanted.max_bytes is None:
            say(f"Found {rest} invalid bytes at the end of {os.path.basename(file.path)}")


def _record_line(file: _File, batch: Batch, record: Record) -> str:
    line = record_line(batch, record)
    if not file.wanted.with_records or batch.is_control:
        return line
    if file.wanted.decoder is not None:
        decoded = decode_internal(file.wanted.decoder, record)
        if decoded is not None:
            return line + decoded_text(*decoded)
    return line + content_text(record, file.wanted.encoding)


def _size(file: _File) -> int:
    found = file.fs.stat(file.path)
    return 0 if found is None else found.size


def _batches(file: _File) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of a log file and their positions; then raise if other bytes follow."""
    records = FileRecords(file.fs, file.path, writable=False)
    try:
        size = records.stat().size
        limit = file.wanted.max_bytes
        end = size if limit is None else min(size, limit)
        position, stop = 0, ScanStop.END
        for chunk in records.chunks(0, end):
            whole = chunk.buffer[: chunk.scan.consumed]
            for batch in read_batches(whole, path=file.path, position=chunk.position):
                if not batch.is_valid:
                    file.errors.append(_wrong_checksum(file, batch, position))
                yield batch, position
                position += batch.size
            stop = chunk.scan.stop
    finally:
        records.close()
    if position < end and limit is None:
        raise CorruptRecordError(
            "bytes that are not a complete batch",
            path=file.path,
            position=position,
            got=f"{size - position} bytes: {stop.name.lower().replace('_', ' ')}",
            hint=f"streamlog verify {file.path}",
        )


def _wrong_checksum(file: _File, batch: Batch, position: int) -> CorruptRecordError:
    return CorruptRecordError(
        "batch has a wrong checksum",
        path=file.path,
        position=position,
        offset=batch.base_offset,
        got=f"{batch.crc:#010x}",
        hint=f"streamlog verify {file.path}",
    )


def _batch_row(file: _File, batch: Batch, position: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "file": file.path,
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
    }
    records = [_record_row(file, batch, record) for record in _records(file, batch)]
    if file.wanted.with_records:
        row["records"] = records
    return row


def _records(file: _File, batch: Batch) -> Iterator[Record]:
    """Yield the records of a batch if requested; add its errors to `file.errors`."""
    if not file.wanted.is_deep:
        return
    try:
        yield from batch.records(max_decompressed=file.wanted.max_decompressed)
    except StreamLogError as error:
        file.errors.append(error)


def _record_row(file: _File, batch: Batch, record: Record) -> dict[str, Any]:
    row = record_object(record, file.partition, file.wanted.encoding)
    row["sequence"] = record.sequence
    if batch.is_control:
        row["control"] = _control(record)
    elif file.wanted.decoder is not None:
        decoded = decode_internal(file.wanted.decoder, record)
        if decoded is not None:
            row["key"], row["value"] = decoded
    return row


def _control(record: Record) -> dict[str, Any] | None:
    """Return the contents of a control record; None if it cannot be parsed."""
    try:
        kind = parse_control_key(record.key)
        marker = parse_marker(record)
    except InvalidRecordError:
        return None
    version, type_id = control_key(record)
    return {
        "version": version,
        "typeId": type_id,
        "type": kind.name,
        "coordinatorEpoch": None if marker is None else marker.coordinator_epoch,
    }


# ---- other files ----------------------------------------------------------------------------
def _index_bytes(file: _File) -> bytes:
    return read_file(file.fs, file.path, max_size=MAX_INDEX_FILE)


def _offset_rows(file: _File, known: KnownFile) -> Iterator[dict[str, Any]]:
    entries = offset_entries(_index_bytes(file), file.base_offset(known))
    for offset, position in zip(entries.offset.tolist(), entries.position.tolist(), strict=True):
        yield {"offset": offset, "position": position}


def _time_rows(file: _File, known: KnownFile) -> Iterator[dict[str, Any]]:
    entries = time_entries(_index_bytes(file), file.base_offset(known))
    for timestamp, offset in zip(entries.timestamp.tolist(), entries.offset.tolist(), strict=True):
        yield {"timestamp": timestamp, "offset": offset}


def _txn_rows(file: _File, known: KnownFile) -> Iterator[dict[str, Any]]:
    for version, aborted in txn_entries(_index_bytes(file))[0]:
        yield {
            "version": version,
            "producerId": aborted.producer_id,
            "firstOffset": aborted.first_offset,
            "lastOffset": aborted.last_offset,
            "lastStableOffset": aborted.last_stable_offset,
        }


def _snapshot_rows(file: _File, known: KnownFile) -> Iterator[dict[str, Any]]:
    data = read_file(file.fs, file.path, max_size=MAX_SNAPSHOT_SIZE)
    for state in decode_snapshot(data, file.path):
        first_offset = state.current_txn_first_offset
        yield {
            "producerId": state.producer_id,
            "producerEpoch": state.producer_epoch,
            "lastSequence": state.last_sequence,
            "lastOffset": state.last_offset,
            "offsetDelta": state.batches[-1].offset_delta if state.batches else 0,
            "timestamp": state.last_timestamp,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTxnFirstOffset": -1 if first_offset is None else first_offset,
        }


def _epoch_rows(file: _File, known: KnownFile) -> Iterator[dict[str, Any]]:
    for epoch, start_offset in LeaderEpochCache.load(file.fs, file.directory).entries:
        yield {"epoch": epoch, "startOffset": start_offset}


def _checkpoint_rows(file: _File, known: KnownFile) -> Iterator[dict[str, Any]]:
    for (topic, partition), offset in read_offsets(file.fs, file.path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _partition_metadata_rows(file: _File, known: KnownFile) -> Iterator[dict[str, Any]]:
    yield {"version": 0, "topicId": read_topic_id(file.fs, file.directory)}


def _meta_properties_rows(file: _File, known: KnownFile) -> Iterator[dict[str, Any]]:
    found = read_meta_properties(file.fs, file.directory)
    if found is not None:
        yield {
            "version": found.version,
            "clusterId": found.cluster_id,
            "nodeId": found.node_id,
            "directoryId": found.directory_id,
        }


_ROWS: Final[dict[Content, Callable[[_File, KnownFile], Iterator[dict[str, Any]]]]] = {
    Content.OFFSET_INDEX: _offset_rows,
    Content.TIME_INDEX: _time_rows,
    Content.TXN_INDEX: _txn_rows,
    Content.PRODUCER_SNAPSHOT: _snapshot_rows,
    Content.LEADER_EPOCHS: _epoch_rows,
    Content.OFFSETS: _checkpoint_rows,
    Content.PARTITION_METADATA: _partition_metadata_rows,
    Content.META_PROPERTIES: _meta_properties_rows,
}


# ---- indexes beside their logs --------------------------------------------------------------
def _check_index(file: _File, known: KnownFile) -> None:
    """Add the errors of an index to `file.errors`."""
    if file.wanted.only_sanity:
        _open_index(file, known)
        return

    def add(finding: Finding) -> None:
        if finding.severity is not Severity.NOTE:
            file.errors.append(as_error(finding))

    if (
        os.path.basename(file.path).count(".") == 1
    ):  # of a live segment, not `.deleted` and the like
        verify(file.fs, file.path, add)


def _open_index(file: _File, known: KnownFile) -> None:
    """Open an index as a reader of the log does, which raises if it is implausible."""
    base_offset, max_size = file.base_offset(known), LogConfig().segment_index_bytes
    log = f"{file.path.rpartition('.')[0]}.log"
    found = file.fs.stat(log)
    log_size = MAX_INDEX_FILE if found is None else found.size
    if known.kind is Content.TXN_INDEX:
        TxnIndex(file.fs, file.path, base_offset).load(log_size=log_size)
    elif known.kind is Content.TIME_INDEX:
        TimeIndex(file.fs, file.path, base_offset, max_size=max_size).load(log_size=log_size)
    else:
        OffsetIndex(file.fs, file.path, base_offset, max_size=max_size).load(log_size=log_size)


# ---- the lines of Kafka's tool -------------------------------------------------------------------
# The output of DumpLogSegments word for word, with two exceptions: characters of records that break
# lines or control a terminal are escaped, and messages of v0 and v1 lack the checksum per record.


_CONTROL_KEY: Final = struct.Struct(">hh")
_NOT_SHOWN: Final = -1  # stands for "none"; Kafka prints OptionalLong.empty


def log_header(path: str, known: KnownFile) -> str | None:
    """Return the line above the batches of a file, or None."""
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
    """Return the line of a record without key and value."""
    line = (
        f"| offset: {record.offset} {batch.timestamp_type.label}: {record.timestamp} "
        f"keySize: {_length(record.key)} valueSize: {_length(record.value)}"
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
    """Return version and type of the (already validated) key of a control record."""
    version, type_id = _CONTROL_KEY.unpack_from(record.key or bytes(_CONTROL_KEY.size))
    return version, type_id


def content_text(record: Record, encoding: str) -> str:
    """Return the part of a record's line with key and value."""
    key = "" if record.key is None else f" key: {encoded_text(record.key, encoding)}"
    value = "" if record.value is None else f" payload: {encoded_text(record.value, encoding)}"
    return key + value


def decoded_text(key: dict[str, Any], value: dict[str, Any] | None) -> str:
    """Return the same part for a decoded record of an internal topic."""
    payload = "<DELETE>" if value is None else to_json(value).decode()
    return f" key: {to_json(key).decode()} payload: {payload}"


def row_line(kind: Content, row: dict[str, Any]) -> str:
    """Return the line of anything but a batch."""
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


def _length(value: bytes | None) -> int:
    return -1 if value is None else len(value)
