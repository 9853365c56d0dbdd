"""The in-sync replicas: who is caught up, who may join, how far the high watermark may go.

Pure functions of positions and times. `Leader` keeps the values and calls them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from streamlog.replication.messages import UNKNOWN_OFFSET
from streamlog.replication.truncation import TruncationRule

__all__ = [
    "NEVER_MS",
    "FollowerProgress",
    "InSyncReplicas",
    "ReplicationSettings",
    "effective_min_isr",
    "high_watermark_candidate",
    "is_caught_up",
    "may_join",
    "may_raise_high_watermark",
    "out_of_sync",
]

NEVER_MS: Final = -(2**62)  # before any time that a clock gives


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """The settings of a replicated partition.

    Attributes:
        min_insync_replicas: `min.insync.replicas`, at most the number of replicas in effect.
        replica_lag_time_max_ms: A follower that has not caught up for longer leaves the ISR.
        replica_fetch_wait_max_ms: A fetch that finds nothing is answered after this time.
        rule: The truncation rule; any but the default is for study and tests.
    """

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    rule: TruncationRule = TruncationRule.KIP_320


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerProgress:
    """A leader's knowledge of one follower.

    Attributes:
        log_end_offset: The follower's log end at its last fetch, -1 before the first.
        log_start_offset: Its log start then, -1 before the first.
        caught_up_ms: When it last had everything that the leader had.
        fetched_ms: When it last fetched.
        leader_end_offset: The leader's log end at its last fetch.

    Source: kafka.cluster.ReplicaState.
    """

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = NEVER_MS
    fetched_ms: int = NEVER_MS
    leader_end_offset: int = UNKNOWN_OFFSET

    def fetched(
        self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> "FollowerProgress":
        """Return the progress after a fetch at `offset`.

        A follower that fetches from where the leader's log ended at the previous fetch had
        everything then, however fast the log grows.

        Source: kafka.cluster.Replica.updateFetchStateOrThrow.
        """
        caught_up_ms = self.caught_up_ms
        if offset >= leader_end_offset:
            caught_up_ms = max(caught_up_ms, now_ms)
        elif self.leader_end_offset != UNKNOWN_OFFSET and offset >= self.leader_end_offset:
            caught_up_ms = max(caught_up_ms, self.fetched_ms)
        return FollowerProgress(
            log_end_offset=offset,
            log_start_offset=log_start_offset,
            caught_up_ms=caught_up_ms,
            fetched_ms=now_ms,
            leader_end_offset=leader_end_offset,
        )


@dataclass(frozen=True, slots=True)
class InSyncReplicas:
    """The ISR of a partition state, and the change that the leader has proposed, if any.

    Source: kafka.cluster.PartitionState: CommittedPartitionState, PendingExpandIsr,
        PendingShrinkIsr.
    """

    committed: tuple[int, ...]
    proposed: tuple[int, ...] | None = None

    @property
    def is_in_flight(self) -> bool:
        """Whether a change is proposed and its outcome unknown."""
        return self.proposed is not None

    @property
    def maximal(self) -> frozenset[int]:
        """The replicas in sync under either outcome of the proposed change."""
        if self.proposed is None:
            return frozenset(self.committed)
        return frozenset(self.committed) | frozenset(self.proposed or ())

    def with_proposal(self, isr: tuple[int, ...]) -> "InSyncReplicas":
        """Return the ISR with a proposed change."""
        return replace(self, proposed=isr)


def effective_min_isr(min_insync_replicas: int, replicas: int) -> int:
    """Return `min.insync.replicas`, at most the number of replicas (4.0, KIP-966)."""
    return min(min_insync_replicas, replicas)


def is_caught_up(
    progress: FollowerProgress, leader_end_offset: int, now_ms: int, lag_time_max_ms: int
) -> bool:
    """Return whether a follower has everything, or had it less than the lag time ago.

    Source: kafka.cluster.ReplicaState.isCaughtUp.
    """
    if progress.log_end_offset == leader_end_offset:
        return True
    return now_ms - progress.caught_up_ms <= lag_time_max_ms


def out_of_sync(
    isr: Iterable[int],
    leader: int,
    followers: Mapping[int, FollowerProgress],
    leader_end_offset: int,
    now_ms: int,
    lag_time_max_ms: int,
) -> tuple[int, ...]:
    """Return the members of the ISR that have not caught up for longer than the lag time."""
    return tuple(
        node
        for node in isr
        if node != leader
        and not is_caught_up(followers[node], leader_end_offset, now_ms, lag_time_max_ms)
    )


def may_join(
    follower_end_offset: int,
    high_watermark: int,
    epoch_start_offset: int,
    *,
    under_min_isr: bool,
    caught_up: bool,
) -> bool:
    """Return whether a follower holds enough for the ISR.

    It needs everything that may be committed: up to the high watermark, and up to the start of the
    leader's own epoch, since a new leader's high watermark may be too low (KAFKA-7128). While the
    ISR is below its minimum the high watermark stands still, so a follower must have caught up with
    the log itself (KAFKA-19996).

    Source: kafka.cluster.Partition.isFollowerInSync.
    """
    if under_min_isr and not caught_up:
        return False
    return follower_end_offset >= max(high_watermark, epoch_start_offset)


def may_raise_high_watermark(isr_size: int, min_isr: int) -> bool:
    """Return whether enough replicas are in sync to commit records (KIP-966)."""
    return isr_size >= min_isr


def high_watermark_candidate(
    leader: int,
    leader_end_offset: int,
    followers: Mapping[int, FollowerProgress],
    counted: Iterable[int],
) -> int:
    """Return the lowest log end of the replicas that count; -1 if one of them is unknown.

    Source: kafka.cluster.Partition.maybeIncrementLeaderHW.
    """
    ends = [followers[node].log_end_offset for node in counted if node != leader]
    return min(leader_end_offset, *ends) if ends else leader_end_offset
