"""An independent reader of format v2: simple, slow, and without code of the package.

It reads whole, uncompressed files and checks each batch's checksum, count and lengths.

Source: "Record Batch" in the documentation of Apache Kafka.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.fs.api import FileSystem, OpenMode

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CRC_START: Final = 21
CONTROL: Final = 0x20


class FoundRecord(NamedTuple):
    """A record without its headers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class FoundBatch(NamedTuple):
    """A batch and its records, without control records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    is_sound: bool
    records: tuple[FoundRecord, ...]


def read_partition(fs: FileSystem, directory: str) -> Iterator[FoundBatch]:
    """Yield the batches of all segments, by base offset; stop a file at its first torn batch."""
    for name in sorted(fs.list(directory)):
        if name.endswith(".log"):
            with fs.open(f"{directory}/{name}", OpenMode.READ) as file:
                yield from read_batches(file.pread(file.stat().size, 0))


def torn_size(fs: FileSystem, directory: str) -> int:
    """Return the number of bytes after the last complete batch, summed over all files."""
    size = 0
    for name in fs.list(directory):
        if name.endswith(".log"):
            with fs.open(f"{directory}/{name}", OpenMode.READ) as file:
                data = file.pread(file.stat().size, 0)
            position = 0
            while position + HEADER.size <= len(data):
                end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
                if end > len(data):
                    break
                position = end
            size += len(data) - position
    return size


def read_batches(data: bytes) -> Iterator[FoundBatch]:
    position = 0
    while position + HEADER.size <= len(data):
        facts = HEADER.unpack_from(data, position)
        base, length, epoch, magic, crc, attributes, last_delta = facts[:7]
        end = position + 12 + length
        if end > len(data) or length < HEADER.size - 12:
            return
        body = data[position + CRC_START : end]
        try:
            records = tuple(_records(data[position + HEADER.size : end], facts[12], base, facts[7]))
            is_sound = magic == 2 and crc32c(body) == crc
        except (IndexError, ValueError):
            records, is_sound = (), False
        if attributes & CONTROL:
            records = ()
        yield FoundBatch(base, base + last_delta, epoch, is_sound, records)
        position = end


def _records(data: bytes, count: int, base: int, base_timestamp: int) -> Iterator[FoundRecord]:
    position = 0
    for _ in range(count):
        size, position = _varint(data, position)
        end = position + size
        later, position = _varint(data, position + 1)
        delta, position = _varint(data, position)
        fields = []
        for _ in range(2):
            size, position = _varint(data, position)
            fields.append(None if size < 0 else data[position : position + size])
            position += max(size, 0)
        if not position < end <= len(data):
            raise ValueError("a record overruns its batch")
        yield FoundRecord(base + delta, base_timestamp + later, *fields)
        position = end
    if position != len(data):
        raise ValueError("bytes after the last record")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
