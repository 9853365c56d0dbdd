"""Reading a segment in an object store from one place to another, each byte once.

Blocks are read ahead, and the batches of each are checked while it is in the processor's cache. A
batch that reaches into the next block is moved in front of that: there is room for it.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.bucket.state import Stretch
from streamlog.errors import CorruptRecordError
from streamlog.records.batch import check_crc, scan_batches
from streamlog.records.layout import HEADER_SIZE_UP_TO_MAGIC, LENGTH_OFFSET
from streamlog.records.table import BatchTable, ScanStop
from streamlog.store.api import ObjectRange, ReadableObjects

__all__ = ["BLOCKS_AHEAD", "BLOCK_BYTES", "ScannedBatches", "scan_segment"]

BLOCK_BYTES: Final = 4 << 20
BLOCKS_AHEAD: Final = 4
_ROOM: Final = 1 << 20  # in front of a block, for the beginning of a batch


class ScannedBatches(NamedTuple):
    """Whole batches of a segment, whose checksums were compared.

    Attributes:
        buffer: The batches; nothing overwrites it.
        table: Their headers; positions are relative to `buffer`.
        position: Where the first of them lies in the segment.
    """

    buffer: memoryview
    table: BatchTable
    position: int


def scan_segment(
    store: ReadableObjects, segment: Stretch, start_offset: int, end_offset: int, pool: Executor
) -> Iterator[ScannedBatches]:
    """Yield the batches that begin below `end_offset`, from the one that holds `start_offset` on.

    At most `BLOCKS_AHEAD` blocks and two more are in memory, or three batches if those are larger.

    Args:
        store: The root's objects.
        segment: The segment.
        start_offset: The first offset.
        end_offset: No batch from this offset on is yielded.
        pool: Its threads read ahead.

    Raises:
        CorruptRecordError: The bytes are not the batches that the root names.
        StorageError: A request failed.
    """
    position = max((at for point, at in segment.points if point <= start_offset), default=0)
    end = min((at for point, at in segment.points if point >= end_offset), default=segment.size)
    held: list[NDArray[np.uint8]] = []  # the beginning of a batch
    for block in _blocks(store, segment, position, end, pool):
        held = _with(held, block)
        size = _size_of_first(held[0])
        if position + size > end:
            raise _damaged(store, segment, position, f"a batch of {size} bytes")
        if sum(map(len, held)) < size:
            continue
        buffer = held[0] if len(held) == 1 else np.concatenate(held)
        table, stop, consumed = scan_batches(buffer)
        good = check_crc(buffer, table)
        first = int(np.searchsorted(table.last_offset, start_offset))
        last = min(good, int(np.searchsorted(table.base_offset, end_offset)))
        if first < last:
            begin = int(table.position[first])
            kept = table.slice(first, last).moved(-begin)
            view = memoryview(buffer)[begin : begin + kept.end]
            yield ScannedBatches(view, kept, position + begin)
        if good < len(table):
            at = position + int(table.position[good])
            raise _damaged(store, segment, at, "a batch that fails its checksum")
        position += consumed
        if stop not in (ScanStop.END, ScanStop.PARTIAL):
            raise _damaged(store, segment, position, stop.name.lower().replace("_", " "))
        held = [buffer[consumed:]] if consumed < len(buffer) else []
    if held:
        raise _damaged(store, segment, position, "a part of a batch")


def _damaged(
    store: ReadableObjects, segment: Stretch, position: int, got: str
) -> CorruptRecordError:
    return CorruptRecordError(
        "object does not hold the batches that the root names",
        path=f"{store.url}/{segment.key}",
        position=position,
        offset=segment.base_offset,
        got=got,
        expected=f"whole batches up to byte {segment.size}",
    )


def _blocks(
    store: ReadableObjects, segment: Stretch, start: int, end: int, pool: Executor
) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes between two positions in blocks, each with room in front of it."""

    def read(position: int) -> NDArray[np.uint8]:
        size = min(BLOCK_BYTES, end - position)
        block = np.empty(_ROOM + size, np.uint8)
        wanted = ObjectRange(segment.key, segment.position + position, size)
        store.read_into([wanted], block[_ROOM:])
        return block

    places = iter(range(start, end, BLOCK_BYTES))
    ahead: deque[Future[NDArray[np.uint8]]] = deque()
    try:
        while True:
            while len(ahead) < BLOCKS_AHEAD and (place := next(places, None)) is not None:
                ahead.append(pool.submit(read, place))
            if not ahead:
                return
            yield ahead.popleft().result()
    finally:
        for each in ahead:
            each.cancel()


def _with(held: list[NDArray[np.uint8]], block: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """Return what is held with the next block: in one piece if what is held fits before it."""
    size = sum(map(len, held))
    if size > _ROOM:
        return [*held, block[_ROOM:]]
    if held:
        np.concatenate(held, out=block[_ROOM - size : _ROOM])
    return [block[_ROOM - size :]]


def _size_of_first(head: NDArray[np.uint8]) -> int:
    """Return the size of the batch that begins here, as far as its header can be read."""
    if len(head) < HEADER_SIZE_UP_TO_MAGIC:
        return HEADER_SIZE_UP_TO_MAGIC
    length = int.from_bytes(head[LENGTH_OFFSET : LENGTH_OFFSET + 4].tobytes(), "big", signed=True)
    return LENGTH_OFFSET + 4 + length
