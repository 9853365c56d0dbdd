"""Registers on directories: concurrent processes, crashes, power cuts, lost and empty roots."""

import contextlib
import errno
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from streamlog.binary.sealed import seal
from streamlog.clock import ManualClock
from streamlog.errors import (
    CorruptCheckpointError,
    InconsistentTopicIdError,
    InvalidUpdateVersionError,
    NoQuorumError,
    StorageError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import FaultyFileSystem, SimulatedCrash
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.replication import quorum, register_file
from streamlog.replication.partition_state import (
    LeaderRecovery,
    PartitionState,
    ReplicationEvents,
)
from streamlog.replication.quorum import Accepted, Acceptor, Answer, Ballot, Promise, Voter
from streamlog.replication.register import QuorumRegister
from streamlog.replication.register_file import RegisterFile, decode_acceptor, encode_acceptor

TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg"
NAME = "orders-0"


def first_state(nodes: int = 3) -> PartitionState:
    return PartitionState.created(TOPIC_ID, tuple(range(1, nodes + 1)))


# ---- one file ---------------------------------------------------------------------------------
VOTERS = (Voter(1, 5), Voter(2, 0), Voter(3, 7))
FULL_STATE = PartitionState(
    topic_id=TOPIC_ID,
    replicas=(3, 1, 2),
    isr=(3,),
    leader=-1,
    leader_epoch=7,
    partition_epoch=12,
    elr=(1,),
    last_known_leader=2,
    recovery=LeaderRecovery.RECOVERING,
    adding=(4,),
    removing=(2,),
)


@pytest.mark.parametrize(
    "acceptor",
    [
        Acceptor(Ballot(1, 2, 2**63 - 1), 2**63 - 1),
        Acceptor(Ballot(0, 2, 3), 4, Accepted(Ballot(0, 1, 9), VOTERS, FULL_STATE)),
        Acceptor(Ballot(0, 2, 3), 4, Accepted(Ballot(0, 1, 9), VOTERS, None)),
    ],
)
def test_a_file_holds_what_was_written(acceptor: Acceptor) -> None:
    content = encode_acceptor(acceptor, version=70)
    assert decode_acceptor(content, "/r") == (acceptor, 70)


def test_a_file_holds_the_counts_of_events_and_one_from_before_has_none() -> None:
    counted = replace(FULL_STATE, events=ReplicationEvents(3, 2, 1))
    acceptor = Acceptor(Ballot(0, 2, 3), 4, Accepted(Ballot(0, 1, 9), VOTERS, counted))
    content = encode_acceptor(acceptor, version=1)
    assert events_in(content) == (3, 2, 1)
    values = json.loads(content.splitlines()[1])
    del values["accepted"]["state"]["events"]
    assert events_in(seal("replication", values)) == (0, 0, 0)


def events_in(content: bytes) -> ReplicationEvents:
    accepted = decode_acceptor(content, "/r")[0].accepted
    assert accepted is not None
    assert accepted.state is not None
    return accepted.state.events


@pytest.mark.parametrize("change", [("promised", []), ("version", -1), ("accepted", {"voters": 1})])
def test_a_malformed_file_is_refused(change: tuple[str, Any]) -> None:
    values: dict[str, Any] = {
        "version": 1,
        "incarnation": 1,
        "promised": [[0, 0, 0]],
        "accepted": None,
    }
    values[change[0]] = change[1]
    with pytest.raises(CorruptCheckpointError):
        decode_acceptor(seal("replication", values), "/r")


def test_a_read_costs_one_stat_while_nothing_changes(tmp_path: Any) -> None:
    calls: list[str] = []

    class Counting(LocalFileSystem):
        def stat(self, path: str) -> Any:
            calls.append("stat")
            return super().stat(path)

        def open(self, path: str, mode: OpenMode) -> Any:
            calls.append("open")
            return super().open(path, mode)

    root = LogRoot.at(tmp_path, fs=Counting())
    other = RegisterFile(LogRoot.at(tmp_path), NAME)
    other.prepare(Ballot(0, 1, 1), creates=True)
    file = RegisterFile(root, NAME)
    assert file.acceptor() == Acceptor(Ballot(0, 1, 1), 1)
    calls.clear()
    assert not file.has_changed()
    assert file.acceptor() == Acceptor(Ballot(0, 1, 1), 1)
    assert calls == ["stat", "stat"]


def test_every_new_version_is_noticed(tmp_path: Any) -> None:
    """A disk gives inodes again within one tick of its clock; the sizes still differ."""
    writer = RegisterFile(LogRoot.at(tmp_path), NAME)
    reader = RegisterFile(LogRoot.at(tmp_path), NAME)
    writer.prepare(Ballot(0, 1, 0), creates=True)
    for number in range(1, 100):
        assert reader.acceptor() == Acceptor(Ballot(0, number, 0), 0)
        writer.prepare(Ballot(0, number + 1, 0))
        assert reader.has_changed()


def test_a_missing_root_is_no_missing_file() -> None:
    fs = MemoryFileSystem()
    file = RegisterFile(LogRoot.at("/r", fs=fs, clock=ManualClock()), NAME)
    with pytest.raises(StorageError):
        file.acceptor()
    fs.make_directory("/r")
    assert file.acceptor() is None


# ---- simulated processes over simulated disks -------------------------------------------------
class Disk:
    """The file system of a root: may be cut off, lose its power, or be replaced by an empty one."""

    def __init__(self, clock: ManualClock, random: Random) -> None:
        self.is_online = True
        self._clock = clock
        self._random = random
        self.replace()

    def __getattr__(self, name: str) -> Any:
        if not self.is_online:
            raise StorageError("disk is gone", errno=errno.ENODEV)
        return getattr(self.inner, name)

    def cut_power(self) -> None:
        self.inner = self.inner.crash_clone(self._random, power=True)

    def replace(self) -> None:
        self.inner = MemoryFileSystem(clock=self._clock)
        self.inner.make_directory("/logs")
        self.inner.sync_directory("/")


@dataclass
class History:
    """Accepted and decided values; checks them as they come."""

    votes: dict[Accepted, set[Voter]] = field(default_factory=dict)
    decided: dict[int, PartitionState] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)

    def vote(self, voter: Voter, value: Accepted) -> None:
        voted = self.votes.setdefault(value, set())
        voted.add(voter)
        if value.is_held_by(voted) and value.state is not None:
            self.decide(value.state)

    def decide(self, state: PartitionState) -> None:
        assert self.decided.setdefault(state.partition_epoch, state) == state, "two values"
        leader = self.leaders.setdefault(state.leader_epoch, state.leader)
        assert leader == state.leader, "two leaders of one epoch"

    @property
    def last(self) -> PartitionState:
        return self.decided[max(self.decided)]


