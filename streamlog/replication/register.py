"""The state of a partition, kept in every log root of its replica set.

`<root>/.streamlog/replication/<topic>-<n>` is an acceptor (`streamlog.replication.quorum`): a
sealed file, replaced atomically and durably under the lock of the partition in that root. An append
checks the file under the same lock, so after a new leader's state has been accepted in a root, no
writer of an older epoch appends there.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, TypeVar

from streamlog.binary.sealed import MAX_SEALED_SIZE, SealedValues, seal, unseal
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InconsistentTopicIdError,
    InvalidUpdateVersionError,
    LimitExceededError,
    NoQuorumError,
    StreamLogError,
    UnavailableError,
    UnknownTopicError,
)
from streamlog.fs.api import FileStat, OpenMode
from streamlog.fs.files import make_directories, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.replication.partition_state import (
    NO_LEADER,
    LeaderRecovery,
    PartitionState,
    ReplicationEvents,
)
from streamlog.replication.quorum import (
    FORCED_EPOCHS,
    Accept,
    Accepted,
    Acceptor,
    Answer,
    Ballot,
    Change,
    Chosen,
    Inconclusive,
    Prepare,
    Proposal,
    Refusal,
    Voter,
    accept,
    latest,
    prepare,
    propose,
)

__all__ = ["QuorumRegister", "RegisterFile", "decode_acceptor", "encode_acceptor"]

_KIND: Final = "replication"
_SIZES: Final = 61  # a file's size differs from those of its last 60 versions
_NO_REGISTER: Final = "no register"
_ATTEMPTS: Final = 12
_SHORTEST_ROUND_MS: Final = 1.0
_LONGEST_WAIT_MS: Final = 1_000.0
_LOOKS: Final = 3  # before a read settles a value that another process may be settling
_LOOK_MS: Final = 10.0
_NUMBER_BITS: Final = 63
_T = TypeVar("_T")

_logger = logging.getLogger(__name__)


class RegisterFile:
    """The acceptor of one register in one log root.

    A file system may give a new version the inode of the version before the last, within one tick
    of its clock. The sizes of successive versions therefore differ, and inode, time and size
    together reveal a change.

    Args:
        root: The log root.
        name: The register: a partition, or `commits`.
        check: Raises `UnavailableError` if the root is offline; asked before a file that is new
            or missing is believed.
    """

    def __init__(
        self, root: LogRoot, name: str, *, check: Callable[[], None] | None = None
    ) -> None:
        self.root = root
        self.name = name
        self.path = root.partition_register(name)
        self._check = check
        self._known: tuple[FileStat | None, Acceptor | None, int] = (None, None, 0)

    @property
    def last_read(self) -> Accepted | None:
        """The value that the last read found; current while the partition's lock stays held."""
        acceptor = self._known[1]
        return None if acceptor is None else acceptor.accepted

    def has_changed(self) -> bool:
        """Return whether the file is another one than at the last read; one `stat`.

        Raises:
            StorageError: The root cannot be reached.
        """
        return not _is_same(self._stat(), self._known[0])

    def read(self) -> Accepted | None:
        """Return the accepted value, None if there is none; one `stat` while nothing changes.

        Raises:
            CorruptCheckpointError: The file is damaged.
            StorageError: The root cannot be reached.
        """
        acceptor = self.acceptor()
        return None if acceptor is None else acceptor.accepted

    def acceptor(self) -> Acceptor | None:
        """Return the content of the file, None if it does not exist.

        Raises:
            CorruptCheckpointError: The file is damaged.
            StorageError: The root cannot be reached.
        """
        found, acceptor, _ = self._known
        now = self._stat()
        if now is not None and _is_same(now, found):
            return acceptor
        if self._check is not None:
            self._check()
        if now is None:
            self._known = (None, None, 0)
            return None
        return self._parse()

    def prepare(self, ballot: Ballot, *, creates: bool = False) -> Answer:
        """Promise a ballot, durably; the caller holds the partition's lock of this root.

        Raises:
            CorruptCheckpointError: The file is damaged.
            StorageError: The disk failed; the promise may be in the file.
        """
        before = self.acceptor()
        after, answer = prepare(before, ballot, creates=creates)
        self._replace(before, after)
        return answer

    def accept(self, value: Accepted) -> Answer:
        """Accept a value, durably; the caller holds the partition's lock of this root.

        Raises:
            CorruptCheckpointError: The file is damaged.
            StorageError: The disk failed; the value may be in the file.
        """
        before = self.acceptor()
        after, answer = accept(before, value)
        self._replace(before, after)
        return answer

    def install(self, acceptor: Acceptor) -> bool:
        """Replace the file, durably, by another incarnation; the caller holds the lock.

        Returns:
            False if the file has promised more meanwhile, and was left as it is.

        Raises:
            StorageError: The disk failed; the file may be written.
        """
        try:
            before = self.acceptor()
        except CorruptDataError as error:
            _logger.warning("replaced a damaged register: %s", error)
            before = None
        if before is not None and before.promised >= acceptor.promised:
            return False
        make_directories(self.root.fs, os.path.dirname(self.path))
        self._write(acceptor)
        return True

    def remove(self) -> None:
        """Remove the file, durably; the caller holds the partition's lock of this root."""
        if self.root.fs.stat(self.path) is not None:
            self.root.fs.remove(self.path)
            self.root.fs.sync_directory(os.path.dirname(self.path))

    def _stat(self) -> FileStat | None:
        found = self.root.fs.stat(self.path)
        if found is None and self.root.fs.stat(self.root.path) is None:
            raise FileMissingError("log root is missing", path=self.root.path)
        return found

    def _parse(self) -> Acceptor | None:
        try:
            with self.root.fs.open(self.path, OpenMode.READ) as file:
                found = file.stat()
                if found.size > MAX_SEALED_SIZE:
                    raise LimitExceededError(
                        "register is larger than any sound one",
                        path=self.path,
                        got=f"{found.size} bytes",
                        expected=f"at most {MAX_SEALED_SIZE}",
                    )
                content = file.pread(found.size, 0)
        except FileMissingError:  # removed meanwhile
            self._known = (None, None, 0)
            return None
        acceptor, version = decode_acceptor(content, self.path)
        self._known = (found, acceptor, version)
        return acceptor

    def _replace(self, before: Acceptor | None, after: Acceptor | None) -> None:
        if after is None or after == before:
            return
        if before is None:
            make_directories(self.root.fs, os.path.dirname(self.path))
        self._write(after)

    def _write(self, acceptor: Acceptor) -> None:
        data = encode_acceptor(acceptor, version=self._known[2] + 1)
        write_file_atomically(self.root.fs, self.path, data)


