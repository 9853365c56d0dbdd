"""Batches and segments for tests below the partition layer."""

from collections.abc import Iterable
from typing import NamedTuple

from streamlog.binary.crc import crc32c
from streamlog.config.log_config import LogConfig
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.batch import BatchTable, scan_batches
from streamlog.records.layout import ATTRIBUTES_OFFSET, BATCH_HEADER, CRC_OFFSET, LOG_OVERHEAD
from streamlog.segment.segment import Segment

DIRECTORY = "/logs/orders-0"
NOW_MS = 1_700_000_000_000


class BatchPlan(NamedTuple):
    """The fields of a synthetic batch; its body is random bytes with a correct CRC, not records."""

    base_offset: int
    count: int = 1
    size: int = 100
    max_timestamp: int = NOW_MS
    leader_epoch: int = 0
    attributes: int = 0
    producer_id: int = -1
    last_offset: int | None = None


def make_batch(plan: BatchPlan) -> bytes:
    last = plan.base_offset + plan.count - 1 if plan.last_offset is None else plan.last_offset
    delta = last - plan.base_offset
    header = BATCH_HEADER.pack(
        plan.base_offset,
        plan.size - LOG_OVERHEAD,
        plan.leader_epoch,
        2,
        0,
        plan.attributes,
        delta,
        plan.max_timestamp,
        plan.max_timestamp,
        plan.producer_id,
        -1,
        -1,
        plan.count,
    )
    filling = bytes((plan.base_offset * 31 + at * 7) % 251 + 1 for at in range(16))
    body_size = plan.size - len(header)
    body = (filling * (body_size // 16 + 1))[:body_size]
    return with_crc(bytearray(header + body))


def with_crc(batch: bytearray) -> bytes:
    """Return the batch with the checksum recomputed."""
    crc = crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:])
    batch[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
    return bytes(batch)


def make_batches(plans: Iterable[BatchPlan]) -> bytes:
    """Return the bytes of several batches."""
    return b"".join(make_batch(plan) for plan in plans)


def table_of(buffer: bytes) -> BatchTable:
    """Return the table of a buffer of complete batches."""
    scan = scan_batches(buffer)
    assert scan.consumed == len(buffer)
    return scan.table


def config(**overrides: object) -> LogConfig:
    """Return settings from Kafka's keys, with underscores for dots."""
    return LogConfig.from_properties({key.replace("_", "."): v for key, v in overrides.items()})


def memory_fs(directory: str = DIRECTORY) -> MemoryFileSystem:
    """Return a file system that has one partition's directory."""
    fs = MemoryFileSystem()
    parts = directory.strip("/").split("/")
    for end in range(1, len(parts) + 1):
        fs.make_directory("/" + "/".join(parts[:end]))
    return fs


def new_segment(fs: FileSystem, base_offset: int = 0, **overrides: object) -> Segment:
    """Return a new segment of `DIRECTORY`."""
    settings = config(**overrides)
    return Segment.create(fs, DIRECTORY, base_offset, config=settings, now_ms=NOW_MS)


def open_segment(
    fs: FileSystem, base_offset: int = 0, *, writable: bool = True, **overrides: object
) -> Segment:
    """Open a segment of `DIRECTORY`."""
    return Segment.open(fs, DIRECTORY, base_offset, config=config(**overrides), writable=writable)


def append(segment: Segment, *plans: BatchPlan) -> None:
    """Append the batches in one call."""
    buffer = make_batches(plans)
    segment.append(buffer, table_of(buffer))


def read_bytes(fs: FileSystem, path: str) -> bytes:
    """Return the content of a file."""
    with fs.open(path, OpenMode.READ) as file:
        return file.pread(file.stat().size, 0)


def write_bytes(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace the content of a file."""
    with fs.open(path, OpenMode.CREATE_OR_WRITE) as file:
        file.truncate(0)
        file.pwrite(data, 0)


def file_names(fs: FileSystem, directory: str = DIRECTORY) -> list[str]:
    """Return the names in the partition's directory."""
    return fs.list(directory)


def dense_segment(fs: FileSystem, count: int = 60, **overrides: object) -> Segment:
    """Return a segment from offset 40: batches of 2 offsets and 100 bytes, ascending times."""
    segment = new_segment(fs, 40, **{"index_interval_bytes": 300, **overrides})
    for at in range(count):
        append(segment, BatchPlan(40 + 2 * at, 2, 100, NOW_MS + at))
    return segment


def last_offsets(buffer: bytes) -> list[int]:
    """Return the last offsets of the batches in a buffer."""
    return scan_batches(buffer).table.last_offset.tolist()
