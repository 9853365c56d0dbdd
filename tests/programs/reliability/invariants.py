"""The invariants of a history, as named predicates, and the checker that evaluates them.

No search is needed: ids are unique and the log itself gives the order, so one pass over the events
determines for each id whether it must, may or must not be there.

    must     acknowledged, and nothing since then may have removed it
    may      unacknowledged, or a power cut preceded its flush; all of the batch or none of it
    gone     refused, truncated, or seen to be absent: it must not come back

A record of a batch that must be there is exempt if a compaction was allowed to remove it.
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
    UnderWay,
    View,
    Waited,
    Wrote,
)

RETENTION_MS: Final = 7 * 24 * 3_600_000  # retention.ms, its default
DELETE_RETENTION_MS: Final = 24 * 3_600_000  # delete.retention.ms, its default


class Harm(Enum):
    """What a violation means for the owner of the records."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    TORN = "torn"
    UNTYPED = "untyped"
    OTHER = "other"


class Violation(NamedTuple):
    """One invariant that does not hold."""

    invariant: str
    harm: Harm
    detail: str


class Claim(Enum):
    """What is known about an id."""

    MUST = "must"
    MAY = "may"
    GONE = "gone"


class _Batch:
    """Records of one partition that are written and lost together."""

    def __init__(self, writer: str, ids: tuple[int, ...]) -> None:
        self.writer, self.ids = writer, ids
        self.claim = self.claim_before = Claim.GONE  # before the latest attempt to write them
        self.base_offset: int | None = None
        self.is_durable = False
        self.was_cut = False  # a truncation removed it, or may have

    @property
    def end_offset(self) -> int | None:
        return None if self.base_offset is None else self.base_offset + len(self.ids)

    def places(self) -> Iterator[tuple[int, float]]:
        """Yield each id and its offset; infinity if the offset is unknown."""
        base = float("inf") if self.base_offset is None else self.base_offset
        return ((each, base + at) for at, each in enumerate(self.ids))


class Ledger:
    """The state of every batch of every partition after the events so far."""

    def __init__(self) -> None:
        self.batches: dict[int, dict[tuple[int, ...], _Batch]] = {}
        self.writes: dict[tuple[str, int], Wrote] = {}
        self.ends: dict[int, int] = {}  # by partition: the log end may not be lower
        self.starts: dict[int, int] = {}  # by partition: the log start may not be lower
        self.latest_starts: dict[int, float] = {}  # by partition: the log start may not be higher
        self.cuts: set[tuple[int, int]] = set()  # partition, offset of a truncation
        self.cleaned: dict[int, int] = {}  # by partition: records below may be missing
        self.may_arrive = False  # whether a write that seemed to fail may still take effect
        self.spared: set[int] = set()  # ids that a compaction may have removed
        self._first_cleaned_ms: dict[int, int] = {}  # by id of a tombstone

    def of(self, partition: int) -> Iterable[_Batch]:
        return self.batches.setdefault(partition, {}).values()

    def take(self, event: Event) -> None:
        """Update the state with one event."""
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
            case UnderWay(is_possible):
                self.may_arrive = is_possible
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
        """Exempt records with a later one of the same key, and tombstones past their retention."""
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
                    batch.claim = Claim.MAY  # a repeated write finds it, or writes it again
                    continue
                if event.outcome is not Outcome.DONE and batch.claim is Claim.MUST:
                    continue  # repeated, and already there
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
            if batch.end_offset is None:  # its offset is unknown, so it may have been truncated
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
        """From now on, batches that were seen must be there, and missing ones must stay absent."""
        offsets = {found: offset for offset, found in view.rows if found is not None}
        for batch in self.of(partition):
            there = [at for at, each in enumerate(batch.ids) if each in offsets]
            if there:
                batch.claim = Claim.MUST
                batch.base_offset = offsets[batch.ids[there[0]]] - there[0]
            elif self._is_missing(batch, view):
                batch.claim = Claim.GONE
        self.ends[partition] = view.end
        self.starts[partition] = view.start

    def _is_missing(self, batch: _Batch, view: View) -> bool:
        is_expected = batch.claim is Claim.MAY and bool(self.wanted(batch, view))
        return is_expected and not self.may_arrive

    def wanted(self, batch: _Batch, view: View) -> set[int]:
        """Return the ids of a batch that must be there if any part of the batch is."""
        return {
            each
            for each, place in batch.places()
            if each not in self.spared and place >= view.start
        }


Predicate = Callable[[Ledger, int, View], Iterator[str]]


