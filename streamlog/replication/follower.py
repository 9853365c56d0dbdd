"""A follower of one partition: what it asks the leader, and what it does with the answer.

A state machine without I/O. The carrier sends `request()`, gives the answer to `epoch_answered` or
`fetched`, and carries the step out in the order of its fields: truncate (records and epochs),
append, high watermark, log start.
"""

from dataclasses import dataclass

from streamlog.errors import NotLeaderError
from streamlog.partition.epochs import UNDEFINED_EPOCH
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.messages import (
    Errors,
    Fetch,
    FetchResponse,
    OffsetsForLeaderEpoch,
    OffsetsForLeaderEpochResponse,
    ReplicaLog,
)
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.truncation import RULES, epoch_to_ask, truncation_for

__all__ = ["Follower", "FollowerStep", "OutOfRange", "out_of_range"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerStep:
    """The changes of a follower's log, to be carried out in this order.

    Attributes:
        restart_at: Delete all records and epochs, then start at this offset.
        truncate_to: Remove the records and the epochs at and above this offset. Also due if the
            log ends here: an epoch without records must go.
        append_to: Append the records that came with the answer, up to this offset.
        high_watermark: The high watermark afterwards.
        log_start_offset: Raise the log start to here, if it is lower.
        error: Why the leader gave no answer; read the partition state again.
    """

    high_watermark: int
    restart_at: int | None = None
    truncate_to: int | None = None
    append_to: int | None = None
    log_start_offset: int | None = None
    error: Errors = Errors.NONE


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """What a follower does after OFFSET_OUT_OF_RANGE: one of the two, or neither to retry."""

    truncate_to: int | None = None
    restart_at: int | None = None


def out_of_range(end_offset: int, leader_start_offset: int, leader_end_offset: int) -> OutOfRange:
    """Return what a follower does whose log end the leader does not have.

    A leader that ends lower was elected uncleanly. A follower that ends below the leader's start
    has nothing in common with it. In no other case is anything deleted (KAFKA-2143).

    Source: kafka.server.AbstractFetcherThread.fetchOffsetAndTruncate.
    """
    if leader_end_offset < end_offset:
        return OutOfRange(truncate_to=leader_end_offset)
    if leader_start_offset > end_offset:
        return OutOfRange(restart_at=leader_start_offset)
    return OutOfRange()


class Follower:
    """Follows a leader in one leader epoch; another epoch needs another `Follower`.

    Args:
        node: The following node.
        state: The partition state that names the leader.
        log: The positions of its log.
        settings: The truncation rule comes from here.
        high_watermark: Its high watermark so far.

    Raises:
        NotLeaderError: The log has records of a later epoch, so the leader was replaced. To ask it
            would truncate records that it does not know.

    Attributes:
        high_watermark: The highest high watermark that a leader reported, at most its log end.
        is_truncated: Whether its log matches the leader's, as far as it goes.

    Source: kafka.server.AbstractFetcherThread.
    """

    def __init__(
        self,
        node: int,
        state: PartitionState,
        log: ReplicaLog,
        settings: ReplicationSettings,
        *,
        high_watermark: int,
    ) -> None:
        latest = log.epochs.latest_epoch
        if RULES[settings.rule].fences and latest is not None and latest > state.leader_epoch:
            raise NotLeaderError(
                "the follower's log is of a later leader epoch",
                got=f"leader {state.leader} in epoch {state.leader_epoch}",
                expected=f"epoch {latest} or later",
            )
        self._node = node
        self._log = log
        self._rule = settings.rule
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.high_watermark = high_watermark
        self.is_truncated = not RULES[self._rule].truncates_first

    def request(self) -> Fetch | OffsetsForLeaderEpoch:
        """Return what to ask the leader next."""
        if not self.is_truncated:
            return OffsetsForLeaderEpoch(
                replica=self._node,
                current_leader_epoch=self.leader_epoch,
                leader_epoch=epoch_to_ask(self._rule, self._log.epochs),
            )
        latest = self._log.epochs.latest_epoch
        return Fetch(
            replica=self._node,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self._log.log_end_offset,
            last_fetched_epoch=UNDEFINED_EPOCH if latest is None else latest,
            log_start_offset=self._log.log_start_offset,
        )

    def epoch_answered(self, answer: OffsetsForLeaderEpochResponse) -> FollowerStep:
        """Return where to truncate; ask again unless `is_truncated` is set then (KIP-279)."""
        asked = epoch_to_ask(self._rule, self._log.epochs)
        if answer.error is not Errors.NONE:
            return FollowerStep(high_watermark=self.high_watermark, error=answer.error)
        if answer.leader_epoch != asked or answer.current_leader_epoch != self.leader_epoch:
            return FollowerStep(high_watermark=self.high_watermark)  # answers an older question
        truncation = truncation_for(answer.end, self._log, self.high_watermark)
        self.is_truncated = truncation.is_final
        return self._truncate(truncation.offset)

    def fetched(self, answer: FetchResponse) -> FollowerStep:
        """Return the changes of the log after an answer.

        Truncation always comes before the high watermark (KAFKA-14704).

        Source: kafka.server.AbstractFetcherThread.processFetchRequest.
        """
        end = self._log.log_end_offset
        if answer.fetch_offset != end or not self.is_truncated:
            return FollowerStep(high_watermark=self.high_watermark)  # answers an older question
        if RULES[self._rule].fences and answer.leader_epoch != self.leader_epoch:
            return FollowerStep(high_watermark=self.high_watermark)
        if answer.error is Errors.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(answer)
        if answer.error is not Errors.NONE:
            return FollowerStep(high_watermark=self.high_watermark, error=answer.error)
        if answer.diverging_epoch is not None:
            truncation = truncation_for(answer.diverging_epoch, self._log, self.high_watermark)
            return self._truncate(truncation.offset)
        self.high_watermark = max(
            self.high_watermark,  # a new leader may not know all that is committed
            min(answer.high_watermark, answer.end_offset),
            min(answer.log_start_offset, answer.end_offset),
        )
        return FollowerStep(
            append_to=answer.end_offset if answer.end_offset > end else None,
            high_watermark=self.high_watermark,
            log_start_offset=answer.log_start_offset,
        )

    def _truncate(self, offset: int) -> FollowerStep:
        self.high_watermark = min(self.high_watermark, offset)
        return FollowerStep(truncate_to=offset, high_watermark=self.high_watermark)

    def _out_of_range(self, answer: FetchResponse) -> FollowerStep:
        what = out_of_range(self._log.log_end_offset, answer.log_start_offset, answer.end_offset)
        if what.restart_at is not None:
            self.high_watermark = what.restart_at  # KAFKA-9491
            return FollowerStep(restart_at=what.restart_at, high_watermark=self.high_watermark)
        if what.truncate_to is not None:
            return self._truncate(what.truncate_to)
        return FollowerStep(high_watermark=self.high_watermark)
