"""The transaction index: the aborted transactions whose markers lie in a segment.

    <base offset>.txnindex, entries of 34 bytes, big-endian:

    | off | size | field              |                                                     |
    |-----|------|--------------------|-----------------------------------------------------|
    |   0 |    2 | version            | int16; 0                                            |
    |   2 |    8 | producer id        | int64                                               |
    |  10 |    8 | first offset       | int64; of the transaction's first record            |
    |  18 |    8 | last offset        | int64; of its abort marker                          |
    |  26 |    8 | last stable offset | int64; below it no transaction was open then        |

Last offsets strictly increase. The file is created with the first entry; no file means no entries.
An entry belongs to the segment of its marker, which may be a later one than the records'.

Unlike the other indexes this one is no hint: a lost entry would expose aborted records to readers.
So a damaged file is an error here, and opening the partition for writing rebuilds it from the
markers.
"""

import struct
from bisect import bisect_left
from typing import Final, NamedTuple

from streamlog.errors import (
    CorruptIndexError,
    FileMissingError,
    InvalidRequestError,
    StorageError,
)
from streamlog.fs.api import FileSystem
from streamlog.segment.index_file import IndexFile

__all__ = ["TXN_ENTRY_SIZE", "AbortedTxn", "TxnIndex", "TxnSearch"]

ENTRY: Final = struct.Struct(">hqqqq")
TXN_ENTRY_SIZE: Final = ENTRY.size  # AbortedTxn.TOTAL_SIZE
assert TXN_ENTRY_SIZE == 34
_ODD_LENGTH: Final = "length is no multiple of the entry size"
_VERSION: Final = 0  # AbortedTxn.CURRENT_VERSION


class AbortedTxn(NamedTuple):
    """An aborted transaction.

    Source: org.apache.kafka.storage.internals.log.AbortedTxn.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnSearch(NamedTuple):
    """Aborted transactions found, and whether later segments need not be searched.

    Source: org.apache.kafka.storage.internals.log.TxnIndexSearchResult.
    """

    aborted: list[AbortedTxn]
    is_complete: bool


class TxnIndex:
    """The transaction index of one segment, in memory, with its file.

    Args:
        fs: Its file system.
        path: The file; it need not exist.
        base_offset: The segment's base offset.

    Source: org.apache.kafka.storage.internals.log.TransactionIndex.
    """

    __slots__ = ("_entries", "base_offset", "file")

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        self.file = IndexFile(fs, path, TXN_ENTRY_SIZE)
        self.base_offset = base_offset
        self._entries: list[AbortedTxn] = []

    def load(self, *, log_size: int) -> None:
        """Load the entries of the file; none if there is no file.

        Args:
            log_size: Bytes of the segment's log file.

        Raises:
            CorruptIndexError: It cannot be the transaction index of this segment.
        """
        try:
            data, size = self.file.read(log_size=log_size)
        except FileMissingError:
            self._entries = []
            return
        if size != len(data):
            raise self._corrupt(_ODD_LENGTH, got=f"{size} bytes")
        self.parse(data)

    def parse(self, data: bytes) -> None:
        """Take the entries from the content of the file.

        Raises:
            CorruptIndexError: It cannot be the transaction index of this segment.
        """
        if len(data) % TXN_ENTRY_SIZE:
            raise self._corrupt(_ODD_LENGTH, got=f"{len(data)} bytes")
        entries = []
        last_offset = self.base_offset - 1
        for at, (version, *fields) in enumerate(ENTRY.iter_unpack(data)):
            entry = AbortedTxn(*fields)
            position = at * TXN_ENTRY_SIZE
            if version != _VERSION:
                raise self._corrupt("has an unknown version", got=version, position=position)
            if not entry.first_offset <= entry.last_offset or entry.last_offset <= last_offset:
                raise self._corrupt("is out of order", got=entry, position=position)
            last_offset = entry.last_offset
            entries.append(entry)
        self._entries = entries
        self.file.holds(len(entries))

    def _corrupt(
        self, what: str, *, got: object = None, position: int | None = None
    ) -> CorruptIndexError:
        return CorruptIndexError(
            f"transaction index {what}",
            path=self.file.path,
            position=position,
            got=got,
            hint="open the partition for writing once to rebuild the index from the log",
        )

    # ---- look up -----------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> list[AbortedTxn]:
        """All aborted transactions, ordered by the offsets of their markers."""
        return list(self._entries)

    def collect(self, start_offset: int, end_offset: int) -> TxnSearch:
        """Find the aborted transactions that may overlap the offsets from `start` up to `end`.

        Args:
            start_offset: The first offset to read.
            end_offset: The offset after the last one.

        Returns:
            The transactions; complete if no transaction of a later segment can reach back.

        Source: TransactionIndex.collectAbortedTxns.
        """
        found = []
        for entry in self._entries:
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return TxnSearch(found, is_complete=True)
        return TxnSearch(found, is_complete=False)

    # ---- change ------------------------------------------------------------------------------
    def append(self, aborted: AbortedTxn) -> None:
        """Add an aborted transaction and write it to the file.

        Args:
            aborted: Its marker lies after the last one, in this segment.

        Raises:
            InvalidRequestError: Its marker does not follow.
            StorageError: The file system refused; nothing was added.
        """
        last = self._entries[-1].last_offset if self._entries else self.base_offset - 1
        if aborted.last_offset <= last:
            raise InvalidRequestError(
                "aborted transaction must end after the last one of the index",
                path=self.file.path,
                got=aborted.last_offset,
                expected=f"above {last}",
            )
        self._entries.append(aborted)
        try:
            self._store()
        except StorageError:
            self._entries.pop()
            raise

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose markers lie at or above `offset`."""
        markers = [entry.last_offset for entry in self._entries]
        kept = self._entries[: bisect_left(markers, offset)]
        if len(kept) < len(markers):
            self._entries = kept
            self.file.keep(len(kept))
            self._store()

    def reset(self) -> None:
        """Drop all transactions and remove the file."""
        self._entries = []
        self.file.remove()

    def _store(self) -> None:
        self.file.store(len(self._entries), self._encode)

    def _encode(self, start: int) -> bytes:
        return b"".join(ENTRY.pack(_VERSION, *entry) for entry in self._entries[start:])
