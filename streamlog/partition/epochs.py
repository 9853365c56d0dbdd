"""The start offset of each leader epoch: the file `leader-epoch-checkpoint`.

    0               version
    2               number of entries
    0 0             epoch and its start offset, a line for each; both strictly ascending
    3 141

An empty file has no entries. A reader that knows the epoch of the last record it read detects a
truncation by it: the end of that epoch is then below the reader's position.
"""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from streamlog.errors import CorruptCheckpointError, FileMissingError, InvalidRequestError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import read_file, write_file_atomically
from streamlog.partition.checkpoints import (
    MAX_CHECKPOINT_SIZE,
    format_checkpoint,
    parse_checkpoint,
    parse_number,
)
from streamlog.records.batch import BatchTable
from streamlog.records.layout import MAX_INT32

__all__ = [
    "LEADER_EPOCH_CHECKPOINT",
    "UNDEFINED_EPOCH",
    "UNDEFINED_EPOCH_OFFSET",
    "EpochEndOffset",
    "EpochEntry",
    "LeaderEpochCache",
]

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"  # LeaderEpochCheckpointFile
UNDEFINED_EPOCH: Final = -1  # OffsetsForLeaderEpochResponse.UNDEFINED_EPOCH
UNDEFINED_EPOCH_OFFSET: Final = -1  # OffsetsForLeaderEpochResponse.UNDEFINED_EPOCH_OFFSET


class EpochEntry(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """An epoch and the offset after its last record; (-1, -1) if unknown."""

    epoch: int
    end_offset: int


_UNDEFINED: Final = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)


