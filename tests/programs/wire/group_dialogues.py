"""What a gateway and a broker are asked about groups: classic ones, KIP-848, their offsets."""

from collections.abc import Mapping
from typing import Any, Final

from streamlog.gateway.error_codes import ErrorCode
from tests.programs.wire.dialogue import TOPIC, Ask, Dialogue, Later

__all__ = ["GROUP_DIALOGUES"]

_NO_TOPIC: Final = "AAAAAAAAAAEAAAAAAAAAAg"
_TOPICS: Final = b"\0\0\0\1" + len(TOPIC).to_bytes(2, "big") + TOPIC.encode()
_SUBSCRIPTION: Final = b"\0\0" + _TOPICS + b"\xff\xff\xff\xff"  # ConsumerProtocol, version 0
_ASSIGNMENT: Final = b"\0\0" + _TOPICS + b"\0\0\0\1\0\0\0\0" + b"\xff\xff\xff\xff"
_PROTOCOLS: Final = [
    {"name": "range", "metadata": _SUBSCRIPTION},
    {"name": "other", "metadata": _SUBSCRIPTION},
]
_JOIN: Final = {
    "groupId": "$group",
    "sessionTimeoutMs": 20_000,
    "rebalanceTimeoutMs": 20_000,
    "memberId": "",
    "protocolType": "consumer",
    "protocols": _PROTOCOLS,
}
_GIVES_IDS: Final = (4, 9)  # JoinGroup: KIP-394
_GIVES_NO_IDS: Final = (0, 3)
_STATIC: Final = (5, 9)  # JoinGroup: KIP-345
_JOINED: Final = {"generation": "generationId"}


def _joins(what: str, **changes: Any) -> Ask:
    return Ask(what, "JoinGroup", {**_JOIN, **changes})


def _syncs(what: str, member: str, *given: str, **changes: Any) -> Ask:
    values = {
        "groupId": "$group",
        "generationId": "$generation",
        "memberId": member,
        "protocolType": "consumer",
        "protocolName": "range",
        "assignments": [{"memberId": each, "assignment": _ASSIGNMENT} for each in given],
    }
    return Ask(what, "SyncGroup", {**values, **changes})


def _beats(what: str, member: str = "$a", **changes: Any) -> Ask:
    values = {"groupId": "$group", "generationId": "$generation", "memberId": member}
    return Ask(what, "Heartbeat", {**values, **changes})


def _leaves(what: str, member: str, instance: str | None = None, group: str = "$group") -> Ask:
    left = {"memberId": member, "groupInstanceId": instance, "reason": None}
    return Ask(what, "LeaveGroup", {"groupId": group, "memberId": member, "members": [left]})


def _commits(
    what: str,
    member: str = "",
    epoch: Any = -1,
    *,
    topic: str = TOPIC,
    topic_id: str = "$topic_id",
    partitions: Mapping[int, int] = {0: 5},
    metadata: str | None = "note",
    **changes: Any,
) -> Ask:
    offsets = [
        {
            "partitionIndex": number,
            "committedOffset": offset,
            "committedLeaderEpoch": 0,
            "committedMetadata": metadata,
        }
        for number, offset in partitions.items()
    ]
    values = {
        "groupId": "$group",
        "generationIdOrMemberEpoch": epoch,
        "memberId": member,
        "topics": [{"name": topic, "topicId": topic_id, "partitions": offsets}],
    }
    return Ask(what, "OffsetCommit", {**values, **changes})


def _fetches(
    what: str,
    *,
    group: str = "$group",
    member: str | None = None,
    epoch: Any = -1,
    topics: Any = (TOPIC, "$topic_id"),
    is_stable: bool = False,
) -> Ask:
    wanted = None
    if topics is not None:
        wanted = [{"name": topics[0], "topicId": topics[1], "partitionIndexes": [0, 1, 9]}]
    asked = {"groupId": group, "memberId": member, "memberEpoch": epoch, "topics": wanted}
    values = {"groupId": group, "topics": wanted, "groups": [asked], "requireStable": is_stable}
    return Ask(what, "OffsetFetch", values, versions=(2 if topics is None else 0, 99))


def _describes(what: str, group: str = "$group") -> Ask:
    return Ask(what, "DescribeGroups", {"groups": [group], "includeAuthorizedOperations": True})


def _deletes(what: str, group: str = "$group") -> Ask:
    return Ask(what, "DeleteGroups", {"groupsNames": [group]})


