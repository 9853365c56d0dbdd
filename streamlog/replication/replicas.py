"""The replicas of one partition, as seen by the process that writes through its leader.

`Replicas` is what a leader's `Log` asks of the others (`partition.replicated.Replicated`). It holds
no rule of its own: `Leader` decides, the register remembers, `FollowerLog` copies.

    begin          register → may this root lead? → epoch assigned at the log end
    appended       leader's sync ‖ each follower: lock, register, append, sync, high watermark
                   → each log end is reported to `Leader` → ISR changes → register
                   → high watermark → do most registers still show this epoch? → acknowledged
                   with acks=0 and 1 a replica fetcher does this, if one lives: `fetcher_lock`

A follower learns the high watermark with the next append, as in Kafka with the next fetch; once
none follows (flush, close, an idle handle) `share_high_watermark` stands for that fetch.
"""

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from random import Random
from typing import Final

from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptDataError,
    InvalidUpdateVersionError,
    LockTimeoutError,
    NoQuorumError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    StreamLogError,
    UnavailableError,
    UnknownOutcomeError,
)
from streamlog.fs.api import Buffer
from streamlog.partition.log import Log
from streamlog.records.acks import Acks
from streamlog.records.batch import BatchTable
from streamlog.replication.completeness import positions_of, proof_of_loss
from streamlog.replication.copies import IDLE_MS, Copies, Reached
from streamlog.replication.election import ElectionType, alter_partition, elect
from streamlog.replication.fetcher_lock import FetcherWatch
from streamlog.replication.follower_log import FollowerLog, LogPositions
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.leader import Leader
from streamlog.replication.messages import AlterPartition, Errors
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.quorum import Accepted
from streamlog.replication.register import QuorumRegister
from streamlog.replication.roots import ReplicaRoots, check_epoch
from streamlog.topic import TopicPartition

__all__ = ["Replicas"]

CATCH_UP_BYTES: Final = 32 << 20  # per append, so that one that returns does not stop the writer
RETRY_MS: Final = 5

_logger = logging.getLogger(__name__)


