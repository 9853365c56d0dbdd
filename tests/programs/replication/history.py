"""What happened so far, and the invariants: each is checked when the event comes that may break it.

`committed` is the one true log: a record enters it when a leader first raises its high watermark
above it. An unclean election cuts it, and the cut is kept in `losses`. A topic that is created
again begins with nothing: only replicas with its id count from then on.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.records.acks import Acks
from streamlog.replication.partition_state import LeaderRecovery, PartitionState
from streamlog.replication.quorum import Accepted, Ballot
from tests.programs.replication.disk import (
    ABORT,
    COMMIT,
    Record,
    kind_of,
    producer_of,
)

if TYPE_CHECKING:
    from tests.programs.replication.replica import Replica

INVARIANTS: Final = {
    "hw-monotone": "I11: the high watermark of a replica or an observer does not go back",
    "hw-bound": "I12: log start ≤ HW ≤ log end; no reader sees more",
    "committed-survives": "I13: every later leader's log holds the committed records",
    "prefix-agree": "I14: logs agree below their high watermarks",
    "epoch-monotone": "I15: epochs do not fall; the cache has the first offset of each",
    "one-leader": "I15: an epoch has one leader, a partition epoch one state",
    "fence": "I16: no acknowledgement and no append of an epoch after a later election",
    "acknowledged-survives": "acks=all, min.insync.replicas ≥ 2: in the log at the end",
    "losses-logged": "what else is lost was not acks=all, or an unclean election gave it up",
    "offsets-unique": "I5: an offset has one record, a record one offset",
    "no-phantom": "I3: every record in a log was sent, and not refused",
    "joins-caught-up": "the ISR grows below its minimum only by a replica that had caught up",
    "candidates-complete": "KIP-966 LeaderCandidateCompleteness: ISR and ELR hold all committed",
    "truncation-above-hw": "a follower does not truncate below its high watermark",
    "reassigned-in-sync": "a reassignment ends with all added replicas and min.insync.replicas in "
    "sync; a partition's leader, ISR and ELR are among its replicas",
    "one-topic": "no state, acknowledgement or record of a deleted topic in the one after it",
    "transactions": "read_committed sees the records of committed transactions only",
    "live": "I30: after the faults, an append and a read succeed, and the replicas converge",
}


class ViolationError(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


class Loss(NamedTuple):
    """The committed records that an unclean election gave up."""

    leader_epoch: int
    start: int
    end: int
    records: tuple[Record, ...]


class Acknowledged(NamedTuple):
    """An append that was acknowledged."""

    offset: int
    identities: tuple[int, ...]
    acks: Acks
    leader_epoch: int


class History:
    """The facts of one run, and the checks on them.

    Args:
        replicas: The replicas of the world.
        min_isr: `min.insync.replicas`.
        may_lose: Whether faults may exceed what the protocol survives.
    """

    def __init__(self, replicas: "list[Replica]", *, min_isr: int, may_lose: bool) -> None:
        self._replicas = replicas
        self._min_isr = min_isr
        self.may_lose = may_lose
        self.sent: set[int] = set()
        self.refused: set[int] = set()
        self.losses: list[Loss] = []
        self.happened: Counter[str] = Counter()
        self._latest = Ballot()  # of the decided values
        self._deleted: set[str] = set()  # topic ids
        self._begin(None)

    def _begin(self, topic_id: str | None) -> None:
        """Begin with a topic without records; None after a deletion."""
        self.topic_id = topic_id
        self.committed: list[Record] = []
        self._offsets: dict[int, int] = {}  # of committed records, by id
        self._appended: set[int] = set()  # by a leader of this topic
        self.acknowledged: list[Acknowledged] = []
        self.decided: PartitionState | None = None
        self._states: dict[int, PartitionState] = {}
        self._leaders: dict[int, int] = {}
        self.leader_epoch = -1  # the latest with a leader at work
        self.unclean_epoch = -1  # the latest that began with an unclean election
        for each in self._replicas:
            each.disk.matched = 0

    # ---- the register ------------------------------------------------------------------------
    def on_decided(self, value: Accepted) -> None:
        """Check a value that a majority has accepted."""
        state = value.state
        topic_id = None if state is None else state.topic_id
        if topic_id != self.topic_id:
            if value.ballot <= self._latest and self._latest != Ballot():
                return  # late news of a deletion, or of the topic before it
            if topic_id in self._deleted:
                raise ViolationError("one-topic", f"decided after the deletion: {state}")
            if self.topic_id is not None:
                self._deleted.add(self.topic_id)
                self.happened["topics deleted"] += 1
            self._begin(topic_id)
        self._latest = max(self._latest, value.ballot)
        if state is not None:
            self._on_state(state)

    def _on_state(self, state: PartitionState) -> None:
        known = self._states.setdefault(state.partition_epoch, state)
        if known != state:
            raise ViolationError("one-leader", f"two decided states: {known} and {state}")
        if state.has_leader and self._leaders.setdefault(state.leader_epoch, state.leader) != (
            state.leader
        ):
            raise ViolationError("one-leader", f"epoch {state.leader_epoch} has two leaders")
        before = self.decided
        if before is not None and state.partition_epoch <= before.partition_epoch:
            return
        self.decided = state
        if before is not None:
            if state.leader_epoch < before.leader_epoch:
                raise ViolationError("one-leader", f"leader epoch fell to {state.leader_epoch}")
            self.happened["ISR changes"] += before.isr != state.isr
            is_election = before.leader_epoch != state.leader_epoch
            is_unclean = is_election and state.recovery is LeaderRecovery.RECOVERING
            self.happened["elections"] += is_election
            self.happened["unclean elections"] += is_unclean
            is_done = state.replicas != before.replicas and not (state.adding or state.removing)
            self.happened["reassignments"] += is_done
        self._check_replicas(before, state)
        self.check_candidates()

    def _check_replicas(self, before: PartitionState | None, state: PartitionState) -> None:
        """Check the assignment of a decided state, which may end a reassignment."""
        replicas = set(state.replicas)
        named = {*state.isr, *state.elr, *state.adding, *state.removing}
        if state.has_leader:
            named.add(state.leader)
        if not named <= replicas or len(replicas) < len(state.replicas):
            raise ViolationError("reassigned-in-sync", f"nodes beside the replicas: {state}")
        if before is None or replicas >= set(before.replicas):
            return
        if state.partition_epoch > before.partition_epoch + 1:
            return  # the ISR may have changed since the reassignment ended
        min_isr = min(self._min_isr, len(replicas))
        added = replicas - {*before.replicas} | replicas & {*before.adding}
        if not added <= {*state.isr} or len(state.isr) < min_isr:
            raise ViolationError(
                "reassigned-in-sync", f"a reassignment ended too early: {before}, {state}"
            )

    def check_candidates(self) -> None:
        """Check that every member of ISR and ELR holds the committed records."""
        state = self.decided
        if state is None or state.recovery is LeaderRecovery.RECOVERING:
            return
        if self.unclean_epoch > state.leader_epoch or self.may_lose:
            return
        for node in (*state.isr, *state.elr):
            replica = self._replicas[node]
            if not replica.is_suspect and not self.holds_committed(replica):
                raise ViolationError(
                    "candidates-complete",
                    f"node {node} of ISR {state.isr}, ELR {state.elr} holds "
                    f"{replica.disk.matched} of {len(self.committed)} committed records",
                )

    def holds_committed(self, replica: "Replica") -> bool:
        """Return whether a replica's log begins with the committed records."""
        disk, committed = replica.disk, self.committed
        if disk.topic_id != self.topic_id:
            return not committed
        at, end = disk.matched, min(disk.log_end_offset, len(committed))
        start, records = disk.log_start_offset, disk.records
        at = max(at, start)
        while at < end and records[at - start] == committed[at]:
            at += 1
        disk.matched = at
        return at >= len(committed)

    # ---- leaders and high watermarks ---------------------------------------------------------
    def on_leader(self, replica: "Replica", state: PartitionState) -> None:
        """Check the log of a new leader against the committed records."""
        epoch = state.leader_epoch
        if state.topic_id != self.topic_id:
            return
        if self._leaders.setdefault(epoch, replica.node) != replica.node:
            raise ViolationError("one-leader", f"epoch {epoch} has two leaders")
        if epoch <= self.leader_epoch:
            return  # a restart within the epoch, or a zombie that nobody follows any more
        self.leader_epoch = epoch
        if self.holds_committed(replica):
            if state.recovery is LeaderRecovery.RECOVERING:
                self.unclean_epoch = epoch
            return
        kept = replica.disk.matched
        if state.recovery is not LeaderRecovery.RECOVERING and not self.may_lose:
            raise ViolationError(
                "committed-survives",
                f"leader {replica.node} of epoch {epoch} holds {kept} of "
                f"{len(self.committed)} committed records",
            )
        self.unclean_epoch = epoch
        lost = tuple(self.committed[kept:])
        self.losses.append(Loss(epoch, kept, len(self.committed), lost))
        del self.committed[kept:]
        for _, identity in lost:
            del self._offsets[identity]
        for each in self._replicas:
            each.disk.matched = min(each.disk.matched, kept)

    def on_high_watermark(self, replica: "Replica", epoch: int, before: int, after: int) -> None:
        """Check a high watermark that a replica has raised, as leader or as follower."""
        disk = replica.disk
        self.check_bounds(replica)
        if after < before:
            raise ViolationError(
                "hw-monotone", f"node {replica.node}: HW fell from {before} to {after}"
            )
        if replica.topic_id != self.topic_id:
            return  # a zombie of a deleted topic
        if epoch < self.unclean_epoch:
            return  # it still follows a history that was given up
        if replica.is_leader:
            self._extend(replica, epoch, after)
        elif after > len(self.committed):
            raise ViolationError(
                "prefix-agree", f"node {replica.node}: HW {after} above any leader's"
            )
        self.holds_committed(replica)
        if disk.matched < after:
            raise ViolationError(
                "prefix-agree",
                f"node {replica.node}: offset {disk.matched} below its HW {after} is "
                f"{disk.record_at(disk.matched)}, committed was {self.committed[disk.matched]}",
            )

    def check_bounds(self, replica: "Replica") -> None:
        """Check that a high watermark lies within the log."""
        disk, found = replica.disk, replica.high_watermark
        if not disk.log_start_offset <= found <= disk.log_end_offset:
            raise ViolationError(
                "hw-bound",
                f"node {replica.node}: HW {found} outside log start {disk.log_start_offset} to "
                f"log end {disk.log_end_offset}",
            )

    def _extend(self, replica: "Replica", epoch: int, after: int) -> None:
        """Take a leader's records below its high watermark as committed."""
        committed = self.committed
        if after <= len(committed):
            return
        if replica.disk.log_start_offset > len(committed):
            raise ViolationError("hw-bound", f"node {replica.node}: log start above HW")
        first = len(committed)
        for record in replica.disk.records_from(first, after):
            identity = record[1]
            # A follower that started again at the leader's log start does not know the producers of
            # the deleted records below it, as in Kafka.
            if self._offsets.get(identity, -1) >= replica.disk.log_start_offset:
                raise ViolationError(
                    "offsets-unique",
                    f"record {identity} at offsets {self._offsets[identity]} and {len(committed)}",
                )
            if identity not in self.sent:
                raise ViolationError("no-phantom", f"record {identity} was never sent")
            if identity not in self._appended:
                raise ViolationError("one-topic", f"no leader of the topic appended {identity}")
            if identity in self.refused:
                raise ViolationError("no-phantom", f"record {identity} was refused")
            self._offsets[identity] = len(committed)
            committed.append(record)
        if epoch < self.leader_epoch:
            self._check_zombie(epoch, first)
        self.check_candidates()

    def _check_zombie(self, epoch: int, first: int) -> None:
        """Check that a deposed leader commits only records that its successors hold."""
        for other in self._replicas:
            is_latest = other.is_leader and other.epoch == self.leader_epoch
            is_latest = is_latest and other.topic_id == self.topic_id
            if is_latest and not self.holds_committed(other):
                raise ViolationError(
                    "fence",
                    f"epoch {epoch} committed offset {first} that epoch {other.epoch} lacks",
                )

    # ---- logs --------------------------------------------------------------------------------
    def on_append(self, replica: "Replica", epoch: int, records: list[Record]) -> None:
        """Check that a leader of another epoch appends nothing."""
        self.check_register(replica, epoch)
        if replica.is_leader and replica.topic_id == self.topic_id:
            self._appended.update(identity for _, identity in records)
        if records[-1][0] > epoch:
            raise ViolationError(
                "fence", f"node {replica.node} of epoch {epoch} takes records of {records[-1][0]}"
            )

    def check_register(self, replica: "Replica", epoch: int) -> None:
        """Check that the register file of a root knows no later epoch."""
        accepted = replica.accepted
        state = None if accepted is None else accepted.state
        if state is None or state.topic_id != replica.topic_id:
            raise ViolationError(
                "one-topic", f"node {replica.node} appends, its register has {state}"
            )
        if state.leader_epoch > epoch:
            raise ViolationError(
                "fence", f"node {replica.node} appends in epoch {epoch}, its register has {state}"
            )

    def on_truncate(self, replica: "Replica", to: int, high_watermark: int) -> None:
        """Check a truncation of a follower."""
        if replica.topic_id != self.topic_id:
            return
        if to < high_watermark and self.unclean_epoch < 0 and not replica.is_suspect:
            raise ViolationError(
                "truncation-above-hw",
                f"node {replica.node} truncates to {to}, below its HW {high_watermark}",
            )

    def on_proposal(self, leader: "Replica", before: PartitionState, isr: tuple[int, ...]) -> None:
        """Check the replicas that a leader adds to an ISR below its minimum (KAFKA-19996)."""
        if len(before.isr) >= min(self._min_isr, len(before.replicas)):
            return
        for node in set(isr) - set(before.isr):
            replica, wanted = self._replicas[node], leader.end_a_lag_time_ago()
            end = replica.disk.log_end_offset
            # The leader may still count what a process had that has died since.
            if end < wanted and replica.running_time > 2 * leader.lag_time:
                raise ViolationError(
                    "joins-caught-up",
                    f"node {node} at {end} is to join ISR {before.isr}, the log was at {wanted}",
                )

    # ---- clients -----------------------------------------------------------------------------
    def on_acknowledged(self, append: Acknowledged, topic_id: str | None) -> None:
        """Check an acknowledgement at the moment of the decision."""
        self.happened["acknowledged appends"] += 1
        self.happened["acknowledged records"] += len(append.identities)
        if topic_id == self.topic_id:
            self.acknowledged.append(append)
        if append.acks is not Acks.ALL:
            return
        if topic_id != self.topic_id:
            raise ViolationError("one-topic", f"{append} acknowledged after the deletion")
        decided_epoch = -1 if self.decided is None else self.decided.leader_epoch
        if append.leader_epoch < decided_epoch:
            raise ViolationError(
                "fence",
                f"acknowledged in epoch {append.leader_epoch}, epoch {decided_epoch} was decided",
            )
        if append.leader_epoch < self.unclean_epoch:
            return
        for identity in append.identities:
            if identity not in self._offsets:
                raise ViolationError(
                    "acknowledged-survives", f"record {identity} acknowledged, not committed"
                )

    def on_read(self, replica: "Replica", offset: int, records: list[Record]) -> None:
        """Check what a consumer read from a replica below its high watermark."""
        if self.unclean_epoch >= 0 and not (
            replica.epoch >= self.unclean_epoch and replica.is_level
        ):
            return  # it still shows a history that was given up
        if records != self.committed[offset : offset + len(records)]:
            raise ViolationError("prefix-agree", f"a reader saw {records} at offset {offset}")

    # ---- the end -----------------------------------------------------------------------------
    def at_end(self, leader: "Replica") -> None:
        """Check the logs after all replicas have converged."""
        assert self.decided is not None
        for node in self.decided.replicas:
            replica = self._replicas[node]
            _check_log(replica)
            start = max(replica.disk.log_start_offset, leader.disk.log_start_offset)
            end = leader.disk.log_end_offset
            if replica.disk.records_from(start, end) != leader.disk.records_from(start, end):
                raise ViolationError("prefix-agree", f"nodes {leader.node}, {replica.node} differ")
        there = {identity for _, identity in self.committed}
        given_up = {identity for loss in self.losses for _, identity in loss.records}
        for append in self.acknowledged:
            lost = [each for each in append.identities if each not in there]
            if not lost:
                continue
            if append.acks is not Acks.ALL:
                self.happened["records lost with acks below all"] += len(lost)
            elif not given_up.issuperset(lost):
                raise ViolationError("losses-logged", f"{append} lost {lost}")
            elif not self.may_lose:
                raise ViolationError("acknowledged-survives", f"{append} lost {lost}")

    def check_transactions(self, seen: list[tuple[int, Record]]) -> None:
        """Check the records that a read_committed consumer saw, by the markers in the log."""
        outcome: dict[int, int] = {}
        verdicts: dict[int, int] = {}
        for _, identity in reversed(self.committed):
            kind, producer = kind_of(identity), producer_of(identity)
            if kind in (COMMIT, ABORT):
                outcome[producer] = kind
            elif producer in outcome:
                verdicts[identity] = outcome[producer]
        for offset, (_, identity) in seen:
            if verdicts.get(identity) == ABORT:
                raise ViolationError("transactions", f"aborted record {identity} read at {offset}")


def _check_log(replica: "Replica") -> None:
    """Check the epochs of a log against its records, from where they are known."""
    disk = replica.disk
    starts = {entry.epoch: entry.start_offset for entry in disk.epochs.entries}
    latest, known_from = -1, disk.epochs_known_from
    for at, (epoch, _) in enumerate(disk.records, disk.log_start_offset):
        if at < known_from:
            continue
        if epoch < latest:
            raise ViolationError("epoch-monotone", f"node {replica.node}: epoch falls at {at}")
        is_known = starts.get(epoch) == at or (latest < 0 < known_from and epoch in starts)
        if epoch > latest and not is_known:
            raise ViolationError(
                "epoch-monotone",
                f"node {replica.node}: epoch {epoch} starts at {at}, cache has {disk.epochs}",
            )
        latest = epoch
