"""A classic group driven by hand: a clock and timers that move by calls, a log that answers."""

from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import Any

from streamlog.clock import ManualClock
from streamlog.config.group_config import GroupConfig
from streamlog.config.serve_config import ServeConfig
from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.classic import ClassicGroup
from streamlog.gateway.groups.group import Group, MemberProtocol, SubscribedTopic
from streamlog.gateway.groups.members import (
    GroupWorld,
    JoinRequest,
    Resolution,
    SyncRequest,
)
from streamlog.gateway.patterns import matching

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class ManualTimers:
    """Timers of a clock that moves only by `advance`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.due: dict[Hashable, tuple[float, int, Callable[[], None]]] = {}
        self._count = 0

    def schedule(self, key: Hashable, delay_ms: float, action: Callable[[], None]) -> None:
        self._count += 1
        self.due[key] = (self._clock.monotonic_ms() + delay_ms, self._count, action)

    def cancel(self, key: Hashable) -> None:
        self.due.pop(key, None)

    def is_scheduled(self, key: Hashable) -> bool:
        return key in self.due

    def advance(self, duration_ms: int) -> None:
        """Move the clock, and call what becomes due, in order."""
        end = self._clock.monotonic_ms() + duration_ms
        while self.due:
            key = min(self.due, key=lambda each: self.due[each][:2])
            at, _, action = self.due[key]
            if at > end:
                break
            self._clock.advance(int(at - self._clock.monotonic_ms()))
            del self.due[key]
            action()
        self._clock.advance(int(end - self._clock.monotonic_ms()))


class Answer:
    """The answer to a request, once there is one."""

    def __init__(self) -> None:
        self.values: dict[str, Any] | None = None

    def __call__(self, values: dict[str, Any]) -> None:
        assert self.values is None, "answered twice"
        self.values = values

    @property
    def waits(self) -> bool:
        return self.values is None

    @property
    def code(self) -> ErrorCode:
        assert self.values is not None, "not answered"
        return ErrorCode(self.values["errorCode"])

    def __getitem__(self, name: str) -> Any:
        assert self.values is not None, "not answered"
        return self.values[name]


class Driver:
    """A group and what it asks of the world.

    Attributes:
        outcome: What appends come to; None: they wait for `store`.
        topics: The topics by name.
        limits: The settings of the group itself.
        successors: The groups that took the place of the group.
        resolutions: The patterns that wait for `resolve`.
    """

    def __init__(self, **settings: int) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.settings = ServeConfig(**settings)  # type: ignore[arg-type] # checked when created
        self.outcome: ErrorCode | None = ErrorCode.NONE
        self.stored: list[KeyValue] = []
        self.topics: dict[str, SubscribedTopic] = {}
        self.limits: dict[str, str] = {}
        self.successors: list[Group] = []
        self.resolutions: list[tuple[frozenset[str], Resolution]] = []
        self._waiting: list[Callable[[ErrorCode], None]] = []
        self.world = GroupWorld(
            self.clock,
            Random(1),
            self.timers,
            lambda: self.settings,
            self._persist,
            lambda name: self.topics.get(name),
            lambda topic_id: next(
                (name for name, each in self.topics.items() if each.topic_id == topic_id), None
            ),
            lambda: self.topics,
            self._resolve,
            lambda group_id: GroupConfig.of_server(self.settings, self.limits),
            self.successors.append,
        )
        self.group = ClassicGroup("g", self.world)

    def _persist(
        self, group_id: str, records: Sequence[KeyValue], done: Callable[[ErrorCode], None]
    ) -> None:
        assert group_id == "g"
        self.stored.extend(records)
        if self.outcome is None:
            self._waiting.append(done)
        else:
            done(self.outcome)

    def _resolve(self, patterns: frozenset[str], done: Resolution) -> None:
        self.resolutions.append((patterns, done))

    def resolve(self) -> None:
        """Answer the oldest question what patterns match."""
        patterns, done = self.resolutions.pop(0)
        done({each: matching(each, self.topics) for each in patterns})

    def store(self, code: ErrorCode) -> None:
        """End the oldest append that waits."""
        self._waiting.pop(0)(code)

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        client_id: str = "c",
        protocols: str = "range",
        metadata: bytes = b"m",
        protocol_type: str = "consumer",
        rebalance_ms: int = REBALANCE_MS,
        needs_member_id: bool = False,
        can_skip_assignment: bool = True,
    ) -> Answer:
        answer = Answer()
        names = protocols.split(",") if protocols else []
        self.group.join(
            JoinRequest(
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host="/127.0.0.1",
                protocol_type=protocol_type,
                protocols=tuple(MemberProtocol(name, metadata) for name in names),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=rebalance_ms,
                needs_member_id=needs_member_id,
                can_skip_assignment=can_skip_assignment,
            ),
            answer,
        )
        return answer

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Answer:
        answer = Answer()
        request = SyncRequest(
            member_id, instance_id, generation, protocol_type, protocol_name, assignments or {}
        )
        self.group.sync(request, answer)
        return answer

    def beat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        return self.group.heartbeat(member_id, instance_id, generation)

    def stable(self, count: int = 1, *, static: bool = False) -> list[str]:
        """Let members join an empty group until it is stable; return their ids, leader first."""
        answers = [
            self.join(instance_id=f"i{at}" if static else None, client_id=f"c{at}")
            for at in range(count)
        ]
        self.timers.advance(self.settings.group_initial_rebalance_delay_ms + 1)
        members = [answer["memberId"] for answer in answers]
        generation = answers[0]["generationId"]
        leader = answers[0]["leader"]
        followers = [each for each in members if each != leader]
        waiting = [self.sync(each, generation) for each in followers]
        assignments = {each: f"to {each}".encode() for each in members}
        assert self.sync(leader, generation, assignments)["assignment"] == assignments[leader]
        for follower, answer in zip(followers, waiting, strict=True):
            assert answer["assignment"] == assignments[follower]
        assert self.group.state_name == "Stable"
        return [leader, *followers]