def acknowledged_records_exist(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I1, I2: acknowledged records are there; after a power cut, flushed ones."""
    found = {each for _, each in view.rows}
    for batch in ledger.of(partition):
        if batch.claim is Claim.MUST and not found.issuperset(ledger.wanted(batch, view)):
            yield f"{batch.ids} of {batch.writer}, written at {batch.base_offset}"


def only_written_records_exist(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I3: every record was written, with this content, and was neither refused nor removed."""
    written = {each: batch for batch in ledger.of(partition) for each in batch.ids}
    for offset, found in view.rows:
        if found is None or found not in written:
            yield f"{found} at {offset} was never written"
        elif written[found].claim is Claim.GONE:
            yield f"{found} at {offset} came back"


def batches_are_whole(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I4: the records of a batch are all there, or none of them."""
    found = {each: offset for offset, each in view.rows}
    for batch in ledger.of(partition):
        there = [each for each in batch.ids if each in found]
        if there:
            base = found[there[0]] - batch.ids.index(there[0])
            wanted = {each for at, each in enumerate(batch.ids) if base + at >= view.start}
            if not wanted.difference(ledger.spared).issubset(there):
                yield f"of {batch.ids} only {there}"


def one_offset_per_record(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I5, I24: an id has one offset, for all readers and over all restarts."""
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
    """I6: batches follow each other without gaps, from the log start to the log end.

    A truncation inside a batch removes it completely and leaves a gap before its offset; a
    compaction leaves gaps below its end.
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
    """I7: the records of a writer keep its order."""
    writer_of = {each: batch.writer for batch in ledger.of(partition) for each in batch.ids}
    last: dict[str, int] = {}
    for _, found in view.rows:
        if found is None or found not in writer_of:
            continue
        writer = writer_of[found]
        if last.get(writer, -1) > found:
            yield f"{found} of {writer} behind {last[writer]}"
        last[writer] = found


def bounds_never_decrease(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I8: the start never decreases; nor does the end, without a power cut or a truncation."""
    if view.end < ledger.ends.get(partition, 0):
        yield f"the end went from {ledger.ends[partition]} to {view.end}"
    if view.start < ledger.starts.get(partition, 0):
        yield f"the start went from {ledger.starts[partition]} to {view.start}"


def log_start_is_allowed(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I20: the log starts no later than a deletion requested or retention allows."""
    latest = ledger.latest_starts.get(partition, 0)
    if view.start > latest:
        yield f"starts at {view.start}, the latest start that was allowed is {latest}"


def epochs_are_known(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I15: the epoch file has the epoch of each batch, and none that starts above the end."""
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


def time_search_matches_scan(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I21: a search by time finds the first record with that timestamp or a later one."""
    for timestamp, offset in view.by_time:
        young = (at for at, each in view.rows if each is None or timestamp_of(each) >= timestamp)
        expected = next(young, None)
        if offset != expected:
            yield f"{offset} found for {timestamp}, the first is {expected}"


def readers_agree(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I9: an independent parser finds the same records."""
    if view.rows != view.rows_again:
        yield f"{view.rows} and {view.rows_again}"


def batches_are_sound(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I9: each batch is sound according to an independent parser."""
    for batch in view.batches:
        if not batch.is_sound:
            yield f"the batch at {batch.base_offset}"


def no_torn_tail(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I22: opening the log truncates torn tails."""
    if view.torn_size:
        yield f"{view.torn_size} bytes after the last batch"


def epochs_never_decrease(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I15: the leader epochs of batches never decrease."""
    for one, other in pairwise(view.batches):
        if other.leader_epoch < one.leader_epoch:
            yield f"{other.leader_epoch} at {other.base_offset} after {one.leader_epoch}"


def recovery_point_is_in_range(ledger: Ledger, partition: int, view: View) -> Iterator[str]:
    """I23: the recovery point is not above the log end."""
    if not view.recovery_point <= view.end:
        yield f"{view.start}, {view.recovery_point}, {view.end}"


PREDICATES: dict[Predicate, Harm] = {
    acknowledged_records_exist: Harm.LOST,
    only_written_records_exist: Harm.DUPLICATED,
    batches_are_whole: Harm.TORN,
    one_offset_per_record: Harm.DUPLICATED,
    offsets_have_no_gap: Harm.LOST,
    writers_keep_their_order: Harm.OTHER,
    bounds_never_decrease: Harm.LOST,
    log_start_is_allowed: Harm.LOST,
    epochs_are_known: Harm.OTHER,
    time_search_matches_scan: Harm.LOST,
    readers_agree: Harm.LOST,
    batches_are_sound: Harm.TORN,
    no_torn_tail: Harm.TORN,
    epochs_never_decrease: Harm.OTHER,
    recovery_point_is_in_range: Harm.OTHER,
}


def commits_are_atomic(ledger: Ledger, seen: Seen) -> Iterator[str]:
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
    """Return whether a batch may have been deleted from the start of the log."""
    return start > 0 and (batch.base_offset is None or batch.base_offset < start)


def check(history: Sequence[Event]) -> list[Violation]:
    """Return all violations, in the order of the history."""
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
                Violation(commits_are_atomic.__name__, Harm.TORN, detail)
                for detail in commits_are_atomic(ledger, event)
            ]
        ledger.take(event)
    return violations
