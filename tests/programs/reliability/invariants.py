"""What must hold of every history, as predicates with names, and the checker that asks them all.

No search is needed: ids are unique and the log itself is the order, so one pass over the events
knows of each id whether it must be there, may be there, or must not.

    must     the writer was told so, and since then nothing happened that may take it away
    may      nobody was told; or a power cut came before a flush. In one piece or not at all
    gone     refused, truncated, or seen to be absent: it must not come back

A record of a batch that must be there is spared where a compaction was allowed to remove it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

from tests.programs.reliability.content import key_of, timestamp_of, value_of
from tests.programs.reliability.history import (
    Began,
    Cleaned,
    Crashed,
    Event,
    Flushed,
    Outcome,
    Raised,
    Retained,
    Seen,
    Truncated,
    View,
    Waited,
    Wrote,
)

RETENTION_MS: Final = 7 * 24 * 3_600_000  # retention.ms, as it is where nobody sets it
DELETE_RETENTION_MS: Final = 24 * 3_600_000  # delete.retention.ms


class Harm(Enum):
    """What a violation means to the owner of the records."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    TORN = "torn"
    UNTYPED = "untyped"
    OTHER = "other"


class Violation(NamedTuple):
    """One predicate that does not hold."""

    invariant: str
    harm: Harm
    detail: str


class Claim(Enum):
    """What is known of an id."""

    MUST = "must"
    MAY = "may"
    GONE = "gone"


class _Batch:
    """Records of one partition that stand or fall together."""

    def __init__(self, writer: str, ids: tuple[int, ...]) -> None:
        self.writer, self.ids = writer, ids
        self.claim = self.claim_before = Claim.GONE  # before the latest attempt to write them
        self.base_offset: int | None = None
        self.is_durable = False
        self.was_cut = False  # a truncation reached it

    @property
    def end_offset(self) -> int | None:
        return None if self.base_offset is None else self.base_offset + len(self.ids)

    def places(self) -> Iterator[tuple[int, float]]:
        """Yield each id and its offset; infinity where nobody knows it."""
        base = float("inf") if self.base_offset is None else self.base_offset
        return ((each, base + at) for at, each in enumerate(self.ids))


