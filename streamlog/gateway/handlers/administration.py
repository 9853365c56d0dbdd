"""What tools ask of a cluster, answered by its only broker: replicas, features, users, tokens.

Source: ReplicationControlManager, FeatureControlManager, ScramControlManager,
KafkaApis.handleAlterReplicaLogDirsRequest and the handlers of delegation tokens.
"""

from collections import Counter
from enum import IntEnum
from typing import Any, Final

from streamlog.errors import (
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    PolicyViolationError,
    StreamLogError,
)
from streamlog.gateway.broker import Broker
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.features import FEATURES
from streamlog.gateway.request import Request
from streamlog.gateway.security import SCRAM_ITERATIONS

__all__ = ["HANDLERS", "check_replicas"]


# ---- replicas -----------------------------------------------------------------------------------
def check_replicas(broker: Broker, nodes: list[int]) -> None:
    """Raise InvalidReplicaAssignmentError unless replicas are to be on this broker alone."""
    if nodes != [broker.node_id]:
        raise InvalidReplicaAssignmentError(
            "this server is the only broker", got=nodes, expected=[broker.node_id]
        )


async def alter_partition_reassignments(broker: Broker, request: Request) -> dict[str, Any]:
    """Accept that replicas stay where they are; there is nowhere else, and nothing to cancel."""
    responses = []
    for topic in request.values["topics"]:
        partitions = []
        for each in topic["partitions"]:
            code, message = _reassigned(broker, topic["name"], each)
            number = each["partitionIndex"]
            partitions.append(
                {"partitionIndex": number, "errorCode": int(code), "errorMessage": message}
            )
        responses.append({"name": topic["name"], "partitions": partitions})
    return {
        "throttleTimeMs": 0,
        "allowReplicationFactorChange": request.values["allowReplicationFactorChange"],
        "errorCode": 0,
        "errorMessage": None,
        "responses": responses,
    }


def _reassigned(broker: Broker, topic: str, wanted: dict[str, Any]) -> tuple[ErrorCode, str | None]:
    entry = broker.catalog.topic(topic)
    if entry is None or not entry.has(wanted["partitionIndex"]):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this partition."
    if wanted["replicas"] is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    try:
        check_replicas(broker, wanted["replicas"])
    except StreamLogError as error:
        return code_of(error), str(error)
    return ErrorCode.NONE, None


async def alter_replica_log_dirs(broker: Broker, request: Request) -> dict[str, Any]:
    """Accept that a replica stays in the root, which is the only directory."""
    found: dict[str, list[dict[str, int]]] = {}
    for directory in request.values["dirs"]:
        is_ours = directory["path"] == broker.manager.root
        for topic in directory["topics"]:
            entry = broker.catalog.topic(topic["name"])
            for number in topic["partitions"]:
                code = ErrorCode.NONE if is_ours else ErrorCode.LOG_DIR_NOT_FOUND
                if is_ours and (entry is None or not entry.has(number)):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer = {"partitionIndex": number, "errorCode": int(code)}
                found.setdefault(topic["name"], []).append(answer)
    results = [{"topicName": name, "partitions": each} for name, each in found.items()]
    return {"throttleTimeMs": 0, "results": results}