class LeaderEpochCache:
    """The epochs of one partition, held in a tuple, so that copies are free.

    Args:
        entries: Epochs and their start offsets, both strictly ascending.

    Source: org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.
    """

    __slots__ = ("_entries", "_stored")

    def __init__(self, entries: tuple[EpochEntry, ...] = ()) -> None:
        self._entries = entries
        self._stored: tuple[EpochEntry, ...] | None = None

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """The epochs in ascending order; immutable, a change replaces them."""
        return self._entries

    @property
    def latest_epoch(self) -> int | None:
        """The last epoch, None without any."""
        return self._entries[-1].epoch if self._entries else None

    def copy(self) -> "LeaderEpochCache":
        """Return a cache that starts with the same entries."""
        return LeaderEpochCache(self._entries)

    # ---- questions ---------------------------------------------------------------------------
    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch of the record at `offset`, None below the first epoch."""
        at = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[at - 1].epoch if at else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return where an epoch ends.

        Args:
            epoch: The epoch asked for; it need not be in the log.
            log_end_offset: Where the last epoch ends.

        Returns:
            The greatest known epoch up to `epoch`, and the start of the next one. For an epoch
            before the first: that epoch, and the start of the first. (-1, -1) for an epoch above
            the last, for -1, and without any epochs.

        Source: LeaderEpochFileCache.endOffsetFor.
        """
        latest = self.latest_epoch
        if epoch == UNDEFINED_EPOCH or latest is None or epoch > latest:
            return _UNDEFINED
        if epoch == latest:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(self._entries, epoch, key=_epoch_of)
        known = self._entries[higher - 1].epoch if higher else epoch
        return EpochEndOffset(known, self._entries[higher].start_offset)

    # ---- changes -----------------------------------------------------------------------------
    def assign(self, epoch: int, start_offset: int) -> None:
        """Add `epoch` with its `start_offset`, and remove entries that contradict it.

        Ignored if the last entry is of the same epoch and starts no later.

        Raises:
            InvalidRequestError: A negative epoch or offset.

        Source: LeaderEpochFileCache.assign.
        """
        if epoch < 0 or start_offset < 0:
            raise InvalidRequestError(
                "leader epoch and start offset must not be negative",
                got=f"epoch {epoch} at offset {start_offset}",
            )
        if self._entries:
            last = self._entries[-1]
            if last.epoch == epoch and last.start_offset <= start_offset:
                return
        kept = min(
            bisect_left(self._entries, epoch, key=_epoch_of),
            bisect_left(self._entries, start_offset, key=_start_of),
        )
        self._entries = (*self._entries[:kept], EpochEntry(epoch, start_offset))

    def assign_from(self, table: BatchTable) -> None:
        """Add the epochs of appended batches, except of those without one (-1).

        Only a batch with an epoch above the last adds an entry: epochs of a log never decrease.

        Source: UnifiedLog.append; LogSegment.recover.
        """
        if len(table) == 0:
            return
        latest = self.latest_epoch
        known = UNDEFINED_EPOCH if latest is None else latest
        if len(table) > 1 and int(table.leader_epoch.max()) <= known:
            return
        for at in (table.leader_epoch > known).nonzero()[0].tolist():
            epoch = int(table.leader_epoch[at])
            if epoch > known:
                self.assign(epoch, int(table.base_offset[at]))
                known = epoch

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that start at or above `end_offset`; ignored if negative.

        Source: LeaderEpochFileCache.truncateFromEnd.
        """
        if end_offset >= 0:
            kept = bisect_left(self._entries, end_offset, key=_start_of)
            self._entries = self._entries[:kept]

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs before `start_offset`; the epoch that holds it then starts there.

        Source: LeaderEpochFileCache.truncateFromStart.
        """
        gone = bisect_right(self._entries, start_offset, key=_start_of)
        if gone:
            first = EpochEntry(self._entries[gone - 1].epoch, start_offset)
            self._entries = (first, *self._entries[gone:])

    def clear(self) -> None:
        """Remove all epochs, as before an append in an older format."""
        self._entries = ()

    # ---- the file ----------------------------------------------------------------------------
    @classmethod
    def load(cls, fs: FileSystem, directory: str) -> "LeaderEpochCache":
        """Read the epochs of a partition's directory; a missing or empty file has none.

        Raises:
            CorruptCheckpointError: The file cannot be parsed.
            StorageError: The file cannot be read.
        """
        path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            data = read_file(fs, path, max_size=MAX_CHECKPOINT_SIZE)
        except FileMissingError:
            data = b""  # same as a file without epochs: `store` writes no file before the first
        cache = cls.parse(data, path)
        cache._stored = cache._entries
        return cache

    @classmethod
    def parse(cls, data: bytes, path: str) -> "LeaderEpochCache":
        """Return the epochs in the bytes of a file.

        Raises:
            CorruptCheckpointError: They cannot be parsed.
        """
        return cls(_parse(data, path))

    def store(self, fs: FileSystem, directory: str) -> None:
        """Replace the file in a partition's directory, durably, unless it is unchanged.

        Raises:
            StorageError: It failed; the old file stands.
        """
        if self._stored == self._entries:
            return
        write_file_atomically(fs, f"{directory}/{LEADER_EPOCH_CHECKPOINT}", self.content())
        self._stored = self._entries

    def content(self) -> bytes:
        """Return what its file holds."""
        return format_checkpoint([f"{each.epoch} {each.start_offset}" for each in self._entries])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LeaderEpochCache):
            return NotImplemented
        return self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        listed = ", ".join(f"{entry.epoch}@{entry.start_offset}" for entry in self._entries)
        return f"<LeaderEpochCache {listed or 'empty'}>"


def _epoch_of(entry: EpochEntry) -> int:
    return entry.epoch


def _start_of(entry: EpochEntry) -> int:
    return entry.start_offset


def _parse(data: bytes, path: str) -> tuple[EpochEntry, ...]:
    entries: list[EpochEntry] = []
    for line, fields in parse_checkpoint(data, path, columns=2):
        entry = EpochEntry(
            parse_number(fields[0], path, line, limit=MAX_INT32),
            parse_number(fields[1], path, line),
        )
        last = entries[-1] if entries else EpochEntry(-1, -1)
        if entry.epoch <= last.epoch or entry.start_offset <= last.start_offset:
            raise CorruptCheckpointError(
                "leader epochs do not ascend",
                path=path,
                got=f"epoch {entry.epoch} at offset {entry.start_offset} in line {line}",
                expected=f"above epoch {last.epoch} at offset {last.start_offset}",
            )
        entries.append(entry)
    return tuple(entries)
