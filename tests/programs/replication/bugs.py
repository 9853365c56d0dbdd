"""The bugs of other implementations that the simulation must find: each a switch that puts it back.

A switch replaces a production function, or a step of the simulated carrier where the bug was in
the carrying out. `install` returns the function that takes the switch back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from streamlog.partition.epochs import UNDEFINED_EPOCH, LeaderEpochCache
from streamlog.replication import completeness, election, follower, leader, quorum, truncation
from streamlog.replication.completeness import ReplicaPositions
from streamlog.replication.follower import Follower, FollowerStep, OutOfRange
from streamlog.replication.isr import FollowerProgress
from streamlog.replication.leader import Leader
from streamlog.replication.messages import FetchResponse
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.truncation import TruncationRule
from tests.programs.replication import controller, register_node
from tests.programs.replication.disk import Disk
from tests.programs.replication.history import History
from tests.programs.replication.replica import Replica
from tests.programs.replication.world import World

Patch = tuple[object, str, Any]


class Bug(NamedTuple):
    """A bug.

    Attributes:
        name: For `--bug`.
        origin: Where it was.
        what: The wrong behaviour.
        patches: Object, attribute and replacement.
        rule: The truncation rule.
        theme: The kind of runs that are searched for it, of `profile.THEMES`; None for all.
    """

    name: str
    origin: str
    what: str
    patches: tuple[Patch, ...] = ()
    rule: TruncationRule = TruncationRule.KIP_320
    theme: str | None = None


@contextmanager
def seeded(bug: Bug | None) -> Iterator[None]:
    """Put a bug in for a while."""
    patches = () if bug is None else bug.patches
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


# ---- epochs and truncation -----------------------------------------------------------------------
def _leader_without_epoch(self: Leader, *args: Any, **kwargs: Any) -> None:
    _LEADER_INIT(self, *args, **kwargs)
    self._log.epochs.truncate_from_end(self._log.log_end_offset)


def _truncate_records_only(self: Disk, offset: int) -> None:
    if offset < self.log_end_offset:
        _TRUNCATE(self, offset)


def _recover_without_epoch_0(self: Disk) -> None:
    _RECOVER(self)
    kept = tuple(entry for entry in self.epochs.entries if entry.epoch > 0)
    self.epochs = LeaderEpochCache(kept)


def _restart_at_start(_end: int, leader_start: int, _leader_end: int) -> OutOfRange:
    return OutOfRange(restart_at=leader_start)


def _restart_keeps_high_watermark(self: Follower, answer: FetchResponse) -> FollowerStep:
    before = self.high_watermark
    step = _OUT_OF_RANGE(self, answer)
    if step.restart_at is None:
        return step
    self.high_watermark = before
    return replace(step, high_watermark=before)


def _raise_before_truncating(self: Replica, step: FollowerStep, records: list[Any]) -> None:
    if step.truncate_to is not None and self.follower is not None:
        told = min(getattr(self, "told_high_watermark", 0), self.disk.log_end_offset)
        if told > self.high_watermark:
            self._raise_high_watermark(told)
    _CARRY_OUT(self, step, records)


def _remember_high_watermark(
    self: Replica, token: int, response: FetchResponse, records: list[Any]
) -> None:
    self.told_high_watermark = response.high_watermark
    _ON_FETCHED(self, token, response, records)


# ---- ISR and high watermark ----------------------------------------------------------------------
def _join_below_epoch_start(
    end: int, high_watermark: int, _start: int, *, under_min_isr: bool, caught_up: bool
) -> bool:
    return _MAY_JOIN(end, high_watermark, 0, under_min_isr=under_min_isr, caught_up=caught_up)


def _join_too_early(
    end: int, high_watermark: int, start: int, *, under_min_isr: bool, caught_up: bool
) -> bool:
    return _MAY_JOIN(end, high_watermark, start, under_min_isr=False, caught_up=True)


def _forget_followers(self: Leader, state: Any, now_ms: int) -> None:
    before = self.state.partition_epoch
    _INSTALLED(self, state, now_ms)
    if self.state.partition_epoch > before:
        self.followers = {node: FollowerProgress() for node in self.followers}


def _to_log_end(self: Leader, now_ms: int) -> None:
    self.high_watermark = max(self.high_watermark, self._log.log_end_offset)


def _without_in_flight(self: Any) -> frozenset[int]:
    return frozenset(self.proposed if self.proposed is not None else self.committed)


# ---- elections and the register ------------------------------------------------------------------
def _elect_anyone(*args: Any, **kwargs: Any) -> Any:
    kwargs.pop("complete")
    return _ELECT(*args, **kwargs)


def _prepare_amnesiac(acceptor: Any, ballot: Any, *, creates: bool = False) -> Any:
    if acceptor is None:
        acceptor = quorum.Acceptor(quorum.Ballot(), 0)  # the incarnation that was lost
    return _PREPARE(acceptor, ballot, creates=creates)


def _rejoin_as_ever(self: Replica) -> None:
    self.disk.is_unclean = False
    self.learn()


def _unclean_unnoticed(state: Any, nodes: Any, *, min_insync_replicas: int) -> Any:
    if not {*state.isr, *state.elr}.intersection(nodes):
        return state  # the partition epoch does not rise
    return _UNCLEAN_SHUTDOWN(state, nodes, min_insync_replicas=min_insync_replicas)


# ---- reassignment, re-creation, older formats ----------------------------------------------------
def _complete_below_min_isr(state: PartitionState, *, min_insync_replicas: int) -> PartitionState:
    return _COMPLETE(state, min_insync_replicas=0)


def _complete_too_early(state: PartitionState, *, min_insync_replicas: int) -> PartitionState:
    if not state.removing:
        return _COMPLETE(state, min_insync_replicas=min_insync_replicas)
    after = _COMPLETE(replace(state, adding=()), min_insync_replicas=min_insync_replicas)
    return state if after.removing else after


def _complete_replicas_only(state: PartitionState, *, min_insync_replicas: int) -> PartitionState:
    after = _COMPLETE(state, min_insync_replicas=min_insync_replicas)
    return after if after is state else replace(after, isr=state.isr)


def _complete_with_leader(state: PartitionState, *, min_insync_replicas: int) -> PartitionState:
    after = _COMPLETE(state, min_insync_replicas=min_insync_replicas)
    return replace(after, leader=state.leader, leader_epoch=state.leader_epoch)


def _completing(function: Any) -> tuple[Patch, ...]:
    return tuple((each, "complete_reassignment", function) for each in (election, controller))


def _keep_records(self: Disk, topic_id: str | None) -> None:
    if topic_id is None:
        _SET_ASIDE(self, topic_id)
    self.topic_id = topic_id


def _unknown_epoch_proves(
    other: ReplicaPositions, mine: ReplicaPositions, isr: Any, leader_epoch: int
) -> bool:
    last = other.offsets.high_watermark - 1
    is_there = other.node in isr and last >= max(mine.offsets.start, other.offsets.start)
    if is_there and mine.epochs.epoch_for_offset(last) != other.epochs.epoch_for_offset(last):
        return True
    return _PROVES(other, mine, isr, leader_epoch)


def _diverges_without_epochs(rule: Any, log: Any, last_fetched_epoch: int, offset: int) -> Any:
    if last_fetched_epoch != UNDEFINED_EPOCH and not log.epochs.entries:
        return truncation.end_of_epoch(rule, log, last_fetched_epoch)
    return _DIVERGING(rule, log, last_fetched_epoch, offset)


_LEADER_INIT: Final = Leader.__init__
_TRUNCATE: Final = Disk.truncate
_RECOVER: Final = Disk._recover_epochs
_OUT_OF_RANGE: Final = Follower._out_of_range
_CARRY_OUT: Final = Replica._carry_out
_ON_FETCHED: Final = Replica.on_fetched
_MAY_JOIN: Final = leader.may_join
_INSTALLED: Final = Leader.installed
_ELECT: Final = election.elect
_PREPARE: Final = quorum.prepare
_UNCLEAN_SHUTDOWN: Final = election.unclean_shutdown
_COMPLETE: Final = election.complete_reassignment
_SET_ASIDE: Final = Disk.set_aside
_PROVES: Final = completeness._proves
_DIVERGING: Final = truncation.diverging_epoch

# The registers of the roots fence too, and hide what the protocol alone would let through.
_NO_REGISTER_FENCE: Final[tuple[Patch, ...]] = (
    (Replica, "_check_fence", lambda _self: None),
    (History, "check_register", lambda *_: None),
)

BUGS: Final = (
    Bug(
        "truncate-by-hw",
        "before KIP-101",
        "a follower truncates to its high watermark",
        rule=TruncationRule.TRUNCATE_TO_HIGH_WATERMARK,
    ),
    Bug(
        "kip-101",
        "KAFKA-6361",
        "the answer does not name the epoch that it is about",
        rule=TruncationRule.KIP_101,
        theme="elections",
    ),
    Bug(
        "kip-279",
        "KIP-320",
        "requests of another leader epoch are answered",
        rule=TruncationRule.KIP_279,
        theme="elections",
    ),
    Bug(
        "kip-320-first-try",
        "KIP-320",
        "truncation by the answer to a fetch only",
        _NO_REGISTER_FENCE,
        TruncationRule.KIP_320_FIRST_TRY,
        theme="elections",
    ),
    Bug(
        "epoch-without-data",
        "KAFKA-7415",
        "an epoch is assigned with its first record only",
        ((Leader, "__init__", _leader_without_epoch),),
        theme="elections",
    ),
    Bug(
        "join-below-epoch-start",
        "KAFKA-7128",
        "a follower joins the ISR below the epoch's start",
        ((leader, "may_join", _join_below_epoch_start),),
        theme="resumptions",
    ),
    Bug(
        "out-of-range-restarts",
        "KAFKA-2143",
        "a follower out of range starts again",
        ((follower, "out_of_range", _restart_at_start),),
        TruncationRule.KIP_320_FIRST_TRY,
    ),
    Bug(
        "hw-after-full-truncation",
        "KAFKA-9491",
        "the high watermark stays after a restart",
        ((Follower, "_out_of_range", _restart_keeps_high_watermark),),
    ),
    Bug(
        "no-op-truncation",
        "KAFKA-10706",
        "epochs stay where no record is truncated",
        ((Disk, "truncate", _truncate_records_only),),
    ),
    Bug(
        "epoch-0-skipped",
        "KAFKA-10432",
        "recovery does not count epoch 0",
        ((Disk, "_recover_epochs", _recover_without_epoch_0),),
    ),
    Bug(
        "hw-before-truncation",
        "KAFKA-14704",
        "a follower raises its HW before it truncates",
        (
            (Replica, "_carry_out", _raise_before_truncating),
            (Replica, "on_fetched", _remember_high_watermark),
        ),
    ),
    Bug(
        "hw-below-min-isr",
        "KIP-966",
        "the high watermark rises below min.insync.replicas",
        ((leader, "may_raise_high_watermark", lambda _size, _min_isr: True),),
    ),
    Bug(
        "join-below-min-isr",
        "KAFKA-19996",
        "the ISR grows too early below its minimum",
        ((leader, "may_join", _join_too_early),),
    ),
    Bug(
        "isr-in-flight",
        "KIP-497",
        "the leader counts only the ISR that it has proposed",
        ((leader.InSyncReplicas, "maximal", property(_without_in_flight)),),
    ),
    Bug(
        "forgotten-followers",
        "crabka #308",
        "a new ISR forgets what followers had caught up",
        ((Leader, "installed", _forget_followers),),
    ),
    Bug(
        "empty-replica-elected",
        "reliability 23",
        "an empty replica may be elected",
        ((controller, "elect", _elect_anyone), (Replica, "_rejoin", _rejoin_as_ever)),
    ),
    Bug(
        "stale-proposal",
        "KAFKA-14139",
        "an ISR change counts on records lost meanwhile",
        ((controller, "unclean_shutdown", _unclean_unnoticed),),
        theme="joins",
    ),
    Bug(
        "fenced-only-at-open",
        "reliability 24",
        "a leader is fenced only when it starts",
        ((World, "fences_only_at_open", True),),
    ),
    Bug(
        "stale-hw-in-same-epoch",
        "found here",
        "a leader resumes its epoch with an older HW",
        ((World, "resumes_with_stale_high_watermark", True),),
        theme="resumptions",
    ),
    Bug(
        "resumed-without-settling",
        "found here",
        "a leader resumes its epoch while an ISR change of it may still be chosen",
        ((World, "resumes_without_settling", True),),
        theme="resumptions",
    ),
    Bug(
        "believes-own-register",
        "found here",
        "a leader takes the ISR in its own register file for decided",
        ((World, "believes_own_register", True),),
    ),
    Bug(
        "hw-is-leo",
        "reliability 19",
        "the high watermark is the log end",
        ((Leader, "_raise_high_watermark", _to_log_end),),
    ),
    Bug(
        "amnesiac-acceptor",
        "Paxos",
        "an acceptor that lost its file promises again",
        ((register_node, "prepare", _prepare_amnesiac),),
    ),
    Bug(
        "reassigned-below-min-isr",
        "KAFKA-15665",
        "a reassignment ends with fewer than min.insync.replicas in sync",
        _completing(_complete_below_min_isr),
        theme="reassignments",
    ),
    Bug(
        "reassigned-too-early",
        "KIP-455",
        "a reassignment ends before the added replicas are in sync",
        _completing(_complete_too_early),
        theme="reassignments",
    ),
    Bug(
        "isr-beyond-replicas",
        "KAFKA-9672",
        "removed replicas stay in the ISR",
        _completing(_complete_replicas_only),
        theme="reassignments",
    ),
    Bug(
        "removed-leader-leads",
        "kafka #13521",
        "a leader that a reassignment removes leads on",
        _completing(_complete_with_leader),
        theme="reassignments",
    ),
    Bug(
        "dropped-without-reading",
        "found here",
        "a former replica is set aside after another reassignment has added it again",
        ((World, "drops_without_reading", True),),
        theme="reassignments",
    ),
    Bug(
        "stray-replica",
        "KAFKA-14616",
        "a replica keeps the log of a deleted topic",
        ((Disk, "set_aside", _keep_records),),
        theme="topics",
    ),
    Bug(
        "topic-ids-ignored",
        "KIP-516",
        "a topic that was created again is taken for the deleted one",
        ((World, "ignores_topic_ids", True),),
        theme="topics",
    ),
    Bug(
        "epochs-of-old-format",
        "KAFKA-7897",
        "records in an older format leave stale epochs",
        ((Disk, "forget_epochs", lambda _self: None),),
        theme="formats",
    ),
    Bug(
        "unknown-epoch-proves-loss",
        "found here",
        "a record without an epoch counts as one of another epoch",
        ((completeness, "_proves", _unknown_epoch_proves),),
        theme="formats",
    ),
    Bug(
        "no-fetch-without-epochs",
        "found here",
        "a leader without epochs takes every follower for diverging",
        ((leader, "diverging_epoch", _diverges_without_epochs),),
        theme="formats",
    ),
)