# ---- features -----------------------------------------------------------------------------------
class _Upgrade(IntEnum):
    """What may become of a level (FeatureUpdate.UpgradeType)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


async def update_features(broker: Broker, request: Request) -> dict[str, Any]:
    """Accept that features keep their levels; other levels are refused, and then all updates."""
    updates = request.values["featureUpdates"]
    for each in updates:
        try:
            _check_level(each, request.version)
        except InvalidRequestError as error:
            return {
                "throttleTimeMs": 0,
                "errorCode": int(ErrorCode.INVALID_UPDATE_VERSION),
                "errorMessage": f"No feature was updated: {error}",
                "results": [],
            }
    results = [
        {"feature": each["feature"], "errorCode": 0, "errorMessage": ErrorCode.NONE.name}
        for each in updates
    ]
    return {"throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "results": results}


def _check_level(update: dict[str, Any], version: int) -> None:
    name, level, finalized = update["feature"], update["maxVersionLevel"], None
    finalized = FEATURES.get(name)
    if finalized is None:
        raise InvalidRequestError("unknown feature", got=repr(name), expected=", ".join(FEATURES))
    if version > 0 and update["upgradeType"] not in list(_Upgrade):
        raise InvalidRequestError("unknown kind of upgrade", got=update["upgradeType"])
    if level != finalized:
        raise InvalidRequestError(
            f"{name} has a fixed level on this server", got=level, expected=finalized
        )


# ---- users and tokens ---------------------------------------------------------------------------
_SCRAM_MECHANISMS: Final = (1, 2)  # ScramMechanism: SCRAM-SHA-256, SCRAM-SHA-512


async def describe_user_scram_credentials(broker: Broker, request: Request) -> dict[str, Any]:
    """Describe what the users of `--sasl-users` authenticate with; null and nobody ask for all."""
    known = [] if broker.users is None else broker.users.names
    wanted = [each["name"] for each in request.values["users"] or []] or known
    infos = [{"mechanism": each, "iterations": SCRAM_ITERATIONS} for each in _SCRAM_MECHANISMS]
    results = []
    for name, count in Counter(wanted).items():
        code, message = ErrorCode.NONE, None
        if count > 1:
            code, message = ErrorCode.DUPLICATE_RESOURCE, f"{name} is asked for twice"
        elif name not in known:
            code, message = ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name}"
        results.append(
            {
                "user": name,
                "errorCode": int(code),
                "errorMessage": message,
                "credentialInfos": [] if code else infos,
            }
        )
    return {"throttleTimeMs": 0, "errorCode": 0, "errorMessage": "", "results": results}


def _no_tokens(broker: Broker) -> dict[str, Any]:
    """Answer as a broker without `delegation.token.secret.key`, to users and to all others."""
    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if broker.users is None:
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return {"errorCode": int(code), "throttleTimeMs": 0}


async def create_delegation_token(broker: Broker, request: Request) -> dict[str, Any]:
    """Refuse to make a token."""
    user = request.peer.principal or ""
    return _no_tokens(broker) | {
        "principalType": "User",
        "principalName": user,
        "tokenRequesterPrincipalType": "User",
        "tokenRequesterPrincipalName": user,
        "issueTimestampMs": -1,
        "expiryTimestampMs": -1,
        "maxTimestampMs": -1,
        "tokenId": "",
        "hmac": b"",
    }


async def change_delegation_token(broker: Broker, request: Request) -> dict[str, Any]:
    """Refuse to renew a token, or to let it expire."""
    return _no_tokens(broker) | {"expiryTimestampMs": -1}


async def describe_delegation_token(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer that there are no tokens."""
    return _no_tokens(broker) | {"tokens": []}


# ---- brokers ------------------------------------------------------------------------------------
async def unregister_broker(broker: Broker, request: Request) -> dict[str, Any]:
    """Refuse: there is no broker but this one, which stays registered as long as it serves."""
    node, code = request.values["brokerId"], ErrorCode.BROKER_ID_NOT_REGISTERED
    message = f"Broker ID {node} is not currently registered"
    if node == broker.node_id:
        error = PolicyViolationError("the only broker cannot be unregistered")
        code, message = code_of(error), str(error)
    return {"throttleTimeMs": 0, "errorCode": int(code), "errorMessage": message}


HANDLERS: Final = {
    "AlterPartitionReassignments": alter_partition_reassignments,
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "CreateDelegationToken": create_delegation_token,
    "DescribeDelegationToken": describe_delegation_token,
    "DescribeUserScramCredentials": describe_user_scram_credentials,
    "ExpireDelegationToken": change_delegation_token,
    "RenewDelegationToken": change_delegation_token,
    "UnregisterBroker": unregister_broker,
    "UpdateFeatures": update_features,
}
