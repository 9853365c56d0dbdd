"""A simulated node: a disk, a clock, and the production state machines between messages.

The node decides nothing. It carries messages to `Leader`, `Follower`, `elect`, `alter_partition`
and the rounds of the register, and carries out what they answer.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from streamlog.partition.log_offsets import LogOffsets
from streamlog.records.acks import Acks
from streamlog.replication.completeness import ReplicaPositions
from streamlog.replication.election import (
    ElectionType,
)
from streamlog.replication.follower import Follower, FollowerStep
from streamlog.replication.leader import Leader
from streamlog.replication.messages import (
    Errors,
    Fetch,
    FetchResponse,
    OffsetsForLeaderEpoch,
    OffsetsForLeaderEpochResponse,
)
from streamlog.replication.partition_state import LeaderRecovery, PartitionState
from streamlog.replication.quorum import (
    Accepted,
)
from tests.programs.replication.controller import Controller, unchanged
from tests.programs.replication.disk import NO_EPOCH, Disk, Record, producer_of, sequence_of
from tests.programs.replication.history import Acknowledged

if TYPE_CHECKING:
    from tests.programs.replication.world import World


class Append(NamedTuple):
    """A producer's request.

    Attributes:
        producer: Its number.
        token: Names the request in the answer.
        identities: Ids of the records.
        acks: The acknowledgement asked for.
        is_idempotent: Whether the leader removes duplicates.
    """

    producer: int
    token: int
    identities: tuple[int, ...]
    acks: Acks
    is_idempotent: bool


class _Waiting(NamedTuple):
    append: Append
    required_offset: int
    deadline: int


class Replica(Controller):
    """One node of the world.

    Attributes:
        disk: Survives crashes.
        is_alive: Whether its process runs.
        incarnation: Raised by each start; messages of an earlier one are dropped.
        value: The decided partition state that it follows.
        leader: Its state machine while it leads.
        follower: Its state machine while it follows.
        high_watermark: Of this replica, as its readers see it.
        is_old_copy: Whether the disk was restored from a backup and nothing has noticed so far.
    """

    def __init__(self, node: int, world: "World", disk: Disk) -> None:
        super().__init__(node, world, disk)
        self._settings = world.profile.settings
        self._history = world.history
        self.is_alive = True
        self.is_old_copy = False
        self.end_before_restore = 0
        self.value: Accepted | None = None
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.high_watermark = 0
        self._is_state_lost = False  # the high watermark may be lower than it was
        self._forget()

    def _forget(self) -> None:
        self.value = self.leader = self.follower = None
        self._token = 0
        self._deadline = 0
        self._heard = self.now
        self._forget_rounds()
        self._has_just_started = True
        self._started = self._world.time
        self._has_settled = False
        self._unsettled: PartitionState | None = None
        self._waiting: list[_Waiting] = []
        self._parked: dict[int, int] = {}
        self._ends: list[tuple[int, int]] = []  # as leader: when its log ended where

    # ---- facts -------------------------------------------------------------------------------
    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    @property
    def is_level(self) -> bool:
        """Whether its log has been compared with that of its leader."""
        return self.is_leader or (self.follower is not None and self.follower.is_truncated)

    @property
    def joining(self) -> list[int]:
        """The nodes that it proposes, as leader, to add to the ISR."""
        isr = None if self.leader is None else self.leader.isr
        if isr is None or isr.proposed is None:
            return []
        return sorted(set(isr.proposed) - set(isr.committed))

    @property
    def lag_time(self) -> int:
        return self._settings.replica_lag_time_max_ms

    @property
    def running_time(self) -> int:
        """How long its process runs."""
        return self._world.time - self._started

    def end_a_lag_time_ago(self) -> int:
        """Return its log end as leader at a time that counts as caught up, with some slack.

        Zero if it leads for less: the members of its first ISR then count as caught up.
        """
        since = self.now - 2 * self.lag_time - 20
        return next((end for at, end in reversed(self._ends) if at <= since), 0)

    @property
    def is_suspect(self) -> bool:
        """Whether it may lack what it once held."""
        return self.disk.is_unclean or self.is_old_copy

    @property
    def epoch(self) -> int:
        """The epoch in which it leads or follows, -1 for neither."""
        if self.leader is not None:
            return self.leader.leader_epoch
        return -1 if self.follower is None else self.follower.leader_epoch

    @property
    def positions(self) -> ReplicaPositions:
        """What its files say."""
        disk = self.disk
        offsets = LogOffsets(disk.log_start_offset, self.high_watermark, disk.log_end_offset)
        return ReplicaPositions(self.node, offsets, disk.epochs)

    # ---- life --------------------------------------------------------------------------------
    def start(self, *, is_epoch_file_lost: bool = False, is_state_lost: bool = False) -> None:
        """Start the process on whatever the disk holds."""
        self.is_alive = True
        self.incarnation += 1
        disk = self.disk
        disk.load(is_epoch_file_lost=is_epoch_file_lost)
        found = disk.high_watermark_file if is_state_lost else self.high_watermark
        self.high_watermark = min(max(found, disk.log_start_offset), disk.log_end_offset)
        self._forget()
        self._is_state_lost |= is_state_lost
        self._world.after(1, self.tick, self.incarnation)

    def stop(self) -> None:
        """Stop at once; what the process knew is gone."""
        self.is_alive = False
        self.incarnation += 1
        self._history.happened["crashes"] += 1
        self._forget()

    def tick(self, incarnation: int) -> None:
        """Do what is due."""
        if incarnation != self.incarnation or not self.is_alive:
            return
        world = self._world
        world.after(world.profile.tick + world.pick(4), self.tick, incarnation)
        if self.leader is not None:
            if self._world.believes_own_register:
                self._believe_own_register(self.leader)
            self.leader.check_lag(self.now)
            self._after_leader()
        if self._round is None:
            self._mind_the_register()
        if self.follower is not None:
            self.ask()

    def _mind_the_register(self) -> None:
        if self.now < self._quiet_until:
            return
        if self.disk.acceptor is None:
            self._reinitialise()
        elif self._unsettled is not None:
            self._decide(unchanged, self._settled)
        elif self.disk.is_unclean:
            self._rejoin()
        elif self.value is not None and self.value.state is None and self._world.pick(2):
            self._create_topic()
        elif self._is_stale or self._is_outdated():
            self.learn()
        elif self.leader is not None and self.leader.proposal is not None:
            self._propose(self.leader.proposal)
        elif self.leader is None and self._suspects() and self._world.pick(4) == 0:
            self.hold_election(ElectionType.ONLINE)
        elif self._world.pick(8) == 0:
            self.learn()

    def _believe_own_register(self, leader: Leader) -> None:
        accepted = self.accepted
        state = None if accepted is None else accepted.state
        if state is None or state.topic_id != self.topic_id:
            return
        if state.leader_epoch == leader.leader_epoch:
            leader.installed(state, self.now)

    def _suspects(self) -> bool:
        """Whether there is no leader, or it has not answered for long."""
        state = None if self.value is None else self.value.state
        if state is None or (self._world.is_closed and state.has_leader):
            return False
        if self.node not in state.replicas:  # it does not ask the leader
            there = self._world.reachable_from(self)
            leads = (each.leader is not None and each.epoch >= state.leader_epoch for each in there)
            return self._world.pick(8) == 0 and not any(leads)
        return self.follower is None or self.now - self._heard > self._world.profile.suspicion

    # ---- roles -------------------------------------------------------------------------------
    def adopt(self, value: Accepted) -> None:
        """Take over a decided partition state, unless a later one is known."""
        state = value.state
        self._history.on_decided(value)
        if self.value is not None and not self._is_news(self.value, value):
            return
        if self.disk.acceptor is None:
            return
        self._install(value)
        self._is_stale = False
        self.value = value
        if state is None or state.topic_id != self.disk.topic_id:
            self._change_topic(state)
        if state is None:
            return
        if self.node not in state.replicas:
            self.resign()
            if self.disk.topic_id is not None:
                self._leave()
        elif self.leader is not None and self.epoch == state.leader_epoch:
            self.leader.installed(state, self.now)
            self._after_leader()
        elif self.follower is None or self.epoch != state.leader_epoch:
            self._become(state)
            self._has_just_started &= self.epoch < 0

    def resign(self) -> None:
        self.leader = self.follower = None
        self._waiting.clear()

    def _is_news(self, known: Accepted, value: Accepted) -> bool:
        """Whether a decided value comes after the one known, and asks for another role."""
        before, state = known.state, value.state
        if before is None or state is None or before.topic_id != state.topic_id:
            return value.ballot > known.ballot and state != before
        if state.partition_epoch < before.partition_epoch:
            return False
        if state.partition_epoch == before.partition_epoch and self.epoch == state.leader_epoch:
            self._is_stale = False
            return False
        return True

    def _change_topic(self, state: PartitionState | None) -> None:
        """Set the directory of another topic aside, and make one if this node is a replica."""
        self.resign()
        is_replica = state is not None and self.node in state.replicas
        topic_id = state.topic_id if state is not None and is_replica else None
        if self.disk.topic_id is None and state is not None:
            self.disk.topic_id = topic_id  # a new replica, or a replaced disk
        elif is_replica or state is None:
            self._world.note(self.node, "sets its log aside: another topic")
            self.disk.set_aside(topic_id)
            self.is_old_copy = False
            self.high_watermark = 0

    def _become(self, state: PartitionState) -> None:
        self.resign()
        self._parked.clear()
        self._token = self._deadline = 0
        if state.leader == self.node:
            self._lead(state)
        elif state.has_leader and not self.disk.is_unclean:
            self._heard = self.now
            self._is_state_lost = False  # the next time that it leads is in another epoch
            self.follower = Follower(
                self.node, state, self.disk, self._settings, high_watermark=self.high_watermark
            )
            self._world.note(self.node, "follows", state.leader, "in epoch", state.leader_epoch)

    def _lead(self, state: PartitionState) -> None:
        if state.recovery is LeaderRecovery.RECOVERING:
            self.disk.is_unclean = self.is_old_copy = False
        if self.disk.is_unclean:
            return
        if self.accepted is None or self.accepted.state != state:
            if self._round is None:
                self._decide(unchanged, self._settled)  # so that its own file has the state
            return
        if not self._is_complete(state):
            return
        if self._has_just_started and not self._may_lead_again(state):
            return
        self._is_state_lost = False
        self.leader = Leader(
            self.node,
            state,
            self.disk,
            self._settings,
            high_watermark=self.high_watermark,
            now_ms=self.now,
        )
        self.disk.epoch_file = self.disk.epochs.entries
        self._ends = [(self.now, self.disk.log_end_offset)]
        self._world.note(self.node, "leads in epoch", state.leader_epoch, "ISR", state.isr)
        self._history.on_leader(self, state)
        self._after_leader()

    def _is_complete(self, state: PartitionState) -> bool:
        """Whether no other replica proves that it lost records; checked before each epoch."""
        world = self._world
        online = [each.node for each in world.reachable_from(self)]
        is_clean = state.recovery is LeaderRecovery.RECOVERED
        if is_clean and not world.completeness(online, state)(self.node):
            world.note(self.node, "has lost records")
            self.disk.is_unclean = True
            return False
        return True

    def _may_lead_again(self, state: PartitionState) -> bool:
        """Whether a leader that has just started may go on in its epoch."""
        world = self._world
        if not self._has_settled and not world.resumes_without_settling:
            if self._round is None:
                self._decide(unchanged, self._settled)
            return False
        if self._is_state_lost and not world.resumes_with_stale_high_watermark:
            if self._round is None:
                self._raise_epoch(state)
            return False
        return True

    def _raise_high_watermark(self, to: int) -> None:
        before, self.high_watermark = self.high_watermark, to
        if to != before:
            self._world.note(self.node, "HW", to)
            self._history.on_high_watermark(self, self.epoch, before, to)

    # ---- as leader ---------------------------------------------------------------------------
    def on_append(self, append: Append) -> None:
        """Append what a producer sent, as the leader of its own register's epoch."""
        self._check_fence()
        leader = self.leader
        if leader is None:
            self._world.answer(append, Errors.NOT_LEADER_OR_FOLLOWER)
            return
        error = leader.admit(append.acks)
        if error is not Errors.NONE:
            self._world.answer(append, error)
            return
        identities = append.identities
        required = -1
        if append.is_idempotent:
            last, at = self.disk.producers.get(producer_of(identities[0]), (-1, -1))
            if sequence_of(identities[0]) > last + 1:
                self._world.answer(append, Errors.INVALID_REQUEST)
                return
            identities = tuple(each for each in identities if sequence_of(each) > last)
            required = at + 1
        if identities:
            self._append(leader, identities)
            if not self.is_alive:
                return
            required = self.disk.log_end_offset
        self._wait_for(append, required)
        self._after_leader()

    def append_in_old_format(self, identities: tuple[int, ...]) -> None:
        """Append records without a leader epoch."""
        self._check_fence()
        if self.leader is not None:
            self._append(self.leader, identities, epoch=NO_EPOCH)
            self._after_leader()

    def _append(
        self, leader: Leader, identities: tuple[int, ...], *, epoch: int | None = None
    ) -> None:
        disk = self.disk
        records = [(leader.leader_epoch if epoch is None else epoch, each) for each in identities]
        self._history.on_append(self, leader.leader_epoch, records)
        self._world.note(self.node, "appends", identities, "at", disk.log_end_offset)
        disk.append(records)
        if self._world.crashes_here(self):
            return
        if self._world.profile.syncs:
            disk.sync()
        self._ends.append((self.now, disk.log_end_offset))
        leader.appended(self.now)

    def _wait_for(self, append: Append, required: int) -> None:
        if append.acks is Acks.ALL:
            deadline = self.now + self._world.profile.patience
            self._waiting.append(_Waiting(append, required, deadline))
        else:
            self._acknowledge(append, required)

    def _acknowledge(self, append: Append, required: int) -> None:
        offset = required - len(append.identities)
        fact = Acknowledged(offset, append.identities, append.acks, self.epoch)
        self._history.on_acknowledged(fact, self.topic_id)
        self._world.note(self.node, "acknowledges", append.identities, append.acks.name)
        self._world.answer(append, Errors.NONE)

    def _after_leader(self) -> None:
        """Carry out what an event at the leader has made possible."""
        leader = self.leader
        if leader is None:
            return
        self._raise_high_watermark(leader.high_watermark)
        for released in leader.released(self.now):
            token = self._parked.pop(released.replica, 0)
            self._reply(released.replica, token, released.response)
        if self._waiting:
            self._decide_waiting(leader)

    def _decide_waiting(self, leader: Leader) -> None:
        left = []
        for each in self._waiting:
            outcome = leader.outcome(each.required_offset, each.append.acks)
            if outcome is None or (outcome is Errors.NONE and not self._holds_majority()):
                if self.now < each.deadline:
                    left.append(each)
            elif outcome is Errors.NONE:
                self._acknowledge(each.append, each.required_offset)
            else:
                self._world.answer(each.append, outcome)
        self._waiting = left

    def _holds_majority(self) -> bool:
        """Return whether a majority of the registers still has this leader's epoch."""
        world = self._world
        if world.fences_only_at_open:
            return True
        epoch = self.epoch
        holders = [
            each.voter
            for each in world.reachable_from(self)
            if each.known_leader_epoch == epoch and each.has_topic(self.topic_id)
        ]
        return self.value is not None and self.value.is_held_by(holders)

    def on_fetch(self, source: int, token: int, topic_id: str, request: Fetch) -> None:
        self._check_fence()
        leader = self.leader
        if leader is None or topic_id != self.topic_id:
            self._world.send(self.node, source, "on_no_leader", token)
            return
        was_in_flight = leader.isr.is_in_flight
        response = leader.fetch(request, self.now)
        if leader.isr.proposed is not None and not was_in_flight:
            self._history.on_proposal(self, leader.state, leader.isr.proposed)
        if response is None:
            self._parked[source] = token
        else:
            self._reply(source, token, response)
        self._after_leader()

    def _reply(self, follower: int, token: int, response: FetchResponse) -> None:
        records: list[Record] = []
        if response.error is Errors.NONE and response.diverging_epoch is None:
            start = response.fetch_offset
            limit = self._world.profile.fetch_limit
            if response.end_offset > start + limit:
                response = replace(response, end_offset=start + limit)
            records = self.disk.records_from(start, response.end_offset)
        self._world.send(self.node, follower, "on_fetched", token, response, records)

    def on_epoch_question(
        self, source: int, token: int, topic_id: str, request: OffsetsForLeaderEpoch
    ) -> None:
        self._check_fence()
        if self.leader is None or topic_id != self.topic_id:
            self._world.send(self.node, source, "on_no_leader", token)
        else:
            answer = self.leader.offsets_for_leader_epoch(request)
            self._world.send(self.node, source, "on_epoch_answer", token, answer)

    # ---- as follower -------------------------------------------------------------------------
    def ask(self) -> None:
        """Send the next request, unless the last one may still be answered."""
        follower, world = self.follower, self._world
        if follower is None or (self._token and self.now < self._deadline):
            return
        request = follower.request()
        action = "on_fetch" if isinstance(request, Fetch) else "on_epoch_question"
        self._token = world.count()
        self._deadline = self.now + world.profile.timeout + world.profile.fetch_wait
        topic_id = self.topic_id
        world.send(self.node, follower.leader, action, self.node, self._token, topic_id, request)

    def _ask_again(self, incarnation: int) -> None:
        if incarnation == self.incarnation:
            self.ask()

    def _is_awaited(self, token: int) -> bool:
        self._check_fence()
        if token != self._token or self.follower is None:
            return False
        self._token = 0
        return True

    def on_no_leader(self, token: int) -> None:
        if self._is_awaited(token):
            self._is_stale = True

    def on_fetched(self, token: int, response: FetchResponse, records: list[Record]) -> None:
        if self._is_awaited(token) and self.follower is not None:
            self._carry_out(self.follower.fetched(response), records)

    def on_epoch_answer(self, token: int, answer: OffsetsForLeaderEpochResponse) -> None:
        if self._is_awaited(token) and self.follower is not None:
            self._carry_out(self.follower.epoch_answered(answer), [])

    def _carry_out(self, step: FollowerStep, records: list[Record]) -> None:
        """Change the log as the follower's state machine says, in the order of its fields."""
        world, disk = self._world, self.disk
        if step.error is not Errors.NONE:
            self._is_stale = True
        else:
            self._heard = self.now
        if step.restart_at is not None:
            world.note(self.node, "restarts at", step.restart_at)
            self._history.on_truncate(self, step.restart_at, self.high_watermark)
            disk.restart_at(step.restart_at)
        if step.truncate_to is not None:
            self._truncate(step.truncate_to)
        if world.crashes_here(self):
            return
        if step.append_to is not None:
            self._history.on_append(self, self.epoch, records)
            disk.append(records)
            world.note(self.node, "has up to", disk.log_end_offset)
            if world.profile.syncs:
                disk.sync()
            if world.crashes_here(self):
                return
        if step.log_start_offset is not None:  # in one step with the high watermark
            disk.raise_log_start(min(step.log_start_offset, step.high_watermark))
        self._raise_high_watermark(step.high_watermark)
        self._history.check_bounds(self)
        if self.is_old_copy and disk.log_end_offset >= self.end_before_restore:
            self.is_old_copy = not self._history.holds_committed(self)
        world.after(1 + world.pick(2), self._ask_again, self.incarnation)

    def _truncate(self, to: int) -> None:
        if to < self.disk.log_end_offset:
            self._world.note(self.node, "truncates to", to)
            self._history.happened["truncations"] += 1
        self._history.on_truncate(self, to, self.high_watermark)
        self.disk.truncate(to)
        self.high_watermark = min(self.high_watermark, self.disk.log_end_offset)
