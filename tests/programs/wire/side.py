"""One server under comparison: a connection, and what differs between any two servers masked."""

import re
import time
from collections.abc import Mapping
from typing import Any, Final

from streamlog.protocol.apis import ZERO_UUID, apis
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from tests.gateway.wire_client import WireClient

NEW_TOPIC: Final[dict[str, Any]] = {
    "numPartitions": 2,
    "replicationFactor": 1,
    "assignments": [],
    "configs": [],
}
Step = tuple[str, Any]  # what was asked, and the masked answer

_ANY: Final = frozenset(
    {"throttleTimeMs", "host", "port", "clusterId", "errorMessage", "logDir", "totalBytes",
     "usableBytes", "logAppendTimeMs", "batchIndexErrorMessage", "lastTimestamp", "startTimeMs",
     "clientHost"}
)  # fmt: skip
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_IDS: Final = frozenset({"topicId", "producerId", "memberId", "leader", "sessionId"})
_NODES: Final = frozenset({"nodeId", "leaderId", "controllerId", "brokerId", "replicaId"})
NOW_MS: Final = int(time.time() * 1000)  # the same for both sides, and too young for retention
_NO_IDS: Final[Mapping[Any, str]] = {}
# Lists in no particular order but that of the request; and what their elements are known by.
_UNORDERED: Final = frozenset({"configResources", "configs", "partitions", "topics"})
_PLACES: Final = ("resourceType", "resourceName", "name", "topicName", "partitionIndex")
_NODE_LISTS: Final = frozenset({"replicaNodes", "isrNodes"})


class Side:
    """A server that is asked.

    Attributes:
        address: Where it listens.
        notes: What a scenario remembers of earlier answers: producer ids, member ids, topic ids.
        asked: The requests so far, with their versions.
    """

    def __init__(self, address: str) -> None:
        self.address, self.notes = address, dict[str, Any]()
        self.asked: set[tuple[str, int]] = set()
        self._client = WireClient(address, timeout_s=60)
        self._others: dict[str, WireClient] = {}

    def client(self, name: str) -> WireClient:
        """Return a connection of its own, for requests that wait for one another."""
        if name not in self._others:
            self._others[name] = WireClient(self.address, timeout_s=60)
        return self._others[name]

    def ask(self, api: str, version: int, **values: Any) -> Any:
        """Return the unmasked answer; None if the server closed the connection."""
        self.asked.add((api, version))
        try:
            return self._client.call(api, version, **values)
        except ConnectionError:
            self._client.close()
            self._client = WireClient(self.address, timeout_s=60)
            return None

    def step(self, what: str, api: str, version: int, **values: Any) -> Step:
        """Ask, and return a masked answer under a name."""
        return f"{api} v{version} {what}".strip(), masked(self.ask(api, version, **values))

    def topic_id(self, name: str) -> str:
        """Return the id of a topic."""
        (topic,) = self.ask("Metadata", 12, topics=[{"topicId": ZERO_UUID, "name": name}])["topics"]
        return str(topic["topicId"])

    def close(self) -> None:
        """Disconnect."""
        for client in (self._client, *self._others.values()):
            client.close()


def masked(answer: Any, name: str = "", known: Mapping[Any, str] = _NO_IDS) -> Any:
    """Return an answer without what two servers never share: ids, addresses, times, paths.

    Args:
        answer: The answer, or a field of it.
        name: The field's name.
        known: Names of ids that earlier answers had: they are shown by these.
    """
    if name in _ANY:
        return "any"
    if name == "transactionStartTimeMs":
        return answer if answer <= 0 else "some time"
    if name in _NODES:
        return "node" if answer >= 0 else answer
    if name in _NODE_LISTS:
        return ["node"] * len(answer)
    if name in _IDS:
        if answer in (ZERO_UUID, -1, 0, "", None):
            return answer
        return known.get(
            answer, f"some {name} {_UUID.sub('*', answer) if name == 'memberId' else ''}"
        )
    if isinstance(answer, dict):
        return {key: masked(value, key, known) for key, value in answer.items()}
    if isinstance(answer, list):
        if name in _UNORDERED and answer and isinstance(answer[0], dict):
            answer = sorted(answer, key=_place)
        return [masked(each, name, known) for each in answer]
    return answer


def _place(element: dict[str, Any]) -> tuple[Any, ...]:
    found = (element.get(name) for name in _PLACES)
    return tuple(each for each in found if each is not None)


def create_topic(side: Side, name: str, partitions: int = 2, **configs: str) -> None:
    """Create a topic and wait until its partitions can be used: a broker makes them later."""
    given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    topic = NEW_TOPIC | {"name": name, "numPartitions": partitions, "configs": given}
    side.ask("CreateTopics", 7, topics=[topic], timeoutMs=10_000, validateOnly=False)
    while not _is_led(side, name, partitions):
        time.sleep(0.05)


def _is_led(side: Side, name: str, partitions: int) -> bool:
    wanted = [
        {"partitionIndex": number, "timestamp": -1, "currentLeaderEpoch": -1}
        for number in range(partitions)
    ]
    topics = [{"name": name, "partitions": wanted}]
    answer = side.ask("ListOffsets", 7, replicaId=-1, isolationLevel=0, topics=topics)
    return not any(each["errorCode"] for each in answer["topics"][0]["partitions"])


def batch(
    *values: bytes,
    key: bytes | None = b"key",
    timestamp: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_transactional: bool = False,
) -> bytes:
    """Return an encoded v2 batch; `producer` is id, epoch and first sequence."""
    builder = BatchBuilder(
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=is_transactional,
    )
    for value in values:
        builder.append(Record(key=key, value=value, timestamp=timestamp))
    return bytes(builder.build())


def stable_versions(api: str) -> range:
    """Return the stable versions of an API."""
    return apis()[api].versions