class WatchedFile(RegisterFile):
    """A register file that reports what it accepts."""

    def __init__(self, root: LogRoot, node: int, history: History) -> None:
        super().__init__(root, NAME)
        self.node = node
        self.history = history

    def accept(self, value: Accepted) -> Answer:
        answer = super().accept(value)
        if isinstance(answer, Promise):
            self.history.vote(Voter(self.node, answer.incarnation), value)
        return answer


class Process(threading.Thread):
    """A process that runs until its next request to a root, whenever it gets its turn."""

    def __init__(self, simulation: "Simulation", number: int) -> None:
        super().__init__(daemon=True)
        self.simulation = simulation
        self.random = Random(f"{simulation.seed} {number}")
        self.disks = {
            node: FaultyFileSystem(disk, observe=self._before_operation)  # type: ignore[arg-type]
            for node, disk in simulation.disks.items()
        }
        self.register = simulation.register(self.disks, self.locked, self.random)
        self.operations_left = -1  # until it dies; negative: it lives
        self.error: BaseException | None = None
        self.is_reinitialising = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done = False
        self.start()

    def _before_operation(self, operation: object, data: object) -> None:
        if self.operations_left == 0:
            self.kill()
            raise SimulatedCrash
        self.operations_left -= 1

    @contextmanager
    def locked(self, node: int) -> Iterator[None]:
        self._back.release()
        self._go.acquire()
        if not self.simulation.disks[node].is_online:
            raise StorageError("disk is gone", errno=errno.ENODEV)
        yield

    def kill(self) -> None:
        for disk in self.disks.values():
            disk.kill()

    def turn(self) -> None:
        self._go.release()
        assert self._back.acquire(timeout=20)

    def run(self) -> None:
        self._go.acquire()
        try:
            for _ in range(4):
                self.act()
        except SimulatedCrash:
            pass
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.error = error
        self.is_done = True
        self._back.release()

    def act(self) -> None:
        history = self.simulation.history
        known = history.last.partition_epoch
        try:
            before = self.register.read()
            assert before.partition_epoch >= known, "a decided value was lost"
            history.decide(before)
            node = self.random.choice(before.replicas)
            history.decide(
                self.register.change(
                    lambda state: self.simulation.change(state, node), before.partition_epoch
                )
            )
        except (NoQuorumError, InvalidUpdateVersionError):
            pass
        for node, file in self.register.files.items():
            if self.simulation.disks[node].is_online and file.acceptor() is None:
                self.is_reinitialising = True
                with contextlib.suppress(NoQuorumError):
                    self.register.reinitialise(node)
                self.is_reinitialising = False