def _is_same(found: FileStat | None, known: FileStat | None) -> bool:
    if found is None or known is None:
        return found is known
    return (found.inode, found.mtime_ns, found.size) == (known.inode, known.mtime_ns, known.size)


# ---- the file ---------------------------------------------------------------------------------
def encode_acceptor(acceptor: Acceptor, *, version: int) -> bytes:
    """Return the content of a register file.

    Args:
        acceptor: What it holds.
        version: The number of this version of the file.
    """
    accepted = acceptor.accepted
    return seal(
        _KIND,
        {
            "version": version,
            "padding": " " * (version % _SIZES),
            "promised": _ballot_row(acceptor.promised),
            "incarnation": acceptor.incarnation,
            "accepted": None
            if accepted is None
            else {
                "ballot": _ballot_row(accepted.ballot),
                "voters": [list(voter) for voter in accepted.voters],
                "state": None if accepted.state is None else _state_values(accepted.state),
            },
        },
    )


def decode_acceptor(content: bytes, path: str) -> tuple[Acceptor, int]:
    """Return what a register file holds, and the number of its version.

    Raises:
        CorruptCheckpointError: The content is damaged.
    """
    values = unseal(_KIND, content, path)
    accepted = None
    if not values.is_null("accepted"):
        inner = values.nested("accepted")
        state = None if inner.is_null("state") else _state(inner.nested("state"))
        voters = tuple(Voter(node, number) for node, number in inner.integers("voters", 2))
        accepted = Accepted(_ballot(inner, "ballot"), voters, state)
    acceptor = Acceptor(_ballot(values, "promised"), values.integer("incarnation"), accepted)
    return acceptor, values.integer("version")


