"""The leader of one partition: follower positions, high watermark, parked fetches, acks, ISR.

A state machine without I/O. Messages drive it (`fetch`, `offsets_for_leader_epoch`), or a writer
that copies by itself reports what it did (`follower_at`, `follower_failed`):

    leader = Leader(0, state, log, settings, high_watermark=hw, now_ms=now)
    leader.admit(Acks.ALL)                    # before an append: NOT_ENOUGH_REPLICAS?
    leader.appended(now)                      # after it
    leader.follower_at(1, end_offset, now)    # follower 1 has everything up to here
    leader.high_watermark
    leader.outcome(end_offset, Acks.ALL)      # after it: acknowledged?
    leader.check_lag(now)                     # from time to time
    if (change := leader.proposal):           # write it to the partition state, then
        leader.installed(state, now)          # with the state found there

Its leader epoch is assigned to the log end in `log.epochs` at once, even if no record follows
(KAFKA-7415); the owner of the log stores it.
"""

from streamlog.errors import NotLeaderError
from streamlog.partition.epochs import UNDEFINED_EPOCH, EpochEndOffset
from streamlog.records.acks import Acks
from streamlog.replication.isr import (
    FollowerProgress,
    InSyncReplicas,
    ReplicationSettings,
    effective_min_isr,
    high_watermark_candidate,
    is_caught_up,
    may_join,
    may_raise_high_watermark,
    out_of_sync,
)
from streamlog.replication.messages import (
    AlterPartition,
    Errors,
    Fetch,
    FetchResponse,
    OffsetsForLeaderEpoch,
    OffsetsForLeaderEpochResponse,
    ReleasedFetch,
    ReplicaLog,
)
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.truncation import RULES, diverging_epoch, end_of_epoch

__all__ = ["Leader"]


