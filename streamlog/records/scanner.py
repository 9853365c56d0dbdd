"""Scanning a buffer while it fills: what was just read is looked at while it is at hand.

A piece of up to a MiB stays in the processor's own cache from the moment the system copies it
there until its checksums are compared. Reading megabytes first and looking at them afterwards
fetches each byte from further away once more, and that takes as long as the checksum itself.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import as_source
from streamlog.records.batch import BatchScan, check_crc, scan_batches
from streamlog.records.layout import LENGTH_OFFSET, LOG_OVERHEAD
from streamlog.records.plain_headers import compiled, numba_is_loaded
from streamlog.records.slot import OUT_OF_ROOM
from streamlog.records.table import WIDTH, BatchTable, ScanStop

__all__ = ["PIECE_SIZE", "BatchScanner", "CheckedScan", "claimed_size"]

PIECE_SIZE: Final = 1 << 20  # bytes to read at a time
_ROWS: Final = 1024  # of the table at first; those that stay empty cost nothing


class CheckedScan(NamedTuple):
    """A scan, and how many of the batches at its front have the right checksum."""

    scan: BatchScan
    sound: int


class BatchScanner:
    """Finds and checks the whole batches at the front of a buffer that is being filled.

    It says what `scan_batches` and `check_crc` say of the buffer in one piece.

    Args:
        buffer: uint8[n]; what is in it is not trusted.
    """

    __slots__ = ("_fields", "_source", "_state", "_stop")

    def __init__(self, buffer: NDArray[np.uint8]) -> None:
        self._source = as_source(buffer)
        self._fields = np.empty((_ROWS, WIDTH), np.int64)  # the first of them are filled
        self._state = np.zeros(4, np.int64)  # see the kernel `scan_sound`
        self._stop: int = ScanStop.END

    def go_on(self, filled: int) -> bool:
        """Look at the batches that are whole, now that the first `filled` bytes are there.

        Returns:
            Whether another batch can come to be whole in what the buffer has room for.
        """
        source = self._source[:filled]
        if numba_is_loaded():
            self._scan_current(source)
        if self._stop == ScanStop.BAD_MAGIC or not numba_is_loaded():
            self._scan_any(source)
        if self._stop > ScanStop.PARTIAL:
            return False
        return int(self._state[3]) <= len(self._source)

    def _scan_current(self, source: NDArray[np.uint8]) -> None:
        scan_sound = compiled("batch_kernels").scan_sound
        self._stop = scan_sound(source, self._fields, self._state)
        while self._stop == OUT_OF_ROOM:
            spare = np.empty((len(self._fields) + _ROWS, WIDTH), np.int64)
            self._fields = np.concatenate((self._fields, spare))
            self._stop = scan_sound(source, self._fields, self._state)

    def _scan_any(self, source: NDArray[np.uint8]) -> None:
        count, sound, position, _ = self._state.tolist()
        scan = scan_batches(source[position:])
        table = scan.table.moved(position)
        if sound == count:
            sound += check_crc(source, table)
        self._fields = np.concatenate((self._fields[:count], table.fields))
        position += scan.consumed
        wanted = position + claimed_size(source[position:])
        self._state[:] = count + len(table), sound, position, wanted
        self._stop = scan.stop

    def finish(self) -> CheckedScan:
        """Return what was found."""
        count, sound, consumed, _ = self._state.tolist()
        table = BatchTable(self._fields[:count])
        return CheckedScan(BatchScan(table, ScanStop(self._stop), consumed), sound)


def claimed_size(buffer: NDArray[np.uint8]) -> int:
    """Return how many bytes the batch at the front says it has, 0 where that cannot be read."""
    if len(buffer) < LOG_OVERHEAD:
        return 0
    length = int.from_bytes(buffer[LENGTH_OFFSET:LOG_OVERHEAD].tobytes(), "big", signed=True)
    return LOG_OVERHEAD + length