def _state_values(state: PartitionState) -> dict[str, object]:
    return {
        "topic_id": state.topic_id,
        "replicas": _rows(state.replicas),
        "isr": _rows(state.isr),
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "elr": _rows(state.elr),
        "last_known_leader": state.last_known_leader,
        "recovery": state.recovery.value,
        "adding": _rows(state.adding),
        "removing": _rows(state.removing),
        "events": [list(state.events)],
    }


def _state(values: SealedValues) -> PartitionState:
    return PartitionState(
        topic_id=values.text("topic_id"),
        replicas=_nodes(values, "replicas"),
        isr=_nodes(values, "isr"),
        leader=values.integer("leader", NO_LEADER),
        leader_epoch=values.integer("leader_epoch"),
        partition_epoch=values.integer("partition_epoch"),
        elr=_nodes(values, "elr"),
        last_known_leader=values.integer("last_known_leader", NO_LEADER),
        recovery=LeaderRecovery(values.integer("recovery", 0, LeaderRecovery.RECOVERING.value)),
        adding=_nodes(values, "adding"),
        removing=_nodes(values, "removing"),
        events=_events(values),
    )


def _events(values: SealedValues) -> ReplicationEvents:
    if values.is_null("events"):  # written before events were counted
        return ReplicationEvents()
    rows = values.integers("events", 3)
    if len(rows) != 1:
        raise values.malformed("events", rows, "one row")
    return ReplicationEvents(*rows[0])


def _ballot_row(ballot: Ballot) -> list[list[int]]:
    return [[ballot.generation, ballot.round, ballot.proposer]]


def _ballot(values: SealedValues, name: str) -> Ballot:
    rows = values.integers(name, 3)
    if len(rows) != 1:
        raise values.malformed(name, rows, "one ballot")
    return Ballot(*rows[0])


def _rows(nodes: Collection[int]) -> list[list[int]]:
    return [[node] for node in nodes]


def _nodes(values: SealedValues, name: str) -> tuple[int, ...]:
    return tuple(row[0] for row in values.integers(name, 1))


