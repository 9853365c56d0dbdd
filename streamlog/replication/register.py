"""The state of a partition, kept in every log root of its replica set and decided by a majority.

The register of each root is a `RegisterFile`; the rounds among them are those of
`streamlog.replication.quorum`.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, TypeVar

from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InconsistentTopicIdError,
    InvalidUpdateVersionError,
    NoQuorumError,
    StreamLogError,
    UnavailableError,
    UnknownTopicError,
)
from streamlog.replication.partition_state import PartitionState
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
    latest,
    propose,
)
from streamlog.replication.register_file import RegisterFile

__all__ = ["QuorumRegister"]

_NO_REGISTER: Final = "no register"
_ATTEMPTS: Final = 12
_SHORTEST_ROUND_MS: Final = 1.0
_LONGEST_WAIT_MS: Final = 1_000.0
_LOOKS: Final = 3  # before a read settles a value that another process may be settling
_LOOK_MS: Final = 10.0
_NUMBER_BITS: Final = 63
_T = TypeVar("_T")

_logger = logging.getLogger(__name__)


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