def _deletes_offsets(what: str, topic: str = TOPIC, group: str = "$group") -> Ask:
    partitions = [{"partitionIndex": 0}, {"partitionIndex": 9}]
    topics = [{"name": topic, "partitions": partitions}]
    return Ask(what, "OffsetDelete", {"groupId": group, "topics": topics})


def _lists(what: str, states: list[str], types: list[str]) -> Ask:
    return Ask(what, "ListGroups", {"statesFilter": states, "typesFilter": types})


_FIRST: Final = (
    Ask("of a new member", "JoinGroup", _JOIN, {"a": "memberId"}, _GIVES_IDS),
    Ask("with the id", "JoinGroup", {**_JOIN, "memberId": "$a"}, _JOINED, _GIVES_IDS),
    Ask(
        "of a new member",
        "JoinGroup",
        _JOIN,
        {"a": "memberId", "generation": "generationId"},
        _GIVES_NO_IDS,
    ),
)

find_coordinator: Final = Dialogue(
    "find_coordinator",
    *(
        Ask(
            f"{keys} of type {kind}",
            "FindCoordinator",
            {"key": keys[0], "keyType": kind, "coordinatorKeys": keys},
        )
        for kind, keys in (
            (0, ["group"]),
            (0, ["", "two"]),
            (1, ["id"]),
            (1, [""]),
            (2, ["share"]),
            (3, ["x"]),
            (7, ["x"]),
        )
    ),
)

refused_members: Final = Dialogue(
    "refused_members",
    _joins("of an unknown member", memberId="nobody"),
    _joins("of no group", groupId=""),
    _joins("with a short session", sessionTimeoutMs=1),
    _joins("without protocols", protocols=[]),
    _joins("without a type", protocolType=""),
    _syncs("of an unknown group", "nobody", generationId=1),
    _syncs("of no group", "nobody", groupId="", generationId=1),
    _beats("of an unknown group", "nobody", generationId=1),
    _beats("of no group", "nobody", groupId="", generationId=1),
    _leaves("of an unknown group", "nobody"),
    _leaves("of no group", "nobody", group=""),
    _describes("unknown"),
    _describes("no group", ""),
    _deletes("unknown"),
    _deletes("no group", ""),
)

classic_group: Final = Dialogue(
    "classic_group",
    *_FIRST,
    _describes("before it is synced"),
    _beats("before it is synced"),
    _commits("before it is synced", "$a", "$generation"),
    _syncs("of another generation", "$a", generationId=77),
    _syncs("of an unknown member", "nobody"),
    _syncs("with another protocol", "$a", protocolName="other"),
    _syncs("with another type", "$a", protocolType="connect"),
    _syncs("of the leader", "$a", "$a"),
    _syncs("again", "$a", "$a"),
    _beats("in time"),
    _beats("of another generation", generationId=77),
    _beats("of an unknown member", "nobody"),
    _beats("with an unknown instance", groupInstanceId="none"),
    _joins("with another type", protocolType="connect"),
    _joins("with other protocols", protocols=[{"name": "none", "metadata": b""}]),
    _describes("stable"),
    _lists("stable classic", ["Stable"], ["classic"]),
    _commits("of a member", "$a", "$generation"),
    _commits("of another generation", "$a", 77),
    _commits("of an unknown member", "nobody", "$generation"),
    _commits("from outside"),
    _commits("with an unknown instance", "$a", "$generation", groupInstanceId="none"),
    _fetches("of a member"),
    _deletes("with members"),
    _deletes_offsets("subscribed"),
    _leaves("of an unknown member", "nobody"),
    _leaves("of a member", "$a"),
    _leaves("again", "$a"),
    _describes("empty"),
    _beats("of a member that has left"),
    _commits("of a member that has left", "$a", "$generation"),
    _commits("from outside, empty"),
    _deletes_offsets("of an empty group"),
    _deletes("empty"),
    _describes("deleted"),
)

