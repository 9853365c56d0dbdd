"""Compiles all kernels before their first use.

numba compiles a kernel at its first call, which takes seconds, and caches the code on disk
(`streamlog.binary.jit` says where). Running every operation that calls kernels once, on a small
topic in memory, is therefore enough.
"""

import contextlib
import math
from collections.abc import Iterator
from random import Random

import pyarrow as pa

from streamlog.arrow.schema import HEADERS, arrow_schema
from streamlog.cleaner.choosing import find_cleanable
from streamlog.cleaner.offset_map import OffsetMap
from streamlog.cleaner.round import CleaningRound, Throttle
from streamlog.clock import SystemClock
from streamlog.config.log_config import LogConfig
from streamlog.decoding.decoder import DecoderSpec, Format, ResolvedSpec, open_decoder
from streamlog.decoding.schema_text import SchemaText
from streamlog.errors import InvalidRequestError
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.builder import KeptOffsets, encode_columns
from streamlog.records.json_lines import format_records
from streamlog.records.json_objects import ENCODINGS
from streamlog.records.partitioner import partition_for_keys
from streamlog.records.record import CompressionType, Header, Record
from streamlog.root.partition_log import PartitionLog

__all__ = ["warm_up"]

_TIMESTAMP = 1_700_000_000_000
_MANY_BATCHES = 64  # with fewer batches, plain code reads the headers


def warm_up() -> None:
    """Ensure that the compiled code of every kernel is cached; takes seconds the first time."""
    fs = MemoryFileSystem()
    log = PartitionLog.open(
        "/logs/warm-0",
        fs=fs,
        config=LogConfig(message_timestamp_after_max_ms=1 << 62),
    )
    with log:
        for codec in (CompressionType.NONE, CompressionType.GZIP):
            log.append(_records(), compression=codec)
        for _ in range(_MANY_BATCHES):
            log.append(_records())
        _read(log)
        # With numba loaded, lookups use kernels as well.
        log.read(_MANY_BATCHES)
        log.offset_for_timestamp(_TIMESTAMP)
        with LogReader.open("/logs/warm-0", fs=fs) as reader:  # scans the files
            reader.read(0)
        _compact(fs, log)
    _decode()


def _records() -> Iterator[Record]:
    """Yield records of every kind: null and empty fields, headers, no timestamp."""
    yield Record(b"key", b"value", (Header("name", b"text"), Header("none", None)), _TIMESTAMP)
    yield Record(None, None, (), _TIMESTAMP)
    yield Record(b"", b"")


def _read(log: PartitionLog) -> None:
    """Decode all records, choose partitions, encode them again and format them as JSON."""
    fetched = log.read(0, max_bytes=1 << 20)
    columns = fetched.columns()
    assert columns.key is not None
    partition_for_keys(columns.key, 2)
    encode_columns(columns)
    first, end = int(columns.offset[0]), int(columns.offset[-1]) + 1
    encode_columns(columns, kept=KeptOffsets(columns.offset, first, end, leader_epoch=-1))
    for encoding in ENCODINGS:
        format_records(columns, log.topic_partition, encoding=encoding)
    fetched.columns(columns=frozenset())


def _compact(fs: MemoryFileSystem, log: PartitionLog) -> None:
    """Compact the log."""
    log.roll()
    clock = SystemClock()
    cleanable = find_cleanable(log, None, config=log.config, now_ms=clock.now_ms())
    cleaning = CleaningRound(
        LogRoot.at(log.root, fs=fs, clock=clock),
        log,
        cleanable,
        offset_map=OffsetMap(memory=1 << 16, random=Random(0)),
        throttle=Throttle(clock, math.inf),
    )
    cleaning.go_on(lambda: False)


def _decode() -> None:
    """Decode a value of Avro and one of Protobuf, if the extra for them is installed."""
    with contextlib.suppress(InvalidRequestError):
        avro = DecoderSpec(format=Format.AVRO, schema='"int"')
        open_decoder(avro.resolve()).decode(pa.array([b"\0\0\0\0\1\2"]))
    with contextlib.suppress(ImportError):
        from google.protobuf import descriptor_pb2, empty_pb2

        files = descriptor_pb2.FileDescriptorSet()
        empty_pb2.DESCRIPTOR.CopyToProto(files.file.add())
        reader = SchemaText("", descriptors=files.SerializeToString())
        protobuf = ResolvedSpec(spec=DecoderSpec(format=Format.PROTOBUF), reader=reader)
        header = {"key": "__value_schema_id", "value": b"\1" + bytes(17)}
        headers = pa.array([[], [header]], arrow_schema((HEADERS,)).field(HEADERS).type)
        open_decoder(protobuf).decode(pa.array([b"\0\0\0\0\1\0", b""]), headers)
