"""CASPaxos, pure: one value that a majority of voters agrees on, changed by compare-and-set.

An acceptor keeps the highest ballot that it has promised and the last value that it has accepted. A
round prepares a ballot at the acceptors, changes the value with the highest accepted ballot, and
has the result accepted. A value is decided once a majority of the voters has accepted it under one
ballot. A round that changes nothing settles a value that only some acceptors hold.

    prepare(b)     b > promised           promise b, answer with the accepted value
    accept(b, v)   b ≥ promised           accept v
    otherwise                             refuse, answer with the promised ballot

Rules beyond the paper (Rystsov, "CASPaxos: Replicated State Machines without logs", 2018):

- An acceptor without a file answers nothing, except to a round that creates the value.
- A voter is a node and the incarnation of its file. A node that has lost its file gets a new one,
  of another incarnation, and so becomes another voter: a promise that was lost with a disk never
  counts again.
- The voters are part of the value. One round adds, removes or replaces at most one voter, so any
  majority of the old voters that can still answer and any majority of the new ones have a voter in
  common.
- A forced round asks no majority. It raises the generation, the most significant part of a ballot,
  and makes its acceptors the voters.
"""

from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamlog.replication.partition_state import PartitionState

__all__ = [
    "FORCED_EPOCHS",
    "Accept",
    "Accepted",
    "Acceptor",
    "Ballot",
    "Chosen",
    "Inconclusive",
    "Prepare",
    "Proposal",
    "Promise",
    "Refusal",
    "Voter",
    "accept",
    "latest",
    "prepare",
    "propose",
]

# A forced round cannot know the epochs that the missing voters have used since; it skips so many.
FORCED_EPOCHS: Final = 1000


@dataclass(frozen=True, slots=True, order=True)
class Ballot:
    """The number of a round; no two rounds share one.

    Attributes:
        generation: Raised by each forced round.
        round: Above every ballot that the proposer has seen.
        proposer: A random number, drawn for each round.
    """

    generation: int = 0
    round: int = 0
    proposer: int = 0

    def above(self, proposer: int) -> "Ballot":
        """Return a higher ballot of the same generation."""
        return Ballot(self.generation, self.round + 1, proposer)

    def forced(self, proposer: int) -> "Ballot":
        """Return a ballot of the next generation."""
        return Ballot(self.generation + 1, 0, proposer)


class Voter(NamedTuple):
    """A register file that counts.

    Attributes:
        node: The node.
        incarnation: The random number of the file; 0 for a voter that has none yet.
    """

    node: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """A value with the ballot under which it was accepted.

    Attributes:
        ballot: The ballot.
        voters: The files whose majority decides about the value.
        state: The value; None after a deletion.
    """

    ballot: Ballot
    voters: tuple[Voter, ...]
    state: PartitionState | None

    def is_held_by(self, voters: Iterable[Voter]) -> bool:
        """Return whether `voters` contain a majority of those that decide about the value."""
        return 2 * len({*self.voters} & {*voters}) > len(self.voters)