class Replicas:
    """The other replicas of a partition; see `partition.replicated.Replicated`.

    Args:
        node: The node whose log asks.
        partition: The partition.
        topic_id: The id of its topic.
        roots: Where the replicas and the registers are.
        clock: Measures lag, and how long offline followers wait.
        random: For the register's rounds.
        copies: How copies run.
        lag_time_max_ms: `replica.lag.time.max.ms`.
        may_append: Raises `UnavailableError` if nothing may be appended yet, apart from decided
            commits; asked before the first append in each leader epoch.

    Attributes:
        node: The node whose log asks.
    """

    def __init__(
        self,
        node: int,
        partition: TopicPartition,
        *,
        topic_id: str,
        roots: ReplicaRoots,
        clock: Clock,
        random: Random,
        copies: Copies,
        lag_time_max_ms: int,
        may_append: Callable[[Log], None] | None = None,
    ) -> None:
        self.node, self._partition, self._roots = node, partition, roots
        self._clock, self._copies = clock, copies
        self._lag_time_max_ms = lag_time_max_ms
        self._files = roots.register_files(partition)
        self._seen: Accepted | None = None  # what the register in the own root held last
        self._random, self._topic_id = random, topic_id
        self._register = QuorumRegister(
            self._files, locker=self._locked, random=random, topic_id=topic_id
        )
        self._leader: Leader | None = None
        self._log: Log | None = None
        self._followers: dict[int, FollowerLog] = {}
        self._left_at: tuple[int, float] = (-1, 0.0)  # log end and time when this let go
        self._copied_at_ms = 0.0
        self._fetcher = FetcherWatch(partial(roots.has_replica_fetcher, node), clock)
        # The state that all registers showed last, and what was in them.
        self._shown: tuple[PartitionState | None, dict[int, Accepted | None]] = (None, {})
        self._copied: set[int] = set()  # the nodes that the last `_copy` reached
        self._settings_of: tuple[LogConfig, ReplicationSettings] | None = None
        self._examined = -1  # the leader epoch in which the log was found complete
        self._may_append, self._is_admitted = may_append, may_append is None

    def _locked(self, node: int) -> AbstractContextManager[object]:
        if node == self.node and self._log is not None and self._log.is_locked:
            return nullcontext()
        return self._roots.locked(node, self._partition)

    @property
    def leader(self) -> Leader:
        """The state of the leader; only within `writing`.

        Raises:
            NotLeaderError: This replica does not lead.
        """
        if self._leader is None:
            raise NotLeaderError("this replica does not lead", got=f"node {self.node}")
        return self._leader

    @property
    def state(self) -> PartitionState:
        """The partition's state, as last known here; only within `writing`.

        Raises:
            NotLeaderError: This replica does not lead.
        """
        return self.leader.state

    # ---- may this replica lead? ----------------------------------------------------------------
    def begin(self, log: Log) -> None:
        """Check that this replica leads; by the register in its own root, once it is known.

        Raises:
            NotLeaderError: Another replica leads, or this one lost records that others have.
            NoQuorumError: Too few roots can be reached to know.
        """
        self._log = log
        leader = self._leader
        # Another process may have led in this epoch, and died while it changed the ISR.
        state = self._register.confirm() if leader is None else self._own_state(leader)
        if state.leader != self.node:
            self._leader = None
            raise self._not_leading(log, state)
        if leader is None or state.leader_epoch != leader.leader_epoch or self._is_stale(log):
            self._lead(log, state)
        elif state.partition_epoch != leader.state.partition_epoch:
            leader.installed(state, self._clock.now_ms())
            self._choose_followers(state)

    def _own_state(self, leader: Leader) -> PartitionState:
        """Return the state by the register in the own root, which may have missed a change.

        The own root alone does not show that a change was decided.
        """
        accepted = self._files[self.node].read()
        if accepted is None or accepted.state is None:
            return self._register.read()  # deleted, or lost
        if accepted is not self._seen:
            self._seen = accepted
            self._know_roots([voter.node for voter in accepted.voters])
        state = accepted.state
        is_same_topic = state.topic_id == leader.state.topic_id  # else epochs began again at 0
        if not is_same_topic or state.partition_epoch > leader.state.partition_epoch:
            return self._register.confirm()
        return leader.state

    def _is_stale(self, log: Log) -> bool:
        """Whether another writer led meanwhile, or so much time passed that lag says nothing."""
        end, at_ms = self._left_at
        idle_ms = self._clock.monotonic_ms() - at_ms
        return log.log_end_offset != end or idle_ms > self._lag_time_max_ms / 2

    def _lead(self, log: Log, state: PartitionState) -> None:
        self._choose_followers(state)
        if self._examined != state.leader_epoch:
            self._refuse_loss(log, state)
            self._examined = state.leader_epoch
            self._is_admitted = self._may_append is None
        self._leader = None
        log.assign_leader_epoch(state.leader_epoch)
        self._start(log, state)
        self._settle(log)

    def _start(self, log: Log, state: PartitionState) -> None:
        self._leader = Leader(
            self.node,
            state,
            LogPositions(log),
            self._settings(log),
            high_watermark=log.high_watermark,
            now_ms=self._clock.now_ms(),
        )
        self._copied_at_ms = self._clock.monotonic_ms()
        self._left_at = log.log_end_offset, self._copied_at_ms

    def _settle(self, log: Log) -> None:
        """Have the followers fetch, so that the high watermark rises without an append."""
        if log.high_watermark < log.log_end_offset:
            try:
                self._copy(log, None, _nothing)
                self._commit(log)
            except NoQuorumError as error:
                _logger.warning("[%s] the high watermark stands: %s", self._partition, error)

    def _settings(self, log: Log) -> ReplicationSettings:
        config, known = log.config, self._settings_of
        if known is None or known[0] is not config:
            settings = ReplicationSettings(
                min_insync_replicas=config.min_insync_replicas,
                replica_lag_time_max_ms=self._lag_time_max_ms,
            )
            known = self._settings_of = config, settings
        return known[1]

    def _choose_followers(self, state: PartitionState) -> None:
        """Follow the assignment: new replicas get a handle, removed ones lose theirs."""
        self._know_roots(state.replicas)
        for node in [each for each in self._followers if each not in state.replicas]:
            self._followers.pop(node).close()
        for node in state.replicas:
            if node != self.node and node not in self._followers:
                opened = partial(self._roots.open_follower, node, self._partition)
                self._followers[node] = FollowerLog(node, opened, self._clock)

    def _know_roots(self, nodes: Collection[int]) -> None:
        """Learn of log roots that were added to the set since this handle was opened."""
        if not self._files.keys() >= {*nodes}:
            self._files = self._roots.register_files(self._partition)
            self._register = QuorumRegister(
                self._files, locker=self._locked, random=self._random, topic_id=self._topic_id
            )

    def _refuse_loss(self, log: Log, state: PartitionState) -> None:
        """Raise if a reachable member of the ISR proves that this log lost records.

        Raises:
            NotLeaderError: It does.
        """
        mine = positions_of(self.node, log)
        others = []
        for node in state.isr:
            if node != self.node:
                try:
                    others.append(self._followers[node].positions())
                except StreamLogError as error:  # offline: it proves nothing
                    _logger.info("[%s] node %d is not examined: %s", self._partition, node, error)
        proof = proof_of_loss(mine, others, state)
        if proof is not None:
            raise NotLeaderError(
                "this replica lost records, so it must not lead",
                path=log.path,
                got=f"log end {mine.offsets.end}, {mine.epochs!r}",
                expected=f"high watermark {proof.offsets.high_watermark}, log end "
                f"{proof.offsets.end}, {proof.epochs!r}, as node {proof.node} has",
                hint="open the partition again, so that another replica is elected",
            )

    def _not_leading(self, log: Log, state: PartitionState) -> NotLeaderError:
        return NotLeaderError(
            "another replica leads the partition",
            path=log.path,
            got=f"node {self.node}",
            expected=f"node {state.leader}, which leads in epoch {state.leader_epoch}",
            hint="open the partition again",
        )

    def epoch_due(self, log: Log) -> int | None:
        """Return a new leader epoch, decided in the register: offsets of this log may be lost.

        Raises:
            NotLeaderError: Another replica has them, or leads.
            NoQuorumError: Too few roots can be reached.
        """
        state = self.leader.state
        self._refuse_loss(log, state)
        state = self._register.change(
            lambda before: before.with_leader(self.node), state.partition_epoch
        )
        self._start(log, state)
        self._settle(log)
        return state.leader_epoch

    # ---- append --------------------------------------------------------------------------------
    def before_append(self, acks: Acks) -> None:
        """Check that enough replicas are in sync; those that were offline are tried first.

        Raises:
            NotEnoughReplicasError: Fewer than `min.insync.replicas`, and `acks` is all.
            UnavailableError: `may_append` refuses.
        """
        leader, log = self.leader, self._log
        if not self._is_admitted and self._may_append is not None and log is not None:
            self._may_append(log)
            self._is_admitted = True
        if leader.admit(acks) is Errors.NONE or log is None:
            return
        self._copy(log, None, _nothing)
        if leader.admit(acks) is not Errors.NONE:
            raise NotEnoughReplicasError(
                "too few replicas are in sync",
                path=log.path,
                got=f"nodes {list(leader.isr.committed)}",
                expected=f"{leader.min_isr} replicas (min.insync.replicas)",
                hint="bring the missing log roots back, or append with acks=1",
            )

    def appended(
        self,
        log: Log,
        buffer: Buffer,
        table: BatchTable,
        acks: Acks,
        sync: Callable[[], None],
    ) -> None:
        """Copy batches to the followers while `sync` runs, then raise the high watermark.

        Raises:
            NotEnoughReplicasAfterAppendError: Too few replicas hold them, and `acks` is all.
            UnknownOutcomeError: Another leader was elected meanwhile, or the sync failed.
        """
        if self._leader is None:  # a decided commit, applied before the epoch begins: copied later
            sync()
            return
        self.leader.appended(self._clock.now_ms())
        if self._may_leave_copies(log, acks):
            sync()
            self._leave_copies(log)
        else:
            self._replicate(log, (buffer, table), log.log_end_offset, acks, sync)

    def repeated(self, log: Log, end_offset: int, acks: Acks) -> None:
        """Acknowledge batches that an idempotent producer repeats, as `appended` does."""
        if log.high_watermark < end_offset and not self._may_leave_copies(log, acks):
            self._replicate(log, None, end_offset, acks, _nothing)

    def _may_leave_copies(self, log: Log, acks: Acks) -> bool:
        """Whether the replica fetcher makes the copies, which nothing waits for."""
        return (
            acks is not Acks.ALL
            and bool(self._followers)
            and self._fetcher.copies(log.high_watermark)
        )

    def _leave_copies(self, log: Log) -> None:
        self._left_at = log.log_end_offset, self._clock.monotonic_ms()
        self._fetcher.left(log.log_end_offset)
        self._copies.when_idle(self._share_when_idle)

    def _replicate(
        self,
        log: Log,
        batches: tuple[Buffer, BatchTable] | None,
        end_offset: int,
        acks: Acks,
        sync: Callable[[], None],
    ) -> None:
        failure: StreamLogError | None = None
        try:
            self._copy(log, batches, sync)
            while self.leader.outcome(end_offset, acks) is None:
                if self.leader.is_under_min_isr:
                    break
                self._clock.sleep_ms(RETRY_MS)  # a follower's lock is held, or it has more to copy
                self._copy(log, None, _nothing)
            self._commit(log)
        except (NotLeaderError, NoQuorumError) as error:
            failure = error
        self._left_at = log.log_end_offset, self._clock.monotonic_ms()
        self._copies.when_idle(self._share_when_idle)
        self._acknowledge(log, end_offset, acks, failure)

    def _acknowledge(
        self, log: Log, end_offset: int, acks: Acks, failure: StreamLogError | None
    ) -> None:
        """Return if the append is acknowledged, else raise."""
        if isinstance(failure, NotLeaderError):
            self._leader = None
            if acks is not Acks.NONE:
                raise UnknownOutcomeError(
                    "another replica was elected leader during the append",
                    path=log.path,
                    offset=end_offset - 1,
                    got=str(failure),
                    hint="open the partition again and look whether the records are there",
                ) from failure
            return
        if acks is not Acks.ALL or log.high_watermark >= end_offset:
            return
        isr = list(self.leader.isr.committed)
        raise NotEnoughReplicasAfterAppendError(
            "records are in the leader's log, but too few replicas in sync hold them",
            path=log.path,
            offset=end_offset - 1,
            got=str(failure) if failure else f"nodes {isr} in sync",
            expected=f"{self.leader.min_isr} replicas (min.insync.replicas)",
            hint="bring the missing log roots back; do not append these records again",
        )

    def _copy(
        self,
        log: Log,
        batches: tuple[Buffer, BatchTable] | None,
        sync: Callable[[], None],
        max_bytes: int | None = CATCH_UP_BYTES,
    ) -> None:
        """Bring the followers up to the leader's log end, and the ISR up to date.

        Raises:
            NotLeaderError: Another leader was elected.
            NoQuorumError: The ISR must change, and too few registers can be reached.
        """
        if self._clock.monotonic_ms() - self._copied_at_ms > self._lag_time_max_ms / 2:
            self._start(log, self.leader.state)  # the fetcher copied: lag known here says nothing
        due = [each for each in self._followers.values() if each.is_due]
        reached = self._copies.run(
            [partial(self._copy_to, each, log, batches, max_bytes) for each in due], sync
        )
        leader, now_ms = self.leader, self._clock.now_ms()
        fenced: StreamLogError | None = None
        self._copied = {each.follower.node for each in reached if each.error is None}
        for follower, end_offset, error in reached:
            if error is None:
                follower.succeeded()
                leader.follower_at(follower.node, end_offset, now_ms)
            elif isinstance(error, NotLeaderError):
                fenced = error
            elif isinstance(error, LockTimeoutError):
                _logger.warning("[%s] node %d lags: %s", self._partition, follower.node, error)
            else:
                follower.failed()
                leader.follower_failed(follower.node)
                _logger.warning(
                    "[%s] node %d is offline: %s", self._partition, follower.node, error
                )
        if fenced is not None:
            self._follow_register(fenced)
            for follower, _, error in reached:
                if isinstance(error, NotLeaderError):
                    follower.overrule()
        self._copied_at_ms = self._clock.monotonic_ms()
        self._change_isr(log)

    def _copy_to(
        self,
        follower: FollowerLog,
        log: Log,
        batches: tuple[Buffer, BatchTable] | None,
        max_bytes: int | None,
    ) -> Reached:
        leader = self.leader
        try:
            end_offset = follower.append(
                leader,
                log,
                batches,
                settings=self._settings(log),
                check=partial(check_epoch, self._files[follower.node], leader.state),
                max_bytes=max_bytes,
            )
        except StreamLogError as error:
            return Reached(follower, -1, error)
        return Reached(follower, end_offset, None)

    # ---- without an append -----------------------------------------------------------------------
    def catch_up(self, log: Log, *, tries_offline: bool = True) -> None:
        """Copy to all replicas that can be reached whatever they lack; those in step join the ISR.

        Only within `writing`.

        Args:
            log: The leader's log.
            tries_offline: Try replicas that failed now, however long they were to wait.

        Raises:
            NotLeaderError: Another leader was elected.
            NoQuorumError: Too few registers can be reached.
        """
        for follower in self._followers.values() if tries_offline else ():
            follower.succeeded()
        for _ in self._followers:  # one at a time joins
            self._copy(log, None, _nothing, max_bytes=None)
            self._commit(log)
            if set(self.leader.isr.committed) == set(self.leader.state.replicas):
                break
        self.share_high_watermark(log)

    def elect(self, log: Log, kind: ElectionType) -> PartitionState:
        """Hold an election while no writer appends, so that no record is lost; within `writing`.

        Raises:
            NoQuorumError: Too few registers can be reached.
        """
        self.catch_up(log)
        state = self.leader.state
        ends = {node: each.log_end_offset for node, each in self.leader.followers.items()}
        in_step = {node for node, end in ends.items() if end == log.log_end_offset}
        outcome = elect(
            state,
            kind,
            online={self.node, *in_step},
            min_insync_replicas=log.config.min_insync_replicas,
        )
        if outcome.state == state:
            return state
        decided = self._register.change(lambda _: outcome.state, state.partition_epoch)
        self._leader = None
        return decided

    def change_state(self, fn: Callable[[PartitionState], PartitionState]) -> PartitionState:
        """Replace the partition's state; only within `writing`.

        Raises:
            InvalidUpdateVersionError: Another process changed it.
            NoQuorumError: Too few registers can be reached.
        """
        state = self._register.change(fn, self.leader.state.partition_epoch)
        if (state.leader, state.leader_epoch) == (self.node, self.leader.leader_epoch):
            self.leader.installed(state, self._clock.now_ms())
            self._choose_followers(state)
        else:
            self._leader = None
        return state

    # ---- the register --------------------------------------------------------------------------
    def _follow_register(self, cause: StreamLogError) -> None:
        """Take over the decided state after a root showed a later leader epoch.

        Raises:
            NotLeaderError: This replica does not lead any more.
        """
        state = self._register.read()
        leader = self.leader
        if (state.leader, state.leader_epoch) != (self.node, leader.leader_epoch):
            raise cause
        leader.installed(state, self._clock.now_ms())

    def _change_isr(self, log: Log) -> None:
        """Have the register decide the ISR changes that the leader proposes."""
        leader = self.leader
        leader.check_lag(self._clock.now_ms())
        while (proposal := leader.proposal) is not None:
            before = leader.state.isr
            try:
                state = self._register.change(
                    partial(self._altered, log, proposal), proposal.partition_epoch
                )
            except InvalidUpdateVersionError:  # another process changed it
                state = self._register.read()
            leader.installed(state, self._clock.now_ms())
            self._choose_followers(state)
            _logger.warning(
                "[%s] ISR %s -> %s (partition epoch %d)",
                self._partition,
                list(before),
                list(state.isr),
                state.partition_epoch,
            )
            leader.check_lag(self._clock.now_ms())

    def _altered(self, log: Log, proposal: AlterPartition, state: PartitionState) -> PartitionState:
        min_isr = log.config.min_insync_replicas
        after = alter_partition(state, proposal, min_insync_replicas=min_isr)
        if isinstance(after, Errors):
            raise self._not_leading(log, state)
        return after

    def _commit(self, log: Log) -> None:
        """Raise the high watermark, if most registers still show this leader epoch.

        Raises:
            NotLeaderError: They show another one.
            NoQuorumError: Too few registers can be reached.
        """
        leader = self.leader
        if leader.high_watermark <= log.high_watermark:
            return
        if not self._is_still_shown(leader.state):
            state = self._register.read()
            if state != leader.state:
                if (state.leader, state.leader_epoch) != (self.node, leader.leader_epoch):
                    raise self._not_leading(log, state)
                leader.installed(state, self._clock.now_ms())
            self._note_shown(state)
        log.raise_high_watermark(leader.high_watermark)

    def _is_still_shown(self, state: PartitionState) -> bool:
        """Whether no register has changed since all of them showed this state.

        Cheaper than reading them all again, which each append would do. The leader's lock has been
        held since its register was read, and the lock of the follower that was copied to last
        while each replica in sync had the records. Where these two roots are a majority, their
        registers need no other look; else it takes a `stat` of each.
        """
        shown_state, shown = self._shown
        read = {self.node}
        if len(self._files) <= 3:
            read |= self._copied
        try:
            return state == shown_state and all(
                (file.last_read if node in read else file.read()) is shown[node]
                for node, file in self._files.items()
            )
        except (UnavailableError, CorruptDataError):
            return False

    def _note_shown(self, state: PartitionState) -> None:
        try:
            shown = {node: file.read() for node, file in self._files.items()}
        except (UnavailableError, CorruptDataError):
            return
        if sum(each is not None and each.state == state for each in shown.values()) == len(shown):
            self._shown = state, shown

    # ---- without an append ---------------------------------------------------------------------
    def share_high_watermark(self, log: Log) -> None:
        """Let followers in sync learn the high watermark and the log start, or do so later.

        Makes the copies that were left to a replica fetcher which is gone.
        """
        if self._leader is None or not self._take_copies_back(log):
            return
        leader = self.leader
        for node in leader.isr.committed:
            follower = self._followers.get(node)
            if follower is None or not follower.is_due:
                continue
            if (
                follower.high_watermark < leader.high_watermark
                or follower.log_start_offset < log.log_start_offset
            ):
                error = self._copy_to(follower, log, None, CATCH_UP_BYTES).error
                if error is not None:
                    _logger.info(
                        "[%s] node %d learns the high watermark later: %s",
                        self._partition,
                        node,
                        error,
                    )

    def _take_copies_back(self, log: Log) -> bool:
        """Make the copies that were left to the fetcher if it is gone; False: they are not made."""
        if not self._fetcher.is_behind(log.high_watermark):
            return True
        if self._fetcher.copies(log.high_watermark, looks_again=True):
            return False
        self._fetcher.left(-1)
        try:
            self._settle(log)
        except StreamLogError as failure:
            _logger.warning("[%s] not copied: %s", self._partition, failure)
        return self._leader is not None

    def _share_when_idle(self) -> bool:
        """Share the high watermark of an idle handle; False while it appends."""
        log, (end, at_ms) = self._log, self._left_at
        if log is None:
            return True
        if self._clock.monotonic_ms() - at_ms < IDLE_MS:
            return False
        try:
            with log.locked():
                if log.log_end_offset == end:
                    self.share_high_watermark(log)
                    return not self._fetcher.is_behind(log.high_watermark)
        except StreamLogError as error:
            _logger.info("[%s] the high watermark is not shared: %s", self._partition, error)
        return True

    # ---- for commits ---------------------------------------------------------------------------
    def restrict(self, members: Collection[int]) -> None:
        """Reduce the ISR to nodes among `members`; only within `writing`.

        Raises:
            InvalidUpdateVersionError: Another process changed the state.
            NoQuorumError: Too few registers can be reached.
        """
        leader = self.leader
        isr = tuple(node for node in leader.state.isr if node in members)
        if isr != leader.state.isr:
            state = self._register.change(
                lambda before: before.with_isr(isr), leader.state.partition_epoch
            )
            leader.installed(state, self._clock.now_ms())

    def secure(self, log: Log) -> None:
        """Copy everything to all replicas in sync, and sync it there; only within `writing`.

        A replica that fails leaves the ISR.

        Raises:
            NoQuorumError: The ISR must change, and too few registers can be reached.
        """
        if log.high_watermark < log.log_end_offset:
            self._replicate(log, None, log.log_end_offset, Acks.LEADER, _nothing)
        leader = self.leader
        for node in leader.state.isr:
            if node != self.node:
                try:
                    self._followers[node].sync()
                except StreamLogError as error:
                    _logger.warning("[%s] node %d is offline: %s", self._partition, node, error)
                    self._followers[node].failed()
                    leader.follower_failed(node)
        self._change_isr(log)

    def close(self) -> None:
        """Release the followers' logs."""
        followers, self._followers = self._followers, {}
        for follower in followers.values():
            follower.close()
        self._leader = self._log = None


def _nothing() -> None:
    pass