class Simulation:
    """Processes and disks whose steps and faults a seed chooses."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = ManualClock()
        self.history = History()
        self.processes: list[Process] = []
        self.nodes = self.random.choice([3, 3, 5])
        self.disks = {node: Disk(self.clock, self.random) for node in range(1, self.nodes + 1)}
        state = first_state(self.nodes)
        self.history.decide(state)
        plain: Any = self.disks

        @contextmanager
        def unlocked(node: int) -> Iterator[None]:
            yield

        self.last = self.register(plain, unlocked, self.random)
        self.last.create(state)

    def register(
        self,
        disks: dict[int, FaultyFileSystem],
        locker: Callable[[int], Any],
        random: Random,
    ) -> QuorumRegister:
        files = {}
        for node, disk in disks.items():
            root = LogRoot("/logs", disk, self.clock, random)
            files[node] = WatchedFile(root, node, self.history)
        return QuorumRegister(files, locker=locker, random=random)

    def change(self, state: PartitionState, node: int) -> PartitionState:
        if self.random.random() < 0.5:
            return state.with_leader(node)
        return state.with_isr((node,))

    def run(self) -> PartitionState | None:
        random = self.random
        processes = [Process(self, number) for number in range(random.randint(2, 4))]
        self.processes = processes
        for process in processes:
            if random.random() < 0.4:
                process.operations_left = random.randrange(60)
        while running := [each for each in processes if not each.is_done]:
            random.choice(running).turn()
            if random.random() < 0.1:
                self.fail(random.choice(list(self.disks.values())))
        for process in processes:
            if process.error is not None:
                raise process.error
        return self.end()

    def fail(self, disk: Disk) -> None:
        kind = self.random.random()
        if kind < 0.4:
            disk.cut_power()
        elif kind < 0.85:
            disk.is_online = not disk.is_online
        elif all(each.is_online for each in self.disks.values()) and (
            len(self.last.voters()) == self.nodes
            and not any(each.is_reinitialising and not each.is_done for each in self.processes)
        ):
            disk.replace()  # one lost disk at a time: more than that is no quorum's promise

    def end(self) -> PartitionState:
        for disk in self.disks.values():
            disk.is_online = True
            disk.cut_power()
        self.last.align(tuple(self.disks))
        state = self.last.read()
        assert state.partition_epoch >= self.history.last.partition_epoch, (
            "a decided value was lost"
        )
        self.history.decide(state)
        return state


SEEDS = 400


def test_at_most_one_value_is_decided_per_epoch_and_none_is_lost() -> None:
    changes = 0
    for seed in range(SEEDS):
        try:
            state = Simulation(seed).run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert state is not None
        changes += state.partition_epoch
    assert changes > SEEDS


def _finds(seeds: int = SEEDS) -> bool:
    for seed in range(seeds):
        try:
            Simulation(seed).run()
        except (AssertionError, NoQuorumError, UnknownTopicError, CorruptCheckpointError):
            return True
    return False


def test_the_simulation_finds_a_skipped_prepare_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    def promise(acceptor: Acceptor | None, ballot: Ballot, *, creates: bool = False) -> Any:
        if acceptor is None:
            return quorum.prepare(acceptor, ballot, creates=creates)
        return acceptor, Promise(acceptor.incarnation, acceptor.accepted)

    def accept(acceptor: Acceptor | None, value: Accepted) -> Any:
        number = 0 if acceptor is None else acceptor.incarnation
        return Acceptor(value.ballot, number, value), Promise(number, value)

    monkeypatch.setattr(register_file, "prepare", promise)
    monkeypatch.setattr(register_file, "accept", accept)
    assert _finds()


def test_the_simulation_finds_an_empty_disk_that_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(acceptor: Acceptor | None, ballot: Ballot, *, creates: bool = False) -> Any:
        if acceptor is not None:
            return quorum.prepare(acceptor, ballot)
        return Acceptor(ballot, 1), Promise(1, None)  # of the same incarnation as before

    monkeypatch.setattr(register_file, "prepare", prepare)
    assert _finds(4 * SEEDS)


def test_the_simulation_finds_a_promise_that_is_not_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(fs: FileSystem, path: str, data: Any) -> None:
        with fs.open(f"{path}.new", OpenMode.CREATE_OR_WRITE) as file:
            file.truncate(0)
            file.pwrite(data, 0)
        fs.rename(f"{path}.new", path)

    monkeypatch.setattr(register_file, "write_file_atomically", write)
    assert _finds()


# ---- single cases -----------------------------------------------------------------------------
class Roots:
    """Registers of one name in several roots of one memory file system."""

    def __init__(self, nodes: int = 3) -> None:
        self.disks = {node: Disk(ManualClock(), Random(node)) for node in range(1, nodes + 1)}
        self.register = self.again()

    def again(self, *, topic_id: str | None = None, only: tuple[int, ...] = ()) -> QuorumRegister:
        files = {}
        for node, disk in self.disks.items():
            if not only or node in only:
                fs: Any = disk
                files[node] = RegisterFile(LogRoot("/logs", fs, ManualClock(), Random(node)), NAME)
        return QuorumRegister(files, locker=self.locked, random=Random(7), topic_id=topic_id)

    @contextmanager
    def locked(self, node: int) -> Iterator[None]:
        if not self.disks[node].is_online:
            raise StorageError(f"disk of node {node} is gone", errno=errno.ENODEV)
        yield

    def lose(self, *nodes: int) -> None:
        for node in nodes:
            self.disks[node].is_online = False

    def bring_back(self) -> None:
        for disk in self.disks.values():
            disk.is_online = True


@pytest.fixture
def roots() -> Roots:
    made = Roots()
    made.register.create(first_state())
    return made


def test_a_created_state_is_read_from_any_majority(roots: Roots) -> None:
    for lost in (1, 2, 3):
        roots.lose(lost)
        assert roots.again().read() == first_state()
        assert roots.again().peek() == first_state()
        roots.bring_back()


def test_without_a_majority_the_error_names_the_missing_roots(roots: Roots) -> None:
    roots.lose(1, 3)
    with pytest.raises(NoQuorumError, match=r"node 1 \(/logs\).*node 3 \(/logs\)") as caught:
        roots.again().read()
    assert "node 2" not in str(caught.value)
    with pytest.raises(NoQuorumError):
        roots.again().change(lambda state: state.with_leader(2), 0)
    assert roots.again().peek() == first_state()


def test_a_change_of_an_older_epoch_is_refused(roots: Roots) -> None:
    register = roots.again()
    assert register.change(lambda state: state.with_leader(2), 0).leader_epoch == 1
    with pytest.raises(InvalidUpdateVersionError, match="got partition epoch 1, expected 0"):
        register.change(lambda state: state.with_leader(3), 0)
    assert roots.register.read().leader == 2


def test_a_change_to_the_same_state_leaves_it(roots: Roots) -> None:
    assert roots.register.change(lambda state: state, 0) == first_state()


def test_an_exception_of_the_change_ends_the_round(roots: Roots) -> None:
    def refuse(state: PartitionState) -> PartitionState:
        raise InvalidUpdateVersionError("not now")

    with pytest.raises(InvalidUpdateVersionError, match="not now"):
        roots.register.change(refuse, 0)
    assert roots.register.change(lambda state: state.with_leader(2), 0).leader == 2


def test_an_emptied_root_counts_for_nothing_until_it_is_initialised_again(roots: Roots) -> None:
    roots.register.change(lambda state: state.with_leader(2), 0)
    roots.disks[1].replace()
    roots.lose(2)
    with pytest.raises(NoQuorumError, match=r"node 1 .*no register"):
        roots.again().read()
    with pytest.raises(NoQuorumError):
        roots.again().reinitialise(1)
    roots.bring_back()
    roots.again().reinitialise(1)
    roots.lose(2)
    assert roots.again().read().leader == 2


def test_a_forced_state_goes_on_with_one_root_and_the_others_follow(roots: Roots) -> None:
    roots.lose(1)
    roots.again().change(lambda state: state.with_leader(2), 0)
    roots.bring_back()
    roots.lose(2, 3)
    forced = roots.again().force(lambda state: state.with_leader(1))
    assert forced.leader == 1
    assert forced.leader_epoch > 1 + 900  # no epoch that the missing voters may have used
    assert roots.again().change(lambda state: state.with_isr((1,)), forced.partition_epoch)
    roots.bring_back()
    register = roots.again()
    for node in (2, 3):
        register.reinitialise(node)
    assert set(register.voters()) == {1, 2, 3}
    roots.lose(1)
    assert roots.again().read().leader == 1


def test_a_damaged_file_counts_for_nothing_and_is_replaced(roots: Roots) -> None:
    path = roots.register.files[1].path
    with roots.disks[1].open(path, OpenMode.WRITE) as file:
        file.truncate(0)
        file.pwrite(b"rubbish", 0)
    assert roots.again().read() == first_state()
    roots.again().reinitialise(1)
    roots.lose(2)
    assert roots.again().read() == first_state()


def test_roots_join_and_leave_the_voters_one_by_one() -> None:
    roots = Roots(5)
    roots.again(only=(1,)).create(first_state(1))
    assert roots.again().voters() == (1,)
    roots.again().align((1, 2, 3))
    assert set(roots.again().voters()) == {1, 2, 3}
    roots.again().align((2, 3, 4, 5))
    assert set(roots.again().voters()) == {2, 3, 4, 5}
    roots.lose(1, 2)
    assert roots.again().read() == first_state(1)
    roots.lose(3)
    with pytest.raises(NoQuorumError):
        roots.again().read()


def test_a_deleted_partition_may_be_created_again(roots: Roots) -> None:
    roots.lose(3)
    roots.register.delete()
    with pytest.raises(UnknownTopicError):
        roots.again().read()
    other = replace(first_state(), topic_id="BBBBBBBBBBEBBBBBBBBBBg")
    roots.again().create(other)
    roots.bring_back()  # root 3 still has the old topic, and counts for nothing
    assert roots.again(only=(3, 1, 2)).read() == other
    assert roots.again().voters() == (1, 2)
    roots.again().align((1, 2, 3))
    roots.lose(1)
    assert roots.again().read() == other
    with pytest.raises(InconsistentTopicIdError):
        roots.again(topic_id=TOPIC_ID).change(lambda state: state.with_leader(2), 0)


def test_a_deletion_is_remembered_while_a_root_is_away(roots: Roots) -> None:
    roots.register.delete()
    roots.lose(3)
    assert not roots.again().forget()
    roots.bring_back()
    assert roots.again().forget()


def test_a_deletion_that_all_roots_agree_on_leaves_no_file(roots: Roots) -> None:
    roots.register.delete()
    assert roots.register.forget()
    for disk in roots.disks.values():
        assert disk.list("/logs/.streamlog/replication") == []
    with pytest.raises(NoQuorumError):
        roots.again().change(lambda state: state.with_leader(2), 0)
