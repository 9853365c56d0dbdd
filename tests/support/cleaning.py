"""Rounds of cleaning without a `LogManager`, and a codec-independent view of their result."""

from random import Random

from streamlog.binary.compression import decompress
from streamlog.cleaner.choosing import Cleanable, find_cleanable
from streamlog.cleaner.offset_map import OffsetMap
from streamlog.cleaner.round import CleaningRound, CleanReport, Throttle
from streamlog.clock import Clock
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.records.batch import read_batches, scan_batches
from streamlog.records.layout import RECORD_BATCH_OVERHEAD
from streamlog.records.table import ATTRIBUTES, BASE_OFFSET, CRC
from streamlog.root.partition_log import PartitionLog

UNLIMITED = float("inf")


def begin(
    fs: FileSystem,
    clock: Clock,
    log: PartitionLog,
    *,
    checkpoint: int | None = None,
    cleanable: Cleanable | None = None,
    memory: int = 1 << 20,
) -> CleaningRound:
    """Return a round that has not started."""
    log.catch_up()
    return CleaningRound(
        LogRoot.at(log.root, fs=fs, clock=clock),
        log,
        cleanable or find_cleanable(log, checkpoint, config=log.config, now_ms=clock.now_ms()),
        offset_map=OffsetMap(memory=memory, random=Random(1)),
        throttle=Throttle(clock, UNLIMITED),
    )


def clean(
    fs: FileSystem,
    clock: Clock,
    log: PartitionLog,
    *,
    checkpoint: int | None = None,
    cleanable: Cleanable | None = None,
    memory: int = 1 << 20,
) -> CleanReport:
    """Clean everything that may be cleaned."""
    cleaning = begin(fs, clock, log, checkpoint=checkpoint, cleanable=cleanable, memory=memory)
    return cleaning.go_on(lambda: False)


def plain(data: bytes) -> list[tuple[list[int], bytes]]:
    """Return what does not depend on codec libraries: headers without size and CRC, and records."""
    table = scan_batches(data).table
    batches = []
    for batch, fields in zip(read_batches(data), table.fields.tolist(), strict=True):
        assert batch.is_valid
        body = bytes(batch.buffer[RECORD_BATCH_OVERHEAD:])
        if batch.count:
            body = bytes(decompress(batch.compression_type, body, max_size=1 << 20))
        batches.append((fields[BASE_OFFSET:CRC] + fields[ATTRIBUTES:], body))
    return batches
