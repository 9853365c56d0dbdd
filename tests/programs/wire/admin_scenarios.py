"""What a gateway and a broker are asked by tools that administer more than topics.

Replicas, features, credentials, tokens and brokers: one broker has an answer to most of it.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.programs.wire.side import Side, Step, create_topic, stable_versions

__all__ = ["ADMIN_SCENARIOS"]

_TIMEOUT_MS: Final = 10_000
_OTHER_GROUPS: Final = ("share.", "streams.")
_NOWHERE: Final = 99  # no broker has this id


def _node(side: Side) -> int:
    return int(side.ask("DescribeCluster", 0)["controllerId"])


def replicas(side: Side) -> Iterator[Step]:
    """Replicas moved to other brokers and directories."""
    create_topic(side, "replicas", 1)
    cases: dict[str, tuple[str, int, list[int] | None]] = {
        "to where it is": ("replicas", 0, [_node(side)]),
        "to a missing broker": ("replicas", 0, [_NOWHERE]),
        "to two brokers": ("replicas", 0, [_node(side), _NOWHERE]),
        "to none": ("replicas", 0, []),
        "to a broker twice": ("replicas", 0, [_node(side)] * 2),
        "cancelled": ("replicas", 0, None),
        "of a missing partition": ("replicas", 7, [_node(side)]),
        "of a missing topic": ("missing", 0, [_node(side)]),
        "of a missing topic, cancelled": ("missing", 0, None),
    }
    for version in stable_versions("AlterPartitionReassignments"):
        for what, (name, number, nodes) in cases.items():
            partitions = [{"partitionIndex": number, "replicas": nodes}]
            yield side.step(
                what,
                "AlterPartitionReassignments",
                version,
                timeoutMs=_TIMEOUT_MS,
                allowReplicationFactorChange=True,
                topics=[{"name": name, "partitions": partitions}],
            )
    named = [{"topic": "replicas", "partitions": [0]}]
    (directory,) = side.ask("DescribeLogDirs", 4, topics=named)["results"]
    directories = {"its own": directory["logDir"], "another": "/nowhere", "a relative": "x"}
    for version in stable_versions("AlterReplicaLogDirs"):
        for what, path in directories.items():
            topics = [
                {"name": "replicas", "partitions": [0, 7]},
                {"name": "missing", "partitions": [0]},
            ]
            dirs = [{"path": path, "topics": topics}]
            yield side.step(f"{what} directory", "AlterReplicaLogDirs", version, dirs=dirs)


def features(side: Side) -> Iterator[Step]:
    """Features kept, raised, lowered."""
    cases: dict[str, tuple[str, int, int]] = {
        "as it is": ("transaction.version", 2, 1),
        "raised": ("transaction.version", 9, 1),
        "lowered as an upgrade": ("transaction.version", 1, 1),
        "lowered below 0": ("transaction.version", -1, 2),
        "unknown": ("none.version", 1, 1),
        "of no kind": ("transaction.version", 1, 7),
        "deleted as an upgrade": ("transaction.version", 0, 1),
        "of an empty name": ("", 1, 1),
    }
    for version in stable_versions("UpdateFeatures"):
        yield side.step("none", "UpdateFeatures", version, **_updates([], version))
        for what, case in cases.items():
            yield side.step(what, "UpdateFeatures", version, **_updates([case], version))


def _updates(cases: list[tuple[str, int, int]], version: int) -> dict[str, Any]:
    updates = [
        {"feature": name, "maxVersionLevel": level}
        | ({"upgradeType": kind} if version else {"allowDowngrade": kind == 2})
        for name, level, kind in cases
    ]
    return {"timeoutMs": _TIMEOUT_MS, "featureUpdates": updates, "validateOnly": True}


def credentials(side: Side) -> Iterator[Step]:
    """Users and tokens."""
    users: dict[str, list[dict[str, str]] | None] = {
        "all users": None,
        "no users": [],
        "a missing user": [{"name": "alice"}],
        "a user twice": [{"name": "alice"}, {"name": "alice"}],
        "an empty name": [{"name": ""}],
    }
    for what, named in users.items():
        yield side.step(what, "DescribeUserScramCredentials", 0, users=named)
    for version in stable_versions("DescribeDelegationToken"):
        yield side.step("", "DescribeDelegationToken", version, owners=None)
    owner = {"ownerPrincipalType": "", "ownerPrincipalName": ""}
    for version in stable_versions("CreateDelegationToken"):
        yield side.step("", "CreateDelegationToken", version, **owner, renewers=[], maxLifetimeMs=1)
    for version in stable_versions("RenewDelegationToken"):
        yield side.step("", "RenewDelegationToken", version, hmac=b"x", renewPeriodMs=1)
    for version in stable_versions("ExpireDelegationToken"):
        yield side.step("", "ExpireDelegationToken", version, hmac=b"x", expiryTimePeriodMs=1)


def brokers(side: Side) -> Iterator[Step]:
    """A broker that is gone."""
    yield side.step("missing", "UnregisterBroker", 0, brokerId=_NOWHERE)
    for version in stable_versions("DescribeCluster"):
        for kind in (1, 2, 3):
            yield side.step(f"endpoints {kind}", "DescribeCluster", version, endpointType=kind)


def resources(side: Side) -> Iterator[Step]:
    """What has settings, and the settings of what does not exist."""
    create_topic(side, "resources", 1)
    for version in stable_versions("ListConfigResources"):
        for kinds in ([], [2], [4], [8], [16], [32], [2, 32], [99]):
            kinds = kinds if version else []
            label, answer = side.step(
                str(kinds), "ListConfigResources", version, resourceTypes=kinds
            )
            if answer:
                answer["configResources"] = [
                    each
                    for each in answer["configResources"]
                    if each["resourceType"] != 2 or each["resourceName"] == "resources"
                ]
            yield label, answer
    for kind, name in ((16, "none"), (32, "none"), (8, str(_NOWHERE)), (4, str(_NOWHERE))):
        resource = {"resourceType": kind, "resourceName": name, "configurationKeys": None}
        for version in stable_versions("DescribeConfigs"):
            label, answer = side.step(
                f"of {kind} {name}",
                "DescribeConfigs",
                version,
                resources=[resource],
                includeSynonyms=True,
            )
            for each in answer["results"]:  # groups of other kinds are not served
                others = [one for one in each["configs"] if one["name"].startswith(_OTHER_GROUPS)]
                each["configs"] = [one for one in each["configs"] if one not in others]
            yield label, answer


def markers(side: Side) -> Iterator[Step]:
    """Markers written by a tool that ends a transaction whose coordinator forgot it."""
    create_topic(side, "markers", 1)
    for version in stable_versions("WriteTxnMarkers"):
        topics = [
            {"name": "markers", "partitionIndexes": [0, 7]},
            {"name": "missing", "partitionIndexes": [0]},
        ]
        cases = {"abort": (1, False, 1), "commit": (1, True, 1)}
        cases |= {"of an older producer": (0, True, 1), "of an older coordinator": (1, True, 0)}
        for what, (epoch, is_commit, coordinator) in cases.items():
            marker = {
                "producerId": 7,
                "producerEpoch": epoch,
                "transactionResult": is_commit,
                "topics": topics,
                "coordinatorEpoch": coordinator,
                "transactionVersion": 0,
            }
            yield side.step(what, "WriteTxnMarkers", version, markers=[marker])


ADMIN_SCENARIOS: Final[tuple[Callable[[Side], Iterator[Step]], ...]] = (
    replicas,
    features,
    credentials,
    brokers,
    resources,
    markers,
)
