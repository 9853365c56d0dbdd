"""What happened so far, and the invariants: each is checked when the event comes that may break it.

`committed` is the one true log: a record enters it when a leader first raises its high watermark
above it. An unclean election cuts it, and the cut is kept in `losses`.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.records.acks import Acks
from streamlog.replication.partition_state import LeaderRecovery, PartitionState
from tests.programs.replication.disk import ABORT, COMMIT, Record, kind_of, producer_of

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
        min_isr: `min.insync.replicas` in effect.
        may_lose: Whether faults may exceed what the protocol survives.
    """

    def __init__(self, replicas: "list[Replica]", *, min_isr: int, may_lose: bool) -> None:
        self._replicas = replicas
        self._min_isr = min_isr
        self.may_lose = may_lose
        self.committed: list[Record] = []
        self._offsets: dict[int, int] = {}  # of committed records, by id
        self.sent: set[int] = set()
        self.refused: set[int] = set()
        self.acknowledged: list[Acknowledged] = []
        self.losses: list[Loss] = []
        self.lost_unacknowledged = 0
        self.decided: PartitionState | None = None
        self._states: dict[int, PartitionState] = {}
        self._leaders: dict[int, int] = {}
        self.leader_epoch = -1  # the latest with a leader at work
        self.unclean_epoch = -1  # the latest that began with an unclean election
        self.isr_changes = 0
        self.elections = 0

    # ---- the register ------------------------------------------------------------------------
    def on_decided(self, state: PartitionState) -> None:
        """Check a state that a majority has accepted."""
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
            self.isr_changes += before.isr != state.isr
            self.elections += before.leader_epoch != state.leader_epoch
        self.check_candidates()

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
            if is_latest and not self.holds_committed(other):
                raise ViolationError(
                    "fence",
                    f"epoch {epoch} committed offset {first} that epoch {other.epoch} lacks",
                )

    # ---- logs --------------------------------------------------------------------------------
    def on_append(self, replica: "Replica", epoch: int, records: list[Record]) -> None:
        """Check that a leader of another epoch appends nothing."""
        self.check_register(replica, epoch)
        if records[-1][0] > epoch:
            raise ViolationError(
                "fence", f"node {replica.node} of epoch {epoch} takes records of {records[-1][0]}"
            )

    def check_register(self, replica: "Replica", epoch: int) -> None:
        """Check that the register file of a root knows no later epoch."""
        known = replica.known_leader_epoch
        if known > epoch:
            raise ViolationError(
                "fence", f"node {replica.node} appends in epoch {epoch}, its register has {known}"
            )

    def on_truncate(self, replica: "Replica", to: int, high_watermark: int) -> None:
        """Check a truncation of a follower."""
        if to < high_watermark and self.unclean_epoch < 0 and not replica.is_suspect:
            raise ViolationError(
                "truncation-above-hw",
                f"node {replica.node} truncates to {to}, below its HW {high_watermark}",
            )

    def on_proposal(self, leader: "Replica", before: PartitionState, isr: tuple[int, ...]) -> None:
        """Check the replicas that a leader adds to an ISR below its minimum (KAFKA-19996)."""
        if len(before.isr) >= self._min_isr:
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
    def on_acknowledged(self, append: Acknowledged, decided_epoch: int) -> None:
        """Check an acknowledgement at the moment of the decision."""
        self.acknowledged.append(append)
        if append.acks is not Acks.ALL:
            return
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
        for replica in self._replicas:
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
                self.lost_unacknowledged += len(lost)
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
    """Check the epochs of a log against its records."""
    disk = replica.disk
    starts = {entry.epoch: entry.start_offset for entry in disk.epochs.entries}
    latest = -1
    for at, (epoch, _) in enumerate(disk.records, disk.log_start_offset):
        if epoch < latest:
            raise ViolationError("epoch-monotone", f"node {replica.node}: epoch falls at {at}")
        if epoch > latest and starts.get(epoch) != at:
            raise ViolationError(
                "epoch-monotone",
                f"node {replica.node}: epoch {epoch} starts at {at}, cache has {disk.epochs}",
            )
        latest = epoch
