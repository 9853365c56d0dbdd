"""Other offsets for a stopped query: what would change, and whether the query seems to run.

A plan is made from the checkpoint and the log, and changes nothing. It covers every source of the
query that reads topics of this root, or the ones named; the lines of others stay as they are. It
sets the partitions that the checkpoint names: one that was added to its topic since is read from
its beginning, as without a reset.

No check is certain that a query is stopped: Spark takes no lock on a checkpoint and keeps none of
its files open. There are signs, and each is a reason to refuse: a file of the checkpoint changed
lately, or a recorded reader at just these offsets, which reports them twice a minute. A batch that
is planned but not finished is refused on its own grounds (`streamlog.query.generation`). A query
that runs all the same does not see the reset, and undoes it with its next batch: it takes the old
offsets on, so nothing is lost and nothing is read twice.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.arrow.log_view import EARLIEST, LATEST, OpenLogView, TopicChoice
from streamlog.arrow.views import open_view
from streamlog.errors import InvalidOptionError, InvalidRequestError
from streamlog.query.checkpoint import PlannedBatch
from streamlog.query.checkpoint_files import CheckpointFiles
from streamlog.query.generation import CheckpointState, write_generation
from streamlog.query.offsets import SourceOffset, parse_source_offset
from streamlog.records.record import IsolationLevel
from streamlog.root.readers import Reader
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from streamlog.arrow.views import AnyReadRoots

__all__ = [
    "Connector",
    "OffsetChange",
    "ResetPlan",
    "ResetTarget",
    "carry_out",
    "plan_move",
    "plan_reset",
    "signs_of_running",
]

_REPORTS_WITHIN_MS: Final = 60_000  # a query with kafka.group.id reports every 30 s


class Connector(Enum):
    """Who reads with a checkpoint."""

    KAFKA = "kafka"
    STREAMLOG = "streamlog"


class ResetTarget(NamedTuple):
    """Where to go on.

    Attributes:
        timestamp: The first record of this time (ms since 1970) or later; the end without one.
        everywhere: The same for all partitions: `EARLIEST` or `LATEST`.
        offsets: Offsets of some partitions, of which -1 is the end and -2 the beginning; the others
            stay where they are.
    """

    timestamp: int | None = None
    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None


class OffsetChange(NamedTuple):
    """What a plan does to one partition of one source.

    Attributes:
        source: The number of the source, from 0.
        partition: The partition.
        current_offset: The next offset now.
        new_offset: The next offset afterwards; None if the partition no longer exists.
        log_start_offset: The first offset that may be read, None if it does not matter.
        log_end_offset: Where reading ends now, None if it does not matter.
    """

    source: int
    partition: TopicPartition
    current_offset: int
    new_offset: int | None
    log_start_offset: int | None = None
    log_end_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """What a reset or a move would do.

    Attributes:
        state: Where the query stands.
        changes: The partitions, in the order of the sources.
        batches: The new source lines, by batch.
        remarks: What the user should know, a line each.
    """

    state: CheckpointState
    changes: tuple[OffsetChange, ...]
    batches: Mapping[int, tuple[str, ...]]
    remarks: tuple[str, ...]


# ---- plans --------------------------------------------------------------------------------------
def plan_reset(
    roots: "AnyReadRoots",
    state: CheckpointState,
    target: ResetTarget,
    *,
    sources: Collection[int] = (),
) -> ResetPlan:
    """Return what it takes to go on from other offsets.

    Args:
        roots: The log that the query reads.
        state: Where the query stands.
        target: Where to go on.
        sources: Only these sources, numbered from 0; all that read topics of this log by default.

    Raises:
        InvalidRequestError: No source reads a topic of this log, or the target names a partition
            or an offset that there is not.
        StorageError: The log cannot be read.
    """
    found = _sources(state.planned, sources)
    log = roots.find()
    known = {topic: set(numbers) for topic, numbers in log.items()}
    wanted = {
        partition
        for position in found.values()
        for partition in position.offsets
        if partition.partition in known.get(partition.topic, ())
    }
    if not wanted:
        raise InvalidRequestError(
            "no source of the query reads a topic of this log",
            path=state.path,
            got=", ".join(state.planned.sources)[:200],
            expected=f"a topic of {roots.name}",
        )
    _check_named(target, wanted, state)
    choice = TopicChoice(partitions=tuple(sorted(wanted)))
    view = open_view(roots, choice, IsolationLevel.READ_COMMITTED)
    try:
        new = {
            source: _moved(view, position, target, gone=position.offsets.keys() - wanted)
            for source, position in found.items()
            if not wanted.isdisjoint(position.offsets)
        }
        changes = _changes(view, found, new)
    finally:
        view.close()
    lines = list(state.planned.sources)
    for source, position in new.items():
        lines[source] = _as_written(lines[source], position)
    touched = [found[source] for source in new]
    remarks = [*_remarks_on(state), *_remarks_on_partitions(known, touched, wanted)]
    left = sorted(set(range(len(lines))) - new.keys())
    remarks += [f"source {each} stays as it is: {lines[each][:80]}" for each in left]
    batches = {state.planned.batch_id: tuple(lines)}
    return ResetPlan(state=state, changes=changes, batches=batches, remarks=tuple(remarks))


def plan_move(
    roots: "AnyReadRoots | None", state: CheckpointState, connector: Connector
) -> ResetPlan:
    """Return what it takes to go on with another connector, at the same offsets.

    Spark's Kafka source does not read the leader epochs and topic ids in our offsets. Ours reads
    the offsets of both, and with these it notices a topic that was deleted and created again.

    Args:
        roots: The log, to go on with streamlog.
        state: Where the query stands.
        connector: Who goes on.

    Raises:
        InvalidRequestError: No source reads a log, or its offsets are not in this one.
        StorageError: The log cannot be read.
    """
    found = _sources(state.planned, ())
    if connector is Connector.KAFKA:
        batches = {
            each.batch_id: tuple(map(_plain, each.sources))
            for each in (state.before, state.planned)
            if each is not None
        }
        changes = tuple(
            OffsetChange(source, partition, offset, offset)
            for source, position in found.items()
            for partition, offset in sorted(position.offsets.items())
        )
        return ResetPlan(state=state, changes=changes, batches=batches, remarks=())
    assert roots is not None
    offsets = {
        partition: offset for each in found.values() for partition, offset in each.offsets.items()
    }
    plan = plan_reset(roots, state, ResetTarget(offsets=offsets))
    lines = list(state.planned.sources)
    choice = TopicChoice(partitions=tuple(sorted(offsets)))
    view = open_view(roots, choice, IsolationLevel.READ_COMMITTED)
    try:
        for source, position in found.items():
            lines[source] = _text(_complete(view, position.offsets))
    finally:
        view.close()
    return ResetPlan(
        state=state,
        changes=plan.changes,
        batches={state.planned.batch_id: tuple(lines)},
        remarks=(),
    )


def carry_out(files: CheckpointFiles, plan: ResetPlan, *, skip_unfinished: bool = False) -> str:
    """Replace the offsets as planned; see `write_generation`. Return the former generation."""
    return write_generation(files, plan.state, plan.batches, skip_unfinished=skip_unfinished)


def signs_of_running(
    state: CheckpointState, readers: Iterable[Reader], *, now_ms: int, quiet_ms: int
) -> list[str]:
    """Return the signs that the query runs, a sentence each.

    Args:
        state: Where the query stands.
        readers: The recorded readers of the log.
        now_ms: The time.
        quiet_ms: How long nothing must have changed in the checkpoint.
    """
    signs = []
    age_ms = now_ms - state.changed_ms
    if age_ms < quiet_ms:
        signs.append(f"its checkpoint changed {max(0, age_ms) / 1000:.0f} s ago")
    positions = [each.offsets for each in _positions(state.planned).values()]
    for reader in readers:
        is_new = now_ms - reader.committed_ms < _REPORTS_WITHIN_MS
        if reader.checkpoint is None and is_new and reader.position.offsets in positions:
            age_s = max(0, now_ms - reader.committed_ms) / 1000
            signs.append(f"reader {reader.name} reported its offsets {age_s:.0f} s ago")
    return signs


# ---- sources ------------------------------------------------------------------------------------
def _positions(batch: PlannedBatch) -> dict[int, SourceOffset]:
    """Return the offsets of each source that reads a log of Kafka's kind."""
    found = {}
    for number, line in enumerate(batch.sources):
        try:
            position = parse_source_offset(line)
        except InvalidOptionError:  # a source of another kind, or one without an offset
            continue
        if position.offsets:
            found[number] = position
    return found


