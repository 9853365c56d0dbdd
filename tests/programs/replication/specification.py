"""All states of a small replicated partition, breadth first, as a published TLA+ model has them.

    python -m tests.programs.replication.specification [--rule kip320] [--variant specification]

The model is github.com/hachikuji/kafka-specification: three replicas, two log slots, two records,
three leader epochs, requests that arrive late or never. Its actions are taken here with the
functions of `streamlog.replication`; this module only chooses who acts when, and compares logs.
For the rule in use TLC, the model checker, finds 737,794 states and no violation; for each older
rule it finds a history in which a record below the high watermark is missing or another.

Two variants. `specification` keeps to the model where it is stricter or more adverse than the
product: a leader lets a follower join only once its high watermark has reached its own epoch
(which it never would below `min.insync.replicas`), and a follower takes over a lower high
watermark. `production` leaves both to the functions.

A state is (requests, quorum ISR, next record id, replica…), all of them small numbers: requests
and replicas are interned. An action depends on one or two replicas, so its outcome is remembered by
their numbers, and the functions run once for each situation.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from streamlog.partition.epochs import EpochEntry, LeaderEpochCache
from streamlog.records.acks import Acks
from streamlog.replication.election import ElectionType, alter_partition, elect
from streamlog.replication.follower import Follower
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.leader import Leader
from streamlog.replication.messages import (
    Errors,
    Fetch,
    OffsetsForLeaderEpoch,
    OffsetsForLeaderEpochResponse,
)
from streamlog.replication.partition_state import NO_LEADER, PartitionState
from streamlog.replication.truncation import RULES, TruncationRule, end_of_epoch

NO_EPOCH = -1
SOON_MS, LATE_MS = 0, 100_000  # within the lag time, and past it
State = tuple[int, ...]


class Replica(NamedTuple):
    """A replica: its log of (record id, epoch), and what it knows of the partition."""

    log: tuple[tuple[int, int], ...] = ()
    high_watermark: int = 0
    leader: int = NO_LEADER
    epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()


class LeaderAndIsr(NamedTuple):
    """A request of the controller; its leader epoch is its place among the requests."""

    leader: int
    isr: tuple[int, ...]


class Positions:
    """The positions of a log, or of its first `end` records."""

    log_start_offset = 0

    def __init__(self, log: tuple[tuple[int, int], ...], end: int | None = None) -> None:
        records = log[:end]
        self.log_end_offset = len(records)
        starts: dict[int, int] = {}
        for offset, (_, epoch) in enumerate(records):
            starts.setdefault(epoch, offset)
        entries = sorted(starts.items())
        self.epochs = LeaderEpochCache(tuple(EpochEntry(*each) for each in entries))


class Outcome(NamedTuple):
    """The result of an enumeration, in TLC's terms."""

    distinct: int
    generated: int
    depth: int
    violated: str | None
    history: tuple[tuple[str, State], ...]  # the actions and states that lead to the violation