rebalance: Final = Dialogue(
    "rebalance",
    *_FIRST,
    _syncs("of the leader", "$a", "$a"),
    Ask("of a second member", "JoinGroup", _JOIN, {"b": "memberId"}, _GIVES_IDS),
    Ask(
        "of a second member with its id",
        "JoinGroup",
        {**_JOIN, "memberId": "$b"},
        versions=_GIVES_IDS,
        client="b",
        answers_later=True,
    ),
    Ask(
        "of a second member",
        "JoinGroup",
        _JOIN,
        versions=_GIVES_NO_IDS,
        client="b",
        answers_later=True,
    ),
    _beats("during the rebalance")._replace(until=("errorCode", ErrorCode.REBALANCE_IN_PROGRESS)),
    _syncs("during the rebalance", "$a", "$a"),
    _commits("during the rebalance", "$a", "$generation"),
    _describes("preparing to rebalance"),
    _deletes("preparing to rebalance"),
    Ask("again", "JoinGroup", {**_JOIN, "memberId": "$a"}, _JOINED),
    Later("b", {"b": "memberId"}),
    _commits("of a generation to be synced", "$a", "$generation"),
    _beats("of a generation to be synced"),
    _syncs("of the leader of two", "$a", "$a", "$b"),
    _syncs("of the second member", "$b"),
    _describes("of two"),
    _leaves("of the second member", "$b"),
    _beats("after the other has left"),
    _leaves("of the last member", "$a"),
    _describes("after all have left"),
)

static_members: Final = Dialogue(
    "static_members",
    Ask(
        "of a static member",
        "JoinGroup",
        {**_JOIN, "groupInstanceId": "one"},
        {"a": "memberId", "generation": "generationId"},
        _STATIC,
    ),
    _syncs("static", "$a", "$a", groupInstanceId="one"),
    _beats("static", groupInstanceId="one"),
    _beats("fenced", "nobody", groupInstanceId="one"),
    _joins("fenced", memberId="nobody", groupInstanceId="one")._replace(versions=_STATIC),
    _joins("unknown instance", memberId="$a", groupInstanceId="two")._replace(versions=_STATIC),
    _syncs("fenced", "nobody", groupInstanceId="one"),
    _commits("static", "$a", "$generation", groupInstanceId="one"),
    _commits("fenced", "nobody", "$generation", groupInstanceId="one"),
    _describes("with a static member")._replace(versions=(0, 99)),
    Ask(
        "of the static member that starts again",
        "JoinGroup",
        {**_JOIN, "groupInstanceId": "one"},
        {"b": "memberId", "generation": "generationId"},
        _STATIC,
    ),
    _syncs("of its former id", "$a", groupInstanceId="one"),
    _syncs("of its new id", "$b", groupInstanceId="one"),
    _beats("of its former id", groupInstanceId="one"),
    _beats("of its new id", "$b", groupInstanceId="one"),
    _leaves("fenced", "nobody", "one"),
    _leaves("unknown instance", "", "two"),
    _leaves("by its instance", "", "one"),
    _describes("after it has left"),
)

offsets: Final = Dialogue(
    "group_offsets",
    _fetches("of an unknown group"),
    _fetches("all of an unknown group", topics=None),
    _fetches("of no group", group=""),
    _commits("of no group", groupId=""),
    _commits("of an unknown group in a generation", "x", 4),
    _commits("from outside"),
    _commits("of two partitions, one missing", partitions={0: 7, 9: 1}),
    _commits("of an unknown topic", topic="missing", topic_id=_NO_TOPIC),
    _commits("without metadata", metadata=None, partitions={1: 3}),
    _commits("with long metadata", metadata="x" * 5000),
    _commits("of a negative offset", partitions={0: -5}),
    Ask("of no topics", "OffsetCommit", {"groupId": "$group", "topics": []}),
    _fetches("committed"),
    _fetches("all", topics=None),
    _fetches("stable", is_stable=True),
    _fetches("of an unknown topic", topics=("missing", _NO_TOPIC)),
    _fetches("of a member of no group", member="x", epoch=3),
    _describes("simple"),
    _lists("empty", ["Empty"], []),
    _deletes_offsets("unknown topic", "missing"),
    _deletes_offsets("known"),
    _deletes_offsets("unknown group", group="nowhere"),
    _deletes_offsets("no group", group=""),
    _fetches("after deletion"),
    _deletes("with offsets"),
    _fetches("of a deleted group"),
)

# ---- KIP-848 ------------------------------------------------------------------------------------
_HEARTBEAT: Final = {
    "groupId": "$group",
    "memberId": "",
    "memberEpoch": 0,
    "rebalanceTimeoutMs": 30_000,
    "subscribedTopicNames": [TOPIC],
    "topicPartitions": [],
}


def _consumes(what: str, keeps: Mapping[str, str] = {}, **changes: Any) -> Ask:
    return Ask(what, "ConsumerGroupHeartbeat", {**_HEARTBEAT, **changes}, keeps)


def _goes_on(what: str, keeps: Mapping[str, str] = {}, **changes: Any) -> Ask:
    values = {"groupId": "$group", "memberId": "$m", "memberEpoch": "$epoch", **changes}
    return Ask(what, "ConsumerGroupHeartbeat", values, keeps)


