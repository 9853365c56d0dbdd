"""One server under comparison: a connection, and what differs between any two servers masked."""

from typing import Any, Final

from streamlog.protocol.apis import ZERO_UUID, apis
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from tests.gateway.wire_client import WireClient

Step = tuple[str, Any]  # what was asked, and the masked answer

_ANY: Final = frozenset(
    {"throttleTimeMs", "host", "port", "clusterId", "errorMessage", "logDir", "totalBytes",
     "usableBytes", "logAppendTimeMs", "batchIndexErrorMessage", "lastTimestamp", "startTimeMs",
     "clientHost"}
)  # fmt: skip
_NODES: Final = frozenset({"nodeId", "leaderId", "controllerId", "brokerId", "replicaId"})
_NODE_LISTS: Final = frozenset({"replicaNodes", "isrNodes"})


class Side:
    """A server that is asked.

    Attributes:
        address: Where it listens.
        notes: What a scenario remembers of earlier answers: producer ids, member ids, topic ids.
    """

    def __init__(self, address: str) -> None:
        self.address, self.notes = address, dict[str, Any]()
        self._client = WireClient(address, timeout_s=60)

    def ask(self, api: str, version: int, **values: Any) -> Any:
        """Return the unmasked answer; None if the server closed the connection."""
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
        self._client.close()


def masked(answer: Any, name: str = "") -> Any:
    """Return an answer without what two servers never share: ids, addresses, times, paths."""
    if name in _ANY:
        return "any"
    if name in _NODES:
        return "node" if answer >= 0 else answer
    if name in _NODE_LISTS:
        return ["node"] * len(answer)
    if name in ("topicId", "producerId", "memberId", "leader", "sessionId"):
        return answer if answer in (ZERO_UUID, -1, 0, "", None) else f"some {name}"
    if isinstance(answer, dict):
        return {key: masked(value, key) for key, value in answer.items()}
    if isinstance(answer, list):
        if name in ("partitions", "topics"):  # in no particular order, but that of the request
            answer = sorted(answer, key=lambda each: each.get("partitionIndex", 0))
        return [masked(each, name) for each in answer]
    return answer


def batch(
    *values: bytes,
    key: bytes | None = b"key",
    timestamp: int = 1_700_000_000_000,
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
