"""The simulated world: time, network, faults. All randomness comes from the seed of the run."""

import heapq
from collections import Counter
from collections.abc import Callable, Collection
from itertools import accumulate
from random import Random
from typing import Any, Final

from streamlog.replication.completeness import proof_of_loss
from streamlog.replication.election import ElectionType
from streamlog.replication.messages import Errors
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.quorum import Accepted, Acceptor, Ballot, Voter
from tests.programs.replication.clients import Consumer, Producer
from tests.programs.replication.disk import DATA, Disk, record_id
from tests.programs.replication.history import History, ViolationError
from tests.programs.replication.profile import Profile
from tests.programs.replication.replica import Append, Replica

PATIENCE: Final = 4000  # simulated milliseconds from the end of the faults to convergence
MANY: Final = 3  # more nodes disturb each other's rounds for longer
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
    ignores_topic_ids = False
    drops_without_reading = False

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
        self._faults = tuple(profile.faults), tuple(accumulate(profile.faults.values()))
        self._has_faults = True
        self._happened: Counter[str] = Counter()
        self._backups: dict[int, Disk] = {}
        self.is_calm = False  # no faults, and no new appends of producers
        self.is_closed = False  # not even old ones
        self._topics = 0
        self.replicas: list[Replica] = []
        self.history = History(
            self.replicas,
            min_isr=profile.settings.min_insync_replicas,
            may_lose=profile.may_elect_uncleanly,
        )
        self._start()

    def _start(self) -> None:
        state = PartitionState.created(self.new_topic_id(), self.nodes[: self.profile.replicas])
        value = Accepted(Ballot(), tuple(Voter(node, 0) for node in self.nodes), state)
        for node in self.nodes:
            disk = Disk(
                Acceptor(value.ballot, 0, value), state.topic_id if node in state.replicas else None
            )
            self.replicas.append(Replica(node, self, disk))
        self.history.on_decided(value)
        self._known_topic = self.history.topic_id
        for each in self.replicas:
            each.clock_rate = self.random.uniform(0.97, 1.03)
            each.clock_offset = self.pick(10_000)
            each.start()
        self._producer_number = 0
        self.producers: dict[int, Producer] = {}
        for is_idempotent, is_transactional in ((False, False), (True, False), (True, True)):
            number = self._new_number()
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

    def order_of_nodes(self) -> list[int]:
        """Return the order in which a round asks: any while there are faults.

        In the end it is the same for all, as for the roots of a list: rounds disturb each other
        less.
        """
        nodes = list(self.nodes)
        if self._has_faults:
            self.random.shuffle(nodes)
        return nodes

    def new_topic_id(self) -> str:
        """Return the id of a new topic."""
        self._topics += 1
        return f"{self._topics:022d}"

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
            if profile.slow and self._has_faults and not self.is_calm and chance() < profile.slow:
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
        there = [self.replicas[node] for node in online if node in state.replicas]
        positions = [
            each.positions
            for each in there
            if not each.disk.is_unclean
            and each.disk.acceptor is not None
            and (each.disk.topic_id == state.topic_id or self.ignores_topic_ids)
        ]
        sound = {each.node for each in positions if proof_of_loss(each, positions, state) is None}
        return sound.__contains__

    def crashes_here(self, replica: Replica) -> bool:
        """Kill a node in the middle of a step, sometimes."""
        if not self.profile.crash or not self._has_faults or self.is_calm:
            return False
        if self._chance() >= self.profile.crash or not self._may_stop(replica):
            return False
        self.note(replica.node, "is killed in the middle of a step")
        self._stop(replica)
        return True

    def may_interrupt(self, source: int, holder: int, value: Accepted) -> None:
        """Kill a leader whose change only another root holds, and cut that root off, sometimes.

        The leader starts again at once, and sees the old state in all roots that it reaches.
        """
        leader, chance = self.replicas[source], self.profile.interrupt
        if not chance or not self._has_faults or self.is_calm or leader.leader is None:
            return
        if holder == source or leader.accepted == value or not self._may_stop(leader):
            return
        if self._chance() < chance:
            self.note(source, "dies in a change that node", holder, "holds")
            leader.stop()
            self.after(1 + self.pick(3), self._restart, leader, False, self.pick(8) == 0)
            self._isolate(self.replicas[holder])

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
        if target.is_alive and not self.is_closed:
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
        number = self._new_number()
        self.producers[number] = producer
        return number

    def _clients(self) -> None:
        self.after(1 + self.pick(2 * self.profile.append_interval), self._clients)
        if self.history.topic_id != self._known_topic:
            self._begin_again()
        if self._has_faults and not self.is_calm:
            known = list(self.producers.values())
            known[self.pick(len(known))].poke()
        consumer = self.consumers[self.pick(2)]
        replica = self.replicas[self.pick(len(self.nodes))]
        if replica.is_alive and replica.disk.topic_id == self._known_topic is not None:
            consumer.poll(replica)

    def _begin_again(self) -> None:
        """Begin new sessions of the clients, with the topic that was created again."""
        self._known_topic = self.history.topic_id
        for producer in list(self.producers.values()):
            producer.restart()
        for consumer in self.consumers:
            consumer.restart()

    # ---- faults ------------------------------------------------------------------------------
    def _fault(self) -> None:
        if not self._has_faults:
            return
        self.after(1 + self.pick(2 * self.profile.fault_interval), self._fault)
        if self.is_calm:
            return
        names, weights = self._faults
        if not weights[-1]:
            return
        name = self.random.choices(names, cum_weights=weights)[0]
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

    def _bounce_leader(self, _replica: Replica) -> None:
        """Kill the leader; it starts again before another one is elected."""
        leader = self._leader()
        if leader is not None and self._may_stop(leader):
            self.note(leader.node, "is killed, and starts again at once")
            leader.stop()
            self.after(1 + self.pick(3), self._restart, leader, False, self.pick(2) == 0)

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
            if state is None or state.topic_id != self.history.topic_id:
                continue
            if state.partition_epoch < decided:
                continue
            # A reassignment may end at any time, and then its leaving replicas are gone.
            if not {*state.isr, *state.elr} - {replica.node, *state.removing}:
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
        has_topic = replica.disk.topic_id == self.history.topic_id is not None
        if has_topic and replica.disk.acceptor is not None and not replica.is_suspect:
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
        decided = self.history.decided
        if backup is None or not is_quiet or not self._must_survive(replica):
            return
        if decided is None or decided.adding or decided.removing:
            return
        if not replica.disk.topic_id == backup.topic_id == decided.topic_id:
            return
        self.note(replica.node, "is restored from a copy that ends at", backup.log_end_offset)
        replica.end_before_restore = replica.disk.log_end_offset
        replica.disk = backup.copy()
        replica.disk.load(is_epoch_file_lost=False)
        is_leader = decided.leader == replica.node
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
        if replica is self._leader():
            span = replica.high_watermark - replica.disk.log_start_offset
            to = replica.disk.log_start_offset + self.pick(span + 1)
            self.note(replica.node, "deletes records below", to)
            replica.disk.raise_log_start(to)

    def _checkpoint(self, replica: Replica) -> None:
        replica.disk.high_watermark_file = replica.high_watermark

    def _flush(self, replica: Replica) -> None:
        replica.disk.sync()

    # ---- administration ----------------------------------------------------------------------
    def _reassign(self, replica: Replica) -> None:
        """Move the partition, while no replica lacks what it once held."""
        if not replica.is_alive or any(each.is_suspect for each in self.replicas):
            return
        count = min(len(self.nodes), 1 + self.pick(len(self.nodes) + 1))
        replica.reassign(tuple(self.random.sample(self.nodes, count)))

    def _create_again(self, replica: Replica) -> None:
        """Delete the topic; the nodes that learn of it create another one."""
        if replica.is_alive and not replica.is_deciding and self._may_stop(replica):
            self._backups.clear()
            replica.delete_topic()

    def _use_an_old_format(self, _replica: Replica) -> None:
        """Let leaders append records without leader epochs for a while.

        Followers then truncate to their high watermarks, as before KIP-101, so that the protocol
        survives no faults until all replicas have all these records, and know it.
        """
        if self.profile.may_elect_uncleanly or any(each.is_suspect for each in self.replicas):
            return
        self.is_calm = True
        self._cut.clear()
        self._backups.clear()
        for each in self.replicas:
            self._restart(each, False, False)
        self.after(10, self._calm_step, 2 * self.pick(3) + 1)

    def _calm_step(self, left: int) -> None:
        """Append or elect, once the replicas have converged; end the calm after the last step."""
        leader = self._leader()
        is_electing = leader is not None and any(
            each.is_electing or each.known_leader_epoch > leader.epoch for each in self.replicas
        )
        if leader is None or is_electing or not self._has_converged():
            for producer in list(self.producers.values()):
                producer.poke(is_last=True)
            self.after(10, self._calm_step, left)
            return
        self.is_closed = True
        if left == 0:
            for each in self.replicas:
                if leader.leader is not None and each.node not in leader.leader.state.replicas:
                    each.disk.set_aside(None)
                    each.high_watermark = 0
                each.disk.high_watermark_file = each.high_watermark
                each.disk.sync()
            self.is_calm = self.is_closed = False
            return
        if left % 2:
            number = self._new_number()
            ids = tuple(record_id(number, each, DATA) for each in range(1 + self.pick(3)))
            self.history.sent.update(ids)
            leader.append_in_old_format(ids)
        else:
            voter = self.replicas[self.pick(len(self.nodes))]
            voter.hold_election(ElectionType.ONLINE, without=leader.node)
        self.after(10, self._calm_step, left - 1)

    def counts(self) -> Counter[str]:
        """Return how much has happened."""
        history = self.history
        self._happened.update(history.happened)
        self._happened.update(
            {
                "steps": self.steps,
                "committed records lost to unclean elections": sum(
                    len(each.records) for each in history.losses
                ),
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
        deadline = self.time + PATIENCE * (1 if len(self.nodes) <= MANY else 3)
        changes = self.history.happened["ISR changes"]
        probe: Producer | None = None
        while True:
            self._run_until(self.time + 20)
            for producer in list(self.producers.values()):
                producer.poke(is_last=True)
            if probe is None and self._has_converged() and not self.is_calm:
                probe = self._probe()
            elif probe is not None and probe.is_idle and self._has_converged():
                if probe.acknowledged:
                    break
                probe = None  # it gave up
            if self.history.happened["ISR changes"] - changes > MOST_ISR_CHANGES:
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

    def _new_number(self) -> int:
        self._producer_number += 1
        return self._producer_number - 1

    def _probe(self) -> Producer:
        number = self._new_number()
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
        is_leading = is_leading and leader.topic_id == decided.topic_id
        return leader if is_leading else None

    def _has_converged(self) -> bool:
        leader = self._leader()
        if leader is None or leader.leader is None:
            return False
        state = leader.leader.state
        if state != self.history.decided or state.adding or state.removing:
            return False
        if len(state.isr) < len(state.replicas):
            return False
        end = leader.disk.log_end_offset
        if not all(producer.is_idle for producer in self.producers.values()):
            return False
        replicas = [self.replicas[node] for node in state.replicas]
        return all(
            each.disk.log_end_offset == end == each.high_watermark and each.epoch == leader.epoch
            for each in replicas
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
                if each.disk.topic_id == self._known_topic == self.history.topic_id:
                    consumer.poll(each)
        if before is None:
            raise ViolationError("live", "nothing was committed")
        self.history.at_end(leader)
        self.history.check_transactions(self.consumers[1].seen)
