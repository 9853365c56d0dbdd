"""Headers of many batches as one array of numbers: output of scans, input of writes.

A table is int64[n, 14], one row per batch. Its columns are views of that array (with a stride), so
slicing and patching take no copies.
"""

from collections.abc import Iterable
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.records.layout import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    TRANSACTIONAL_MASK,
)

__all__ = ["BatchOutline", "BatchTable", "ScanStop"]

# Places in a row, used by the kernels.
POSITION: Final = 0
SIZE: Final = 1
BASE_OFFSET: Final = 2
LAST_OFFSET: Final = 3
LEADER_EPOCH: Final = 4
MAGIC: Final = 5
CRC: Final = 6
ATTRIBUTES: Final = 7
BASE_TIMESTAMP: Final = 8
MAX_TIMESTAMP: Final = 9
PRODUCER_ID: Final = 10
PRODUCER_EPOCH: Final = 11
BASE_SEQUENCE: Final = 12
COUNT: Final = 13
WIDTH: Final = 14

UNKNOWN_COUNT: Final = -1  # of a compressed message of v0 or v1, before it is decompressed


class ScanStop(IntEnum):
    """Why a scan ended."""

    END = 0  # at the end of the buffer, after a whole batch
    PARTIAL = 1  # the buffer ends inside a batch, or with too few bytes to decide
    BAD_LENGTH = 2  # a length that no batch of this magic can have
    BAD_MAGIC = 3  # a format that does not exist
    BAD_HEADER = 4  # a negative count, or offsets that are negative, decrease, or exceed 63 bits


class BatchOutline(NamedTuple):
    """Summary of the batches of an append.

    Attributes:
        size: Bytes up to the end of the last one.
        base_offset: First offset of the first.
        last_offset: Last offset of the last.
        max_timestamp: The largest timestamp, in ms, -1 for none.
        offset_of_max_timestamp: Last offset of the first batch that has it.
        last_epoch: Leader epoch of the last.
        highest_epoch: The highest leader epoch.
        has_producer: Whether any comes from an idempotent producer.
    """

    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    last_epoch: int
    highest_epoch: int
    has_producer: bool