class Ledger:
    """What the events so far say about every batch of every partition."""

    def __init__(self) -> None:
        self.batches: dict[int, dict[tuple[int, ...], _Batch]] = {}
        self.writes: dict[tuple[str, int], Wrote] = {}
        self.ends: dict[int, int] = {}  # the log end that must be there still, by partition
        self.starts: dict[int, int] = {}  # where it begins at least
        self.latest_starts: dict[int, float] = {}  # where it begins at most
        self.cuts: set[tuple[int, int]] = set()  # partition, offset of a truncation
        self.cleaned: dict[int, int] = {}  # below it records may be missing
        self.spared: set[int] = set()  # ids that a compaction may have removed
        self._first_cleaned_ms: dict[int, int] = {}  # by id of a tombstone

    def of(self, partition: int) -> Iterable[_Batch]:
        """Return the batches of a partition."""
        return self.batches.setdefault(partition, {}).values()

    def take(self, event: Event) -> None:
        """Learn from one event."""
        match event:
            case Wrote():
                self._take_write(event)
            case Flushed(partition, end):
                for batch in self.of(partition):
                    if batch.end_offset is not None and batch.end_offset <= end:
                        batch.is_durable = True
            case Truncated():
                self._take_truncation(event)
            case Crashed(lost_power):
                if lost_power:
                    self._take_power_cut()
            case Seen(views):
                for partition, view in views.items():
                    self._take_view(partition, view)
            case Began(partition, offset, outcome):
                self._let_begin(partition, offset)
                if outcome is Outcome.DONE:
                    self.starts[partition] = max(self.starts.get(partition, 0), offset)
            case Retained(partition, now_ms):
                self._let_begin(partition, self._first_young(partition, now_ms))
            case Cleaned():
                self._take_cleaning(event)
            case Raised() | Waited():
                pass

    def _let_begin(self, partition: int, offset: float) -> None:
        self.latest_starts[partition] = max(self.latest_starts.get(partition, 0), offset)

    def _first_young(self, partition: int, now_ms: int) -> float:
        """Return the offset of the first record that retention must keep."""
        places = (
            place
            for batch in self.of(partition)
            if batch.claim is Claim.MUST
            for each, place in batch.places()
            if timestamp_of(each) >= now_ms - RETENTION_MS and each not in self.spared
        )
        return min(places, default=float("inf"))

    def _take_cleaning(self, event: Cleaned) -> None:
        """Spare what has a later record of its key, and tombstones that stood long enough."""
        partition, end, now_ms = event
        self.cleaned[partition] = max(self.cleaned.get(partition, 0), end)
        there = [each for each in self.of(partition) if each.claim is not Claim.GONE]
        last: dict[bytes, float] = {}
        for batch in there:
            for each, place in batch.places():
                last[key_of(each)] = max(last.get(key_of(each), -1), place)
        for batch in there:
            for each, place in batch.places():
                if batch.base_offset is not None and place >= end:
                    continue
                if place < last[key_of(each)] or batch.base_offset is None:
                    self.spared.add(each)
                elif value_of(each) is None:
                    first_ms = self._first_cleaned_ms.setdefault(each, now_ms)
                    if now_ms >= first_ms + DELETE_RETENTION_MS:
                        self.spared.add(each)

    def _take_write(self, event: Wrote) -> None:
        self.writes[event.writer, event.number] = event
        for partition, groups in event.ids.items():
            offset = event.base_offset.get(partition)
            known = self.batches.setdefault(partition, {})
            for ids in groups:
                batch = known.setdefault(ids, _Batch(event.writer, ids))
                if batch.was_cut:
                    batch.claim = Claim.MAY  # a repetition finds it done, or writes it again
                    continue
                if event.outcome is not Outcome.DONE and batch.claim is Claim.MUST:
                    continue  # repeated, and there already
                if event.outcome is Outcome.UNKNOWN:
                    batch.claim_before = batch.claim
                batch.claim = {
                    Outcome.UNKNOWN: Claim.MAY,
                    Outcome.DONE: Claim.MUST,
                    Outcome.REFUSED: batch.claim_before,
                }[event.outcome]
                batch.is_durable |= event.is_durable and event.outcome is Outcome.DONE
                if offset is not None:
                    batch.base_offset = offset
                    offset += len(ids)

    def _take_truncation(self, event: Truncated) -> None:
        self.cuts.add((event.partition, event.offset))
        start = self.starts.get(event.partition, 0)
        self.starts[event.partition] = min(start, event.offset)
        for batch in self.of(event.partition):
            if batch.end_offset is None:  # nobody knows where it is, if it is
                batch.was_cut = True
                continue
            if batch.end_offset <= event.offset:
                continue
            done = event.outcome is Outcome.DONE
            batch.claim = Claim.GONE if done or batch.claim is Claim.GONE else Claim.MAY
            batch.is_durable, batch.was_cut = False, True
            start = event.offset if batch.base_offset is None else batch.base_offset
            self.ends[event.partition] = min(self.ends.get(event.partition, 0), start)

    def _take_power_cut(self) -> None:
        for batches in self.batches.values():
            for batch in batches.values():
                if batch.claim is Claim.MUST and not batch.is_durable:
                    batch.claim = Claim.MAY
        self.ends.clear()

    def _take_view(self, partition: int, view: View) -> None:
        """From now on what was seen must be there, and what was not must not."""
        offsets = {found: offset for offset, found in view.rows if found is not None}
        for batch in self.of(partition):
            there = [at for at, each in enumerate(batch.ids) if each in offsets]
            if there:
                batch.claim = Claim.MUST
                batch.base_offset = offsets[batch.ids[there[0]]] - there[0]
            elif batch.claim is Claim.MAY and self.wanted(batch, view):
                batch.claim = Claim.GONE
        self.ends[partition] = view.end
        self.starts[partition] = view.start

    def wanted(self, batch: _Batch, view: View) -> set[int]:
        """Return the ids of a batch that are there if the batch is."""
        return {
            each
            for each, place in batch.places()
            if each not in self.spared and place >= view.start
        }


Predicate = Callable[[Ledger, int, View], Iterator[str]]