def _describes_consumers(what: str, group: str = "$group") -> Ask:
    values = {"groupIds": [group], "includeAuthorizedOperations": True}
    return Ask(what, "ConsumerGroupDescribe", values)


_MEMBER: Final = {"m": "memberId", "epoch": "memberEpoch"}
_OWNED: Final = [{"topicId": "$topic_id", "partitions": [0, 1]}]

consumer_group: Final = Dialogue(
    "consumer_group",
    _consumes("of no group", groupId="", memberId="one"),
    _consumes("without a timeout", memberId="one", rebalanceTimeoutMs=-1),
    _consumes("without topics", memberId="one", subscribedTopicNames=None),
    _consumes("with partitions at first", memberId="one", topicPartitions=_OWNED),
    _consumes("with an unknown assignor", memberId="one", serverAssignor="none"),
    _consumes("of an unknown group", memberId="one", memberEpoch=3),
    _consumes("with an invalid epoch", memberId="one", memberEpoch=-7),
    _consumes("that leaves an unknown group", memberId="one", memberEpoch=-1),
    _consumes("with an empty instance", memberId="one", instanceId=""),
    _consumes("with an empty rack", memberId="one", rackId=""),
    _describes_consumers("unknown"),
    _describes_consumers("no group", ""),
    _consumes("without an id")._replace(versions=(1, 1)),
    _consumes("of a new member", _MEMBER)._replace(versions=(0, 0)),
    _consumes("of a new member", _MEMBER, memberId="member-1")._replace(versions=(1, 1)),
    _goes_on("that goes on"),
    _goes_on("that has its partitions", topicPartitions=_OWNED),
    _goes_on("of a wrong epoch", memberEpoch=9),
    _goes_on("of an unknown member", memberId="nobody"),
    _describes_consumers("stable"),
    _describes("of the other protocol"),
    _lists("consumer", [], ["consumer"]),
    _commits("of a member", "$m", "$epoch"),
    _commits("of a wrong epoch", "$m", 77),
    _commits("of an unknown member", "nobody", "$epoch"),
    _commits("from outside"),
    _fetches("of a member", member="$m", epoch="$epoch"),
    _fetches("of a wrong epoch", member="$m", epoch=77),
    _fetches("of an unknown member", member="nobody", epoch="$epoch"),
    _fetches("from outside"),
    _joins("of a classic member", memberId="", protocolType="connect"),
    _beats("of a classic member", "nobody", generationId=1),
    _syncs("of a classic member", "nobody", generationId=1),
    _leaves("of a classic member", "nobody"),
    _deletes("with members"),
    _deletes_offsets("subscribed"),
    _goes_on("that leaves", memberEpoch=-1),
    _goes_on("that has left"),
    _describes_consumers("empty"),
    _fetches("of a member that has left", member="$m", epoch="$epoch"),
    _commits("of a member that has left", "$m", "$epoch"),
    _deletes("empty"),
)

two_consumers: Final = Dialogue(
    "two_consumers",
    _consumes("first", _MEMBER, memberId="m-1", serverAssignor="range"),
    _goes_on("first with its partitions", topicPartitions=_OWNED),
    _consumes("second", {"n": "memberId"}, memberId="m-2"),
    _goes_on("first, asked to give one up", {}, topicPartitions=_OWNED),
    _describes_consumers("giving up"),
    _goes_on(
        "first, without the other half",
        {"epoch": "memberEpoch"},
        topicPartitions=[{"topicId": "$topic_id", "partitions": [0]}],
    ),
    _goes_on("second, given its half", memberId="$n"),
    _describes_consumers("of two"),
    _goes_on("second leaves", memberId="$n", memberEpoch=-1),
    _goes_on("first, given all", topicPartitions=[{"topicId": "$topic_id", "partitions": [0]}]),
    _describes_consumers("of one again"),
)

static_consumers: Final = Dialogue(
    "static_consumers",
    _consumes("static", _MEMBER, memberId="s-1", instanceId="one"),
    _consumes("of the same instance", memberId="s-2", instanceId="one"),
    _goes_on("that leaves for a while", memberEpoch=-2, instanceId="one"),
    _describes_consumers("without its static member"),
    _consumes("that comes back", {"n": "memberId"}, memberId="s-2", instanceId="one"),
    _goes_on("of its former id", instanceId="one"),
    _describes_consumers("with its static member"),
    _goes_on("that leaves", memberId="$n", memberEpoch=-1, instanceId="one"),
)

