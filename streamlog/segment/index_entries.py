"""Raw entries of index files, valid or not: for inspection, not for lookups.

The classes of `offset_index`, `time_index` and `txn_index` refuse an invalid file; these functions
return it as it is. Offsets are absolute. Zeros at the end, by which a broker extends the files of
an active segment in advance, are no entries; neither is half an entry at the very end.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.segment import offset_index, time_index, txn_index
from streamlog.segment.txn_index import AbortedTxn

__all__ = [
    "MAX_INDEX_FILE",
    "OffsetEntries",
    "TimeEntries",
    "TxnEntry",
    "offset_entries",
    "time_entries",
    "txn_entries",
]

MAX_INDEX_FILE: Final = 256 << 20  # 25 times the default of `segment.index.bytes`


class OffsetEntries(NamedTuple):
    """Entries of an offset index.

    Attributes:
        offset: int64[n], absolute.
        position: int64[n], in the log file.
        rest: Bytes at the end that are no whole entry.
    """

    offset: NDArray[np.int64]
    position: NDArray[np.int64]
    rest: int


class TimeEntries(NamedTuple):
    """Entries of a time index.

    Attributes:
        timestamp: int64[n], ms.
        offset: int64[n], absolute.
        rest: Bytes at the end that are no whole entry.
    """

    timestamp: NDArray[np.int64]
    offset: NDArray[np.int64]
    rest: int


class TxnEntry(NamedTuple):
    """Entry of a transaction index with its stated version."""

    version: int
    aborted: AbortedTxn


def offset_entries(data: bytes, base_offset: int) -> OffsetEntries:
    """Return the entries of an offset index file.

    Args:
        data: The whole file.
        base_offset: The segment's base offset.
    """
    rest = len(data) % offset_index.ENTRY.itemsize
    entries = np.frombuffer(data, offset_index.ENTRY, len(data) // offset_index.ENTRY.itemsize)
    entries = entries[: _end(entries["offset"], entries["position"])]
    offset = entries["offset"].astype(np.int64) + base_offset
    return OffsetEntries(offset, entries["position"].astype(np.int64), rest)


def time_entries(data: bytes, base_offset: int) -> TimeEntries:
    """Return the entries of a time index file.

    Args:
        data: The whole file.
        base_offset: The segment's base offset.
    """
    rest = len(data) % time_index.ENTRY.itemsize
    entries = np.frombuffer(data, time_index.ENTRY, len(data) // time_index.ENTRY.itemsize)
    entries = entries[: _end(entries["offset"], entries["timestamp"])]
    offset = entries["offset"].astype(np.int64) + base_offset
    return TimeEntries(entries["timestamp"].astype(np.int64), offset, rest)


def txn_entries(data: bytes) -> tuple[list[TxnEntry], int]:
    """Return the entries of a transaction index file, and the number of bytes left over.

    Args:
        data: The whole file.
    """
    rest = len(data) % txn_index.ENTRY.size
    whole = data[: len(data) - rest]
    entries = [
        TxnEntry(version, AbortedTxn(*fields))
        for version, *fields in txn_index.ENTRY.iter_unpack(whole)
    ]
    return entries, rest


def _end(*fields: NDArray[np.generic]) -> int:
    """Return the number of entries before those that are all zeros."""
    real = np.flatnonzero(np.logical_or(*(field != 0 for field in fields)))
    return int(real[-1]) + 1 if len(real) else 0
