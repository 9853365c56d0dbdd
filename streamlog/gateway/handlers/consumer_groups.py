"""Consumer groups (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe.

Source: KafkaApis, GroupCoordinatorService, GroupMetadataManager.
"""

from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.coordinator_log import coordinator_code
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.consumer import ConsumerGroup, heartbeat_error
from streamlog.gateway.groups.consumer_member import LEAVE_STATIC, ConsumerHeartbeat
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.operations import GROUP_OPERATIONS, operations
from streamlog.gateway.request import Request

__all__ = ["HANDLERS"]

_MEMBER_IDS_BY_CLIENTS: Final = 1  # ConsumerGroupHeartbeat


async def consumer_group_heartbeat(broker: Broker, request: Request) -> dict[str, Any]:
    """Let a member join, go on or leave."""
    values = request.values
    assignors = broker.config.serve.group_consumer_assignors
    error = _invalid(request, assignors)
    if error is not None:
        return error
    owned = values["topicPartitions"]
    topics = values["subscribedTopicNames"]
    heartbeat = ConsumerHeartbeat(
        member_id=values["memberId"],
        member_epoch=values["memberEpoch"],
        instance_id=values["instanceId"],
        rack_id=values["rackId"],
        rebalance_timeout_ms=values["rebalanceTimeoutMs"],
        topics=None if topics is None else tuple(topics),
        regex=values["subscribedTopicRegex"],
        assignor=values["serverAssignor"],
        owned=None
        if owned is None
        else {each["topicId"]: frozenset(each["partitions"]) for each in owned},
        client_id=request.client_id,
        client_host=request.peer.host,
    )
    coordinator = broker.coordinator(GroupCoordinator)
    try:
        return await coordinator.consumer_heartbeat(values["groupId"], heartbeat)
    except StreamLogError as raised:
        return heartbeat_error(coordinator_code(raised))


def _invalid(request: Request, assignors: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the answer to a request that breaks a rule, or None.

    Source: GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid.
    """
    broken = _broken_rule(request)
    if broken is not None:
        return heartbeat_error(ErrorCode.INVALID_REQUEST, broken)
    assignor = request.values["serverAssignor"]
    if assignor is not None and assignor not in assignors:
        return heartbeat_error(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )
    return None


def _broken_rule(request: Request) -> str | None:
    values, epoch = request.values, request.values["memberEpoch"]
    for field in ("groupId", "instanceId", "rackId"):
        if values[field] is not None and not values[field].strip():
            return f"{field[0].upper()}{field[1:]} can't be empty."
    if not values["memberId"] and (epoch != 0 or request.version >= _MEMBER_IDS_BY_CLIENTS):
        return "MemberId can't be empty."
    if epoch < LEAVE_STATIC:
        return "MemberEpoch is invalid."
    if epoch == LEAVE_STATIC and values["instanceId"] is None:
        return "InstanceId can't be null."
    if epoch != 0:
        return None
    if values["rebalanceTimeoutMs"] == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if values["topicPartitions"] is None or values["topicPartitions"]:
        return "TopicPartitions must be empty when (re-)joining."
    if values["subscribedTopicNames"] is None and values["subscribedTopicRegex"] is None:
        return (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )
    return None


async def consumer_group_describe(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the members of consumer groups, what they have and what they shall have."""
    coordinator = broker.coordinator(GroupCoordinator)
    await coordinator.ready()
    allowed = operations(GROUP_OPERATIONS, is_asked=request.values["includeAuthorizedOperations"])
    groups: list[dict[str, Any]] = []
    for group_id in request.values["groupIds"]:
        group = coordinator.groups.get(group_id)
        if not group_id:
            groups.append({"groupId": group_id, "errorCode": int(ErrorCode.INVALID_GROUP_ID)})
        elif isinstance(group, ConsumerGroup):
            groups.append({**group.described(), "authorizedOperations": allowed})
        else:
            what = "not found" if group is None else "is not a consumer group"
            groups.append(
                {
                    "groupId": group_id,
                    "errorCode": int(ErrorCode.GROUP_ID_NOT_FOUND),
                    "errorMessage": f"Group {group_id} {what}.",
                }
            )
    return {"groups": groups}


HANDLERS: Final = {
    "ConsumerGroupHeartbeat": consumer_group_heartbeat,
    "ConsumerGroupDescribe": consumer_group_describe,
}
