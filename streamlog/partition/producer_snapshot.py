"""The file `<offset>.snapshot`: the state of all producers just before that offset.

    | off | size | field                                                       |
    |-----|------|-------------------------------------------------------------|
    |   0 |    2 | version, 1                                                  |
    |   2 |    4 | CRC-32C over the bytes from 6 on                            |
    |   6 |    4 | number of producers                                         |
    |  10 |   46 | for each: producer id 8, epoch 2, last sequence 4, last     |
    |     |      | offset 8, offset delta 4, timestamp 8, coordinator epoch 4, |
    |     |      | first offset of the open transaction 8; -1 for none         |

Of a producer's five batches only the last is kept, so after a restart only that one is recognized
as a retry. All integers are big-endian.

Source: ProducerStateManager.PID_SNAPSHOT_MAP_ENTRY, ProducerSnapshot.
"""

import contextlib
import logging
import struct
from collections.abc import Iterable
from typing import Final

from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptSnapshotError, FileMissingError, LimitExceededError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import read_file
from streamlog.partition.producer_state import BatchMetadata, ProducerState
from streamlog.segment.filenames import (
    FileSuffix,
    SegmentSuffix,
    parse_segment_file_name,
    segment_file_name,
)

__all__ = [
    "decode_snapshot",
    "encode_snapshot",
    "list_snapshots",
    "read_snapshot",
    "remove_snapshots_above",
    "remove_stale_snapshots",
    "snapshot_file_name",
]

SNAPSHOT_VERSION: Final = 1  # ProducerStateManager.PRODUCER_SNAPSHOT_VERSION
_HEADER: Final = struct.Struct(">hIi")
_CRC_END: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")
assert _HEADER.size == 10
assert _ENTRY.size == 46
MAX_SNAPSHOT_SIZE: Final = _HEADER.size + _ENTRY.size * 5_000_000  # far more than fit in memory

_logger = logging.getLogger(__name__)


def encode_snapshot(producers: Iterable[ProducerState]) -> bytes:
    """Return the bytes of a snapshot.

    Args:
        producers: States, at most one for a producer; written in their order.
    """
    entries = [_encode_entry(state) for state in producers]
    body = len(entries).to_bytes(4, "big") + b"".join(entries)
    return SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(data: bytes, path: str | None = None) -> list[ProducerState]:
    """Return the states in a snapshot.

    Args:
        data: The whole file.
        path: Where it comes from, for errors.

    Raises:
        CorruptSnapshotError: Another version, a wrong checksum or size, a producer twice.
    """
    if len(data) < _HEADER.size:
        raise _corrupt("is too short", path, got=len(data), expected=f"{_HEADER.size} bytes")
    version, crc, count = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise _corrupt("has an unknown version", path, got=version, expected=SNAPSHOT_VERSION)
    computed = crc32c(memoryview(data)[_CRC_END:])
    if crc != computed:
        raise _corrupt("has a wrong checksum", path, got=f"{crc:#010x}", expected=f"{computed:#x}")
    size = len(data) - _HEADER.size
    if count * _ENTRY.size != size:
        raise _corrupt("has a wrong size", path, got=f"{size} bytes", expected=f"{count} entries")
    states = [_decode_entry(entry) for entry in _ENTRY.iter_unpack(data[_HEADER.size :])]
    if len({state.producer_id for state in states}) != count:
        raise _corrupt("names a producer twice", path, got=f"{count} entries", expected="distinct")
    return states


# ---- the files of a directory ----------------------------------------------------------------
def snapshot_file_name(offset: int) -> str:
    """Return the name of the snapshot of the state before `offset`."""
    return segment_file_name(offset, FileSuffix.PRODUCER_SNAPSHOT)


def list_snapshots(fs: FileSystem, directory: str) -> list[int]:
    """Return the offsets of a directory's snapshots, ascending.

    Raises:
        StorageError: The directory cannot be listed.
    """
    parsed = [parse_segment_file_name(name) for name in fs.list(directory)]
    return sorted(
        each.base_offset
        for each in parsed
        if each is not None
        and each.kind is FileSuffix.PRODUCER_SNAPSHOT
        and each.suffix is SegmentSuffix.NONE
    )


def read_snapshot(fs: FileSystem, directory: str, offset: int) -> list[ProducerState] | None:
    """Return a snapshot's states; log a warning and return None if it is damaged or missing.

    Raises:
        StorageError: The file cannot be read.
    """
    path = f"{directory}/{snapshot_file_name(offset)}"
    try:
        return decode_snapshot(read_file(fs, path, max_size=MAX_SNAPSHOT_SIZE), path)
    except (CorruptSnapshotError, LimitExceededError) as error:
        _logger.warning("%s; an older one, or the log itself, is used instead", error)
    except FileMissingError:
        _logger.info("%s was removed by its writer in the meantime", path)
    return None


def remove_snapshots_above(fs: FileSystem, directory: str, offset: int) -> None:
    """Remove the snapshots above `offset`, as when a log is truncated there.

    The directory is left to the caller to sync.

    Raises:
        StorageError: It failed.
    """
    for known in list_snapshots(fs, directory):
        if known > offset:
            _remove_snapshot(fs, directory, known)


def remove_stale_snapshots(
    fs: FileSystem,
    directory: str,
    *,
    base_offsets: Iterable[int],
    log_start_offset: int,
    log_end_offset: int,
) -> None:
    """Remove the snapshots that no load would use.

    Those go that lie outside the log or stand at no segment's base, but for the newest one. The
    directory is left to the caller to sync: a load passes over what it has no use for.

    Raises:
        StorageError: It failed.

    Source: ProducerStateManager.truncateAndReload, removeStraySnapshots.
    """
    bases = set(base_offsets)
    offsets = list_snapshots(fs, directory)
    for offset in offsets:
        is_inside = log_start_offset < offset <= log_end_offset
        is_wanted = offset in bases or offset == offsets[-1]
        if not (is_inside and is_wanted):
            _remove_snapshot(fs, directory, offset)


def _remove_snapshot(fs: FileSystem, directory: str, offset: int) -> None:
    with contextlib.suppress(FileMissingError):
        fs.remove(f"{directory}/{snapshot_file_name(offset)}")


def _encode_entry(state: ProducerState) -> bytes:
    last = state.batches[-1] if state.batches else BatchMetadata(-1, -1, 0, -1)
    first_offset = state.current_txn_first_offset
    return _ENTRY.pack(
        state.producer_id,
        state.producer_epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        state.last_timestamp,
        state.coordinator_epoch,
        -1 if first_offset is None else first_offset,
    )


def _decode_entry(entry: tuple[int, ...]) -> ProducerState:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first_offset = entry
    known = (BatchMetadata(sequence, offset, delta, timestamp),) if offset >= 0 else ()
    return ProducerState(
        producer_id,
        producer_epoch=epoch,
        batches=known,
        coordinator_epoch=coordinator,
        current_txn_first_offset=first_offset if first_offset >= 0 else None,
        last_timestamp=timestamp,
    )


def _corrupt(what: str, path: str | None, *, got: object, expected: object) -> CorruptSnapshotError:
    return CorruptSnapshotError(f"producer snapshot {what}", path=path, got=got, expected=expected)
