"""The simulated world: time, network, faults. All randomness comes from the seed of the run."""

import heapq
from collections import Counter
from collections.abc import Callable, Collection
from random import Random
from typing import Any, Final

from streamlog.replication.completeness import proof_of_loss
from streamlog.replication.election import ElectionType
from streamlog.replication.messages import Errors
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.quorum import Accepted, Acceptor, Ballot, Voter
from tests.programs.replication.clients import Consumer, Producer
from tests.programs.replication.disk import Disk
from tests.programs.replication.history import History, ViolationError
from tests.programs.replication.profile import Profile
from tests.programs.replication.replica import Append, Replica

TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
PATIENCE: Final = 4000  # simulated milliseconds from the end of the faults to convergence
MOST_ISR_CHANGES: Final = 30  # after the faults; more is a livelock
CLIENT: Final = -1


class World:
    """One run.

    Args:
        profile: Its circumstances.
        random: The only source of chance.
        trace: Collects what happens, for reading; None to run fast.
    """

    fences_only_at_open = False  # switches of `bugs`
    resumes_with_stale_high_watermark = False
    resumes_without_settling = False
    believes_own_register = False

    def __init__(self, profile: Profile, random: Random, trace: list[str] | None = None) -> None:
        self.profile = profile
        self.random = random
        self.time = 0
        self.steps = 0
        self.trace = trace
        self.nodes = tuple(range(profile.nodes))
        self._chance = random.random
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._counter = 0
        self._cut: set[tuple[int, int]] = set()
        self._loss, self._duplication = profile.loss, profile.duplication
        self._has_faults = True
        self._happened: Counter[str] = Counter()
        self._backups: dict[int, Disk] = {}
        self.replicas: list[Replica] = []
        self.history = History(
            self.replicas, min_isr=profile.min_isr, may_lose=profile.may_elect_uncleanly
        )
        self._start()

    def _start(self) -> None:
        state = PartitionState.created(TOPIC_ID, self.nodes)
        value = Accepted(Ballot(), tuple(Voter(node, 0) for node in self.nodes), state)
        self.replicas += [
            Replica(node, self, Disk(Acceptor(value.ballot, 0, value))) for node in self.nodes
        ]
        self.history.on_decided(state)
        for each in self.replicas:
            each.clock_rate = self.random.uniform(0.97, 1.03)
            each.clock_offset = self.pick(10_000)
            each.start()
        self._producer_number = 0
        self.producers: dict[int, Producer] = {}
        for is_idempotent, is_transactional in ((False, False), (True, False), (True, True)):
            number = self._producer_number
            self._producer_number += 1
            self.producers[number] = Producer(
                self, number, is_idempotent=is_idempotent, is_transactional=is_transactional
            )
        self.consumers = [Consumer(self, is_read_committed=each) for each in (False, True)]
        self.after(5, self._clients)
        self.after(10, self._fault)

    # ---- for those who live in it ------------------------------------------------------------
    def pick(self, below: int) -> int:
        """Return a random number from 0 on."""
        return int(self._chance() * below)

    def count(self) -> int:
        """Return a number that was not returned before."""
        self._counter += 1
        return self._counter

    def note(self, node: int, *what: object) -> None:
        """Write to the trace, if there is one."""
        if self.trace is not None:
            words = " ".join(str(each) for each in what)
            self.trace.append(f"{self.steps:>6} {self.time:>6} ms  node {node}: {words}")

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen later."""
        self._counter += 1
        heapq.heappush(self._events, (self.time + delay, self._counter, action, arguments))

    def send(self, source: int, target: int, action: str, *arguments: Any) -> None:
        """Send a message; it may be lost, late, out of order or there twice."""
        chance, profile = self._chance, self.profile
        if self._loss and chance() < self._loss:
            return
        incarnation = self.replicas[source].incarnation
        for _ in range(2 if self._duplication and chance() < self._duplication else 1):
            delay = 1 + int(chance() * profile.delay)
            if profile.slow and self._has_faults and chance() < profile.slow:
                delay *= 8
            self.after(delay, self._deliver, source, incarnation, target, action, arguments)

    def _deliver(
        self, source: int, incarnation: int, target: int, action: str, arguments: tuple[Any, ...]
    ) -> None:
        replica = self.replicas[target]
        if not replica.is_alive or (source, target) in self._cut:
            return
        if self.replicas[source].incarnation == incarnation:  # else its connection is closed
            getattr(replica, action)(*arguments)

    def is_connected(self, one: int, other: int) -> bool:
        return (one, other) not in self._cut and (other, one) not in self._cut

    def reachable_from(self, replica: Replica) -> list[Replica]:
        """Return the live replicas that a node can ask at this moment, itself included."""
        if not self._cut:
            return [each for each in self.replicas if each.is_alive]
        return [
            each
            for each in self.replicas
            if each.is_alive and self.is_connected(replica.node, each.node)
        ]

    def completeness(self, online: Collection[int], state: PartitionState) -> Callable[[int], bool]:
        """Return which nodes hold all that they once held, as far as the others can tell."""
        there = [self.replicas[node] for node in online if not self.replicas[node].disk.is_unclean]
        positions = [each.positions for each in there if each.disk.acceptor is not None]
        sound = {each.node for each in positions if proof_of_loss(each, positions, state) is None}
        return sound.__contains__

    def crashes_here(self, replica: Replica) -> bool:
        """Kill a node in the middle of a step, sometimes."""
        if not self.profile.crash or not self._has_faults:
            return False
        if self._chance() >= self.profile.crash or not self._may_stop(replica):
            return False
        self.note(replica.node, "is killed in the middle of a step")
        self._stop(replica)
        return True

    # ---- clients -----------------------------------------------------------------------------
    def send_append(self, append: Append) -> None:
        """Send an append to the node that the producer takes for the leader."""
        leaders = [each for each in self.replicas if each.leader is not None]
        if leaders and self._chance() < 0.9:
            target = max(leaders, key=lambda each: each.epoch)
            if len(leaders) > 1 and self._chance() < 0.3:
                target = leaders[self.pick(len(leaders))]
        else:
            target = self.replicas[self.pick(len(self.nodes))]
        if self._chance() >= self._loss:
            self.after(1 + self.pick(self.profile.delay), self._deliver_append, target, append)

    def _deliver_append(self, target: Replica, append: Append) -> None:
        if target.is_alive:
            target.on_append(append)

    def answer(self, append: Append, error: Errors) -> None:
        """Send the answer to an append."""
        if self._chance() >= self._loss:
            self.after(1, self._deliver_answer, append, error)

    def _deliver_answer(self, append: Append, error: Errors) -> None:
        producer = self.producers.get(append.producer)
        if producer is not None:
            producer.on_answer(append, error)

    def next_producer(self, producer: Producer) -> int:
        """Return the number of a producer's next session."""
        del self.producers[producer.number]
        number = self._producer_number
        self._producer_number += 1
        self.producers[number] = producer
        return number

    def _clients(self) -> None:
        self.after(1 + self.pick(2 * self.profile.append_interval), self._clients)
        if self._has_faults:
            known = list(self.producers.values())
            known[self.pick(len(known))].poke()
        consumer = self.consumers[self.pick(2)]
        replica = self.replicas[self.pick(len(self.nodes))]
        if replica.is_alive:
            consumer.poll(replica)

    # ---- faults ------------------------------------------------------------------------------
    def _fault(self) -> None:
        if not self._has_faults:
            return
        self.after(1 + self.pick(2 * self.profile.fault_interval), self._fault)
        faults = self.profile.faults
        if not any(faults.values()):
            return
        name = self.random.choices(tuple(faults), weights=tuple(faults.values()))[0]
        replica = self.replicas[self.pick(len(self.nodes))]
        if self.pick(4) == 0:
            replica = self._leader() or replica
        self._happened[f"fault: {name}"] += 1
        getattr(self, f"_{name.replace(' ', '_')}")(replica)

    def _may_stop(self, replica: Replica) -> bool:
        """Whether a node may go: not while an old copy that nothing has noticed is there."""
        return replica.is_alive and not any(each.is_old_copy for each in self.replicas)

    def _stop(self, replica: Replica, *, is_state_lost: bool = False) -> None:
        replica.stop()
        is_epoch_file_lost = self.pick(10) == 0
        self.after(
            1 + self.pick((8, 80)[self.pick(2)]),
            self._restart,
            replica,
            is_epoch_file_lost,
            is_state_lost or self.pick(2) == 0,
        )

    def _restart(self, replica: Replica, is_epoch_file_lost: bool, is_state_lost: bool) -> None:
        if not replica.is_alive:
            self.note(replica.node, "starts")
            replica.start(is_epoch_file_lost=is_epoch_file_lost, is_state_lost=is_state_lost)

    def _kill(self, replica: Replica) -> None:
        if self._may_stop(replica):
            self.note(replica.node, "is killed")
            self._stop(replica)

    def _clean_restart(self, replica: Replica) -> None:
        if self._may_stop(replica):
            self.note(replica.node, "shuts down")
            replica.disk.high_watermark_file = replica.high_watermark
            replica.disk.sync()
            self._stop(replica)

    def _may_destroy(self, replica: Replica) -> bool:
        """Whether a node may lose records in this run."""
        if self.profile.may_elect_uncleanly:
            return self._may_stop(replica)
        return self._must_survive(replica)

    def _must_survive(self, replica: Replica) -> bool:
        """Whether the protocol must survive that a node loses records."""
        if not self._may_stop(replica) or self.history.decided is None:
            return False
        if any(
            each.is_suspect or each.is_electing or each.disk.acceptor is None
            for each in self.replicas
        ):
            return False
        decided = self.history.decided.partition_epoch
        for each in self.replicas:
            state = None if each.accepted is None else each.accepted.state
            if state is None or state.partition_epoch < decided:
                continue
            if not {*state.isr, *state.elr} - {replica.node}:
                return False
        return True

    def _power_cut(self, replica: Replica) -> None:
        disk = replica.disk
        if self.profile.syncs:
            if self._may_stop(replica):
                self.note(replica.node, "loses power")
                self._stop(replica, is_state_lost=True)
            return
        leader = self._leader()
        if leader is not None and leader.joining and self.pick(2) == 0:
            replica = self.replicas[leader.joining[0]]
            disk = replica.disk
        if self._may_destroy(replica):
            disk.cut_power(self.random)
            disk.is_unclean = True
            self.note(replica.node, "loses power; the log ends at", disk.log_end_offset)
            self._stop(replica, is_state_lost=True)

    def _replace_disk(self, replica: Replica) -> None:
        have_registers = all(each.disk.acceptor is not None for each in self.replicas)
        if len(self.nodes) > 2 and have_registers and self._may_destroy(replica):
            self.note(replica.node, "gets an empty disk")
            replica.disk = Disk()
            self._backups.pop(replica.node, None)
            replica.disk.is_unclean = True
            replica.high_watermark = 0
            self._stop(replica, is_state_lost=True)

    def _back_up(self, replica: Replica) -> None:
        if replica.disk.acceptor is not None and not replica.is_suspect:
            self._backups[replica.node] = replica.disk.copy()

    def _restore_backup(self, replica: Replica) -> None:
        """Restore an old copy, unnoticed, while all others are up.

        With a second fault, or as the leader, it would lose records: offsets alone cannot show in
        every case that a leader is an old copy.
        """
        backup = self._backups.get(replica.node)
        values = {each.accepted for each in self.replicas if each is not replica}
        is_quiet = not self._cut and len(values) == 1 and self._leader() is not None
        is_quiet &= all(each.is_alive and not each.is_deciding for each in self.replicas)
        if backup is None or not is_quiet or not self._must_survive(replica):
            return
        self.note(replica.node, "is restored from a copy that ends at", backup.log_end_offset)
        replica.end_before_restore = replica.disk.log_end_offset
        replica.disk = backup.copy()
        replica.disk.load(is_epoch_file_lost=False)
        is_leader = self.history.decided is None or self.history.decided.leader == replica.node
        replica.is_old_copy = not is_leader
        replica.disk.is_unclean = is_leader
        replica.high_watermark = 0
        replica.stop()
        replica.start(is_state_lost=True)

    def _isolate(self, replica: Replica) -> None:
        if self._may_stop(replica):
            self.note(replica.node, "is cut off")
            for other in self.nodes:
                if other != replica.node:
                    self._cut |= {(other, replica.node), (replica.node, other)}

    def _cut_link(self, replica: Replica) -> None:
        other = self.replicas[self.pick(len(self.nodes))]
        if other is not replica and self._may_stop(replica):
            self.note(replica.node, "does not reach node", other.node)
            self._cut.add((replica.node, other.node))

    def _heal_links(self, replica: Replica) -> None:
        self.note(replica.node, "all links are up")
        self._cut.clear()

    def _suspect_leader(self, replica: Replica) -> None:
        decided = self.history.decided
        if replica.is_alive and decided is not None and self._may_stop(replica):
            replica.hold_election(ElectionType.ONLINE, without=decided.leader)

    def _prefer(self, replica: Replica) -> None:
        if replica.is_alive and self._may_stop(replica):
            replica.hold_election(ElectionType.PREFERRED)

    def _raise_epoch(self, _replica: Replica) -> None:
        for each in self.replicas:
            if each.leader is not None:
                each.raise_epoch()
                return

    def _delete_records(self, replica: Replica) -> None:
        if replica.leader is not None and replica.epoch == self.history.leader_epoch:
            span = replica.high_watermark - replica.disk.log_start_offset
            to = replica.disk.log_start_offset + self.pick(span + 1)
            self.note(replica.node, "deletes records below", to)
            replica.disk.raise_log_start(to)

    def _checkpoint(self, replica: Replica) -> None:
        replica.disk.high_watermark_file = replica.high_watermark

    def _flush(self, replica: Replica) -> None:
        replica.disk.sync()

    def counts(self) -> Counter[str]:
        """Return how much has happened."""
        history = self.history
        self._happened.update(
            {
                "steps": self.steps,
                "elections": history.elections,
                "unclean elections": len(history.losses),
                "ISR changes": history.isr_changes,
                "committed records": len(history.committed),
                "acknowledged appends": len(history.acknowledged),
                "committed records lost to unclean elections": sum(
                    len(each.records) for each in history.losses
                ),
                "records lost with acks below all": history.lost_unacknowledged,
            }
        )
        return self._happened

    # ---- the run -----------------------------------------------------------------------------
    def run(self) -> None:
        """Run with faults, then without until the replicas have converged.

        Raises:
            ViolationError: An invariant does not hold.
        """
        self._run_until(self.profile.duration)
        self._lift_faults()
        deadline = self.time + PATIENCE
        changes = self.history.isr_changes
        probe: Producer | None = None
        while True:
            self._run_until(self.time + 20)
            for producer in list(self.producers.values()):
                producer.poke(is_last=True)
            if probe is None and self._has_converged():
                probe = self._probe()
            elif probe is not None and probe.is_idle and self._has_converged():
                if probe.acknowledged:
                    break
                probe = None  # it gave up
            if self.history.isr_changes - changes > MOST_ISR_CHANGES:
                raise ViolationError("live", "the ISR changes without end")
            if self.time > deadline:
                raise ViolationError("live", f"no convergence: {self._positions()}")
        self._check_end()

    def _run_until(self, end: int) -> None:
        events, pop = self._events, heapq.heappop
        while events[0][0] <= end:
            self.time, _, action, arguments = pop(events)
            self.steps += 1
            action(*arguments)
        self.time = end

    def _lift_faults(self) -> None:
        self._has_faults = False
        self._cut.clear()
        self._loss = self._duplication = 0.0
        for each in self.replicas:
            self._restart(each, False, True)
        self.note(CLIENT, "all faults are lifted")

    def _probe(self) -> Producer:
        number = self._producer_number
        self._producer_number += 1
        probe = Producer(self, number, is_idempotent=True, is_transactional=False)
        self.producers[number] = probe
        probe.poke()
        return probe

    def _leader(self) -> Replica | None:
        decided = self.history.decided
        if decided is None or not decided.has_leader:
            return None
        leader = self.replicas[decided.leader]
        is_leading = leader.leader is not None and leader.epoch == decided.leader_epoch
        return leader if is_leading else None

    def _has_converged(self) -> bool:
        leader = self._leader()
        if leader is None or len(leader.leader.state.isr) < len(self.nodes):  # type: ignore[union-attr]
            return False
        end = leader.disk.log_end_offset
        return all(producer.is_idle for producer in self.producers.values()) and all(
            each.disk.log_end_offset == end == each.high_watermark and each.epoch == leader.epoch
            for each in self.replicas
        )

    def _positions(self) -> str:
        rows = [
            f"node {each.node}: {each.disk.log_start_offset}..{each.disk.log_end_offset} "
            f"HW {each.high_watermark} epoch {each.epoch} {each.disk.epochs}"
            f"{' leads' if each.is_leader else ''}"
            for each in self.replicas
        ]
        return "; ".join([*rows, f"decided {self.history.decided}"])

    def _check_end(self) -> None:
        leader = self._leader()
        assert leader is not None
        before = self.history.committed[-1] if self.history.committed else None
        for consumer in self.consumers:
            for each in self.replicas:
                consumer.poll(each)
        if before is None:
            raise ViolationError("live", "nothing was committed")
        self.history.at_end(leader)
        self.history.check_transactions(self.consumers[1].seen)
