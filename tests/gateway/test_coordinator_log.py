"""An internal topic as a coordinator's store: queued appends, replay, compaction."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from streamlog import LogManager
from streamlog.errors import MessageTooLargeError
from streamlog.gateway.broker import Broker
from streamlog.gateway.coordinator_log import (
    CoordinatorLog,
    InternalTopic,
    LoadedState,
    TxnProducer,
    java_hash,
)
from streamlog.gateway.settings import GatewaySettings
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.validate import AppendOrigin

_TOPIC = InternalTopic(
    "__consumer_offsets", 4, {"cleanup.policy": "compact", "max.message.bytes": "2000"}
)


def _run(
    root: Path,
    work: Callable[[CoordinatorLog, Broker], Awaitable[None]],
    *,
    is_read_only: bool = False,
) -> None:
    async def main() -> None:
        manager = LogManager.open(str(root), create=True)
        broker = Broker(
            manager, GatewaySettings(is_read_only=is_read_only), asyncio.get_running_loop()
        )
        try:
            await work(CoordinatorLog(broker, _TOPIC), broker)
        finally:
            broker.close()

    asyncio.run(main())


def _loaded(root: Path) -> LoadedState:
    states = []

    async def work(log: CoordinatorLog, _: Broker) -> None:
        states.append(await log.load())

    _run(root, work)
    return states[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("group", 98629247), ("my-group", -1906497762), ("Ünïcødé 𝄞", -1040241197)],
)
def test_java_hash(text: str, expected: int) -> None:
    """Against `String.hashCode` of a JVM."""
    assert java_hash(text) == expected


def test_a_key_belongs_to_the_partition_that_kafka_puts_it_in(root: Path) -> None:
    """A negative hash counts by its absolute value: Utils.abs, not Utils.toPositive."""

    async def work(log: CoordinatorLog, _: Broker) -> None:
        assert log.partition_of("group") == 98629247 % 4
        assert log.partition_of("my-group") == 1906497762 % 4
        assert java_hash("polygenelubricants") == -(1 << 31)
        assert log.partition_of("polygenelubricants") == 0

    _run(root, work)


def test_the_latest_value_of_each_key_is_loaded(root: Path) -> None:
    applied: list[str] = []

    async def work(log: CoordinatorLog, broker: Broker) -> None:
        assert await log.load() == LoadedState()
        assert broker.catalog.topic(_TOPIC.name) is None
        await asyncio.gather(
            log.append("g", [(b"a", b"1"), (b"b", b"1")], apply=lambda: applied.append("first")),
            log.append("g", [(b"a", b"2")], apply=lambda: applied.append("second")),
            log.append("other", [(b"c", b"3")], apply=lambda: applied.append("third")),
            log.append("g", [(b"b", None)], apply=lambda: applied.append("fourth")),
        )
        entry = broker.catalog.topic(_TOPIC.name)
        assert entry is not None
        assert entry.partitions == (0, 1, 2, 3)
        assert broker.manager.topic_config(_TOPIC.name).cleanup_policy == {"compact"}

    _run(root, work)
    assert applied == ["first", "second", "third", "fourth"]
    assert _loaded(root) == LoadedState({b"a": b"2", b"c": b"3"})


def test_a_refused_append_fails_alone_and_is_not_applied(root: Path) -> None:
    applied: list[str] = []

    async def work(log: CoordinatorLog, _: Broker) -> None:
        outcomes = await asyncio.gather(
            log.append("g", [(b"a", b"1")], apply=lambda: applied.append("first")),
            log.append("g", [(b"b", bytes(5000))], apply=lambda: applied.append("too large")),
            log.append("g", [(b"c", b"3")], apply=lambda: applied.append("third")),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes] == [
            type(None),
            MessageTooLargeError,
            type(None),
        ]

    _run(root, work)
    assert applied == ["first", "third"]
    assert _loaded(root) == LoadedState({b"a": b"1", b"c": b"3"})


def test_transactional_records_count_from_their_marker_on(root: Path) -> None:
    async def work(log: CoordinatorLog, broker: Broker) -> None:
        def end(producer_id: int, kind: ControlRecordType) -> None:
            marker = build_marker(
                EndTransactionMarker(kind, 0),
                producer_id=producer_id,
                producer_epoch=0,
                timestamp=1,
            )
            partition = broker.partitions.get(_TOPIC.name, log.partition_of("g"))
            partition.append(marker, origin=AppendOrigin.COORDINATOR)

        await log.append("g", [(b"a", b"1")])
        await log.append("g", [(b"a", b"2"), (b"b", b"2")], producer=TxnProducer(7, 0))
        await log.append("g", [(b"b", b"3")])
        await log.append("g", [(b"a", b"x")], producer=TxnProducer(8, 0))
        await log.append("g", [(b"c", b"4")], producer=TxnProducer(9, 0))
        await broker.run(end, 7, ControlRecordType.COMMIT)
        await broker.run(end, 8, ControlRecordType.ABORT)

    _run(root, work)
    # The commit of b was overtaken by a later one that is in no transaction.
    assert _loaded(root) == LoadedState({b"a": b"2", b"b": b"3"}, {9: {b"c": b"4"}})


def test_a_caller_that_is_cancelled_leaves_memory_as_the_log(root: Path) -> None:
    applied: list[str] = []

    async def work(log: CoordinatorLog, _: Broker) -> None:
        task = asyncio.create_task(
            log.append("g", [(b"a", b"1")], apply=lambda: applied.append("done"))
        )
        await asyncio.sleep(0)
        task.cancel()
        await log.append("g", [(b"b", b"2")])

    _run(root, work)
    assert applied == ["done"]
    assert _loaded(root) == LoadedState({b"a": b"1", b"b": b"2"})


def test_a_read_only_gateway_coordinates_in_memory(root: Path) -> None:
    applied: list[str] = []

    async def work(log: CoordinatorLog, broker: Broker) -> None:
        await log.append("g", [(b"a", b"1")], apply=lambda: applied.append("done"))
        assert broker.catalog.topic(_TOPIC.name) is None

    _run(root, work, is_read_only=True)
    assert applied == ["done"]
