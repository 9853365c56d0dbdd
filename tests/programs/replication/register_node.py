"""A simulated node's part in the register: it answers rounds, and runs its own over the network."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from streamlog.replication.quorum import (
    Accept,
    Accepted,
    Answer,
    Ballot,
    Change,
    Chosen,
    Inconclusive,
    Prepare,
    Proposal,
    Refusal,
    accept,
    prepare,
    propose,
)
from tests.programs.replication.disk import Disk

if TYPE_CHECKING:
    from tests.programs.replication.world import World

FIRST_WAIT: Final = 8
LONGEST_WAIT: Final = 300
Ended = Callable[[Chosen | Inconclusive], None]


class OutdatedError(Exception):
    """A round found another state than the one that it wanted to change."""


class _Round:
    """A round of the register in progress: one request is on its way at any time."""

    def __init__(self, proposal: Proposal, ballot: Ballot, ended: Ended, *, elects: bool) -> None:
        self.proposal = proposal
        self.elects = elects
        self.ballot = ballot
        self.ended = ended
        self.token = 0


class RegisterNode:
    """Holds an acceptor on its disk and runs one round at a time.

    Attributes:
        disk: Survives crashes.
        incarnation: Raised by each start; messages of an earlier one are dropped.
    """

    def __init__(self, node: int, world: "World", disk: Disk) -> None:
        self.node = node
        self.disk = disk
        self._world = world
        self.incarnation = 0
        self.clock_rate = 1.0
        self.clock_offset = 0
        self._forget_rounds()

    def _forget_rounds(self) -> None:
        self._is_stale = True
        self._round: _Round | None = None
        self._seen = Ballot()
        self._wait, self._quiet_until = FIRST_WAIT, self.now

    @property
    def now(self) -> int:
        """The time of its own clock, which drifts."""
        return int(self._world.time * self.clock_rate) + self.clock_offset

    @property
    def is_deciding(self) -> bool:
        """Whether a round of it is in progress."""
        return self._round is not None

    @property
    def is_electing(self) -> bool:
        """Whether an election or a reassignment of it is in progress."""
        return self._round is not None and self._round.elects

    @property
    def accepted(self) -> Accepted | None:
        """The value in its register file."""
        return None if self.disk.acceptor is None else self.disk.acceptor.accepted

    def _ballot(self) -> Ballot:
        acceptor = self.disk.acceptor
        seen = self._seen if acceptor is None else max(self._seen, acceptor.promised)
        return seen.above(self._world.count() * 8 + self.node)

    def _decide(
        self, change: Change, ended: Ended, *, without_self: bool = False, elects: bool = False
    ) -> None:
        """Start a round; `ended` gets its outcome."""
        ballot = self._ballot()
        nodes = self._world.order_of_nodes()
        if without_self:
            nodes.remove(self.node)
        self._round = _Round(propose(nodes, ballot, change), ballot, ended, elects=elects)
        self._advance(None)

    def _advance(self, answer: Answer | None) -> None:
        current = self._round
        assert current is not None
        try:
            while True:
                request = current.proposal.send(answer)
                if request.node != self.node:
                    break
                answer = self.answer(request)
        except StopIteration as end:
            self._round = None
            outcome: Chosen | Inconclusive = end.value
            self._back_off(current, outcome)
            current.ended(outcome)
            return
        except OutdatedError:
            self._round = None
            self._is_stale = True
            return
        world = self._world
        current.token = world.count()
        world.send(self.node, request.node, "on_register", self.node, current.token, request)
        world.after(world.profile.timeout, self._round_timed_out, self.incarnation, current.token)

    def _back_off(self, current: _Round, outcome: Chosen | Inconclusive) -> None:
        """Wait longer and longer between failures, so that rounds do not outbid each other."""
        if isinstance(outcome, Chosen):
            self._wait = FIRST_WAIT
            return
        if outcome.seen is not None:
            self._seen = max(current.ballot, outcome.seen)
        self._quiet_until = self.now + self._world.pick(self._wait)
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _round_timed_out(self, incarnation: int, token: int) -> None:
        if incarnation == self.incarnation and self._round and self._round.token == token:
            self._advance(None)

    def answer(self, request: Prepare | Accept) -> Answer:
        """Answer a request of a round from the register file."""
        if isinstance(request, Prepare):
            after, answer = prepare(self.disk.acceptor, request.ballot, creates=request.creates)
        else:
            after, answer = accept(self.disk.acceptor, request.value)
        self.disk.acceptor = after
        return answer

    def on_register_answer(self, token: int, answer: Answer) -> None:
        if self._round is not None and self._round.token == token:
            self._advance(None if answer == Refusal(None) else answer)
