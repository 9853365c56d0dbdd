"""The messages between leader, followers and controller, named as Kafka names them.

They carry positions, never records: a `FetchResponse` states the range of records that travels with
it, and the carrier (a copy from file to file, a simulated network) attaches them.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from streamlog.partition.epochs import UNDEFINED_EPOCH, EpochEndOffset, LeaderEpochCache

__all__ = [
    "UNKNOWN_OFFSET",
    "AlterPartition",
    "Errors",
    "Fetch",
    "FetchResponse",
    "OffsetsForLeaderEpoch",
    "OffsetsForLeaderEpochResponse",
    "ReleasedFetch",
    "ReplicaLog",
]

UNKNOWN_OFFSET: Final = -1  # LogOffsetMetadata.UNKNOWN_OFFSET_METADATA


class Errors(Enum):
    """Outcomes of a request, with Kafka's codes.

    Source: org.apache.kafka.common.protocol.Errors.
    """

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    NOT_LEADER_OR_FOLLOWER = 6
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    INVALID_UPDATE_VERSION = 95
    INELIGIBLE_REPLICA = 107


class ReplicaLog(Protocol):
    """The positions of a replica's log that the protocol reads; it never reads records."""

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record (LEO)."""

    @property
    def epochs(self) -> LeaderEpochCache:
        """The leader epochs of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """A follower asks for the records from its log end on, and so reports that log end.

    Attributes:
        replica: The node that asks.
        current_leader_epoch: The epoch in which it follows, -1 to leave it unchecked.
        fetch_offset: Its log end.
        last_fetched_epoch: The epoch of its last record, -1 to leave it unchecked.
        log_start_offset: Its log start.
    """

    replica: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int = UNDEFINED_EPOCH
    log_start_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """The leader's answer to a `Fetch`.

    Attributes:
        fetch_offset: The offset asked for; the answer is void for a follower that has moved on.
        leader_epoch: The leader's epoch.
        high_watermark: The leader's high watermark.
        log_start_offset: The leader's log start.
        end_offset: The records from `fetch_offset` up to here travel with the answer. With
            OFFSET_OUT_OF_RANGE: the leader's log end.
        diverging_epoch: The end of the last epoch that both logs may share, if the follower's log
            diverges; no records then.
    """

    fetch_offset: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    end_offset: int
    error: Errors = Errors.NONE
    diverging_epoch: EpochEndOffset | None = None


class ReleasedFetch(NamedTuple):
    """The answer to a parked fetch, and the node that asked."""

    replica: int
    response: FetchResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsForLeaderEpoch:
    """A follower asks where an epoch ends in the leader's log.

    Attributes:
        replica: The node that asks.
        current_leader_epoch: The epoch in which it follows, -1 to leave it unchecked.
        leader_epoch: The epoch asked for, -1 from a log without epochs.
    """

    replica: int
    current_leader_epoch: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsForLeaderEpochResponse:
    """The leader's answer: the greatest epoch it knows up to the one asked for, and its end.

    Attributes:
        current_leader_epoch: The epoch of the question.
        leader_epoch: The epoch asked for; the answer is void for a follower that has moved on.
        end: The answer, (-1, -1) if unknown.
    """

    current_leader_epoch: int
    leader_epoch: int
    end: EpochEndOffset
    error: Errors = Errors.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition:
    """A leader proposes another ISR to the controller.

    Attributes:
        leader: The node that proposes.
        leader_epoch: Its epoch.
        partition_epoch: The version of the partition state that it wants to replace.
        isr: The proposed ISR.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
