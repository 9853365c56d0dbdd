"""How a follower finds the records it must truncate: one rule in use, four for study and tests.

    rule                        asks for   checks fetches by           joins the ISR at
    TRUNCATE_TO_HIGH_WATERMARK  nothing    nothing                     HW
    KIP_101                     end of E   nothing                     HW
    KIP_279                     (E, end)   nothing                     HW
    KIP_320_FIRST_TRY           (E, end)   last epoch                  HW and start of own epoch
    KIP_320                     (E, end)   last epoch, current epoch   HW and start of own epoch

Only `KIP_320` is sound; the published specification of the protocol finds a history for each of the
others in which committed records are lost or logs diverge.
"""

from enum import Enum
from typing import Final, NamedTuple

from streamlog.partition.epochs import (
    UNDEFINED_EPOCH,
    UNDEFINED_EPOCH_OFFSET,
    EpochEndOffset,
    LeaderEpochCache,
)
from streamlog.replication.messages import ReplicaLog

__all__ = [
    "RULES",
    "Reaction",
    "RuleProperties",
    "Truncation",
    "TruncationRule",
    "diverging_epoch",
    "end_of_epoch",
    "epoch_to_ask",
    "reaction_to",
    "truncation_for",
]


class TruncationRule(Enum):
    """The truncation rules in the order in which Kafka had them."""

    TRUNCATE_TO_HIGH_WATERMARK = "high_watermark"  # until 0.11
    KIP_101 = "kip101"  # 0.11
    KIP_279 = "kip279"  # 2.0
    KIP_320_FIRST_TRY = "kip320_first_try"  # never released
    KIP_320 = "kip320"  # 2.1 and later


class RuleProperties(NamedTuple):
    """The properties of a truncation rule.

    `asks_first`: a new follower asks for the end of its last epoch before it fetches.
    `names_epoch`: the answer names the epoch that it is about.
    `truncates_first`: a new follower truncates before it fetches.
    `checks_last_epoch`: a leader compares the epoch of the follower's last record in each fetch.
    `fences`: a leader refuses requests of another leader epoch.
    `joins_at_epoch_start`: a follower joins the ISR only at or after the start of the leader's own
        epoch.
    """

    asks_first: bool = False
    names_epoch: bool = False
    truncates_first: bool = False
    checks_last_epoch: bool = False
    fences: bool = False
    joins_at_epoch_start: bool = False


_KIP_101: Final = RuleProperties(truncates_first=True, asks_first=True)
_KIP_279: Final = _KIP_101._replace(names_epoch=True)
RULES: Final = {
    TruncationRule.TRUNCATE_TO_HIGH_WATERMARK: RuleProperties(truncates_first=True),
    TruncationRule.KIP_101: _KIP_101,
    TruncationRule.KIP_279: _KIP_279,
    TruncationRule.KIP_320_FIRST_TRY: RuleProperties(
        names_epoch=True, checks_last_epoch=True, joins_at_epoch_start=True
    ),
    TruncationRule.KIP_320: _KIP_279._replace(
        checks_last_epoch=True, fences=True, joins_at_epoch_start=True
    ),
}


class Reaction(Enum):
    """Where a follower truncates, by the answer (E, O) and its own epochs."""

    HIGH_WATERMARK = "the leader knows nothing of the epoch"
    OFFSET = "the answer names no epoch: O"
    HIGHER_EPOCH = "the follower has only higher epochs: the lower of O and the start of the first"
    OWN_EPOCH = "the follower knows E: the lower of both ends"
    LOWER_EPOCH = "the follower has only lower epochs: the end of the greatest, then ask again"


class Truncation(NamedTuple):
    """Where to truncate, and whether the logs then match (else ask again)."""

    offset: int
    is_final: bool


# ---- the leader's side ---------------------------------------------------------------------------
def end_of_epoch(rule: TruncationRule, log: ReplicaLog, epoch: int) -> EpochEndOffset:
    """Return the leader's answer to `OffsetsForLeaderEpoch`, (-1, -1) if unknown.

    Source: UnifiedLog.endOffsetForEpoch.
    """
    answer = log.epochs.end_offset_for(epoch, log.log_end_offset)
    if RULES[rule].names_epoch or answer.end_offset == UNDEFINED_EPOCH_OFFSET:
        return answer
    return EpochEndOffset(UNDEFINED_EPOCH, answer.end_offset)


def diverging_epoch(
    rule: TruncationRule, log: ReplicaLog, last_fetched_epoch: int, fetch_offset: int
) -> EpochEndOffset | None:
    """Return the leader's end of the last shared epoch if a follower's log diverges, else None.

    A leader without epochs, whose last records are in an older format, cannot know. The follower
    has truncated to its high watermark before its first fetch.

    Source: kafka.cluster.Partition.readRecords.
    """
    if last_fetched_epoch == UNDEFINED_EPOCH or not RULES[rule].checks_last_epoch:
        return None
    if not log.epochs.entries:
        return None
    answer = end_of_epoch(rule, log, last_fetched_epoch)
    if answer.epoch < last_fetched_epoch or answer.end_offset < fetch_offset:
        return answer
    return None


# ---- the follower's side -------------------------------------------------------------------------
def epoch_to_ask(rule: TruncationRule, epochs: LeaderEpochCache) -> int:
    """Return the epoch whose end a new follower asks for; -1 makes the answer "unknown"."""
    latest = epochs.latest_epoch
    return UNDEFINED_EPOCH if latest is None or not RULES[rule].asks_first else latest


def reaction_to(answer: EpochEndOffset, epochs: LeaderEpochCache) -> Reaction:
    """Return how a follower with these epochs reacts to an answer.

    Source: kafka.server.AbstractFetcherThread.getOffsetTruncationState.
    """
    entries = epochs.entries
    if answer.end_offset == UNDEFINED_EPOCH_OFFSET or not entries:
        return Reaction.HIGH_WATERMARK
    if answer.epoch == UNDEFINED_EPOCH:
        return Reaction.OFFSET
    if answer.epoch < entries[0].epoch:
        return Reaction.HIGHER_EPOCH
    if any(entry.epoch == answer.epoch for entry in entries):
        return Reaction.OWN_EPOCH
    return Reaction.LOWER_EPOCH


def truncation_for(answer: EpochEndOffset, log: ReplicaLog, high_watermark: int) -> Truncation:
    """Return where a follower truncates after an answer, by the table of reactions.

    The epochs of the log must be truncated with it, even if no record goes: an epoch without
    records would otherwise be asked for again and again (KAFKA-10706).
    """
    reaction, end = reaction_to(answer, log.epochs), log.log_end_offset
    if reaction is Reaction.HIGH_WATERMARK:
        return Truncation(min(high_watermark, end), is_final=True)
    if reaction is Reaction.OFFSET:
        return Truncation(min(answer.end_offset, end), is_final=True)
    own_end = _end_of_greatest_up_to(answer.epoch, log)
    if reaction is Reaction.LOWER_EPOCH:
        return Truncation(own_end, is_final=False)
    return Truncation(min(answer.end_offset, own_end), is_final=True)


def _end_of_greatest_up_to(epoch: int, log: ReplicaLog) -> int:
    """Return where the follower's greatest epoch up to `epoch` ends: where the next one starts."""
    starts = (entry.start_offset for entry in log.epochs.entries if entry.epoch > epoch)
    return min(next(starts, log.log_end_offset), log.log_end_offset)
