"""Committed offsets: transactions, expiry, and what the log keeps of them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from streamlog import LogManager
from streamlog.clock import ManualClock
from streamlog.gateway.broker import Broker
from streamlog.gateway.coordinator_log import TxnProducer
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.groups.group import CommittingMember, MemberProtocol
from streamlog.gateway.groups.members import JoinRequest, LeavingMember, SyncRequest
from streamlog.gateway.groups.offsets import CommittedOffset, GroupOffsets
from streamlog.gateway.settings import GatewaySettings
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.validate import AppendOrigin
from streamlog.topic import TopicPartition
from tests.support.cli import ok

_ORDERS = TopicPartition("orders", 0)
_OTHER = TopicPartition("other", 1)
_OUTSIDE = CommittingMember("", None, -1, is_transactional=False, version=9)
_DAY_MS = 24 * 60 * 60 * 1000
_SUBSCRIPTION = b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"


def _run(
    root: Path,
    clock: ManualClock,
    work: Callable[[GroupCoordinator, Broker], Awaitable[None]],
) -> None:
    async def main() -> None:
        manager = LogManager.open(str(root), create=True, clock=clock)
        manager.create_topic(
            "__consumer_offsets", 1, {"cleanup.policy": "compact"}, if_not_exists=True
        )
        broker = Broker(manager, GatewaySettings(), asyncio.get_running_loop())
        try:
            await work(broker.coordinator(GroupCoordinator), broker)
            broker.begin_to_stop()
        finally:
            broker.close()

    asyncio.run(main())


async def _commit(
    groups: GroupCoordinator, group: str, offset: int, *partitions: TopicPartition
) -> None:
    now_ms = groups.world.clock.now_ms()
    offsets = {each: CommittedOffset(offset, commit_timestamp_ms=now_ms) for each in partitions}
    assert await groups.commit_offsets(group, _OUTSIDE, offsets) is ErrorCode.NONE


def _offset(groups: GroupCoordinator, group: str, partition: TopicPartition) -> int | None:
    found = groups.offsets.get(group, partition)
    return None if found is None else found.offset


def test_of_a_plain_commit_and_one_in_a_transaction_the_later_counts() -> None:
    offsets = GroupOffsets()
    offsets.put("g", _ORDERS, CommittedOffset(1))
    offsets.put_pending(7, "g", _ORDERS, CommittedOffset(2))
    offsets.put_pending(7, "g", _OTHER, CommittedOffset(2))
    offsets.put_pending(8, "g", _ORDERS, CommittedOffset(9))
    offsets.put("g", _OTHER, CommittedOffset(3))
    assert offsets.of("g") == {_ORDERS: CommittedOffset(1), _OTHER: CommittedOffset(3)}
    assert offsets.pending_partitions("g") == {_ORDERS, _OTHER}
    offsets.end_transaction(7, is_commit=True)
    offsets.end_transaction(8, is_commit=False)
    assert offsets.of("g") == {_ORDERS: CommittedOffset(2), _OTHER: CommittedOffset(3)}
    assert offsets.pending_partitions("g") == set()


def test_removing_an_offset_removes_those_of_open_transactions() -> None:
    offsets = GroupOffsets()
    offsets.put("g", _ORDERS, CommittedOffset(1))
    offsets.put_pending(7, "g", _ORDERS, CommittedOffset(2))
    offsets.remove("g", _ORDERS)
    offsets.end_transaction(7, is_commit=True)
    assert offsets.of("g") == {}


def test_offsets_of_a_transaction_wait_for_its_marker_over_a_restart(root: Path) -> None:
    clock = ManualClock()

    async def begin(groups: GroupCoordinator, broker: Broker) -> None:
        del broker
        await _commit(groups, "g", 1, _ORDERS)
        code = await groups.txn_commit_offsets(
            "g",
            _OUTSIDE._replace(is_transactional=True),
            {_ORDERS: CommittedOffset(5), _OTHER: CommittedOffset(6)},
            TxnProducer(7, 0),
        )
        assert code is ErrorCode.NONE
        assert _offset(groups, "g", _ORDERS) == 1
        assert groups.offsets.pending_partitions("g") == {_ORDERS, _OTHER}
        assert groups.offsets_partition("g") == TopicPartition("__consumer_offsets", 0)

    async def end(groups: GroupCoordinator, broker: Broker) -> None:
        await groups.ready()
        assert groups.offsets.pending_partitions("g") == {_ORDERS, _OTHER}
        assert groups.offsets.pending_groups(7) == ["g"]
        marker = build_marker(
            EndTransactionMarker(ControlRecordType.COMMIT, 0),
            producer_id=7,
            producer_epoch=0,
            timestamp=clock.now_ms(),
        )
        partition = broker.partitions.get(*groups.offsets_partition("g"))
        await broker.run(partition.append, marker, origin=AppendOrigin.COORDINATOR)
        await groups.on_transaction_end(7, is_commit=True)
        assert (_offset(groups, "g", _ORDERS), _offset(groups, "g", _OTHER)) == (5, 6)

    async def after(groups: GroupCoordinator, broker: Broker) -> None:
        del broker
        await groups.ready()
        assert (_offset(groups, "g", _ORDERS), _offset(groups, "g", _OTHER)) == (5, 6)
        assert groups.offsets.pending_partitions("g") == set()

    for work in (begin, end, after):
        _run(root, clock, work)


def test_offsets_of_no_group_expire_each_by_its_commit(root: Path) -> None:
    clock = ManualClock()

    async def work(groups: GroupCoordinator, broker: Broker) -> None:
        del broker
        await _commit(groups, "g", 1, _ORDERS)
        clock.advance(5 * _DAY_MS)
        await _commit(groups, "g", 2, _OTHER)
        clock.advance(2 * _DAY_MS - 1)
        await groups.expire_offsets()
        assert set(groups.offsets.of("g")) == {_ORDERS, _OTHER}
        clock.advance(1)
        await groups.expire_offsets()
        assert set(groups.offsets.of("g")) == {_OTHER}
        clock.advance(5 * _DAY_MS)
        await groups.expire_offsets()
        assert "g" not in groups.groups

    async def after(groups: GroupCoordinator, broker: Broker) -> None:
        del broker
        await groups.ready()
        assert groups.groups == {}

    _run(root, clock, work)
    _run(root, clock, after)


def test_offsets_that_members_read_stay_until_the_group_is_empty_for_long(root: Path) -> None:
    clock = ManualClock()

    async def work(groups: GroupCoordinator, broker: Broker) -> None:
        del broker
        joined = await groups.join(
            "g",
            JoinRequest(
                member_id="",
                instance_id=None,
                client_id="c",
                client_host="/127.0.0.1",
                protocol_type="consumer",
                protocols=(MemberProtocol("range", _SUBSCRIPTION),),
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                needs_member_id=False,
            ),
        )
        member_id = joined["memberId"]
        sync = SyncRequest(member_id, None, 1, None, None, {})
        assert (await groups.sync("g", sync))["errorCode"] == ErrorCode.NONE
        identity = CommittingMember(member_id, None, 1, is_transactional=False, version=9)
        offsets = {
            each: CommittedOffset(3, commit_timestamp_ms=clock.now_ms())
            for each in (_ORDERS, _OTHER)
        }
        assert await groups.commit_offsets("g", identity, offsets) is ErrorCode.NONE
        clock.advance(8 * _DAY_MS)
        await groups.expire_offsets()  # nobody reads `other`
        assert set(groups.offsets.of("g")) == {_ORDERS}
        assert await groups.leave("g", [LeavingMember(member_id, None)]) == [ErrorCode.NONE]
        await groups.expire_offsets()  # the group has just become empty
        assert set(groups.offsets.of("g")) == {_ORDERS}
        clock.advance(7 * _DAY_MS)
        await groups.expire_offsets()
        assert "g" not in groups.groups

    _run(root, clock, work)


def test_offsets_of_deleted_topics_are_removed(root: Path) -> None:
    async def work(groups: GroupCoordinator, broker: Broker) -> None:
        del broker
        await _commit(groups, "g", 1, _ORDERS, _OTHER)
        await groups.on_topics_deleted(["orders"])
        assert set(groups.offsets.of("g")) == {_OTHER}

    _run(root, ManualClock(), work)


def test_an_offset_that_cannot_be_stored_is_not_committed(root: Path) -> None:
    async def work(groups: GroupCoordinator, broker: Broker) -> None:
        await _commit(groups, "g", 1, _ORDERS)
        limit = {"max.message.bytes": "200"}
        await broker.run(broker.manager.alter_topic, "__consumer_offsets", configs=limit)
        large = CommittedOffset(2, metadata="x" * 200)
        code = await groups.commit_offsets("g", _OUTSIDE, {_ORDERS: large})
        assert code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert _offset(groups, "g", _ORDERS) == 1

    _run(root, ManualClock(), work)


def test_the_log_is_compacted_and_dumped(root: Path) -> None:
    clock = ManualClock()

    async def many(groups: GroupCoordinator, broker: Broker) -> None:
        for offset in range(50):
            await _commit(groups, "g", offset, _ORDERS)
        await _commit(groups, "gone", 1, _ORDERS)
        assert await groups.delete_group("gone") is ErrorCode.NONE
        await broker.run(broker.manager.log("__consumer_offsets", 0).roll)
        await _commit(groups, "g", 50, _OTHER)

    async def after(groups: GroupCoordinator, broker: Broker) -> None:
        del broker
        await groups.ready()
        assert (_offset(groups, "g", _ORDERS), _offset(groups, "g", _OTHER)) == (49, 50)
        assert list(groups.groups) == ["g"]

    _run(root, clock, many)
    ok("--path", root, "maintain")
    logs = sorted((root / "__consumer_offsets-0").glob("*.log"))
    rows = ok("dump", *logs, "--offsets-decoder", "--format", "ndjson").out.decode()
    assert '"offset":49' in rows.replace(" ", "")
    assert '"offset":48' not in rows.replace(" ", "")
    _run(root, clock, after)
