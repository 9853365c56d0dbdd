"""Recovery of one segment: walk it batch by batch, decide where it ends, rebuild its indexes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import CorruptRecordError, LimitExceededError
from streamlog.fs.api import FileSystem
from streamlog.records.batch import BatchTable
from streamlog.records.layout import (
    BATCH_HEADER,
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MIN_BATCH_LENGTH,
    MIN_LEGACY_LENGTH,
    NO_PARTITION_LEADER_EPOCH,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.segment.file_records import FileRecords
from streamlog.segment.indexed_records import IndexedRecords
from streamlog.segment.recovery_table import Case, Facts, Verdict, decide
from streamlog.segment.search import find_sound, fits_checksum, has_lost_block
from streamlog.segment.torn_tail import keep_tail
from streamlog.segment.walk import Place, walk_sound

__all__ = ["OnBatch", "RecoveryReport", "assess", "recover"]

OnBatch = Callable[[NDArray[np.uint8], BatchTable], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What recovery found and did.

    Attributes:
        base_offset: The segment's base offset.
        next_offset: The offset behind its last sound batch.
        leader_epoch: The latest leader epoch in it, -1 for none.
        size: Its bytes, all sound.
        batch_count: Sound batches that were walked over.
        case: Name of the case that ended the walk.
        cut_size: Bytes cut from its end.
        kept_path: The file that keeps what was cut, None where nothing but zeros was.
    """

    base_offset: int
    next_offset: int
    leader_epoch: int
    size: int
    batch_count: int
    case: str
    cut_size: int = 0
    kept_path: str | None = None


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
    rewritable: Sequence[range],
) -> RecoveryReport:
    """Recover a segment; see `Segment.recover`.

    Args:
        fs: Where the segment lies.
        log: Its log file and indexes.
        durable_offset: The recovery point; None: unknown.
        is_last: Whether no later segment exists.
        on_batch: Called with each run of sound batches.
        known_size: Bytes at the front that need not be walked.
        previous_epoch: The latest leader epoch before this segment.
        lost_power: Whether the machine went down after the last append.
        rewritable: Offsets that somebody is going to write again, byte for byte.

    Raises:
        CorruptRecordError: Records that somebody was promised are damaged; nothing was cut.
        StorageError: A file cannot be read, cut or written.
    """
    records, base_offset = log.records, log.base_offset
    end = records.file.stat().size
    start = log.start_over(known_size, end)
    start = start._replace(leader_epoch=max(start.leader_epoch, previous_epoch))
    place, batches = _walk(log, start, end, on_batch)
    facts = assess(
        records,
        base_offset,
        place,
        end=end,
        durable_offset=durable_offset,
        is_last=is_last,
        lost_power=lost_power,
        rewritable=rewritable,
    )
    case = decide(facts)
    if case.verdict is Verdict.REFUSE:
        raise _refusal(records, place, case, durable_offset)
    assert case.verdict is not Verdict.KEEP, "the walk stopped in front of a sound batch"
    kept_path = None
    if case.verdict is Verdict.CUT:
        kept_path = keep_tail(fs, records, place.position, end)
        records.file.truncate(place.position)
        records.file.sync()
    log.seal_indexes()
    log.is_distrusted = False
    return RecoveryReport(
        base_offset=base_offset,
        next_offset=place.next_offset,
        leader_epoch=place.leader_epoch,
        size=place.position,
        batch_count=batches,
        case=case.name,
        cut_size=end - place.position,
        kept_path=kept_path,
    )


def _walk(
    log: IndexedRecords, start: Place, end: int, on_batch: OnBatch | None
) -> tuple[Place, int]:
    """Take in the sound batches from `start` on; return where they end and how many there were."""
    batches = 0

    def on_sound(position: int, buffer: NDArray[np.uint8], table: BatchTable) -> None:
        nonlocal batches
        batches += len(table)
        log.take_in(position, table)
        if on_batch is not None:
            on_batch(buffer, table)

    return walk_sound(log.records, log.base_offset, start, end, on_sound), batches