# A classic member's requests in a group of both protocols; JoinGroup from the version with ids.
_CLASSIC: Final = {"c": "memberId"}
_EPOCH: Final = {"generation": "generationId"}


def _joins_too(what: str, keeps: Mapping[str, str] = _EPOCH, **changes: Any) -> Ask:
    values = {**_JOIN, "memberId": "$c", **changes}
    return Ask(what, "JoinGroup", values, keeps, _GIVES_IDS)


mixed_group: Final = Dialogue(
    "mixed_group",
    _consumes("of the first member", _MEMBER, memberId="member-1"),
    _joins_too("of a classic member", _CLASSIC, memberId=""),
    _joins_too("with the id"),
    _describes_consumers("of both protocols"),
    _syncs("before there are partitions", "$c"),
    _beats("while the other one has them", "$c"),
    _goes_on("that is told what to give up", topicPartitions=_OWNED),
    _goes_on(
        "that has given up",
        {"epoch": "memberEpoch"},
        topicPartitions=[{"topicId": "$topic_id", "partitions": [0]}],
    ),
    _beats("of a member that may get more", "$c"),
    _joins_too("again"),
    _syncs("with partitions", "$c"),
    _syncs("of a wrong generation", "$c", generationId=77),
    _syncs("of another protocol", "$c", protocolName="other"),
    _syncs("of the other member", "$m"),
    _beats("of a wrong generation", "$c", generationId=77),
    _beats("of the other member", "$m"),
    _describes_consumers("with partitions"),
    _commits("of a classic member", "$c", "$generation"),
    _commits("of a classic member and a wrong generation", "$c", 77),
    _fetches("of a classic member and a wrong generation", member="$c", epoch=77),
    _joins_too("of a type that is not supported", {}, memberId="", protocolType="connect"),
    _joins_too(
        "without a common protocol",
        {},
        memberId="",
        protocols=[{"name": "third", "metadata": _SUBSCRIPTION}],
    ),
    _leaves("of nobody", "nobody"),
    _goes_on("that leaves", memberEpoch=-1),
    _describes("that has become classic"),
    _beats("that has become classic", "$c"),
    _leaves("of the last member", "$c"),
    _lists("classic", [], ["classic"]),
    _deletes("of both protocols"),
)

upgraded_group: Final = Dialogue(
    "upgraded_group",
    *_FIRST[:2],
    Ask("of its leader", "SyncGroup", _syncs("", "$a", "$a").values, {}, (0, 99)),
    _consumes("of another protocol", _MEMBER, memberId="member-1"),
    _describes_consumers("upgraded"),
    _beats("after the upgrade"),
    Ask("again", "JoinGroup", {**_JOIN, "memberId": "$a"}, _EPOCH, _GIVES_IDS),
    _syncs("after the upgrade", "$a"),
    _goes_on("that waits"),
    _leaves("of the classic member", "$a"),
    _goes_on("that has everything", {"epoch": "memberEpoch"}),
    _describes_consumers("without classic members"),
    _goes_on("that leaves", memberEpoch=-1),
    _deletes("upgraded"),
)

patterns: Final = Dialogue(
    "patterns",
    _consumes("of an invalid pattern", memberId="m-1", subscribedTopicRegex="(")._replace(
        versions=(1, 1)
    ),
    _consumes(
        "of a pattern",
        _MEMBER,
        memberId="m-1",
        subscribedTopicNames=None,
        subscribedTopicRegex="none.*|" + TOPIC,
    )._replace(versions=(1, 1)),
    Ask(
        "resolved",
        "ConsumerGroupDescribe",
        {"groupIds": ["$group"], "includeAuthorizedOperations": True},
        until=("groups.0.groupEpoch", 2),
    ),
    _goes_on("that has its topics", {"epoch": "memberEpoch"}),
    _describes_consumers("of a pattern"),
    _deletes_offsets("matched"),
    _goes_on("without a pattern", subscribedTopicRegex="", topicPartitions=_OWNED),
    _describes_consumers("without a pattern"),
    _goes_on("that leaves", memberEpoch=-1),
    _deletes("of a pattern"),
)

GROUP_DIALOGUES: Final = (
    find_coordinator,
    refused_members,
    classic_group,
    rebalance,
    static_members,
    offsets,
    consumer_group,
    two_consumers,
    static_consumers,
    mixed_group,
    upgraded_group,
    patterns,
)