class Interned:
    """Numbers for values, so that states are tuples of numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.values: list[Any] = []

    def number(self, value: Any) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


CACHED: Final = (
    "controller",
    "become_leader",
    "write",
    "shrink",
    "expand",
    "raise_high_watermark",
    "become_follower",
    "fetch",
    "truncate",
    "differ",
)


class Model:
    """The partition under one truncation rule, with the constants of the model."""

    def __init__(
        self,
        rule: TruncationRule,
        *,
        replicas: int = 3,
        log_size: int = 2,
        max_records: int = 2,
        max_leader_epoch: int = 2,
        production: bool = False,
    ) -> None:
        self.rule = rule
        self.nodes = tuple(range(replicas))
        self.log_size = log_size
        self.max_records = max_records
        self.max_leader_epoch = max_leader_epoch
        self.production = production
        self.settings = ReplicationSettings(rule=rule, replica_lag_time_max_ms=1_000)
        self.requests = Interned()
        self.isrs = Interned()
        self.replicas = Interned()
        for action in CACHED:  # outcomes depend on nothing but the numbers passed
            setattr(self, action, cache(getattr(self, action)))

    def initial(self) -> State:
        nobody = self.replicas.number(Replica())
        return (
            self.requests.number(()),
            self.isrs.number(self.nodes),
            0,
            *[nobody for _ in self.nodes],
        )

    # ---- the actions: from numbers to numbers, None if the action cannot be taken ------------
    def controller(self, requests: int, isr: int) -> list[tuple[str, int, int]]:
        """Elections, and replicas that the controller takes out of the ISR."""
        sent, members = self.requests.values[requests], self.isrs.values[isr]
        if len(sent) > self.max_leader_epoch:
            return []
        state = self._state(len(sent) - 1, sent[-1].leader if sent else NO_LEADER, members)
        found = []
        for node in members:
            if node != state.leader:
                order = (node, *[other for other in self.nodes if other != node])
                election = elect(
                    replace(state, replicas=order),
                    ElectionType.PREFERRED,
                    online=self.nodes,
                    min_insync_replicas=1,
                )
                found.append(("ControllerElectLeader", election.state))
            left = tuple(other for other in members if other != node)
            if node != state.leader:
                found.append(
                    ("ControllerShrinkIsr", state.with_isr(left).with_leader(state.leader))
                )
            else:
                after = state.with_isr(left or members).with_leader(NO_LEADER)
                found.append(("ControllerShrinkIsr", after))
        return [
            (
                action,
                self.requests.number((*sent, LeaderAndIsr(after.leader, after.isr))),
                self.isrs.number(after.isr),
            )
            for action, after in found
        ]

    def become_leader(self, requests: int, node: int, replica: int) -> list[int]:
        mine: Replica = self.replicas.values[replica]
        found = []
        for epoch, request in enumerate(self.requests.values[requests]):
            if request.leader == node and epoch > mine.epoch:
                new = mine._replace(leader=node, epoch=epoch, isr=request.isr)
                isr = self._leader(node, new).isr.committed
                found.append(self.replicas.number(new._replace(isr=isr)))
        return found

    def write(self, node: int, replica: int, record: int) -> int | None:
        mine: Replica = self.replicas.values[replica]
        if mine.leader != node or len(mine.log) >= self.log_size or record >= self.max_records:
            return None
        leader = self._leader(node, mine)
        if leader.admit(Acks.LEADER) is not Errors.NONE:
            return None
        return self.replicas.number(mine._replace(log=(*mine.log, (record, leader.leader_epoch))))

    def shrink(self, node: int, replica: int, other: int, follower: int) -> int | None:
        """A leader removes one follower; the others have just caught up. Returns the ISR."""
        mine: Replica = self.replicas.values[replica]
        if other not in mine.isr:
            return None
        leader = self._leader(node, mine)
        self._send_fetch(leader, node, other, self.replicas.values[follower], SOON_MS)
        for member in mine.isr:
            if member not in (node, other):
                leader.follower_at(member, len(mine.log), LATE_MS)
        leader.check_lag(LATE_MS)
        return self._accepted(leader, mine)

    def expand(self, node: int, replica: int, other: int, follower: int) -> int | None:
        """A leader adds one follower. Returns the ISR."""
        mine: Replica = self.replicas.values[replica]
        if other in mine.isr:
            return None
        leader = self._leader(node, mine)
        waits = RULES[self.rule].joins_at_epoch_start and not self.production
        if waits and mine.high_watermark < leader.epoch_start_offset:
            return None
        self._send_fetch(leader, node, other, self.replicas.values[follower], LATE_MS)
        return self._accepted(leader, mine)

    def raise_high_watermark(self, node: int, replica: int, followers: State) -> int | None:
        """A leader learns that one more record is everywhere in its ISR."""
        mine: Replica = self.replicas.values[replica]
        end = mine.high_watermark + 1
        if mine.leader != node or end > len(mine.log):
            return None
        # As when the log ended after that record: the model commits one record at a time.
        leader = Leader(
            node,
            self._state(mine.epoch, node, mine.isr),
            Positions(mine.log, end),
            self.settings,
            high_watermark=mine.high_watermark,
            now_ms=SOON_MS,
        )
        for member, follower in zip(mine.isr, followers, strict=True):
            if member != node:
                theirs: Replica = self.replicas.values[follower]
                if len(theirs.log) >= end:
                    self._send_fetch(leader, node, member, theirs, SOON_MS, end)
        if leader.high_watermark < end:
            return None
        return self.replicas.number(mine._replace(high_watermark=leader.high_watermark))

    def become_follower(
        self, requests: int, node: int, replica: int, other: int, leader: int
    ) -> list[int]:
        """A replica learns of a leader, and truncates its log if the rule demands it."""
        mine: Replica = self.replicas.values[replica]
        found = []
        for epoch, request in enumerate(self.requests.values[requests]):
            if request.leader == other and epoch > mine.epoch:
                state = self._state(epoch, other, request.isr)
                after = self._truncated(node, mine, other, self.replicas.values[leader], state)
                if after is not None:
                    found.append(self.replicas.number(after))
        return found

    def fetch(self, node: int, replica: int, other: int, leader: int) -> int | None:
        """A follower fetches one record."""
        mine: Replica = self.replicas.values[replica]
        theirs: Replica = self.replicas.values[leader]
        if mine.leader != other or theirs.leader != other or len(mine.log) >= len(theirs.log):
            return None
        known = mine.high_watermark if self.production else 0
        follower = self._follower(node, mine, known)
        follower.is_truncated = True
        answer = self._leader(other, theirs).fetch(follower.request(), SOON_MS)
        if answer is None or answer.error is not Errors.NONE:
            return None
        step = follower.fetched(replace(answer, end_offset=len(mine.log) + 1))
        if step.append_to is None:
            return None
        log = (*mine.log, *theirs.log[len(mine.log) : step.append_to])
        return self.replicas.number(mine._replace(log=log, high_watermark=step.high_watermark))

    def truncate(self, node: int, replica: int, other: int, leader: int) -> int | None:
        """A follower truncates after the answers to its fetches (only KIP-320's first try)."""
        mine: Replica = self.replicas.values[replica]
        theirs: Replica = self.replicas.values[leader]
        if mine.leader != other or theirs.leader != other:
            return None
        after = mine
        while True:
            follower = self._follower(node, after, after.high_watermark)
            answer = self._leader(other, theirs).fetch(follower.request(), SOON_MS)
            step = None if answer is None else follower.fetched(answer)
            if step is None or step.truncate_to is None or step.truncate_to >= len(after.log):
                return None if after is mine else self.replicas.number(after)
            after = after._replace(
                log=after.log[: step.truncate_to], high_watermark=step.high_watermark
            )

    # ---- the invariants ----------------------------------------------------------------------
    def differ(self, node: int, replica: int, other: int, follower: int) -> bool:
        """Whether the other log lacks a record below a leader's high watermark."""
        mine, theirs = self.replicas.values[replica], self.replicas.values[follower]
        committed = slice(mine.high_watermark)
        return bool(mine.leader == node and mine.log[committed] != theirs.log[committed])

    def violated(self, state: State) -> str | None:
        """Return the invariant that a state violates: a committed record is not in the ISR."""
        strong = self.isrs.values[state[1]]
        for node in self.nodes:
            replica = state[3 + node]
            mine: Replica = self.replicas.values[replica]
            if mine.leader == node and mine.high_watermark:
                for name, members in (("WeakIsr", mine.isr), ("StrongIsr", strong)):
                    for other in members:
                        if self.differ(node, replica, other, state[3 + other]):
                            return name
        return None

    # ---- one step ----------------------------------------------------------------------------
    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield each action that can be taken, with the state it leads to."""
        requests, isr, record = state[:3]
        for action, sent, members in self.controller(requests, isr):
            yield action, (sent, members, *state[2:])
        true_epoch = len(self.requests.values[requests]) - 1
        true_leader = self.requests.values[requests][-1].leader if true_epoch >= 0 else NO_LEADER
        for node in self.nodes:
            number = state[3 + node]
            mine: Replica = self.replicas.values[number]
            for after in self.become_leader(requests, node, number):
                yield "BecomeLeader", _with(state, node, after)
            for other in self.nodes:
                if other != node:
                    yield from self._as_follower(state, node, other)
            if mine.leader != node:
                continue
            if (written := self.write(node, number, record)) is not None:
                after_write = _with(state, node, written)
                yield "LeaderWrite", (*after_write[:2], record + 1, *after_write[3:])
            followers = tuple(state[3 + member] for member in mine.isr)
            if (raised := self.raise_high_watermark(node, number, followers)) is not None:
                yield "LeaderIncHighWatermark", _with(state, node, raised)
            if (true_leader, true_epoch) == (node, mine.epoch):
                yield from self._isr_changes(state, node)

    def _as_follower(self, state: State, node: int, other: int) -> Iterator[tuple[str, State]]:
        mine, theirs = state[3 + node], state[3 + other]
        for after in self.become_follower(state[0], node, mine, other, theirs):
            yield "BecomeFollower", _with(state, node, after)
        if (fetched := self.fetch(node, mine, other, theirs)) is not None:
            yield "FollowerFetch", _with(state, node, fetched)
        if RULES[self.rule].truncates_first:
            return
        if (truncated := self.truncate(node, mine, other, theirs)) is not None:
            yield "FollowerTruncate", _with(state, node, truncated)

    def _isr_changes(self, state: State, node: int) -> Iterator[tuple[str, State]]:
        number = state[3 + node]
        for name, change in (("LeaderShrinkIsr", self.shrink), ("LeaderExpandIsr", self.expand)):
            for other in self.nodes:
                if other == node:
                    continue
                isr = change(node, number, other, state[3 + other])
                if isr is not None:
                    mine: Replica = self.replicas.values[number]
                    after = self.replicas.number(mine._replace(isr=self.isrs.values[isr]))
                    changed = _with(state, node, after)
                    yield name, (changed[0], isr, *changed[2:])
                    if change == self.shrink and self._lags_twice(node, mine, other, state):
                        yield name, (changed[0], isr, *changed[2:])

    def _lags_twice(self, node: int, mine: Replica, other: int, state: State) -> bool:
        """Whether both reasons to remove a follower hold: TLC counts a step for each of them."""
        theirs: Replica = self.replicas.values[state[3 + other]]
        follows = (theirs.leader, theirs.epoch) == (node, mine.epoch)
        return RULES[self.rule].fences and not follows and len(theirs.log) < len(mine.log)

    # ---- the functions of the product --------------------------------------------------------
    def _state(self, epoch: int, leader: int, isr: tuple[int, ...]) -> PartitionState:
        return PartitionState(
            topic_id="A" * 22, replicas=self.nodes, isr=isr, leader=leader, leader_epoch=epoch
        )

    def _leader(self, node: int, mine: Replica) -> Leader:
        leader = Leader(
            node,
            self._state(mine.epoch, node, mine.isr),
            Positions(mine.log),
            self.settings,
            high_watermark=mine.high_watermark,
            now_ms=SOON_MS,
        )
        # A single replica commits at once; in the model that is an action of its own.
        leader.high_watermark = mine.high_watermark
        return leader

    def _follower(self, node: int, mine: Replica, high_watermark: int) -> Follower:
        state = self._state(mine.epoch, mine.leader, mine.isr)
        return Follower(
            node, state, Positions(mine.log), self.settings, high_watermark=high_watermark
        )

    def _send_fetch(
        self,
        leader: Leader,
        node: int,
        other: int,
        theirs: Replica,
        now_ms: int,
        end: int | None = None,
    ) -> None:
        """Send the fetch of a follower to the node that it takes for the leader."""
        if theirs.leader != node:
            return
        log = theirs.log[:end]
        request = Fetch(
            replica=other,
            current_leader_epoch=theirs.epoch,
            fetch_offset=len(log),
            last_fetched_epoch=log[-1][1] if log else NO_EPOCH,
        )
        leader.fetch(request, now_ms)

    def _accepted(self, leader: Leader, mine: Replica) -> int | None:
        """Let the controller decide about the change in flight, and install it."""
        proposal = leader.proposal
        if proposal is None:
            return None
        state = alter_partition(leader.state, proposal, min_insync_replicas=1)
        if isinstance(state, Errors):
            return None
        leader.installed(state, LATE_MS)
        return self.isrs.number(leader.isr.committed)

    def _truncated(
        self, node: int, mine: Replica, other: int, theirs: Replica, state: PartitionState
    ) -> Replica | None:
        """Return a replica that follows in a new epoch, None while its leader does not answer."""
        log, high_watermark = mine.log, mine.high_watermark
        is_truncated = False
        while not is_truncated:
            follower = Follower(
                node, state, Positions(log), self.settings, high_watermark=high_watermark
            )
            request = follower.request()
            if not isinstance(request, OffsetsForLeaderEpoch):
                break
            answer = self._end_of_epoch(request, other, theirs)
            if answer is None or answer.error is not Errors.NONE:
                return None
            step = follower.epoch_answered(answer)
            log, high_watermark = log[: step.truncate_to], step.high_watermark
            is_truncated = follower.is_truncated
        return Replica(log, high_watermark, state.leader, state.leader_epoch, state.isr)

    def _end_of_epoch(
        self, request: OffsetsForLeaderEpoch, other: int, theirs: Replica
    ) -> OffsetsForLeaderEpochResponse | None:
        if RULES[self.rule].fences:
            if theirs.leader != other:
                return None
            return self._leader(other, theirs).offsets_for_leader_epoch(request)
        # Before KIP-320 any replica answered, whatever it knew of leader and epoch.
        return OffsetsForLeaderEpochResponse(
            current_leader_epoch=request.current_leader_epoch,
            leader_epoch=request.leader_epoch,
            end=end_of_epoch(self.rule, Positions(theirs.log), request.leader_epoch),
        )


def _with(state: State, node: int, replica: int) -> State:
    return (*state[: 3 + node], replica, *state[4 + node :])


def enumerate_states(model: Model, *, progress: bool = False) -> Outcome:
    """Visit all states breadth first, up to the first level with a violation."""
    first = model.initial()
    parents: dict[State, State | None] = {first: None}
    level, generated, depth = [first], 1, 1
    while level:
        following: list[State] = []
        for state in level:
            for _, after in model.successors(state):
                generated += 1
                if after in parents:
                    continue
                parents[after] = state
                following.append(after)
                violated = model.violated(after)
                if violated is not None:
                    history = _history(model, parents, after)
                    return Outcome(len(parents), generated, depth + 1, violated, history)
        level = following
        depth += bool(level)
        if progress:
            print(f"depth {depth}: {len(parents):,} states", file=sys.stderr, flush=True)
    return Outcome(len(parents), generated, depth, None, ())


def _history(
    model: Model, parents: dict[State, State | None], last: State
) -> tuple[tuple[str, State], ...]:
    states = [last]
    while (before := parents[states[-1]]) is not None:
        states.append(before)
    states.reverse()
    actions = ["Init"]
    for before, after in pairwise(states):
        actions.append(next(name for name, found in model.successors(before) if found == after))
    return tuple(zip(actions, states, strict=True))


def describe(model: Model, state: State) -> str:
    """Return the logs and states of the replicas in one line."""
    texts = []
    for node in model.nodes:
        each: Replica = model.replicas.values[state[3 + node]]
        log = " ".join(f"{record}@{epoch}" for record, epoch in each.log)
        role = "leads" if each.leader == node else f"follows {each.leader}"
        role = "knows nothing" if each.leader == NO_LEADER else f"{role} in {each.epoch}"
        texts.append(f"{node} [{log}] HW {each.high_watermark} {role}")
    return f"ISR {model.isrs.values[state[1]]} | " + " | ".join(texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    rules = [rule.value for rule in TruncationRule]
    parser.add_argument("--rule", choices=rules, default=TruncationRule.KIP_320.value)
    variants = ["specification", "production"]
    parser.add_argument("--variant", choices=variants, default=variants[0])
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--log-size", type=int, default=2)
    parser.add_argument("--records", type=int, default=2)
    parser.add_argument("--max-leader-epoch", type=int, default=2)
    options = parser.parse_args()
    model = Model(
        TruncationRule(options.rule),
        replicas=options.replicas,
        log_size=options.log_size,
        max_records=options.records,
        max_leader_epoch=options.max_leader_epoch,
        production=options.variant == "production",
    )
    began = time.process_time()
    found = enumerate_states(model, progress=True)
    for number, (action, state) in enumerate(found.history, 1):
        print(f"{number:2} {action:24} {describe(model, state)}")
    print(f"{found.violated} is violated" if found.violated else "no violation")
    print(
        f"{found.distinct:,} distinct states, {found.generated:,} generated, depth {found.depth}, "
        f"{time.process_time() - began:.1f} s of CPU"
    )
    return 1 if found.violated else 0


if __name__ == "__main__":
    sys.exit(main())
