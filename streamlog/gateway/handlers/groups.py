"""Groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; ListGroups, DescribeGroups, DeleteGroups.

Source: KafkaApis, GroupCoordinatorService.
"""

from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.coordinator_log import coordinator_code
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.classic import ClassicGroup
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.groups.group import MemberProtocol
from streamlog.gateway.groups.members import (
    JoinRequest,
    LeavingMember,
    SyncRequest,
    join_error,
    sync_error,
)
from streamlog.gateway.operations import GROUP_OPERATIONS, operations
from streamlog.gateway.request import Request

__all__ = ["HANDLERS"]

_NULLABLE_PROTOCOL: Final = 7  # JoinGroup
_REBALANCE_TIMEOUT: Final = 1  # JoinGroup
_KNOWN_MEMBER_ID: Final = 4  # JoinGroup: KIP-394
_SKIP_ASSIGNMENT: Final = 9  # JoinGroup: KIP-814
_BATCHED_LEAVING: Final = 3  # LeaveGroup
_MISSING_IS_AN_ERROR: Final = 6  # DescribeGroups: KIP-1043


async def join_group(broker: Broker, request: Request) -> dict[str, Any]:
    """Let a member join a group."""
    values, version = request.values, request.version
    limits, session_ms = broker.config.serve, values["sessionTimeoutMs"]
    if not values["groupId"]:
        response = join_error(ErrorCode.INVALID_GROUP_ID, values["memberId"])
    elif not (
        limits.group_min_session_timeout_ms <= session_ms <= limits.group_max_session_timeout_ms
    ):
        response = join_error(ErrorCode.INVALID_SESSION_TIMEOUT, values["memberId"])
    else:
        rebalance_ms = values["rebalanceTimeoutMs"]
        joining = JoinRequest(
            member_id=values["memberId"],
            instance_id=values["groupInstanceId"],
            client_id=request.client_id,
            client_host=request.peer.host,
            protocol_type=values["protocolType"],
            protocols=tuple(
                MemberProtocol(each["name"], each["metadata"]) for each in values["protocols"]
            ),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms if version < _REBALANCE_TIMEOUT else rebalance_ms,
            needs_member_id=version >= _KNOWN_MEMBER_ID,
            can_skip_assignment=version >= _SKIP_ASSIGNMENT,
        )
        try:
            response = await broker.coordinator(GroupCoordinator).join(values["groupId"], joining)
        except StreamLogError as error:
            response = join_error(coordinator_code(error), values["memberId"])
    if version < _NULLABLE_PROTOCOL:
        response["protocolName"] = response["protocolName"] or ""
    return response


async def sync_group(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer a member's assignment; take those of all members from the leader."""
    values = request.values
    if not values["groupId"]:
        return sync_error(ErrorCode.INVALID_GROUP_ID)
    syncing = SyncRequest(
        values["memberId"],
        values["groupInstanceId"],
        values["generationId"],
        values["protocolType"],
        values["protocolName"],
        {each["memberId"]: each["assignment"] for each in values["assignments"]},
    )
    try:
        return await broker.coordinator(GroupCoordinator).sync(values["groupId"], syncing)
    except StreamLogError as error:
        return sync_error(coordinator_code(error))


async def heartbeat(broker: Broker, request: Request) -> dict[str, Any]:
    """Note a member's sign of life."""
    values = request.values
    if not values["groupId"]:
        return {"errorCode": int(ErrorCode.INVALID_GROUP_ID)}
    code = await broker.coordinator(GroupCoordinator).heartbeat(
        values["groupId"], values["memberId"], values["groupInstanceId"], values["generationId"]
    )
    return {"errorCode": int(code)}


async def leave_group(broker: Broker, request: Request) -> dict[str, Any]:
    """Remove members from a group; up to version 2 just the one that asks."""
    values = request.values
    if not values["groupId"]:
        return {"errorCode": int(ErrorCode.INVALID_GROUP_ID)}
    leaving = [
        LeavingMember(each["memberId"], each["groupInstanceId"]) for each in values["members"]
    ]
    if request.version < _BATCHED_LEAVING:
        leaving = [LeavingMember(values["memberId"], None)]
    codes = await broker.coordinator(GroupCoordinator).leave(values["groupId"], leaving)
    if request.version < _BATCHED_LEAVING:
        return {"errorCode": int(codes[0])}
    members = [
        {"memberId": each.member_id, "groupInstanceId": each.instance_id, "errorCode": int(code)}
        for each, code in zip(leaving, codes, strict=True)
    ]
    return {"errorCode": int(ErrorCode.NONE), "members": members}


async def list_groups(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the groups, or those in some states and of some types."""
    coordinator = broker.coordinator(GroupCoordinator)
    await coordinator.ready()
    states = {each.strip().lower() for each in request.values["statesFilter"]}
    types = {each.lower() for each in request.values["typesFilter"]}
    groups = [
        {
            "groupId": group.group_id,
            "protocolType": group.protocol_type,
            "groupState": group.state_name,
            "groupType": group.type.value,
        }
        for group in coordinator.groups.values()
        if (not states or group.state_name.lower() in states)
        and (not types or group.type.value in types)
    ]
    return {"errorCode": int(ErrorCode.NONE), "groups": groups}


async def describe_groups(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the members of classic groups."""
    coordinator = broker.coordinator(GroupCoordinator)
    await coordinator.ready()
    allowed = operations(GROUP_OPERATIONS, is_asked=request.values["includeAuthorizedOperations"])
    groups = []
    for group_id in request.values["groups"]:
        group = coordinator.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            groups.append({**group.described(), "authorizedOperations": allowed})
        else:
            missing: dict[str, Any] = {"groupId": group_id, "groupState": "Dead"}
            if request.version < _MISSING_IS_AN_ERROR:
                missing["authorizedOperations"] = allowed
            else:
                what = "not found" if group is None else "is not a classic group"
                missing["errorCode"] = int(ErrorCode.GROUP_ID_NOT_FOUND)
                missing["errorMessage"] = f"Group {group_id} {what}."
            groups.append(missing)
    return {"groups": groups}


async def delete_groups(broker: Broker, request: Request) -> dict[str, Any]:
    """Remove groups that have no members."""
    coordinator, results = broker.coordinator(GroupCoordinator), []
    for group_id in request.values["groupsNames"]:
        code = await coordinator.delete_group(group_id)
        results.append({"groupId": group_id, "errorCode": int(code)})
    return {"results": results}


HANDLERS: Final = {
    "JoinGroup": join_group,
    "SyncGroup": sync_group,
    "Heartbeat": heartbeat,
    "LeaveGroup": leave_group,
    "ListGroups": list_groups,
    "DescribeGroups": describe_groups,
    "DeleteGroups": delete_groups,
}