def _sources(batch: PlannedBatch, wanted: Collection[int]) -> dict[int, SourceOffset]:
    found = _positions(batch)
    missing = sorted(set(wanted) - found.keys())
    if missing or not found:
        raise InvalidRequestError(
            "no such source with offsets of a log",
            got=f"source {missing[0]}" if missing else ", ".join(batch.sources)[:200],
            expected=", ".join(f"source {each}" for each in found) or "a source that reads a log",
        )
    return {each: found[each] for each in found if not wanted or each in wanted}


def _check_named(target: ResetTarget, wanted: set[TopicPartition], state: CheckpointState) -> None:
    unknown = sorted(set(target.offsets or ()) - wanted)
    if unknown:
        raise InvalidRequestError(
            "the query does not read this partition, or the log does not have it",
            path=state.path,
            got=str(unknown[0]),
            expected=", ".join(map(str, sorted(wanted))),
        )


def _moved(
    view: OpenLogView,
    position: SourceOffset,
    target: ResetTarget,
    *,
    gone: Collection[TopicPartition],
) -> SourceOffset:
    offsets = {
        partition: _new_offset(view, partition, offset, target)
        for partition, offset in position.offsets.items()
        if partition not in gone
    }
    return _complete(view, offsets)


def _complete(view: OpenLogView, offsets: Mapping[TopicPartition, int]) -> SourceOffset:
    """Return offsets with the leader epochs and topic ids of the log."""
    epochs = {each: view.epoch_before(each, offset) for each, offset in offsets.items()}
    return SourceOffset(
        offsets=offsets,
        leader_epochs={each: epoch for each, epoch in epochs.items() if epoch >= 0},
        topic_ids={
            each.topic: view.topic_ids[each.topic]
            for each in offsets
            if each.topic in view.topic_ids
        },
    )