# ---- all roots --------------------------------------------------------------------------------
class QuorumRegister:
    """The state of one partition over all log roots of a replica set.

    Args:
        files: The register in each listed root, by node id.
        locker: Takes the partition's lock in the root of a node; re-entrant for a caller that holds
            one already. Raises `UnavailableError` if the root is offline.
        random: For the numbers of rounds and for waits between them.
        topic_id: The expected topic id; a state of another one raises InconsistentTopicIdError.
    """

    def __init__(
        self,
        files: Mapping[int, RegisterFile],
        *,
        locker: Callable[[int], AbstractContextManager[object]],
        random: Random,
        topic_id: str | None = None,
    ) -> None:
        first = next(iter(files.values()))
        self.files = files
        self._name = first.name
        self._clock = first.root.clock
        self._locker = locker
        self._random = random
        self._topic_id = topic_id
        self._failures: dict[int, StreamLogError] = {}

    # ---- reading ------------------------------------------------------------------------------
    def peek(self) -> PartitionState | None:
        """Return the highest accepted state of the roots that can be reached; may be stale.

        Takes no locks and runs no rounds. None if no root holds a state.
        """
        value = latest(each.accepted for each in self._acceptors().values())
        return None if value is None else value.state

    def settled(self) -> PartitionState | None:
        """Return the state that a majority of its voters holds now, None if that is uncertain.

        Takes no locks and runs no rounds.
        """
        value = self._settled()
        return None if value is None else value.state

    def is_deleted(self) -> bool:
        """Return whether a majority of its voters holds now that the partition was deleted."""
        value = self._settled()
        return value is not None and value.state is None

    def read(self) -> PartitionState:
        """Return the state that a majority has accepted; runs a round if that is uncertain.

        Raises:
            NoQuorumError: Less than a majority can be reached.
            UnknownTopicError: The partition was deleted.
            InconsistentTopicIdError: The topic was deleted and created again.
        """
        for _ in range(_LOOKS):
            value = self._settled()
            if value is not None:
                return self._checked(value)
            self._clock.sleep_ms(self._random.uniform(0, _LOOK_MS))
        return self._checked(self._decide(_unchanged))

    def confirm(self) -> PartitionState:
        """Return the decided state, and rule out every other state proposed before.

        A round that died may have left a state in a root that cannot be reached now. A later round
        would adopt it, although a majority holds another state. Runs a round unless every voter
        holds the same value.

        Raises: As `read`.
        """
        acceptors = self._acceptors()
        value = latest(each.accepted for each in acceptors.values())
        if value is not None:
            holders = {
                _voter(at, acceptors) for at, it in acceptors.items() if it.accepted == value
            }
            if holders >= {*value.voters}:
                return self._checked(value)
        return self._checked(self._decide(_unchanged))

    def voters(self) -> tuple[int, ...]:
        """Return the nodes whose files count, by the highest accepted value that can be reached.

        A node that has lost its file since is not among them.
        """
        acceptors = self._acceptors()
        value = latest(each.accepted for each in acceptors.values())
        there = () if value is None else value.voters
        return tuple(voter.node for voter in there if not self._is_lost(voter, acceptors))

    def _is_lost(self, voter: Voter, acceptors: Mapping[int, Acceptor]) -> bool:
        """Return whether the root of a voter can be reached but does not have its file."""
        if voter.node in acceptors:
            return _voter(voter.node, acceptors) != voter
        error = self._failures.get(voter.node)
        return isinstance(error, CorruptDataError) or (
            error is not None and error.what == _NO_REGISTER
        )

    def _acceptors(self) -> dict[int, Acceptor]:
        """Return the content of the files that can be read; notes the failures of the others."""
        self._failures.clear()
        acceptors = {}
        for node, file in self.files.items():
            try:
                acceptor = file.acceptor()
            except (UnavailableError, CorruptDataError) as error:
                self._failures[node] = error
                continue
            if acceptor is None:
                self._failures[node] = FileMissingError(_NO_REGISTER, path=file.path)
            else:
                acceptors[node] = acceptor
        return acceptors

    def _settled(self) -> Accepted | None:
        """Return the highest accepted value if a majority of its voters holds it."""
        acceptors = self._acceptors()
        value = latest(each.accepted for each in acceptors.values())
        if value is None:
            return None
        holders = [node for node, each in acceptors.items() if each.accepted == value]
        return value if value.is_held_by(_voter(each, acceptors) for each in holders) else None

    def _checked(self, value: Accepted) -> PartitionState:
        state = value.state
        if state is None:
            raise UnknownTopicError(f"partition {self._name} was deleted")
        if self._topic_id is not None and state.topic_id != self._topic_id:
            raise InconsistentTopicIdError(
                f"partition {self._name} belongs to another topic of the same name",
                got=state.topic_id,
                expected=self._topic_id,
            )
        return state

    # ---- changing -----------------------------------------------------------------------------
    def create(self, state: PartitionState) -> None:
        """Write the first state, in all roots that can be reached; all listed roots are voters.

        The caller holds the lists of topics of a majority of the roots and knows that there is no
        such topic: leftovers of a deleted or unfinished one are replaced.

        Raises:
            NoQuorumError: Less than a majority can be reached.
        """
        self._decide(lambda before: replace(before, state=state), creates=tuple(self.files))

    def change(
        self, fn: Callable[[PartitionState], PartitionState], expected_partition_epoch: int
    ) -> PartitionState:
        """Replace the state of a given partition epoch by the next one.

        Args:
            fn: Takes the present state and returns the next one, or the same one to leave it. May
                be called repeatedly; its exceptions are passed on.
            expected_partition_epoch: The partition epoch of the state to be replaced.

        Returns:
            The decided state.

        Raises:
            InvalidUpdateVersionError: The partition is in another epoch.
            NoQuorumError: Less than a majority can be reached. Once the state was proposed, the
                outcome is unknown: a later round may decide it.
            UnknownTopicError: The partition was deleted.
            InconsistentTopicIdError: The topic was deleted and created again.
        """
        proposed: list[PartitionState] = []

        def step(before: Accepted) -> Accepted:
            state = self._checked(before)
            if state in proposed:
                return before  # accepted by some root in an earlier attempt
            if state.partition_epoch != expected_partition_epoch:
                raise InvalidUpdateVersionError(
                    f"the state of partition {self._name} has changed",
                    got=f"partition epoch {state.partition_epoch}",
                    expected=expected_partition_epoch,
                )
            after = fn(state).counted(state)
            if after != state:
                if after.partition_epoch != expected_partition_epoch + 1:
                    raise AssertionError("a change raises the partition epoch by one")
                proposed.append(after)
            return replace(before, state=after)

        return self._checked(self._decide(step))

    def force(self, fn: Callable[[PartitionState], PartitionState]) -> PartitionState:
        """Replace the state without a majority; the roots that can be reached become the voters.

        What the missing voters have decided or will decide among themselves is lost: they follow
        the new generation when they return. Leader and partition epoch rise by `FORCED_EPOCHS` on
        top of what `fn` adds, so that they do not repeat epochs of the missing voters.

        Raises:
            NoQuorumError: No root with the register can be reached.
        """

        def step(before: Accepted) -> Accepted:
            present = self._checked(before)
            after = fn(present)
            state = replace(
                after.counted(present, is_forced=True),
                leader_epoch=after.leader_epoch + FORCED_EPOCHS,
                partition_epoch=after.partition_epoch + FORCED_EPOCHS,
            )
            return replace(before, state=state)

        value = self._decide(step, is_forced=True)
        _logger.warning(
            "forced partition %s into generation %d, decided by nodes %s from now on: %s",
            self._name,
            value.ballot.generation,
            [voter.node for voter in value.voters],
            value.state,
        )
        return self._checked(value)

    def delete(self) -> None:
        """Decide that the partition is gone; the files stay, see `forget`.

        Raises:
            NoQuorumError: Less than a majority can be reached.
        """
        self._decide(lambda before: replace(before, state=None))

    def forget(self) -> bool:
        """Remove the files of a deleted partition if all roots can be reached and agree.

        Until then they remind a root that returns. The caller holds the lists of topics.

        Returns:
            Whether they were removed.
        """
        acceptors = self._acceptors().values()
        offline = [each for each in self._failures.values() if each.what != _NO_REGISTER]
        if offline or any(each.accepted and each.accepted.state for each in acceptors):
            return False
        for node, file in self.files.items():
            self._attempt(node, file.remove)
        return True

    # ---- the voters ---------------------------------------------------------------------------
    def reinitialise(self, node: int) -> None:
        """Give a root a new register file, and make it a voter.

        A majority of the voters without `node` must be reachable: the root may have forgotten what
        it promised.

        Raises:
            NoQuorumError: Less than a majority without this root can be reached, or this root
                cannot.
        """
        others = [each for each in self.files if each != node]
        for _ in range(_ATTEMPTS):
            fresh = Voter(node, self._random.getrandbits(_NUMBER_BITS))
            value = self._decide(partial(_replace_voter, fresh, self.files[node]), nodes=others)
            if node in self.voters():  # another process was faster
                return
            acceptor = Acceptor(value.ballot, fresh.incarnation, value)
            self._failures.clear()
            is_installed = self._attempt(node, partial(self.files[node].install, acceptor))
            if self._failures:
                raise self._no_quorum([node])
            if is_installed:
                if fresh not in value.voters:
                    self._decide(partial(_add_voter, fresh))
                return
        raise self._no_quorum([node])

    def align(self, nodes: Collection[int]) -> None:
        """Make `nodes` the voters, one by one, each with its present file.

        Raises:
            NoQuorumError: Less than a majority can be reached, or a new voter cannot.
        """
        for node in nodes:
            if node not in self.voters():
                self.reinitialise(node)
        for node in self.voters():
            if node not in nodes:
                self._decide(partial(_remove_voter, node))

    # ---- rounds -------------------------------------------------------------------------------
    def _decide(
        self,
        change: Change,
        *,
        nodes: Collection[int] | None = None,
        creates: Collection[int] | None = None,
        is_forced: bool = False,
    ) -> Accepted:
        asked = tuple(self.files if nodes is None else nodes)
        seen = max((each.promised for each in self._acceptors().values()), default=Ballot())
        for attempt in range(_ATTEMPTS):
            number = self._random.getrandbits(_NUMBER_BITS)
            begun_ms = self._clock.monotonic_ms()
            ballot = seen.forced(number) if is_forced else seen.above(number)
            self._failures.clear()
            outcome = self._run(
                propose(asked, ballot, change, creates=creates, is_forced=is_forced)
            )
            if isinstance(outcome, Chosen):
                return outcome.value
            if outcome.seen is None:
                break
            seen = max(ballot, outcome.seen)
            # As long as a round of another process takes, then of more and more of them.
            round_ms = max(_SHORTEST_ROUND_MS, self._clock.monotonic_ms() - begun_ms)
            wait_ms = min(round_ms * 2**attempt, _LONGEST_WAIT_MS)
            self._clock.sleep_ms(self._random.uniform(0.5, 1.5) * wait_ms)
        raise self._no_quorum(asked)

    def _run(self, proposal: Proposal) -> Chosen | Inconclusive:
        try:
            request = next(proposal)
            while True:
                request = proposal.send(self._ask(request))
        except StopIteration as end:
            outcome: Chosen | Inconclusive = end.value
            return outcome

    def _ask(self, request: Prepare | Accept) -> Answer | None:
        file = self.files[request.node]

        def answer() -> Answer:
            if isinstance(request, Prepare):
                return file.prepare(request.ballot, creates=request.creates)
            return file.accept(request.value)

        given = self._attempt(request.node, answer)
        if given == Refusal(None):
            self._failures[request.node] = FileMissingError(_NO_REGISTER, path=file.path)
        return given

    def _attempt(self, node: int, action: Callable[[], _T]) -> _T | None:
        """Return the result of an action under the lock in a root, None if that is not possible."""
        try:
            with self._locker(node):
                return action()
        except (UnavailableError, CorruptDataError) as error:
            self._failures[node] = error
            _logger.debug("register %s of node %d: %s", self._name, node, error)
            return None

    def _no_quorum(self, asked: Collection[int]) -> NoQuorumError:
        missing = [
            f"node {node} ({self.files[node].root.path}): {error.what}"
            for node, error in sorted(self._failures.items())
            if node in asked
        ]
        return NoQuorumError(
            f"no majority of log roots for the state of partition {self._name}",
            got="; ".join(missing) or "other processes changed it all the time",
            expected=f"a majority of {len(self.files)} log roots",
            hint="bring the missing log roots back; see them: streamlog replicas list",
        )


def _voter(node: int, acceptors: Mapping[int, Acceptor]) -> Voter:
    return Voter(node, acceptors[node].incarnation)


def _unchanged(value: Accepted) -> Accepted:
    return value


def _replace_voter(fresh: Voter, file: RegisterFile, value: Accepted) -> Accepted:
    with contextlib.suppress(UnavailableError, CorruptDataError):
        acceptor = file.acceptor()
        if acceptor is not None and Voter(fresh.node, acceptor.incarnation) in value.voters:
            return value  # another process was faster: replacing a sound file
    voters = (fresh if voter.node == fresh.node else voter for voter in value.voters)
    return replace(value, voters=tuple(voters))


def _add_voter(fresh: Voter, value: Accepted) -> Accepted:
    if any(voter.node == fresh.node for voter in value.voters):
        return value
    return replace(value, voters=(*value.voters, fresh))


def _remove_voter(node: int, value: Accepted) -> Accepted:
    return replace(value, voters=tuple(voter for voter in value.voters if voter.node != node))