@dataclass(frozen=True, slots=True)
class Acceptor:
    """The content of a register file.

    Attributes:
        promised: No lower ballot is accepted.
        incarnation: The random number of the file.
        accepted: None before the first value.
    """

    promised: Ballot
    incarnation: int
    accepted: Accepted | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """The answer of an acceptor that agrees: its incarnation, and the value that it holds."""

    incarnation: int
    accepted: Accepted | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer of an acceptor that has promised another ballot; None if it has no file."""

    promised: Ballot | None


Answer = Promise | Refusal


def prepare(
    acceptor: Acceptor | None, ballot: Ballot, *, creates: bool = False
) -> tuple[Acceptor | None, Answer]:
    """Return the acceptor after a request to promise `ballot`, and its answer.

    Args:
        acceptor: The content of its file, None if there is none.
        ballot: The ballot to promise.
        creates: Whether an acceptor without a file may answer.
    """
    if acceptor is None:
        if not creates:
            return None, Refusal(None)
        return Acceptor(ballot, ballot.proposer), Promise(ballot.proposer, None)
    if ballot <= acceptor.promised:
        return acceptor, Refusal(acceptor.promised)
    after = Acceptor(ballot, acceptor.incarnation, acceptor.accepted)
    return after, Promise(acceptor.incarnation, acceptor.accepted)


def accept(acceptor: Acceptor | None, value: Accepted) -> tuple[Acceptor | None, Answer]:
    """Return the acceptor after a request to accept a value, and its answer."""
    if acceptor is None:
        return None, Refusal(None)
    if acceptor.promised > value.ballot:
        return acceptor, Refusal(acceptor.promised)
    after = Acceptor(value.ballot, acceptor.incarnation, value)
    return after, Promise(acceptor.incarnation, value)


def latest(values: Iterable[Accepted | None]) -> Accepted | None:
    """Return the value with the highest ballot, None if there is no value."""
    there = [each for each in values if each is not None]
    return max(there, key=lambda each: each.ballot, default=None)


# ---- rounds -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Prepare:
    """The request of a round to promise its ballot."""

    node: int
    ballot: Ballot
    creates: bool


@dataclass(frozen=True, slots=True)
class Accept:
    """The request of a round to accept a value."""

    node: int
    value: Accepted


@dataclass(frozen=True, slots=True)
class Chosen:
    """A majority of the voters has accepted the value."""

    value: Accepted


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """A round without a majority.

    Attributes:
        seen: The highest ballot in an answer: a higher one may succeed. None if no acceptor
            refused, so that repeating the round is useless while the same nodes are missing.
        value: A value that some acceptors may hold: a later round may decide it. None if the round
            has not proposed one.
    """

    seen: Ballot | None
    value: Accepted | None = None


Proposal = Generator[Prepare | Accept, Answer | None, Chosen | Inconclusive]
Change = Callable[[Accepted], Accepted]


def propose(
    nodes: Iterable[int],
    ballot: Ballot,
    change: Change,
    *,
    creates: Collection[int] | None = None,
    is_forced: bool = False,
) -> Proposal:
    """Run one round: yields requests, takes answers, returns the outcome.

    Args:
        nodes: The nodes to ask; all are asked, so that as many as possible hold the value.
        ballot: Its ballot, never used before.
        change: Takes the value with the highest ballot and returns the next one, or the same one to
            settle it; the ballot is set afterwards. May replace, add or remove one voter. An
            exception ends the round without a proposal.
        creates: The voters of a new value; nodes without a file take part, and what others hold is
            replaced: the caller knows that it is garbage. None if the value must exist.
        is_forced: Whether the round does without a majority of the voters.

    Yields:
        A request; send the answer, None if the node cannot be reached.

    Returns:
        `Chosen`, or `Inconclusive`.
    """
    promises: dict[Voter, Accepted | None] = {}
    for node in nodes:
        answer = yield Prepare(node, ballot, creates is not None)
        if isinstance(answer, Promise):
            promises[Voter(node, answer.incarnation)] = answer.accepted
        elif answer is not None and answer.promised is not None:
            return Inconclusive(answer.promised)  # another round is ahead: do not disturb it
    before = latest(promises.values())
    if creates is not None:
        before = Accepted(ballot, _voters(creates, promises), None)
    if before is None or not (is_forced or before.is_held_by(promises)):
        return Inconclusive(None)
    after = change(before)
    value = Accepted(ballot, tuple(promises) if is_forced else after.voters, after.state)
    holders: list[Voter] = []
    seen: Ballot | None = None
    for voter in promises:
        answer = yield Accept(voter.node, value)
        if isinstance(answer, Promise):
            holders.append(Voter(voter.node, answer.incarnation))
        elif answer is not None and answer.promised is not None:
            seen = max(seen or ballot, answer.promised)
    if value.is_held_by(holders) and (is_forced or before.is_held_by(holders)):
        return Chosen(value)
    return Inconclusive(seen, value)


def _voters(nodes: Iterable[int], there: Iterable[Voter]) -> tuple[Voter, ...]:
    incarnations = {voter.node: voter.incarnation for voter in there}
    return tuple(Voter(node, incarnations.get(node, 0)) for node in nodes)