def _new_offset(
    view: OpenLogView, partition: TopicPartition, offset: int, target: ResetTarget
) -> int:
    bounds = view.bounds[partition]
    if target.timestamp is not None:
        found = view.offset_for_timestamp(partition, target.timestamp)
        return bounds.end_offset if found is None else min(found, bounds.end_offset)
    wanted = target.everywhere
    if wanted is None:
        wanted = (target.offsets or {}).get(partition, offset)
    if wanted == EARLIEST:
        return bounds.log_start_offset
    if wanted == LATEST:
        return bounds.end_offset
    is_asked = target.offsets is not None and partition in target.offsets
    if is_asked and not bounds.log_start_offset <= wanted <= bounds.end_offset:
        raise InvalidRequestError(
            f"the log does not have this offset of {partition}",
            got=wanted,
            expected=f"{bounds.log_start_offset} to {bounds.end_offset}, -2 (beginning), -1 (end)",
        )
    return wanted


def _changes(
    view: OpenLogView, old: Mapping[int, SourceOffset], new: Mapping[int, SourceOffset]
) -> tuple[OffsetChange, ...]:
    changes = []
    for source, position in new.items():
        for partition, offset in sorted(old[source].offsets.items()):
            bounds = view.bounds.get(partition)
            changes.append(
                OffsetChange(
                    source,
                    partition,
                    offset,
                    position.offsets.get(partition),
                    None if bounds is None else bounds.log_start_offset,
                    None if bounds is None else bounds.end_offset,
                )
            )
    return tuple(changes)


# ---- text ---------------------------------------------------------------------------------------
def _text(position: SourceOffset) -> str:
    return json.dumps(position.to_json())


def _as_written(line: str, position: SourceOffset) -> str:
    """Return offsets in the form of the line they replace: Kafka's source takes its own only."""
    is_ours = any(key.startswith("$") for key in json.loads(line))
    return _text(position) if is_ours else _plain(_text(position))


def _plain(line: str) -> str:
    """Return a line without leader epochs and topic ids; lines of other sources unchanged."""
    try:
        position = parse_source_offset(line)
    except InvalidOptionError:
        return line
    return json.dumps(SourceOffset(offsets=position.offsets).to_json(), separators=(",", ":"))


def _remarks_on(state: CheckpointState) -> list[str]:
    remarks = []
    if state.has_state:
        remarks.append(
            "the query keeps state, and it stays: rows that are read again are counted again"
        )
    if state.watermark_ms > 0:
        remarks.append(
            f"the watermark stays at {state.watermark_ms}: the query drops older rows as late"
        )
    return remarks


def _remarks_on_partitions(
    known: Mapping[str, set[int]],
    touched: Iterable[SourceOffset],
    wanted: set[TopicPartition],
) -> list[str]:
    read = {each for position in touched for each in position.offsets}
    remarks = [f"{each} does not exist here and is left out" for each in sorted(read - wanted)]
    for topic in sorted({each.topic for each in wanted}):
        highest = max(each.partition for each in wanted if each.topic == topic)
        added = sorted(number for number in known[topic] if number > highest)
        remarks += [f"{topic}-{each} was added since: read from its beginning" for each in added]
    return remarks
