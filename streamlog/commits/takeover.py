"""The verdict on prepared decisions when another root starts to lead the commits.

The new leader finds decisions that the old one had prepared on it. The old one may have decided
them, and readers may have seen their records, or it may have died before. A table says which to
decide and which to discard; all parts of a decision share one fate.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from streamlog.commits.decisions import DecidedPart, Decision
from streamlog.commits.identity import producer_id_for
from streamlog.errors import FileMissingError, UnknownTopicError
from streamlog.fs.log_root import LogRoot
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.read import fetch
from streamlog.partition.reader import LogReader
from streamlog.topic import TopicPartition

__all__ = ["CASES", "Fate", "LocalLogs", "LogFacts", "PartPlace", "judge_place", "judge_prepared"]


class PartPlace(Enum):
    """How a log relates to a part of a prepared decision."""

    GONE = "the topic was deleted, or deleted and recreated"
    OWN = "the log holds records of the decision"
    AT_END = "the part begins at the log end"
    OTHER = "the log holds other records at these offsets"
    BEYOND = "the log ends below the part"
    UNKNOWN = "no replica with every committed record can be read"


class Fate(Enum):
    """What happens to a prepared decision."""

    DECIDE = "decide it here"
    DISCARD = "discard it"


_: Final = None
# The first row with a place that one of the parts has; OTHER and BEYOND occur after an unclean
# election only, or if the decision was never made.
CASES: Final = (
    (PartPlace.OWN, Fate.DECIDE),  # it was decided: readers may have seen some of it
    (
        PartPlace.OTHER,
        Fate.DISCARD,
    ),  # it was not: the old leader discards it before it writes others
    (PartPlace.BEYOND, Fate.DISCARD),  # records before it are lost
    (PartPlace.AT_END, Fate.DECIDE),  # unknown: acknowledged or not, deciding it loses nothing
    (PartPlace.UNKNOWN, Fate.DECIDE),  # the same: what is discarded goes before others are written
    (PartPlace.GONE, Fate.DECIDE),  # all its topics are gone: it is retired like any other
)


class LogFacts(Protocol):
    """One partition's log, as far as a verdict needs it."""

    @property
    def topic_id(self) -> str | None:
        """The id of its topic."""
        ...

    @property
    def end(self) -> int:
        """The log end."""
        ...

    def holds(self, decision: Decision, part: DecidedPart) -> bool:
        """Whether the batch at the part's base offset is the decision's."""
        ...


def judge_place(places: Iterable[PartPlace]) -> Fate:
    """Return the fate of a decision with parts in these places."""
    found = set(places)
    return next(fate for place, fate in CASES if place in found)


def judge_prepared(
    decisions: Iterable[Decision],
    logs: Mapping[TopicPartition, LogFacts],
    unknown: Collection[TopicPartition] = (),
) -> dict[str, Fate]:
    """Return the fate of each prepared decision, by its name.

    A decision may begin where another one ends, so those that can be decided raise the log ends
    that the others are judged by. A decision whose predecessor never comes is discarded.

    Args:
        decisions: The prepared decisions that are not retired.
        logs: The partitions; one that no longer exists is missing.
        unknown: Partitions that exist and cannot be read.
    """
    ends = {partition: log.end for partition, log in logs.items()}
    waiting = sorted(decisions, key=lambda each: (each.decided_ms, each.name))
    fates: dict[str, Fate] = {}
    while waiting:
        left = []
        for decision in waiting:
            places = [
                PartPlace.UNKNOWN
                if part.topic_partition in unknown
                else _place(decision, part, logs, ends)
                for part in decision.parts
            ]
            if (
                PartPlace.BEYOND in places
                and PartPlace.OWN not in places
                and PartPlace.OTHER not in places
            ):
                left.append(decision)
                continue
            fates[decision.name] = fate = judge_place(places)
            if fate is Fate.DECIDE:
                for part in decision.parts:
                    at = part.topic_partition
                    ends[at] = max(ends.get(at, 0), part.last_offset + 1)
        if len(left) == len(waiting):
            fates.update({each.name: Fate.DISCARD for each in left})
            break
        waiting = left
    return {name: fates[name] for name in sorted(fates)}


def _place(
    decision: Decision,
    part: DecidedPart,
    logs: Mapping[TopicPartition, LogFacts],
    ends: Mapping[TopicPartition, int],
) -> PartPlace:
    log = logs.get(part.topic_partition)
    if log is None or log.topic_id != part.topic_id:
        return PartPlace.GONE
    end = ends[part.topic_partition]
    if part.base_offset == end:
        return PartPlace.AT_END
    if part.base_offset > end:
        return PartPlace.BEYOND
    # A decision that was just decided here took these offsets.
    is_taken = part.base_offset >= log.end
    return PartPlace.OTHER if is_taken or not log.holds(decision, part) else PartPlace.OWN


# ---- the logs of a root ------------------------------------------------------------------------
class _ReadLog(NamedTuple):
    reader: LogReader

    @property
    def topic_id(self) -> str | None:
        return self.reader.topic_id

    @property
    def end(self) -> int:
        return self.reader.log_end_offset

    def holds(self, decision: Decision, part: DecidedPart) -> bool:
        """Compare the batch at the part's base offset by producer and sequence.

        Records that retention or compaction took were committed, hence decided.
        """
        reader = self.reader
        start, end = reader.log_start_offset, reader.log_end_offset
        if part.base_offset < start:
            return True
        found = fetch(
            reader.segments,
            part.base_offset,
            offsets=LogOffsets.of_one_replica(start, end),
            last_stable_offset=end,
            upper=end,
            max_bytes=1,
            is_committed=False,
            max_decompressed=reader.max_decompressed_bytes,
        )
        if len(found.table) == 0 or int(found.table.base_offset[0]) > part.base_offset:
            return True
        first = int(found.table.producer_id[0]), int(found.table.base_sequence[0])
        return first == (producer_id_for(decision.identity.app), part.base_sequence)


@dataclass(frozen=True, slots=True)
class LocalLogs:
    """The partitions of a root, read without their locks."""

    root: LogRoot

    def existing(self, decisions: Iterable[Decision]) -> list[TopicPartition]:
        """Return the partitions that the decisions name and that exist."""
        named = {part.topic_partition for decision in decisions for part in decision.parts}
        stat, root = self.root.fs.stat, self.root
        return [
            each
            for each in sorted(named)
            if stat(root.topic_properties(each.topic)) is not None
            and stat(root.partition(each)) is not None
        ]

    def read(self, partitions: Iterable[TopicPartition]) -> "dict[TopicPartition, LogFacts]":
        """Open partitions; one that is deleted meanwhile is left out."""
        logs: dict[TopicPartition, LogFacts] = {}
        for partition in partitions:
            with contextlib.suppress(FileMissingError, UnknownTopicError):
                reader = LogReader.open(self.root.partition(partition), fs=self.root.fs)
                logs[partition] = _ReadLog(reader)
        return logs

    @staticmethod
    def close(logs: "Mapping[TopicPartition, LogFacts]") -> None:
        """Close what `read` opened."""
        for log in logs.values():
            if isinstance(log, _ReadLog):
                log.reader.close()