class Leader:
    """Leads a partition in one leader epoch; another epoch needs another `Leader`.

    Args:
        node: The leading node.
        state: The partition state that names it as leader.
        log: The positions of its log.
        settings: Limits and times.
        high_watermark: Its high watermark as a follower, or as stored.
        now_ms: The time; members of the ISR count as caught up now.

    Attributes:
        high_watermark: Records below it are committed. It never goes back.
        followers: The leader's knowledge of each follower.
        isr: The in-sync replicas, with the change in flight.

    Source: kafka.cluster.Partition.
    """

    def __init__(
        self,
        node: int,
        state: PartitionState,
        log: ReplicaLog,
        settings: ReplicationSettings,
        *,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        if state.leader != node:
            raise NotLeaderError("another node leads the partition", got=f"leader {state.leader}")
        self._node = node
        self._state = state
        self._log = log
        self._settings = settings
        self._rule = RULES[settings.rule]
        self.high_watermark = high_watermark
        self.isr = InSyncReplicas(state.isr)
        self.followers = {
            follower: FollowerProgress(caught_up_ms=now_ms)
            if follower in state.isr
            else FollowerProgress()
            for follower in state.replicas
            if follower != node
        }
        self._failed: frozenset[int] = frozenset()
        self._parked: dict[int, tuple[Fetch, int]] = {}
        log.epochs.assign(state.leader_epoch, log.log_end_offset)
        self.epoch_start_offset = log.epochs.entries[-1].start_offset
        self._raise_high_watermark(now_ms)

    @property
    def state(self) -> PartitionState:
        """The partition state last installed."""
        return self._state

    @property
    def leader_epoch(self) -> int:
        """The epoch in which it leads."""
        return self._state.leader_epoch

    @property
    def min_isr(self) -> int:
        """The number of replicas in sync that a commit needs."""
        return effective_min_isr(self._settings.min_insync_replicas, len(self._state.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether too few replicas are in sync to commit records."""
        return not may_raise_high_watermark(len(self.isr.committed), self.min_isr)

    # ---- the writer's side -------------------------------------------------------------------
    def admit(self, acks: Acks) -> Errors:
        """Return NOT_ENOUGH_REPLICAS if an append must be refused, else NONE.

        Source: kafka.cluster.Partition.appendRecordsToLeader.
        """
        if acks is Acks.ALL and self.is_under_min_isr:
            return Errors.NOT_ENOUGH_REPLICAS
        return Errors.NONE

    def appended(self, now_ms: int) -> None:
        """Record that the log has grown; parked fetches have answers now (`released`)."""
        self._raise_high_watermark(now_ms)

    def outcome(self, required_offset: int, acks: Acks) -> Errors | None:
        """Return the outcome of an append, None while it is undecided.

        Args:
            required_offset: The offset after its last record.
            acks: The acknowledgement asked for.

        Returns:
            NOT_ENOUGH_REPLICAS_AFTER_APPEND if the records are committed, but by fewer replicas
            than required; they stay in the log.

        Source: kafka.cluster.Partition.checkEnoughReplicasReachOffset.
        """
        if acks is not Acks.ALL:
            return Errors.NONE
        if self.high_watermark < required_offset:
            return None
        if len(self.isr.maximal) < self.min_isr:
            return Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return Errors.NONE

    # ---- the followers' side -----------------------------------------------------------------
    def fetch(self, request: Fetch, now_ms: int) -> FetchResponse | None:
        """Record a follower's log end, and answer with the records after it.

        Returns:
            The answer, None if there is nothing to send yet: the fetch is parked until `released`
            returns its answer.

        Source: kafka.cluster.Partition.fetchRecords.
        """
        error = self._refusal(request.replica, request.current_leader_epoch)
        if error is not Errors.NONE:
            return self._response(request, error=error)
        if request.fetch_offset < self._log.log_start_offset:
            return self._response(request, error=Errors.OFFSET_OUT_OF_RANGE)
        diverging = diverging_epoch(
            self._settings.rule, self._log, request.last_fetched_epoch, request.fetch_offset
        )
        if diverging is not None:
            return self._response(request, diverging_epoch=diverging)
        if request.fetch_offset > self._log.log_end_offset:
            return self._response(request, error=Errors.OFFSET_OUT_OF_RANGE)
        answer = self._response(request)  # the high watermark before this fetch, as in Kafka
        self._note_fetch(request, now_ms)
        if request.fetch_offset < self._log.log_end_offset:
            return answer
        deadline_ms = now_ms + self._settings.replica_fetch_wait_max_ms
        self._parked[request.replica] = (request, deadline_ms)
        return None

    def released(self, now_ms: int) -> list[ReleasedFetch]:
        """Return the answers of parked fetches that now find records or have waited enough."""
        answers = []
        for node, (request, deadline_ms) in sorted(self._parked.items()):
            if request.fetch_offset < self._log.log_end_offset or now_ms >= deadline_ms:
                del self._parked[node]
                answers.append(ReleasedFetch(node, self._response(request)))
        return answers

    def offsets_for_leader_epoch(
        self, request: OffsetsForLeaderEpoch
    ) -> OffsetsForLeaderEpochResponse:
        """Return where an epoch ends in the leader's log.

        Source: kafka.cluster.Partition.lastOffsetForLeaderEpoch.
        """
        error = self._refusal(request.replica, request.current_leader_epoch)
        unknown = EpochEndOffset(UNDEFINED_EPOCH, -1)
        return OffsetsForLeaderEpochResponse(
            current_leader_epoch=request.current_leader_epoch,
            leader_epoch=request.leader_epoch,
            end=unknown
            if error is not Errors.NONE
            else end_of_epoch(self._settings.rule, self._log, request.leader_epoch),
            error=error,
        )

    def follower_at(self, node: int, end_offset: int, now_ms: int) -> None:
        """Record the log end of a follower that was truncated to match in this epoch.

        The same as its next fetch, for a writer that copies to the follower by itself.
        """
        self._note_fetch(
            Fetch(replica=node, current_leader_epoch=self.leader_epoch, fetch_offset=end_offset),
            now_ms,
        )

    def follower_failed(self, node: int) -> None:
        """Record that a follower's disk failed: it leaves the ISR without waiting for its lag.

        It counts again from its next fetch on. Source: an offline log.dir in Kafka.
        """
        self._failed |= {node}
        self._parked.pop(node, None)
        self.followers[node] = FollowerProgress()
        self._shrink(self._failed)

    # ---- the ISR -----------------------------------------------------------------------------
    @property
    def proposal(self) -> AlterPartition | None:
        """The ISR change in flight, if any; the same one until `installed` or `refused`."""
        if self.isr.proposed is None:
            return None
        return AlterPartition(
            leader=self._node,
            leader_epoch=self.leader_epoch,
            partition_epoch=self._state.partition_epoch,
            isr=self.isr.proposed,
        )

    def check_lag(self, now_ms: int) -> None:
        """Propose to remove followers that lag or failed; due every half lag time.

        Source: kafka.cluster.Partition.maybeShrinkIsr.
        """
        lagging = out_of_sync(
            self.isr.committed,
            self._node,
            self.followers,
            self._log.log_end_offset,
            now_ms,
            self._settings.replica_lag_time_max_ms,
        )
        self._shrink(frozenset(lagging) | self._failed)

    def installed(self, state: PartitionState, now_ms: int) -> None:
        """Take over a newer partition state of the same leader epoch; ends the change in flight.

        The followers' positions stay known: forgetting them would delay the high watermark, and
        could remove a follower from the ISR that has just joined.

        Raises:
            NotLeaderError: The state is of another leader epoch, so this leader's time is over.
        """
        if (state.leader, state.leader_epoch) != (self._node, self.leader_epoch):
            raise NotLeaderError(
                "the partition has another leader epoch",
                got=f"leader {state.leader} in epoch {state.leader_epoch}",
                expected=f"leader {self._node} in epoch {self.leader_epoch}",
            )
        if state.partition_epoch < self._state.partition_epoch:
            return  # a late message
        self._state = state
        self.isr = InSyncReplicas(state.isr)
        known = self.followers
        self.followers = {
            node: known.get(node, FollowerProgress())
            for node in state.replicas
            if node != self._node
        }
        self._raise_high_watermark(now_ms)

    def refused(self) -> None:
        """Withdraw the change in flight, which is known not to have been applied."""
        self.isr = InSyncReplicas(self.isr.committed)

    # ---- within ------------------------------------------------------------------------------
    def _refusal(self, node: int, epoch: int) -> Errors:
        """Return why a request cannot be answered.

        Source: kafka.cluster.Partition.checkCurrentLeaderEpoch, followerReplicaOrThrow.
        """
        if self._rule.fences and epoch != UNDEFINED_EPOCH:
            if epoch < self.leader_epoch:
                return Errors.FENCED_LEADER_EPOCH
            if epoch > self.leader_epoch:
                return Errors.UNKNOWN_LEADER_EPOCH
        if node not in self.followers:
            return Errors.UNKNOWN_LEADER_EPOCH
        return Errors.NONE

    def _response(
        self,
        request: Fetch,
        *,
        error: Errors = Errors.NONE,
        diverging_epoch: EpochEndOffset | None = None,
    ) -> FetchResponse:
        end = self._log.log_end_offset
        return FetchResponse(
            fetch_offset=request.fetch_offset,
            leader_epoch=self.leader_epoch,
            high_watermark=self.high_watermark,
            log_start_offset=self._log.log_start_offset,
            end_offset=request.fetch_offset if diverging_epoch is not None else end,
            error=error,
            diverging_epoch=diverging_epoch,
        )

    def _note_fetch(self, request: Fetch, now_ms: int) -> None:
        """Record a follower's position, then let it join the ISR and the high watermark rise."""
        node = request.replica
        self._failed -= {node}
        self.followers[node] = self.followers[node].fetched(
            request.fetch_offset, request.log_start_offset, self._log.log_end_offset, now_ms
        )
        self._expand(node, now_ms)
        self._raise_high_watermark(now_ms)

    def _is_caught_up(self, node: int, now_ms: int) -> bool:
        return is_caught_up(
            self.followers[node],
            self._log.log_end_offset,
            now_ms,
            self._settings.replica_lag_time_max_ms,
        )

    def _expand(self, node: int, now_ms: int) -> None:
        """Propose to add a follower to the ISR if it may join and no change is in flight."""
        if node in self.isr.committed or self.isr.is_in_flight:
            return
        if may_join(
            self.followers[node].log_end_offset,
            self.high_watermark,
            self.epoch_start_offset if self._rule.joins_at_epoch_start else 0,
            under_min_isr=self.is_under_min_isr,
            caught_up=self._is_caught_up(node, now_ms),
        ):
            members = {*self.isr.committed, node}
            self.isr = self.isr.with_proposal(self._in_order(members))

    def _shrink(self, leaving: frozenset[int]) -> None:
        if self.isr.is_in_flight or leaving.isdisjoint(self.isr.committed):
            return
        self.isr = self.isr.with_proposal(self._in_order(set(self.isr.committed) - leaving))

    def _in_order(self, nodes: set[int]) -> tuple[int, ...]:
        """Return nodes in assignment order."""
        return tuple(node for node in self._state.replicas if node in nodes)

    def _raise_high_watermark(self, now_ms: int) -> None:
        """Raise the high watermark as far as the ISR allows.

        Under either outcome of a change in flight; and a follower that has caught up and may join
        next counts already, so that it is not overtaken for ever.

        Source: kafka.cluster.Partition.maybeIncrementLeaderHW.
        """
        if self.is_under_min_isr:
            return
        end, counted = self._log.log_end_offset, set(self.isr.maximal)
        if high_watermark_candidate(self._node, end, self.followers, counted) > self.high_watermark:
            counted.update(node for node in self.followers if self._is_caught_up(node, now_ms))
            candidate = high_watermark_candidate(self._node, end, self.followers, counted)
            self.high_watermark = max(self.high_watermark, candidate)