# ---- looking closely at one place ---------------------------------------------------------------
def assess(
    records: FileRecords,
    base_offset: int,
    place: Place,
    *,
    end: int,
    durable_offset: int | None,
    is_last: bool,
    lost_power: bool = False,
    rewritable: Sequence[range] = (),
) -> Facts:
    """Gather the facts about a place.

    Args:
        records: The log file.
        base_offset: The segment's base offset.
        place: The place; what lies before it is sound.
        end: Where the file ends.
        durable_offset: The mark; None: unknown.
        is_last: No later segment exists.
        lost_power: The machine went down after the last append.
        rewritable: Offsets that are going to be written again.
    """
    facts = Facts(
        is_end=place.position == end,
        is_below_mark=durable_offset is not None and place.next_offset < durable_offset,
        is_followed=not is_last,
    )
    if facts.is_end:
        return facts
    left = end - place.position
    if is_last:
        behind = place._replace(next_offset=_end_of_rewritable(rewritable, place.next_offset))
        is_followed = _is_followed(records, base_offset, behind, end, lost_power=lost_power)
        facts = facts._replace(is_followed=is_followed)
    head = records.file.pread(min(RECORD_BATCH_OVERHEAD, left), place.position)
    if len(head) < HEADER_SIZE_UP_TO_MAGIC:
        return facts
    length = int.from_bytes(head[LENGTH_OFFSET:LOG_OVERHEAD], "big", signed=True)
    if not MIN_LEGACY_LENGTH <= length <= left - LOG_OVERHEAD:
        return facts
    batch = records.file.pread(LOG_OVERHEAD + length, place.position)
    is_current = batch[MAGIC_OFFSET] == CURRENT_MAGIC and length >= MIN_BATCH_LENGTH
    facts = facts._replace(is_whole=True, is_current=is_current, is_unharmed=fits_checksum(batch))
    if not (is_current and facts.is_unharmed):
        return facts
    base, _length, epoch, _magic, _crc, _attributes, delta, *_rest = BATCH_HEADER.unpack_from(batch)
    last = base + delta
    follows = base >= place.next_offset and delta >= 0 and last - base_offset <= MAX_INT32
    return facts._replace(
        follows=follows,
        keeps_epoch=epoch == NO_PARTITION_LEADER_EPOCH or epoch >= place.leader_epoch,
        is_repeated=not follows and _is_repeated(records, base_offset, place, base, last),
    )


def _is_repeated(
    records: FileRecords, base_offset: int, place: Place, first: int, last: int
) -> bool:
    """Tell whether offsets `first` to `last` make a batch before `place`, or an older segment."""
    if 0 <= first <= last < base_offset:
        return True
    found = records.find(first, None, place.position)
    return found is not None and (found.offset, found.last_offset) == (first, last)


def _end_of_rewritable(rewritable: Sequence[range], offset: int) -> int:
    """Return how far offsets are going to be written again from `offset` on.

    Sound batches below that say nothing about a bad place: cutting them loses nothing.
    """
    for offsets in rewritable:
        if offset in offsets:
            return offsets.stop
    return offset


def _is_followed(
    records: FileRecords, base_offset: int, place: Place, end: int, *, lost_power: bool
) -> bool:
    """Tell whether something sound stands behind `place`, or something made to look so.

    A power cut keeps some of the blocks that were not synced and loses others, which then read
    as zeros. Sound batches behind such a hole say nothing: they belong to the same torn tail.
    """
    try:
        found = find_sound(records, base_offset, place, end)
    except LimitExceededError:
        return True
    if found is None:
        return False
    return not (lost_power and has_lost_block(records, place.position, found))


def _refusal(
    records: FileRecords, place: Place, case: Case, durable_offset: int | None
) -> CorruptRecordError:
    """Return the error that says what is wrong and how to go on."""
    mark = "unknown" if durable_offset is None else f"offset {durable_offset}"
    found = records.file.pread(HEADER_SIZE_UP_TO_MAGIC, place.position)
    return CorruptRecordError(
        f"{case.reason}, so nothing was changed (case {case.name}, synced up to {mark})",
        path=records.path,
        position=place.position,
        offset=place.next_offset,
        got=found.hex() or "the end of the file",
        expected=f"a record batch of offset {place.next_offset} or above",
        hint=f"restore {records.path} from a copy; to give up its records from offset "
        f"{place.next_offset} on, keep a copy and run: truncate -s {place.position} {records.path}",
    )
