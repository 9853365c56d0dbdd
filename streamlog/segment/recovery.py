"""Recovery of one segment: walk it batch by batch, find its end, rebuild its indexes.

The tail that recovery truncates is kept in a file of its own, byte for byte without trailing zeros:

    00000000000000368769.log.torn-1
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from streamlog.errors import CorruptRecordError, FileMissingError, LimitExceededError
from streamlog.fs.api import Buffer, FileSystem, OpenMode
from streamlog.records.batch import BatchTable, scan_batches
from streamlog.records.layout import (
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MIN_LEGACY_LENGTH,
    NO_PARTITION_LEADER_EPOCH,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.plain_headers import MIN_LENGTHS, read_header, read_message_header
from streamlog.records.table import BASE_OFFSET, CRC, LAST_OFFSET, LEADER_EPOCH
from streamlog.segment.file_records import CHUNK_SIZE, FileRecords
from streamlog.segment.filenames import torn_file_name
from streamlog.segment.indexed_records import IndexedRecords
from streamlog.segment.recovery_table import Case, Facts, RecoveryVerdict, decide
from streamlog.segment.walk import (
    Place,
    find_sound,
    fits_checksum,
    has_lost_block,
    has_lost_offset,
    how_to_go_on,
    walk_headers,
)

__all__ = [
    "MAX_TORN_FILES",
    "OnBatch",
    "RecoveryReport",
    "Restore",
    "keep_tail",
    "nothing_known",
    "recover",
]

OnBatch = Callable[[BatchTable], None]

Restore = Callable[[int, int], Iterable[Buffer]]
"""Returns the batches that belong at an offset, in order: as many whole ones as fit into a number
of bytes, or none if they are not stored elsewhere."""


def nothing_known(_offset: int, _size: int) -> Iterable[Buffer]:
    """Supply no batches; see `Restore`."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """Result of a recovery.

    Attributes:
        base_offset: The segment's base offset.
        next_offset: The offset after its last sound batch.
        leader_epoch: The latest leader epoch in it, -1 for none.
        size: Its bytes, all sound.
        batch_count: Number of sound batches.
        case: Name of the case that ended the walk.
        restored_size: Bad bytes before sound batches that were written again.
        cut_size: Bytes truncated from its end.
        kept_path: The file with the truncated bytes, None if they were only zeros.
    """

    base_offset: int
    next_offset: int
    leader_epoch: int
    size: int
    batch_count: int
    case: str
    restored_size: int = 0
    cut_size: int = 0
    kept_path: str | None = None


class _Circumstances(NamedTuple):
    """Facts that are the same at every place of one recovery; see `recover`."""

    end: int
    durable_offset: int | None
    is_last: bool
    lost_power: bool


def recover(
    fs: FileSystem,
    log: IndexedRecords,
    *,
    durable_offset: int | None,
    is_last: bool,
    on_batch: OnBatch | None,
    known_size: int,
    previous_epoch: int,
    lost_power: bool,
    restore: Restore,
) -> RecoveryReport:
    """Recover a segment; see `Segment.recover`.

    Args:
        fs: Its file system.
        log: Its log file and indexes.
        durable_offset: The recovery point; None: unknown.
        is_last: Whether no later segment exists.
        on_batch: Called with the table of each run of sound batches.
        known_size: Leading bytes that need not be walked.
        previous_epoch: The latest leader epoch before this segment.
        lost_power: Whether the machine went down after the last append.
        restore: Supplies batches that are also stored elsewhere, byte for byte.

    Raises:
        CorruptRecordError: Acknowledged records are damaged; nothing was truncated.
    """
    records = log.records
    end = records.file.stat().size
    around = _Circumstances(end, durable_offset, is_last, lost_power)
    start = log.start_over(known_size, end)
    start = start._replace(leader_epoch=max(start.leader_epoch, previous_epoch))
    place, batches = _walk(log, start, end, on_batch)
    case, known = _judge(log, place, around, restore)
    restored_size = 0
    while case.verdict is RecoveryVerdict.MEND:
        restored_size += _write_known(fs, records, place, end, known)
        restored, (place, count) = place, _walk(log, place, end, on_batch)
        batches += count
        # Restored batches that do not advance the walk are wrong: do not write them forever.
        has_moved = place.position > restored.position
        case, known = _judge(log, place, around, restore if has_moved else nothing_known)
    if case.verdict is RecoveryVerdict.REFUSE:
        raise _refusal(records, place, case, durable_offset)
    assert case.verdict is not RecoveryVerdict.KEEP, "the walk stopped before a sound batch"
    kept_path = None
    if case.verdict is RecoveryVerdict.CUT:
        kept_path = keep_tail(fs, records, place.position, end)  # before the truncation
        records.file.truncate(place.position)
        records.file.sync()
    log.seal_indexes()
    log.is_distrusted = False
    return RecoveryReport(
        base_offset=log.base_offset,
        next_offset=place.next_offset,
        leader_epoch=place.leader_epoch,
        size=place.position,
        batch_count=batches,
        case=case.name,
        restored_size=restored_size,
        cut_size=end - place.position,
        kept_path=kept_path,
    )


def _walk(
    log: IndexedRecords, start: Place, end: int, on_batch: OnBatch | None
) -> tuple[Place, int]:
    """Take in the sound batches from `start` on; return where they end and how many there were."""
    batches = 0

    def on_headers(table: BatchTable) -> None:
        nonlocal batches
        batches += len(table)
        log.take_in(table)
        if on_batch is not None:
            on_batch(table)

    return walk_headers(log.records, log.base_offset, start, end, on_headers), batches


def _write_known(
    fs: FileSystem, records: FileRecords, place: Place, end: int, known: Iterable[Buffer]
) -> int:
    """Write batches where they belong and keep the overwritten bytes; return the bytes written."""
    keep_tail(fs, records, place.position, end)
    position = place.position
    for batches in known:
        records.append(batches, position)
        position += memoryview(batches).nbytes
    return position - place.position


# ---- looking closely at one place ---------------------------------------------------------------
def _judge(
    log: IndexedRecords, place: Place, around: _Circumstances, restore: Restore
) -> tuple[Case, Iterable[Buffer]]:
    """Return what to do at a place, and the batches that belong there if sound ones follow."""
    end, durable_offset, is_last, lost_power = around
    facts = Facts(
        is_end=place.position == end,
        is_below_mark=durable_offset is not None and place.next_offset < durable_offset,
        is_followed=not is_last,
    )
    if facts.is_end:
        return decide(facts), ()
    found = _next_sound(log.records, log.base_offset, place, end)
    is_followed = found is not None or not is_last
    # A torn tail is truncated; only batches before something sound are worth restoring.
    known = iter(restore(place.next_offset, end - place.position) if is_followed else ())
    first = next(known, None)
    lacks_offset = lost_power and has_lost_offset(log.records, place)
    # After a power cut, sound batches after lost blocks belong to the same torn tail.
    if is_last and first is None and lost_power:
        is_followed &= not (lacks_offset or _looks_lost(log.records, place, found))
    facts = facts._replace(is_followed=is_followed, is_known=first is not None)
    facts = _look_at_batch(
        log.records, log.base_offset, place, end, facts, lacks_offset=lacks_offset
    )
    return decide(facts), () if first is None else chain([first], known)


def _next_sound(records: FileRecords, base_offset: int, place: Place, end: int) -> int | None:
    """Return the position of the next sound batch after `place`, None if there is none.

    Returns `place` itself if too many byte sequences look like batches to find out.
    """
    try:
        return find_sound(records, base_offset, place, end)
    except LimitExceededError:
        return place.position


def _looks_lost(records: FileRecords, place: Place, found: int | None) -> bool:
    """Return whether blocks that never reached the disk precede something sound.

    A power cut keeps some of the unsynced blocks and loses others, which then read as zeros. Sound
    batches after such a hole prove nothing: they belong to the same torn tail.
    """
    if found is None or found == place.position:
        return False
    return has_lost_block(records, place.position, found)


def _look_at_batch(
    records: FileRecords,
    base_offset: int,
    place: Place,
    end: int,
    facts: Facts,
    *,
    lacks_offset: bool,
) -> Facts:
    """Add facts about the bytes at a place."""
    left = end - place.position
    head = records.file.pread(min(RECORD_BATCH_OVERHEAD, left), place.position)
    if len(head) < HEADER_SIZE_UP_TO_MAGIC:
        return facts
    length = int.from_bytes(head[LENGTH_OFFSET:LOG_OVERHEAD], "big", signed=True)
    if not MIN_LEGACY_LENGTH <= length <= left - LOG_OVERHEAD:
        return facts
    batch = records.file.pread(LOG_OVERHEAD + length, place.position)
    magic = batch[MAGIC_OFFSET]
    is_readable = magic <= CURRENT_MAGIC and length >= MIN_LENGTHS[magic]
    is_unharmed = not lacks_offset and fits_checksum(batch)
    facts = facts._replace(is_whole=True, is_readable=is_readable, is_unharmed=is_unharmed)
    if not (is_readable and facts.is_unharmed):
        return facts
    read = read_header if magic == CURRENT_MAGIC else read_message_header
    row = read(memoryview(batch), 0, len(batch))
    if row is None:
        return facts
    base, last, epoch = row[BASE_OFFSET], row[LAST_OFFSET], row[LEADER_EPOCH]
    follows = base >= place.next_offset and last - base_offset <= MAX_INT32
    return facts._replace(
        follows=follows,
        keeps_epoch=epoch == NO_PARTITION_LEADER_EPOCH or epoch >= place.leader_epoch,
        is_repeated=not follows and _is_repeated(records, base_offset, place, row),
    )


def _is_repeated(records: FileRecords, base_offset: int, place: Place, row: Sequence[int]) -> bool:
    """Return whether a batch also occurs before `place`, or belongs to an older segment.

    A batch with the same offsets but other records is no copy: its offset was changed.
    """
    first, last = row[BASE_OFFSET], row[LAST_OFFSET]
    if 0 <= first <= last < base_offset:
        return True
    found = records.find(first, None, place.position)
    if found is None or (found.offset, found.last_offset) != (first, last):
        return False
    before = scan_batches(records.file.pread(found.size, found.position)).table
    return len(before) > 0 and int(before.crc[0]) == row[CRC]


def _refusal(
    records: FileRecords, place: Place, case: Case, durable_offset: int | None
) -> CorruptRecordError:
    """Return the error that states the damage and how to continue."""
    mark = "unknown" if durable_offset is None else f"offset {durable_offset}"
    found = records.file.pread(HEADER_SIZE_UP_TO_MAGIC, place.position)
    return CorruptRecordError(
        f"{case.reason}, so nothing was truncated (case {case.name}, synced up to {mark})",
        path=records.path,
        position=place.position,
        offset=place.next_offset,
        got=found.hex() or "the end of the file",
        expected=f"a record batch from offset {place.next_offset} on",
        hint=how_to_go_on(records.path),
    )


MAX_TORN_FILES: Final = 8


def keep_tail(fs: FileSystem, records: FileRecords, position: int, end: int) -> str | None:
    """Copy the bytes to be truncated into a file of their own, durably.

    Trailing zeros are left out. A tail that is already kept is not kept twice; beyond
    `MAX_TORN_FILES` the oldest file is replaced.

    Args:
        fs: File system of the segment.
        records: The log file.
        position: Where it will be truncated.
        end: Its end.

    Returns:
        The file's path, None if there are only zeros.
    """
    end = _end_of_non_zeros(records, position, end)
    if end == position:
        return None
    path = _torn_path(fs, records, position, end)
    if fs.stat(path) is None:
        with fs.open(path, OpenMode.CREATE) as file:
            for start in range(position, end, CHUNK_SIZE):
                piece = records.file.pread(min(CHUNK_SIZE, end - start), start)
                file.pwrite(piece, start - position)
            file.sync()
    fs.sync_directory(records.path.rpartition("/")[0])
    return path


def _end_of_non_zeros(records: FileRecords, position: int, end: int) -> int:
    while end > position:
        start = max(position, end - CHUNK_SIZE)
        kept = records.file.pread(end - start, start).rstrip(b"\0")
        if kept:
            return start + len(kept)
        end = start
    return position


def _torn_path(fs: FileSystem, records: FileRecords, position: int, end: int) -> str:
    """Return a path that is free, or whose file holds exactly these bytes."""
    ages: list[tuple[int, str]] = []
    for number in range(1, MAX_TORN_FILES + 1):
        path = torn_file_name(records.path, number)
        found = fs.stat(path)
        if found is None:
            return path
        if found.size == end - position and _holds(fs, path, records, position):
            return path
        ages.append((found.mtime_ns, path))
    oldest = min(ages)[1]
    with contextlib.suppress(FileMissingError):
        fs.remove(oldest)
    return oldest


def _holds(fs: FileSystem, path: str, records: FileRecords, position: int) -> bool:
    """Return whether all bytes of the file equal those of `records` from `position` on."""
    with fs.open(path, OpenMode.READ) as file:
        start = 0
        while piece := file.pread(CHUNK_SIZE, start):
            if records.file.pread(len(piece), position + start) != piece:
                return False
            start += len(piece)
    return True
