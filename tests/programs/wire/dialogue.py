"""Dialogues: requests that build on each other's answers, as data, asked of any server.

A dialogue is a list of steps. In their values, `"$name"` stands for a note: the group, the topic,
or what an earlier step kept of its answer. It is held once per version: first with each request in
its latest one, then in the one before, until every version of each request was asked.

A request may wait for others, as JoinGroup does; `Later` is its answer, after the steps in between.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from streamlog.gateway.error_codes import ErrorCode
from tests.programs.wire.side import Side, Step, batch, create_topic, masked, stable_versions

__all__ = ["EVERY_VERSION", "TOPIC", "Ask", "Dialogue", "Later", "Records"]

TOPIC: Final = "dialogue"  # with two partitions
EVERY_VERSION: Final = (0, 99)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_PATIENCE_S: Final = 10
# Answers of a broker that is about to be able to: clients repeat the request.
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class Ask(NamedTuple):
    """A request.

    Attributes:
        what: What it is about.
        api: Its name.
        values: Its fields, with notes in place of ids; those of other versions are left out.
        keeps: Which fields of the answer to note, by the name of the note: `groups.0.memberId`.
        versions: The first and last version in which it is asked.
        client: Whose connection; None for one that all such requests share.
        answers_later: Whether a `Later` of this client takes the answer.
        until: Repeat it until a field of the answer has a value: its path as in `keeps`, the value.
        repeats: Whether to repeat it while the server says that it is not ready.
    """

    what: str
    api: str
    values: Mapping[str, Any]
    keeps: Mapping[str, str] = _NOTHING
    versions: tuple[int, int] = EVERY_VERSION
    client: str | None = None
    answers_later: bool = False
    until: tuple[str, Any] | None = None
    repeats: bool = True


class Later(NamedTuple):
    """The answer to the last request of a client.

    Attributes:
        client: The client.
        keeps: As of `Ask`.
    """

    client: str
    keeps: Mapping[str, str] = _NOTHING


class Records(NamedTuple):
    """A batch of a transactional producer, in place of bytes.

    Attributes:
        sequence: The sequence number of its only record.
        producer: The note with the producer id.
        epoch: The note with its epoch.
    """

    sequence: int
    producer: str = "$producer"
    epoch: str = "$epoch"


class Dialogue:
    """Steps under a name; callable as a scenario.

    Args:
        name: Its name.
        steps: Its steps.
    """

    def __init__(self, name: str, *steps: Ask | Later) -> None:
        self.__name__, self._steps = name, steps

    def __call__(self, side: Side) -> Iterator[Step]:
        """Hold it in all versions; yield the answers."""
        if "dialogue topic" not in side.notes:
            create_topic(side, TOPIC)
            side.notes["dialogue topic"] = side.topic_id(TOPIC)
            _find_coordinators(side)
        apis = {each.api for each in self._steps if isinstance(each, Ask)}
        versions = {api: stable_versions(api) for api in apis}
        for back in range(max(map(len, versions.values()))):
            held = _Held(side, f"{self.__name__}-{back}")
            for number, step in enumerate(self._steps):
                if isinstance(step, Later):
                    yield from held.receive(step)
                    continue
                known = versions[step.api]
                version = max(known[0], known[-1] - back)
                if step.versions[0] <= version <= step.versions[1]:
                    label = f"{step.api} v{version} {step.what} [{held.name} {number}]"
                    yield from held.ask(step, version, label)


def _find_coordinators(side: Side) -> None:
    """Wait until groups and transactions are coordinated: their topics are created when asked."""
    for kind in (0, 1):
        keys = ["any"]
        while any(_codes(side.ask("FindCoordinator", 4, keyType=kind, coordinatorKeys=keys))):
            time.sleep(0.05)


class _Held:
    """A dialogue in progress.

    Attributes:
        name: The name of this round: of its group, and of its transactional id.
    """

    def __init__(self, side: Side, name: str) -> None:
        self._side, self.name = side, name
        self._notes: dict[str, Any] = {
            "group": name,
            "id": name,
            "topic": TOPIC,
            "topic_id": side.notes["dialogue topic"],
        }
        self._waiting: dict[str, tuple[str, int, int, str]] = {}

    def ask(self, step: Ask, version: int, label: str) -> Iterator[Step]:
        """Ask, and yield the answer unless it comes later."""
        try:
            values = self._filled(step.values)
        except KeyError:
            return  # the step that would have kept the note is not asked in this round's version
        client = self._side.client(step.client or "shared")
        self._side.asked.add((step.api, version))
        if step.answers_later:
            number = client.send(step.api, version, **values)
            self._waiting[step.client or "shared"] = (step.api, version, number, label)
            return
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = client.call(step.api, version, **values)
            if step.until is not None:
                path, wanted = step.until
                is_final = _at(answer, path.split(".")) == wanted
            else:
                is_final = not step.repeats or _PASSING.isdisjoint(_codes(answer))
            if is_final or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        yield label, self._noted(answer, step.keeps)

    def receive(self, step: Later) -> Iterator[Step]:
        """Yield the answer to a request that waited."""
        if step.client in self._waiting:
            api, version, number, label = self._waiting.pop(step.client)
            answer = self._side.client(step.client).receive(api, version, number)
            yield label, self._noted(answer, step.keeps)

    def _noted(self, answer: dict[str, Any], keeps: Mapping[str, str]) -> Any:
        for name, path in keeps.items():
            self._notes[name] = _at(answer, path.split("."))
        shown = {
            value: f"${name}"
            for name, value in self._notes.items()
            if value not in (-1, "", None) and name not in ("epoch", "generation")
        }
        return _sorted(masked(answer, known=shown))

    def _filled(self, value: Any) -> Any:
        if isinstance(value, Records):
            producer, epoch = (self._filled(each) for each in (value.producer, value.epoch))
            return batch(b"x", producer=(producer, epoch, value.sequence), is_transactional=True)
        if isinstance(value, Mapping):
            return {key: self._filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, str) and value.startswith("$"):
            name, plus, more = value[1:].partition("+")
            return self._notes[name] + int(more) if plus else self._notes[name]
        return value


def _at(answer: Any, path: Sequence[str]) -> Any:
    for each in path:
        answer = answer[int(each)] if each.isdigit() else answer[each]
    return answer


def _codes(answer: Any) -> Iterator[int]:
    """Yield all error codes of an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.lower().endswith("errorcode"):
                yield value
            else:
                yield from _codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from _codes(each)


def _sorted(answer: Any) -> Any:
    """Return an answer with members and groups in an order: servers have none."""
    if isinstance(answer, dict):
        return {name: _sorted(value) for name, value in answer.items()}
    if isinstance(answer, list):
        shown = [_sorted(each) for each in answer]
        return sorted(shown, key=repr) if any(isinstance(each, dict) for each in shown) else shown
    return answer