class BatchTable:
    """Headers of batches, in the order of the buffer.

    Attributes:
        fields: int64[n, 14], the numbers themselves.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: NDArray[np.int64]) -> None:
        self.fields = fields

    @classmethod
    def empty(cls) -> "BatchTable":
        """Return a table without batches."""
        return cls(np.empty((0, WIDTH), np.int64))

    @classmethod
    def concatenate(cls, tables: Iterable["BatchTable"]) -> "BatchTable":
        """Return the batches of all `tables`, positions unchanged."""
        fields = [table.fields for table in tables]
        return cls(np.concatenate(fields)) if fields else cls.empty()

    def __len__(self) -> int:
        return len(self.fields)

    def __repr__(self) -> str:
        if not len(self):
            return "BatchTable(empty)"
        first, last = self.fields[0], self.fields[-1]
        return (
            f"BatchTable({len(self)} batches, offsets {first[BASE_OFFSET]} to "
            f"{last[LAST_OFFSET]}, bytes {first[POSITION]} to {last[POSITION] + last[SIZE]})"
        )

    def slice(self, start: int, stop: int) -> "BatchTable":
        """Return batches `start` to `stop` (exclusive) as a view."""
        return BatchTable(self.fields[start:stop])

    def select(self, keep: NDArray[np.bool_]) -> "BatchTable":
        """Return a copy of the batches where `keep`, bool[n], holds."""
        return BatchTable(self.fields[keep])

    def by_format(self) -> "list[BatchTable]":
        """Return the runs of batches of one format, v2 or older, as views; one or more."""
        if len(self) < 2 or int(self.fields[:, MAGIC].min()) == CURRENT_MAGIC:
            return [self]
        is_current = self.fields[:, MAGIC] == CURRENT_MAGIC
        borders = np.flatnonzero(is_current[1:] != is_current[:-1]) + 1
        ends = [0, *borders.tolist(), len(self)]
        return [self.slice(start, stop) for start, stop in pairwise(ends)]

    def count_before(self, offset: int) -> int:
        """Return how many batches start, or may start, before `offset`."""
        begins = self.base_offset < offset
        if begins.all():
            return len(self)
        unknown = self.fields[:, COUNT] == UNKNOWN_COUNT
        if unknown.any():
            previous = np.concatenate(([-1], self.last_offset[:-1]))
            begins |= unknown & (previous + 1 < offset)
        return int(begins.sum())

    def count_rising(self) -> int:
        """Return how many leading batches each start above the end of the previous one."""
        if len(self.fields) == 1:
            return 1
        overlaps = self.base_offset[1:] <= self.last_offset[:-1]
        return int(overlaps.argmax()) + 1 if overlaps.any() else len(self)

    @property
    def is_legacy(self) -> bool:
        """Whether the first batch, if any, is a message of v0 or v1."""
        return len(self) > 0 and int(self.fields[0, MAGIC]) < CURRENT_MAGIC

    def moved(self, distance: int) -> "BatchTable":
        """Return a copy with positions `distance` bytes further."""
        fields = self.fields.copy()
        fields[:, POSITION] += distance
        return BatchTable(fields)

    def outline(self) -> BatchOutline:
        """Return the summary of one or more batches."""
        first = last = largest = self.fields[-1].tolist()
        highest_epoch, highest_producer = last[LEADER_EPOCH], last[PRODUCER_ID]
        if len(self.fields) > 1:
            first = self.fields[0].tolist()
            largest = self.fields[self.max_timestamp.argmax()].tolist()
            highest_epoch = int(self.leader_epoch.max())
            highest_producer = int(self.producer_id.max())
        return BatchOutline(
            last[POSITION] + last[SIZE],
            first[BASE_OFFSET],
            last[LAST_OFFSET],
            largest[MAX_TIMESTAMP],
            largest[LAST_OFFSET],
            last[LEADER_EPOCH],
            highest_epoch,
            highest_producer >= 0,
        )

    @property
    def end(self) -> int:
        """Position after the last batch, 0 if there is none."""
        return int(self.fields[-1, POSITION] + self.fields[-1, SIZE]) if len(self) else 0

    @property
    def codec(self) -> NDArray[np.int64]:
        """Codec ids: those of `CompressionType`, or 5 to 7, which are undefined."""
        return self.fields[:, ATTRIBUTES] & COMPRESSION_MASK

    @property
    def is_control(self) -> NDArray[np.bool_]:
        """Whether each batch holds control records."""
        flags: NDArray[np.bool_] = (self.fields[:, ATTRIBUTES] & CONTROL_MASK) != 0
        return flags

    @property
    def is_transactional(self) -> NDArray[np.bool_]:
        """Whether each batch belongs to a transaction."""
        flags: NDArray[np.bool_] = (self.fields[:, ATTRIBUTES] & TRANSACTIONAL_MASK) != 0
        return flags

    @property
    def position(self) -> NDArray[np.int64]:
        """Byte positions of the batches in their buffer."""
        return self.fields[:, POSITION]

    @property
    def size(self) -> NDArray[np.int64]:
        """Sizes in bytes, including LOG_OVERHEAD."""
        return self.fields[:, SIZE]

    @property
    def base_offset(self) -> NDArray[np.int64]:
        """First offsets; the last offset of a compressed message of v0 or v1."""
        return self.fields[:, BASE_OFFSET]

    @property
    def last_offset(self) -> NDArray[np.int64]:
        """Last offsets, unchanged by compaction even if the last record is gone."""
        return self.fields[:, LAST_OFFSET]

    @property
    def leader_epoch(self) -> NDArray[np.int64]:
        """Partition leader epochs, -1 for none."""
        return self.fields[:, LEADER_EPOCH]

    @property
    def magic(self) -> NDArray[np.int64]:
        """Format versions."""
        return self.fields[:, MAGIC]

    @property
    def crc(self) -> NDArray[np.int64]:
        """Stored checksums, unsigned."""
        return self.fields[:, CRC]

    @property
    def attributes(self) -> NDArray[np.int64]:
        """Attribute bits, see `streamlog.records.layout`."""
        return self.fields[:, ATTRIBUTES]

    @property
    def base_timestamp(self) -> NDArray[np.int64]:
        """Base of the record timestamps, in ms; the delete horizon if one is set."""
        return self.fields[:, BASE_TIMESTAMP]

    @property
    def max_timestamp(self) -> NDArray[np.int64]:
        """Largest timestamps, in ms, -1 for none."""
        return self.fields[:, MAX_TIMESTAMP]

    @property
    def producer_id(self) -> NDArray[np.int64]:
        """Producer ids, -1 for none."""
        return self.fields[:, PRODUCER_ID]

    @property
    def producer_epoch(self) -> NDArray[np.int64]:
        """Producer epochs, -1 for none."""
        return self.fields[:, PRODUCER_EPOCH]

    @property
    def base_sequence(self) -> NDArray[np.int64]:
        """Sequences of the first records, -1 for none."""
        return self.fields[:, BASE_SEQUENCE]

    @property
    def count(self) -> NDArray[np.int64]:
        """Number of records, or `UNKNOWN_COUNT`."""
        return self.fields[:, COUNT]
