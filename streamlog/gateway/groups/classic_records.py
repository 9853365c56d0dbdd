"""The record that keeps a classic group, and what its members' bytes say.

Source: GroupCoordinatorRecordHelpers.newGroupMetadataRecord, ClassicGroup.computeSubscribedTopics.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from streamlog.errors import CorruptRecordError
from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.groups.group import MemberProtocol
from streamlog.gateway.groups.members import ClassicMember
from streamlog.protocol.consumer_protocol import subscribed_topics
from streamlog.protocol.internal_topics import Decoder, OffsetsKey, encode_internal

__all__ = ["group_record", "group_tombstone", "members_of", "topics_of"]

_VALUE_VERSION: Final = 3  # MetadataVersion.groupMetadataValueVersion


def group_record(
    group_id: str,
    fields: Mapping[str, Any],
    members: Collection[ClassicMember],
    assignments: Mapping[str, bytes],
) -> KeyValue:
    """Return the record that keeps a group.

    Args:
        group_id: Its name.
        fields: What the record says of the group itself.
        members: Its members.
        assignments: What they are assigned, by member id.
    """
    described = [
        {
            "memberId": member.member_id,
            "groupInstanceId": member.instance_id,
            "clientId": member.client_id,
            "clientHost": member.client_host,
            "rebalanceTimeout": member.rebalance_timeout_ms,
            "sessionTimeout": member.session_timeout_ms,
            "subscription": member.metadata(fields["protocol"]),
            "assignment": assignments.get(member.member_id, b""),
        }
        for member in members
    ]
    return encode_internal(
        Decoder.OFFSETS,
        OffsetsKey.CLASSIC_GROUP,
        {"group": group_id},
        {**fields, "members": described},
        version=_VALUE_VERSION,
    )


def group_tombstone(group_id: str) -> KeyValue:
    """Return the record that removes a group from the log."""
    return encode_internal(Decoder.OFFSETS, OffsetsKey.CLASSIC_GROUP, {"group": group_id})


def members_of(value: Mapping[str, Any]) -> list[ClassicMember]:
    """Return the members that the record of a group holds."""
    members = []
    for each in value["members"]:
        session_ms = each["sessionTimeout"]
        rebalance_ms = each.get("rebalanceTimeout", -1)
        members.append(
            ClassicMember(
                member_id=each["memberId"],
                instance_id=each.get("groupInstanceId"),
                client_id=each["clientId"],
                client_host=each["clientHost"],
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=session_ms if rebalance_ms == -1 else rebalance_ms,
                protocols=(MemberProtocol(value["protocol"] or "", each["subscription"]),),
                assignment=each["assignment"],
            )
        )
    return members


def topics_of(members: Collection[ClassicMember], protocol: str | None) -> frozenset[str] | None:
    """Return the topics that consumers subscribe to; None where they are not known."""
    if not members:
        return frozenset()
    if protocol is None:
        return None
    try:
        topics = [subscribed_topics(each.metadata(protocol)) for each in members]
    except CorruptRecordError:
        return None
    return frozenset().union(*topics)