def acknowledged_is_there(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I1, I2: what a writer was told is written is there, after a power cut what was flushed."""
    found = {each for _, each in view.rows}
    for batch in ledger.of(partition):
        if batch.claim is Claim.MUST and not found.issuperset(ledger.wanted(batch, view)):
            yield f"{batch.ids} of {batch.writer}, written at {batch.base_offset}"


def nothing_unwritten_is_there(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I3: every record was written, is what was written, and was not refused or removed."""
    written = {each: batch for batch in ledger.of(partition) for each in batch.ids}
    for offset, found in view.rows:
        if found is None or found not in written:
            yield f"{found} at {offset} was never written"
        elif written[found].claim is Claim.GONE:
            yield f"{found} at {offset} came back"


def batches_are_whole(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I4: the records of a batch are all there or none is."""
    found = {each: offset for offset, each in view.rows}
    for batch in ledger.of(partition):
        there = [each for each in batch.ids if each in found]
        if there:
            base = found[there[0]] - batch.ids.index(there[0])
            wanted = {each for at, each in enumerate(batch.ids) if base + at >= view.start}
            if not wanted.difference(ledger.spared).issubset(there):
                yield f"of {batch.ids} only {there}"


def nothing_is_there_twice(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I5, I24: one id, one offset, over all readers and all their lives."""
    places: dict[int, int] = {}
    known = {each: batch for batch in ledger.of(partition) for each in batch.ids}
    for offset, found in view.rows:
        if found is None:
            continue
        if places.setdefault(found, offset) != offset:
            yield f"{found} at {places[found]} and at {offset}"
        batch = known.get(found)
        if batch is not None and batch.claim is Claim.MUST and batch.base_offset is not None:
            place = batch.base_offset + batch.ids.index(found)
            if place != offset:
                yield f"{found} moved from {place} to {offset}"


def offsets_have_no_gap(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I6: batches follow each other, from the log start to the log end.

    A truncation takes the batch that it cuts into whole, and leaves a gap in front of its offset;
    a compaction leaves gaps below where it ended.
    """
    expected = min(view.start, view.batches[0].base_offset) if view.batches else view.end
    cleaned = ledger.cleaned.get(partition, 0)
    for batch in view.batches:
        base = batch.base_offset
        may_jump = base <= cleaned or (partition, base) in ledger.cuts
        if base < expected or (base > expected and not may_jump):
            yield f"{base} follows {expected - 1}"
        expected = batch.last_offset + 1
    if expected != view.end and (partition, view.end) not in ledger.cuts:
        yield f"ends at {expected}, the log end is {view.end}"


def writers_keep_their_order(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I7: what a writer sent first stands first."""
    writer_of = {each: batch.writer for batch in ledger.of(partition) for each in batch.ids}
    last: dict[str, int] = {}
    for _, found in view.rows:
        if found is None or found not in writer_of:
            continue
        writer = writer_of[found]
        if last.get(writer, -1) > found:
            yield f"{found} of {writer} behind {last[writer]}"
        last[writer] = found


def the_end_stays(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I8: without a power cut or a truncation the log end never goes back; the start never does."""
    if view.end < ledger.ends.get(partition, 0):
        yield f"the end went from {ledger.ends[partition]} to {view.end}"
    if view.start < ledger.starts.get(partition, 0):
        yield f"the start went from {ledger.starts[partition]} to {view.start}"


def the_start_is_told(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I20: the log begins no later than somebody asked for, or retention allows."""
    latest = ledger.latest_starts.get(partition, 0)
    if view.start > latest:
        yield f"begins at {view.start}, and {latest} is the most that was asked for"


def epochs_are_known(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I15: the epochs' file says of each batch which epoch it is of, and knows none above."""
    for one, other in pairwise(view.epochs):
        if not (one[0] < other[0] and one[1] < other[1]):
            yield f"{other} follows {one}"
    if view.epochs and view.epochs[-1][1] > view.end:
        yield f"{view.epochs[-1]} starts above the end, {view.end}"
    for batch in view.batches:
        known = [epoch for epoch, start in view.epochs if start <= batch.base_offset]
        if batch.base_offset >= view.start and known[-1:] != [batch.leader_epoch]:
            yield (
                f"{known[-1:]} for the batch at {batch.base_offset}, which is of "
                f"{batch.leader_epoch}"
            )


def times_find_what_a_scan_finds(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I21: a search by time finds the first record that is young enough."""
    for timestamp, offset in view.by_time:
        young = (at for at, each in view.rows if each is None or timestamp_of(each) >= timestamp)
        expected = next(young, None)
        if offset != expected:
            yield f"{offset} for {timestamp}, and {expected} is the first"


def readers_agree(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I9: an independent parser finds the same records."""
    if view.rows != view.rows_again:
        yield f"{view.rows} and {view.rows_again}"


def batches_are_sound(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I9: each batch passes an independent parser."""
    for batch in view.batches:
        if not batch.is_sound:
            yield f"the batch at {batch.base_offset}"


def nothing_torn_is_left(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I22: who opened the log has cut what a crash tore."""
    if view.torn_size:
        yield f"{view.torn_size} bytes behind the last batch"


def epochs_rise(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I15: the leader epochs of batches never fall."""
    for one, other in pairwise(view.batches):
        if other.leader_epoch < one.leader_epoch:
            yield f"{other.leader_epoch} at {other.base_offset} after {one.leader_epoch}"


def marks_are_in_order(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I23: the recovery point lies within the log."""
    if not view.recovery_point <= view.end:
        yield f"{view.start}, {view.recovery_point}, {view.end}"


PREDICATES: dict[Predicate, Harm] = {
    acknowledged_is_there: Harm.LOST,
    nothing_unwritten_is_there: Harm.DUPLICATED,
    batches_are_whole: Harm.TORN,
    nothing_is_there_twice: Harm.DUPLICATED,
    offsets_have_no_gap: Harm.LOST,
    writers_keep_their_order: Harm.OTHER,
    the_end_stays: Harm.LOST,
    the_start_is_told: Harm.LOST,
    epochs_are_known: Harm.OTHER,
    times_find_what_a_scan_finds: Harm.LOST,
    readers_agree: Harm.LOST,
    batches_are_sound: Harm.TORN,
    nothing_torn_is_left: Harm.TORN,
    epochs_rise: Harm.OTHER,
    marks_are_in_order: Harm.OTHER,
}


def commits_are_whole(ledger: Ledger, seen: Seen) -> Iterator[str]:
    """I24: a commit is in all of its partitions or in none."""
    found = {p: {each for _, each in view.rows} for p, view in seen.views.items()}
    for (writer, number), write in ledger.writes.items():
        if len(write.ids) < 2:
            continue
        batches = [
            (partition, ledger.batches[partition][ids])
            for partition, groups in write.ids.items()
            for ids in groups
        ]
        if any(batch.was_cut or ledger.spared.intersection(batch.ids) for _, batch in batches):
            continue
        is_there = {
            found[partition].issuperset(batch.ids)
            for partition, batch in batches
            if not _may_lie_below(batch, seen.views[partition].start)
        }
        if len(is_there) > 1:
            yield f"version {number} of {writer} in one partition only"


def _may_lie_below(batch: _Batch, start: int) -> bool:
    """Tell whether a batch may have been deleted from the front of the log."""
    return start > 0 and (batch.base_offset is None or batch.base_offset < start)


def check(history: Sequence[Event]) -> list[Violation]:
    """Return every predicate that does not hold, in the order of the history."""
    ledger = Ledger()
    violations = []
    for event in history:
        if isinstance(event, Raised) and not event.is_typed:
            detail = f"{event.operation}: {event.error}"
            violations.append(Violation("errors_are_typed", Harm.UNTYPED, detail))
        if isinstance(event, Seen):
            for partition, view in event.views.items():
                for predicate, harm in PREDICATES.items():
                    violations += [
                        Violation(predicate.__name__, harm, f"partition {partition}: {detail}")
                        for detail in predicate(ledger, partition, view)
                    ]
            violations += [
                Violation(commits_are_whole.__name__, Harm.TORN, detail)
                for detail in commits_are_whole(ledger, event)
            ]
        ledger.take(event)
    return violations
