"""What a gateway and a broker are asked: every request that clients send, in each of its versions.

Versions: those of the traces of Kafka's tools, librdkafka, aiokafka and kafka-python, and the ones
between them.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from streamlog.gateway.error_codes import ErrorCode
from streamlog.protocol.apis import ZERO_UUID, apis
from tests.programs.wire.admin_scenarios import ADMIN_SCENARIOS
from tests.programs.wire.side import (
    NEW_TOPIC,
    NOW_MS,
    Side,
    Step,
    batch,
    create_topic,
    stable_versions,
)

__all__ = ["SCENARIOS"]

_TIMEOUT_MS: Final = 10_000
# The keys of the requests that Kafka's tools, librdkafka, aiokafka and kafka-python send.
_ASKED_BY_CLIENTS: Final = frozenset(
    [
        *range(4),
        *range(8, 17),
        *range(18, 23),
        24,
        26,
        32,
        35,
        37,
        42,
        44,
        46,
        60,
        66,
        68,
        69,
        75,
    ]
)
_NONE: Final = "AAAAAAAAAAEAAAAAAAAAAg"  # an id that no topic has


def _produced(
    side: Side, topic: str, data: bytes, *, version: int = 9, acks: int = -1, partition: int = 0
) -> dict[str, Any]:
    named = {"name": topic} if version < 13 else {"topicId": side.topic_id(topic)}
    partitions = [{"index": partition, "records": data}]
    return {
        "transactionalId": None,
        "acks": acks,
        "timeoutMs": _TIMEOUT_MS,
        "topicData": [named | {"partitionData": partitions}],
    }


def versions(side: Side) -> Iterator[Step]:
    """The versions of the requests that ordinary clients send, and an unknown version."""
    for version in stable_versions("ApiVersions"):
        software = {"clientSoftwareName": "test", "clientSoftwareVersion": "1"}
        answer = side.ask("ApiVersions", version, **software)
        named = {api.key: api.name for api in apis().values()}
        for each in answer["apiKeys"]:
            if each["apiKey"] in _ASKED_BY_CLIENTS:
                yield f"ApiVersions v{version} {named[each['apiKey']]}", each
        features = {each["name"]: each for each in answer["finalizedFeatures"]}
        for name in ("group.version", "transaction.version"):
            yield f"ApiVersions v{version} {name}", features.get(name)
        yield f"ApiVersions v{version} code", answer["errorCode"]


# ---- the cluster and its topics ---------------------------------------------------------------
def metadata(side: Side) -> Iterator[Step]:
    """Topics that exist, that do not, and whose names are invalid."""
    create_topic(side, "metadata")
    for version in stable_versions("Metadata"):
        for name in ("metadata", "missing", "in valid", ""):
            topics = [{"topicId": ZERO_UUID, "name": name}]
            yield side.step(repr(name), "Metadata", version, topics=topics)
        if version >= 12:
            for topic_id in (side.topic_id("metadata"), _NONE):
                by_id = [{"topicId": topic_id, "name": None}]
                what = "an id" if topic_id != _NONE else "an unknown id"
                yield side.step(what, "Metadata", version, topics=by_id)
    for version in stable_versions("DescribeCluster"):
        for asks in (False, True):
            yield side.step(
                f"operations {asks}",
                "DescribeCluster",
                version,
                includeClusterAuthorizedOperations=asks,
            )


def create_topics(side: Side) -> Iterator[Step]:
    """Creation, refused and checked only."""
    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        "again": {},
        "no partitions": {"numPartitions": 0},
        "too many replicas": {"replicationFactor": 2},
        "an unknown setting": {"configs": [{"name": "none", "value": "1"}]},
        "an invalid setting": {"configs": [{"name": "retention.ms", "value": "x"}]},
        "a null setting": {"configs": [{"name": "retention.ms", "value": None}]},
        "an invalid name": {"name": "in valid"},
        "a colliding name": {"name": "create.topics"},
        "a setting": {"name": "create-set", "configs": [{"name": "retention.ms", "value": "1"}]},
    }
    for version in stable_versions("CreateTopics"):
        for what, changes in cases.items():
            for only_check in (True, False):
                topic = NEW_TOPIC | {"name": f"create_topics-{version}"} | changes
                if what == "a colliding name":
                    topic["name"] = f"create.topics-{version}"
                if what == "a setting":
                    topic["name"] += f"-{version}"
                label, answer = side.step(
                    f"{what}{', checked only' * only_check}",
                    "CreateTopics",
                    version,
                    topics=[topic],
                    timeoutMs=_TIMEOUT_MS,
                    validateOnly=only_check,
                )
                for each in answer["topics"] if answer else ():
                    each["configs"] = _of_interest(each["configs"] or [])
                yield label, answer


def _of_interest(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in configs if each["name"] in ("retention.ms", "cleanup.policy")]


def change_topics(side: Side) -> Iterator[Step]:
    """Partitions added, topics deleted."""
    for version in stable_versions("CreatePartitions"):
        name = f"grow-{version}"
        create_topic(side, name)
        cases = {"as many": 2, "fewer": 1, "more": 4}
        for what, count in cases.items():
            topics = [{"name": name, "count": count, "assignments": None}]
            yield side.step(what, "CreatePartitions", version, topics=topics, timeoutMs=_TIMEOUT_MS)
        topics = [{"name": "missing", "count": 9, "assignments": None}]
        yield side.step("missing", "CreatePartitions", version, topics=topics, timeoutMs=9000)
    for version in stable_versions("DeleteTopics"):
        name = f"gone-{version}"
        create_topic(side, name)
        for what, wanted in (("plain", name), ("again", name), ("invalid", "in valid")):
            topics = [{"name": wanted, "topicId": ZERO_UUID}] if version >= 6 else []
            names = [wanted] if version < 6 else []
            yield side.step(
                what, "DeleteTopics", version, topics=topics, topicNames=names, timeoutMs=9000
            )


def configs(side: Side) -> Iterator[Step]:
    """Settings with their sources."""
    create_topic(side, "configs", retention_ms="5000", cleanup_policy="compact")
    for version in stable_versions("DescribeConfigs"):
        keys = ["retention.ms", "cleanup.policy", "segment.bytes", "compression.type"]
        for kind, name in ((2, "configs"), (2, "missing"), (2, "in valid"), (4, "1"), (4, "77")):
            wanted = {"resourceType": kind, "resourceName": name, "configurationKeys": keys}
            label, answer = side.step(
                f"{kind} {name}",
                "DescribeConfigs",
                version,
                resources=[wanted],
                includeSynonyms=True,
            )
            for each in answer["results"] if answer else ():
                each["configs"].sort(key=lambda entry: str(entry["name"]))
            yield label, answer
    for version in stable_versions("IncrementalAlterConfigs"):
        for what, key, operation, value in (
            ("set", "retention.ms", 0, "6000"),
            ("set to nonsense", "retention.ms", 0, "x"),
            ("set an unknown key", "none", 0, "x"),
            ("delete", "retention.ms", 1, None),
            ("append", "cleanup.policy", 2, "delete"),
            ("append to a number", "retention.ms", 2, "1"),
            ("subtract", "cleanup.policy", 3, "compact"),
        ):
            change = {"name": key, "configOperation": operation, "value": value}
            resource = {"resourceType": 2, "resourceName": "configs", "configs": [change]}
            yield side.step(what, "IncrementalAlterConfigs", version, resources=[resource])
    missing: dict[str, Any] = {"resourceType": 2, "resourceName": "missing", "configs": []}
    yield side.step("missing", "IncrementalAlterConfigs", 1, resources=[missing])
    for version in stable_versions("AlterConfigs"):
        for what, name, value in (
            ("replace all", "retention.ms", "7000"),
            ("an unknown key", "none", "x"),
            ("nonsense", "retention.ms", "x"),
        ):
            entry = {"name": name, "value": value}
            resource = {"resourceType": 2, "resourceName": "configs", "configs": [entry]}
            yield side.step(what, "AlterConfigs", version, resources=[resource])
        yield side.step("missing", "AlterConfigs", version, resources=[missing])


def describe_partitions(side: Side) -> Iterator[Step]:
    """Partitions in pages, with a cursor."""
    for name in ("pages-a", "pages-b"):
        create_topic(side, name, 3)
    topics = [{"name": "pages-b"}, {"name": "pages-a"}, {"name": "pages-none"}]
    for limit in (1, 3, 4, 100):
        yield side.step(
            f"limit {limit}",
            "DescribeTopicPartitions",
            0,
            topics=topics,
            responsePartitionLimit=limit,
            cursor=None,
        )
    cursor = {"topicName": "pages-a", "partitionIndex": 2}
    yield side.step(
        "from a cursor",
        "DescribeTopicPartitions",
        0,
        topics=topics,
        responsePartitionLimit=2,
        cursor=cursor,
    )


def others(side: Side) -> Iterator[Step]:
    """What interfaces ask before they show anything."""
    create_topic(side, "others", 1)
    named = [{"topic": "others", "partitions": [0, 7]}, {"topic": "missing", "partitions": [0]}]
    for version in stable_versions("DescribeLogDirs"):
        yield side.step("", "DescribeLogDirs", version, topics=named)
    filters = {"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1}
    for version in stable_versions("DescribeAcls"):
        yield side.step("", "DescribeAcls", version, **filters)
    acl = {"resourceType": 2, "resourceName": "others", "principal": "User:a", "host": "*"}
    acl |= {"resourcePatternType": 3, "operation": 3, "permissionType": 3}
    for version in stable_versions("CreateAcls"):
        yield side.step("", "CreateAcls", version, creations=[acl])
    for version in stable_versions("DeleteAcls"):
        yield side.step("", "DeleteAcls", version, filters=[filters])
    for version in stable_versions("ListConfigResources"):
        for kind in (16, 99):
            label = f"of type {kind}"
            yield side.step(label, "ListConfigResources", version, resourceTypes=[kind])
    yield side.step("", "ListPartitionReassignments", 0, timeoutMs=1000, topics=None)
    partitions = [{"topic": "others", "partitions": [0, 7]}]
    for version in stable_versions("ElectLeaders"):
        yield side.step(
            "", "ElectLeaders", version, electionType=0, topicPartitions=partitions, timeoutMs=1000
        )
    for version in stable_versions("DescribeClientQuotas"):
        yield side.step("", "DescribeClientQuotas", version, components=[], strict=False)


# ---- writing -----------------------------------------------------------------------------------
def produce(side: Side) -> Iterator[Step]:
    """Records accepted and refused."""
    for version in stable_versions("Produce"):
        name = f"produce-{version}"
        create_topic(side, name)
        good, second = batch(b"one", b"two"), batch(b"three")
        broken = good[:-1] + bytes([good[-1] ^ 1])
        for what, data in (
            ("one batch", good),
            ("a bad checksum", broken),
            ("two batches", good + second),
            ("half a batch", good[:-5]),
            ("nothing", b""),
            ("a far timestamp", batch(b"x", timestamp=1 << 60)),
        ):
            wanted = _produced(side, name, data, version=version)
            yield side.step(what, "Produce", version, **wanted)
        wanted = _produced(side, name, good, version=version, acks=2)
        yield side.step("acks 2", "Produce", version, **wanted)
        wanted = _produced(side, name, good, version=version, partition=9)
        yield side.step("an unknown partition", "Produce", version, **wanted)
        if version < 13:
            wanted = _produced(side, "missing", good, version=version)
            yield side.step("an unknown topic", "Produce", version, **wanted)
    create_topic(side, "produce-small", max_message_bytes="200")
    wanted = _produced(side, "produce-small", batch(b"x" * 300))
    yield side.step("too large", "Produce", 9, **wanted)
    create_topic(side, "produce-compact", cleanup_policy="compact")
    wanted = _produced(side, "produce-compact", batch(b"x", key=None))
    yield side.step("without a key, compacted", "Produce", 9, **wanted)
    create_topic(side, "produce-stamped", message_timestamp_type="LogAppendTime")
    yield side.step("stamped", "Produce", 9, **_produced(side, "produce-stamped", good))


def _producer_id(side: Side, version: int) -> Any:
    """Return a new producer id; a broker fetches its first ones from the controller."""
    while True:
        answer = side.ask(
            "InitProducerId", version, transactionalId=None, transactionTimeoutMs=60_000
        )
        if answer is None or answer["errorCode"] != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return answer
        time.sleep(0.05)


def idempotence(side: Side) -> Iterator[Step]:
    """An idempotent producer in and out of order."""
    create_topic(side, "idempotent")
    for version in stable_versions("InitProducerId"):
        answer = _producer_id(side, version)
        if answer is None:
            yield f"InitProducerId v{version} code", None
            continue
        yield f"InitProducerId v{version} code", answer["errorCode"]
        yield f"InitProducerId v{version} epoch", answer["producerEpoch"]
        side.notes["producer"] = answer["producerId"]
    producer = side.notes["producer"]
    for what, epoch, sequence in (
        ("first", 0, 0),
        ("repeated", 0, 0),
        ("next", 0, 1),
        ("a gap", 0, 5),
        ("a newer epoch", 1, 0),
        ("an older epoch", 0, 2),
        ("a newer epoch, not from 0", 2, 3),
    ):
        data = batch(b"x", producer=(producer, epoch, sequence))
        yield side.step(what, "Produce", 9, **_produced(side, "idempotent", data))
    unknown = batch(b"x", producer=(producer + 10_000, 0, 3))
    yield side.step("unknown, from 3", "Produce", 9, **_produced(side, "idempotent", unknown))
    topics = [{"name": "idempotent", "partitionIndexes": [0, 9]}]
    yield side.step("", "DescribeProducers", 0, topics=topics)


# ---- reading -----------------------------------------------------------------------------------
def fetch(side: Side) -> Iterator[Step]:
    """Records from everywhere in a partition."""
    create_topic(side, "fetch")
    for number in range(3):
        data = batch(b"%d" % number, b"more")
        side.ask("Produce", 9, **_produced(side, "fetch", data))
    topic_id = side.topic_id("fetch")
    for version in stable_versions("Fetch"):
        named = {"topic": "fetch"} if version < 13 else {"topicId": topic_id}
        for what, partition, offset, changes in (
            ("the start", 0, 0, {}),
            ("within a batch", 0, 3, {}),
            ("the end", 0, 6, {}),
            ("beyond", 0, 7, {}),
            ("below", 0, -1, {}),
            ("an unknown partition", 9, 0, {}),
            ("few bytes", 0, 2, {"partitionMaxBytes": 1}),
            ("an old epoch", 0, 2, {"currentLeaderEpoch": 0}),
            ("a future epoch", 0, 2, {"currentLeaderEpoch": 99}),
        ):
            wanted = {"partition": partition, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}
            wanted |= {"currentLeaderEpoch": -1, "lastFetchedEpoch": -1, "logStartOffset": -1}
            topics = [named | {"partitions": [wanted | changes]}]
            for isolation in (0, 1):
                yield side.step(
                    f"{what}, isolation {isolation}",
                    "Fetch",
                    version,
                    replicaId=-1,
                    maxWaitMs=0,
                    minBytes=0,
                    maxBytes=1 << 20,
                    isolationLevel=isolation,
                    sessionId=0,
                    sessionEpoch=-1,
                    topics=topics,
                    forgottenTopicsData=[],
                    rackId="",
                )


def fetch_sessions(side: Side) -> Iterator[Step]:
    """Sessions begun, continued, and lost."""
    create_topic(side, "sessions")
    side.ask("Produce", 9, **_produced(side, "sessions", batch(b"x")))

    def ask(what: str, session: int, epoch: int, *partitions: tuple[int, int]) -> Step:
        wanted = [
            {
                "partition": number,
                "currentLeaderEpoch": -1,
                "fetchOffset": offset,
                "lastFetchedEpoch": -1,
                "logStartOffset": -1,
                "partitionMaxBytes": 1 << 20,
            }
            for number, offset in partitions
        ]
        topics = [{"topic": "sessions", "partitions": wanted}] if wanted else []
        answer = side.ask(
            "Fetch",
            12,
            replicaId=-1,
            maxWaitMs=0,
            minBytes=0,
            maxBytes=1 << 20,
            isolationLevel=0,
            sessionId=session,
            sessionEpoch=epoch,
            topics=topics,
            forgottenTopicsData=[],
            rackId="",
        )
        side.notes["session"] = answer["sessionId"]
        shown = [
            (topic["topic"], each["partitionIndex"], each["errorCode"], len(each["records"] or b""))
            for topic in answer["responses"]
            for each in topic["partitions"]
        ]
        return f"Fetch session {what}", (answer["errorCode"], answer["sessionId"] > 0, shown)

    yield ask("begun", 0, 0, (0, 0), (1, 0))
    session = side.notes["session"]
    yield ask("continued", session, 1)
    yield ask("advanced", session, 2, (0, 1))
    yield ask("of a wrong epoch", session, 9)
    yield ask("unknown", 12345, 1)


def offsets(side: Side) -> Iterator[Step]:
    """Offsets by special times and by timestamps."""
    create_topic(side, "offsets")
    for number in (3, 1, 2):
        data = batch(b"x", timestamp=NOW_MS + number)
        side.ask("Produce", 9, **_produced(side, "offsets", data))
    times = (-1, -2, -3, -4, -5, -6, 0, NOW_MS + 2, NOW_MS + 9)
    for version in stable_versions("ListOffsets"):
        for time_ms in times:
            for partition in (0, 1, 9) if time_ms in (-1, -3) else (0,):
                wanted = {"partitionIndex": partition, "timestamp": time_ms}
                wanted |= {"currentLeaderEpoch": -1}
                yield side.step(
                    f"{partition} at {time_ms}",
                    "ListOffsets",
                    version,
                    replicaId=-1,
                    isolationLevel=0,
                    topics=[{"name": "offsets", "partitions": [wanted]}],
                    timeoutMs=1000,
                )
    for version in stable_versions("OffsetForLeaderEpoch"):
        for epoch in (-1, 0, 99):
            wanted = {"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": epoch}
            topics = [{"topic": "offsets", "partitions": [wanted]}]
            yield side.step(
                f"epoch {epoch}", "OffsetForLeaderEpoch", version, replicaId=-1, topics=topics
            )
    for version in stable_versions("DeleteRecords"):
        for what, offset in (("to 1", 1), ("to 99", 99), ("to the end", -1), ("to -2", -2)):
            partitions = [{"partitionIndex": 0, "offset": offset}]
            topics = [{"name": "offsets", "partitions": partitions}]
            yield side.step(what, "DeleteRecords", version, topics=topics, timeoutMs=_TIMEOUT_MS)


SCENARIOS: Final[tuple[Callable[[Side], Iterator[Step]], ...]] = (
    versions,
    metadata,
    create_topics,
    change_topics,
    configs,
    describe_partitions,
    others,
    produce,
    idempotence,
    fetch,
    fetch_sessions,
    offsets,
    *ADMIN_SCENARIOS,
)
