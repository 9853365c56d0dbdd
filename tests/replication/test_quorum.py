"""The pure rounds: every interleaving of two proposers over three acceptors."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from streamlog.replication import quorum
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.quorum import (
    Accepted,
    Acceptor,
    Answer,
    Ballot,
    Change,
    Chosen,
    Inconclusive,
    Prepare,
    Promise,
    Proposal,
    Refusal,
    Voter,
    latest,
    propose,
)

NODES = (1, 2, 3)
FIRST = PartitionState.created("AAAAAAAAAAEAAAAAAAAAAg", NODES)
VOTERS = tuple(Voter(node, 10 * node) for node in NODES)
CREATED = Accepted(Ballot(), VOTERS, FIRST)
AcceptRule = Callable[[Acceptor | None, Accepted], tuple[Acceptor | None, Answer]]


def elect(leader: int, *, expected: int) -> Change:
    """Return a change that makes a node the leader, if nothing has changed since `expected`."""

    def change(before: Accepted) -> Accepted:
        assert before.state is not None
        if before.state.partition_epoch != expected:
            return before
        return replace(before, state=before.state.with_leader(leader))

    return change


def settle(before: Accepted) -> Accepted:
    """Change nothing."""
    return before


class Acceptors:
    """Three acceptors, and every value that a majority of them has ever accepted."""

    def __init__(self, *, accept: AcceptRule = quorum.accept) -> None:
        self.there: dict[int, Acceptor | None] = {
            voter.node: Acceptor(Ballot(), voter.incarnation, CREATED) for voter in VOTERS
        }
        self.accept = accept
        self.votes: dict[Accepted, set[Voter]] = {}
        self.decided: set[PartitionState | None] = set()

    def answer(self, request: "Prepare | quorum.Accept") -> Answer:
        node = request.node
        if isinstance(request, Prepare):
            self.there[node], given = quorum.prepare(
                self.there[node], request.ballot, creates=request.creates
            )
            return given
        self.there[node], given = self.accept(self.there[node], request.value)
        if isinstance(given, Promise):
            voted = self.votes.setdefault(request.value, set())
            voted.add(Voter(node, given.incarnation))
            if request.value.is_held_by(voted):
                self.decided.add(request.value.state)
        return given

    def run(self, proposal: Proposal) -> Chosen | Inconclusive:
        try:
            request = next(proposal)
            while True:
                request = proposal.send(self.answer(request))
        except StopIteration as end:
            outcome: Chosen | Inconclusive = end.value
            return outcome

    def step(self, proposal: Proposal, answer: Answer | None) -> Answer | None:
        """Send one answer and serve the next request."""
        return self.answer(proposal.send(answer))


def interleavings(steps: int) -> Iterator[tuple[bool, ...]]:
    """Every order of `steps` requests of each of two proposers."""
    for chosen in combinations(range(2 * steps), steps):
        yield tuple(place in chosen for place in range(2 * steps))


def play(order: tuple[bool, ...], ballots: tuple[Ballot, Ballot], accept: AcceptRule) -> Acceptors:
    """Run two proposers that elect different leaders, one request at a time."""
    acceptors = Acceptors(accept=accept)
    proposals = [
        propose(NODES, ballots[0], elect(2, expected=0)),
        propose(NODES, ballots[1], elect(3, expected=0)),
    ]
    answers: list[Answer | None] = [None, None]
    ended = [False, False]
    for is_first in order:
        which = 0 if is_first else 1
        if not ended[which]:
            try:
                answers[which] = acceptors.step(proposals[which], answers[which])
            except StopIteration:
                ended[which] = True
    return acceptors


def check(acceptors: Acceptors) -> None:
    """One value per partition epoch, and every later majority finds it."""
    epochs = [state.partition_epoch for state in acceptors.decided if state is not None]
    assert len(epochs) == len(set(epochs)), acceptors.decided
    assert len({each.leader_epoch for each in acceptors.decided if each}) == len(epochs)
    if not epochs:
        return
    last = max((each for each in acceptors.decided if each), key=lambda each: each.partition_epoch)
    for majority in combinations(NODES, 2):
        copy = Acceptors()
        copy.there = dict(acceptors.there)
        outcome = copy.run(propose(majority, Ballot(0, 100, 100), settle))
        assert isinstance(outcome, Chosen) and outcome.value.state is not None
        assert outcome.value.state.partition_epoch >= last.partition_epoch
        if outcome.value.state.partition_epoch == last.partition_epoch:
            assert outcome.value.state == last


BALLOTS = [(Ballot(0, 1, 1), Ballot(0, 1, 2)), (Ballot(0, 2, 1), Ballot(0, 1, 2))]


@pytest.mark.parametrize("ballots", BALLOTS)
def test_two_proposers_in_every_order_decide_one_value(ballots: tuple[Ballot, Ballot]) -> None:
    decided = set()
    for order in interleavings(6):
        for length in (12, 11, 9, 7):  # shorter: both proposers die on the way
            acceptors = play(order[:length], ballots, quorum.accept)
            check(acceptors)
            decided |= acceptors.decided
    assert {each.leader for each in decided if each} == {2, 3}


def accept_without_promise(
    acceptor: Acceptor | None, value: Accepted
) -> tuple[Acceptor | None, Answer]:
    """Accept whatever comes: as if there were no prepare phase."""
    assert acceptor is not None
    after = Acceptor(value.ballot, acceptor.incarnation, value)
    return after, Promise(acceptor.incarnation, value)


def test_the_check_finds_acceptors_that_ignore_their_promises() -> None:
    found = 0
    for order in interleavings(6):
        try:
            check(play(order, BALLOTS[0], accept_without_promise))
        except AssertionError:
            found += 1
    assert found > 0


def test_an_uncertain_value_is_settled_by_a_round_that_changes_nothing() -> None:
    acceptors = Acceptors()
    next_state = FIRST.with_leader(2)
    ballot = Ballot(0, 1, 1)
    acceptors.there[2] = Acceptor(ballot, 20, Accepted(ballot, VOTERS, next_state))
    outcome = acceptors.run(propose((2, 3), Ballot(0, 2, 1), settle))
    assert outcome == Chosen(Accepted(Ballot(0, 2, 1), VOTERS, next_state))
    assert acceptors.decided == {next_state}


@pytest.mark.parametrize("incarnation", [11, 10])
def test_a_promise_lost_with_a_disk_does_not_count(incarnation: int) -> None:
    """Node 1 promises, loses its disk, and gets a file again; its old promise elects nobody."""
    acceptors = Acceptors()
    slow = propose((1, 2), Ballot(0, 9, 1), elect(2, expected=0))
    promise = acceptors.answer(next(slow))

    def renew(before: Accepted) -> Accepted:
        return replace(before, voters=(Voter(1, incarnation), *before.voters[1:]))

    renewed = acceptors.run(propose((2, 3), Ballot(0, 2, 2), renew))
    assert isinstance(renewed, Chosen)
    acceptors.there[1] = Acceptor(renewed.value.ballot, incarnation, renewed.value)
    promise_of_2 = acceptors.step(slow, promise)
    faster = acceptors.run(propose((1, 3), Ballot(0, 3, 3), elect(3, expected=0)))
    assert isinstance(faster, Chosen)
    answer: Answer | None = promise_of_2
    with pytest.raises(StopIteration):
        while True:
            answer = acceptors.step(slow, answer)
    if incarnation == 11:
        check(acceptors)
    else:  # the same file as before: the disk had forgotten, and the check notices
        with pytest.raises(AssertionError):
            check(acceptors)


def test_an_acceptor_without_a_file_answers_only_the_creation() -> None:
    assert quorum.prepare(None, Ballot(0, 1, 1)) == (None, Refusal(None))
    after, answer = quorum.prepare(None, Ballot(0, 1, 5), creates=True)
    assert (after, answer) == (Acceptor(Ballot(0, 1, 5), 5), Promise(5, None))
    assert quorum.accept(None, CREATED) == (None, Refusal(None))


def test_a_forced_round_needs_no_majority_and_beats_every_round() -> None:
    acceptors = Acceptors()
    acceptors.run(propose((2, 3), Ballot(0, 7, 1), elect(2, expected=0)))
    outcome = acceptors.run(
        propose((1,), Ballot(0, 3, 1).forced(5), elect(1, expected=0), is_forced=True)
    )
    assert isinstance(outcome, Chosen)
    assert outcome.value.voters == (Voter(1, 10),)
    there = [each.accepted for each in acceptors.there.values() if each is not None]
    assert latest(there) == outcome.value
    # The others, back again, cannot outvote it.
    settled = acceptors.run(propose(NODES, Ballot(1, 1, 1), settle))
    assert isinstance(settled, Chosen) and settled.value.state == outcome.value.state
