"""Compiling all kernels ahead of their first use, which otherwise waits for it.

numba compiles a kernel when it is first called, which takes seconds each, and keeps the code on
disk (`streamlog.binary.jit` says where). So it is enough to do, once, all that calls kernels: on
a small topic in memory.
"""

import math
from collections.abc import Iterator
from random import Random

from streamlog.cleaner.choosing import find_cleanable
from streamlog.cleaner.offset_map import OffsetMap
from streamlog.cleaner.round import CleaningRound, Throttle
from streamlog.cli.cat import format_records
from streamlog.cli.output import ENCODINGS
from streamlog.clock import SystemClock
from streamlog.config.log_config import LogConfig
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.builder import encode_columns
from streamlog.records.partitioner import partition_for_keys
from streamlog.records.record import CompressionType, Header, Record
from streamlog.root.partition_log import PartitionLog

__all__ = ["warm_up"]

_TIMESTAMP = 1_700_000_000_000
_MANY_BATCHES = 64  # of a few batches the headers are read by plain code


def warm_up() -> None:
    """Make sure that the compiled code of every kernel is on disk; seconds the first time."""
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
        # Now that numba is loaded, looking up is done by kernels, too.
        log.read(_MANY_BATCHES)
        log.offset_for_timestamp(_TIMESTAMP)
        with LogReader.open("/logs/warm-0", fs=fs) as reader:  # takes in what stands in the files
            reader.read(0)
        _compact(fs, log)


def _records() -> Iterator[Record]:
    """Yield records of every kind: null and empty fields, headers, no timestamp."""
    yield Record(b"key", b"value", (Header("name", b"text"), Header("none", None)), _TIMESTAMP)
    yield Record(None, None, (), _TIMESTAMP)
    yield Record(b"", b"")


def _read(log: PartitionLog) -> None:
    """Decode everything, choose partitions for it, encode it again, print it as JSON."""
    fetched = log.read(0, max_bytes=1 << 20)
    columns = fetched.columns()
    assert columns.key is not None
    partition_for_keys(columns.key, 2)
    encode_columns(columns)
    for encoding in ENCODINGS:
        format_records(columns, log.topic_partition, encoding=encoding)
    fetched.columns(columns=frozenset())


def _compact(fs: MemoryFileSystem, log: PartitionLog) -> None:
    """Clean all that was appended: all records of a key but the last go."""
    log.roll()
    clock = SystemClock()
    cleanable = find_cleanable(log, None, config=log.config, now_ms=clock.now_ms())
    cleaning = CleaningRound(
        fs,
        clock,
        log,
        cleanable,
        offset_map=OffsetMap(memory=1 << 16, random=Random(0)),
        throttle=Throttle(clock, math.inf),
    )
    cleaning.go_on(lambda: False)
