"""A simulated node's changes of the partition state: elections, reassignments, topics.

The decisions are those of `streamlog.replication`; each is one round of the register, over the
network, and compares the state that it finds with the one it expects.
"""

from abc import abstractmethod
from dataclasses import replace

from streamlog.replication.election import (
    ElectionType,
    alter_partition,
    elect,
    unclean_shutdown,
)
from streamlog.replication.follower import Follower
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.leader import Leader
from streamlog.replication.messages import AlterPartition, Errors
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.quorum import (
    Accept,
    Accepted,
    Acceptor,
    Chosen,
    Inconclusive,
    Prepare,
    Promise,
    Voter,
    accept,
    latest,
)
from streamlog.replication.reassignment import begin_reassignment, complete_reassignment
from tests.programs.replication.disk import Disk
from tests.programs.replication.register_node import OutdatedError, RegisterNode


def unchanged(value: Accepted) -> Accepted:
    return value


class Controller(RegisterNode):
    """A node that reads and changes the partition state.

    Attributes:
        value: The decided partition state that it follows.
        leader: Its state machine while it leads.
        follower: Its state machine while it follows.
        high_watermark: Of this replica, as its readers see it.
        is_old_copy: Whether the disk was restored from a backup and nothing has noticed so far.
    """

    value: Accepted | None
    leader: Leader | None
    follower: Follower | None
    high_watermark: int
    is_old_copy: bool
    _settings: ReplicationSettings
    _has_settled: bool
    _unsettled: PartitionState | None
    _is_state_lost: bool

    @abstractmethod
    def adopt(self, value: Accepted) -> None:
        """Take over a decided partition state, unless a later one is known."""

    @abstractmethod
    def resign(self) -> None:
        """Lead and follow no longer."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The epoch in which it leads or follows, -1 for neither."""

    # ---- facts -------------------------------------------------------------------------------
    @property
    def topic_id(self) -> str | None:
        """The id of the topic that it leads or follows, None for neither."""
        state = None if self.value is None else self.value.state
        return None if state is None else state.topic_id

    @property
    def voter(self) -> Voter:
        """Its register file."""
        acceptor = self.disk.acceptor
        return Voter(self.node, -1 if acceptor is None else acceptor.incarnation)

    @property
    def known_leader_epoch(self) -> int:
        """The leader epoch in its register file."""
        found = self.accepted
        return -1 if found is None or found.state is None else found.state.leader_epoch

    def _has_moved_on(self, topic_id: str | None, leader_epoch: int) -> bool:
        """Whether the register file has another topic or a later leader epoch."""
        found = self.accepted
        state = None if found is None else found.state
        if state is None:
            return found is not None and not self._world.ignores_topic_ids
        if state.topic_id != topic_id and not self._world.ignores_topic_ids:
            return True
        return state.leader_epoch > leader_epoch

    def has_topic(self, topic_id: str | None) -> bool:
        """Whether its register file has the topic."""
        found = self.accepted
        state = None if found is None else found.state
        return self._world.ignores_topic_ids or (state is not None and state.topic_id == topic_id)

    def _is_outdated(self) -> bool:
        """Whether the register file knows a later epoch than the one it lives in."""
        state = None if self.value is None else self.value.state
        return state is None or self._has_moved_on(state.topic_id, state.leader_epoch)

    # ---- the register ------------------------------------------------------------------------
    def on_register(self, source: int, token: int, request: Prepare | Accept) -> None:
        answer = self.answer(request)
        if self._world.crashes_here(self):
            return
        if isinstance(request, Accept) and isinstance(answer, Promise):
            self._check_fence()
            self._world.may_interrupt(source, self.node, request.value)
        self._world.send(self.node, source, "on_register_answer", token, answer)

    def _check_fence(self) -> None:
        """Lead and follow no longer in an epoch that the register file has left behind."""
        if self.leader is None and self.follower is None:
            return
        if self._world.fences_only_at_open:
            return
        if self._has_moved_on(self.topic_id, self.epoch):
            self.resign()
            self._is_stale = True

    def learn(self) -> None:
        """Read the registers that can be reached; settle them if no majority agrees."""
        there = self._world.reachable_from(self)
        value = latest(each.accepted for each in there)
        if value is None:
            return
        holders = [each.voter for each in there if each.accepted == value]
        if value.is_held_by(holders):
            self.adopt(value)
            if value.state is None or not self._is_outdated():
                return
        if self._round is None:
            self._decide(unchanged, self._settled)

    def _settled(self, outcome: Chosen | Inconclusive) -> None:
        """Adopt a settled value; a proposal of this leader that is not in it is dead."""
        if not isinstance(outcome, Chosen):
            return
        self._has_settled = True
        proposed, self._unsettled = self._unsettled, None
        self._adopt_own(outcome)
        state, leader = outcome.value.state, self.leader
        if leader is None or proposed is None or state is None or state == proposed:
            return
        if state.partition_epoch == leader.state.partition_epoch:
            leader.refused()

    def _adopt_own(self, outcome: Chosen | Inconclusive) -> None:
        """Adopt what a round of this node decided, and spread it."""
        if isinstance(outcome, Chosen):
            self.adopt(outcome.value)
            for node in self._world.nodes:
                if node != self.node:
                    self._world.send(self.node, node, "adopt", outcome.value)
        elif outcome.value is not None:
            self._unsettled = outcome.value.state

    def _reinitialise(self) -> None:
        """Get a new register file, from a majority without this node."""
        fresh = Voter(self.node, self._world.count())

        def change(before: Accepted) -> Accepted:
            voters = (fresh if each.node == self.node else each for each in before.voters)
            return replace(before, voters=tuple(voters))

        def ended(outcome: Chosen | Inconclusive) -> None:
            if isinstance(outcome, Chosen) and self.disk.acceptor is None:
                value = outcome.value
                self.disk.acceptor = Acceptor(value.ballot, fresh.incarnation, value)
            self._adopt_own(outcome)

        self._decide(change, ended, without_self=True)

    def _install(self, value: Accepted) -> None:
        self.disk.acceptor, _ = accept(self.disk.acceptor, value)

    def _rejoin(self) -> None:
        """Leave ISR and ELR after an unclean shutdown, before anything else."""
        min_isr = self._settings.min_insync_replicas

        def change(before: Accepted) -> Accepted:
            if before.state is None:
                return before
            nodes = (self.node,)
            after = unclean_shutdown(before.state, nodes, min_insync_replicas=min_isr)
            return replace(before, state=after)

        def ended(outcome: Chosen | Inconclusive) -> None:
            if isinstance(outcome, Chosen) and outcome.value.state is not None:
                state = outcome.value.state
                if self.node not in (*state.isr, *state.elr):
                    self.disk.is_unclean = self.is_old_copy = False
                    self.value = None  # so that it takes up a role
            self._adopt_own(outcome)

        self._decide(change, ended)

    def hold_election(self, kind: ElectionType, *, without: int = -1) -> None:
        """Elect a leader from the nodes that can be reached.

        Args:
            kind: How far it may go.
            without: A node that is wrongly taken for dead.
        """
        world, value = self._world, self.value
        if self._round is not None or value is None or value.state is None:
            return
        online = [each.node for each in world.reachable_from(self) if each.node != without]
        complete = world.completeness(online, value.state)
        expected = value.state
        if world.profile.may_elect_uncleanly and world.pick(3) == 0:
            kind = ElectionType.UNCLEAN

        def change(before: Accepted) -> Accepted:
            state = self._expected(before, expected)
            election = elect(
                state,
                kind,
                online=online,
                min_insync_replicas=self._settings.min_insync_replicas,
                complete=complete,
            )
            return replace(before, state=election.state)

        world.note(self.node, "elects", kind.value, online)
        self._decide(change, self._adopt_own, elects=True)

    def raise_epoch(self) -> None:
        """Lead in a new epoch, as after a truncated tail."""
        if self._round is None and self.leader is not None:
            self._raise_epoch(self.leader.state)

    def _raise_epoch(self, state: PartitionState) -> None:
        def change(before: Accepted) -> Accepted:
            if before.state != state:
                raise OutdatedError
            return replace(before, state=state.with_leader(self.node))

        def ended(outcome: Chosen | Inconclusive) -> None:
            if isinstance(outcome, Chosen):
                self._is_state_lost = False
            self._adopt_own(outcome)

        self._world.note(self.node, "raises its epoch")
        self._decide(change, ended, elects=True)

    def _propose(self, request: AlterPartition) -> None:
        """Write the leader's ISR change to the register."""
        min_isr = self._settings.min_insync_replicas
        leader = self.leader
        assert leader is not None
        expected = leader.state

        def change(before: Accepted) -> Accepted:
            state = self._expected(before, expected)
            after = alter_partition(state, request, min_insync_replicas=min_isr)
            if isinstance(after, Errors):
                raise OutdatedError
            return replace(before, state=after)

        self._world.note(self.node, "proposes ISR", request.isr)
        self._decide(change, self._adopt_own)

    def _expected(self, before: Accepted, expected: PartitionState) -> PartitionState:
        """Return the state in the register if it is the one that a round wants to change."""
        state = before.state
        if state is None or state.partition_epoch != expected.partition_epoch:
            raise OutdatedError
        if state.topic_id != expected.topic_id and not self._world.ignores_topic_ids:
            raise OutdatedError
        return state

    # ---- administration ----------------------------------------------------------------------
    def reassign(self, target: tuple[int, ...]) -> None:
        """Begin to move the partition to other nodes."""
        expected = None if self.value is None else self.value.state
        if self._round is not None or expected is None:
            return
        min_isr = self._settings.min_insync_replicas

        def change(before: Accepted) -> Accepted:
            begun = begin_reassignment(self._expected(before, expected), target)
            return replace(before, state=complete_reassignment(begun, min_insync_replicas=min_isr))

        self._world.note(self.node, "reassigns to", target)
        self._decide(change, self._adopt_own, elects=True)

    def delete_topic(self) -> None:
        """Decide that the topic is gone."""
        if self._round is None:
            self._world.note(self.node, "deletes the topic")
            self._decide(lambda before: replace(before, state=None), self._adopt_own, elects=True)

    def _create_topic(self) -> None:
        """Create the topic again, with another id, on nodes that can be reached."""
        world = self._world
        there = [each.node for each in world.reachable_from(self)]
        chosen = tuple(world.random.sample(there, min(len(there), world.profile.replicas)))
        created = PartitionState.created(world.new_topic_id(), chosen)

        def change(before: Accepted) -> Accepted:
            if before.state is not None:
                raise OutdatedError
            return replace(before, state=created)

        world.note(self.node, "creates topic", created.topic_id, "on", chosen)
        self._decide(change, self._adopt_own, elects=True)

    def _leave(self) -> None:
        """Set the directory of a former replica aside, a while after it became one."""
        delay = 1 + self._world.pick(150)
        self._world.after(delay, self._set_former_aside, self.incarnation, self.disk)

    def _set_former_aside(self, incarnation: int, disk: Disk) -> None:
        if incarnation != self.incarnation or disk is not self.disk or disk.topic_id is None:
            return
        if self._is_replica_now() and not self._world.drops_without_reading:
            return
        self._world.note(self.node, "sets its log aside")
        disk.set_aside(None)
        self.high_watermark = 0
        self.resign()

    def _is_replica_now(self) -> bool:
        """Whether it is a replica by the registers, or may be, read under its partition lock."""
        there = self._world.reachable_from(self)
        value = latest(each.accepted for each in there)
        if value is None or not value.is_held_by(
            [each.voter for each in there if each.accepted == value]
        ):
            return True
        return value.state is not None and self.node in value.state.replicas
