"""Requests that the event loop answers without a thread, and those that must not hold it up."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from streamlog import CompressionType, LogManager
from streamlog.gateway import Gateway
from streamlog.gateway.broker import Broker
from streamlog.gateway.connection import MemoryBudget
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.handlers import writing
from streamlog.gateway.request import Peer, Request
from streamlog.gateway.settings import GatewaySettings
from tests.gateway import fetching
from tests.gateway.test_writing import Topic, batch
from tests.gateway.wire_client import WireClient, frame

Produce = Callable[[bytes], Awaitable[int]]


def run_with_broker(root: Path, work: Callable[[Broker, Produce], Awaitable[None]]) -> None:
    """Run `work` beside an open broker, with a function that produces to `orders-0`."""

    async def run() -> None:
        broker = Broker(LogManager.open(root), GatewaySettings(), asyncio.get_running_loop())

        async def produce(records: bytes) -> int:
            data = {"index": 0, "records": records}
            topic = {"name": "orders", "topicId": "", "partitionData": [data]}
            values = {"transactionalId": None, "acks": -1, "timeoutMs": 1, "topicData": [topic]}
            peer = Peer("/127.0.0.1", ("127.0.0.1", 0), "ANONYMOUS")
            answer = await writing.produce(broker, Request("Produce", 9, "", values, peer, []))
            assert answer is not None
            (partition,) = answer["responses"][0]["partitionResponses"]
            assert partition["errorCode"] == 0
            offset: int = partition["baseOffset"]
            return offset

        await work(broker, produce)
        broker.close()

    asyncio.run(run())


@pytest.fixture
def orders(root: Path) -> Path:
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 1)
    return root


def test_only_small_plain_batches_need_no_thread(orders: Path) -> None:
    async def work(broker: Broker, produce: Produce) -> None:
        assert await produce(batch(b"a")) == 0  # which opens the partition
        broker._threads.shutdown()
        assert await produce(batch(b"b")) == 1
        for each in (batch(b"c" * 70_000), batch(b"d", compression=CompressionType.GZIP)):
            with pytest.raises(RuntimeError, match="after shutdown"):
                await produce(each)

    run_with_broker(orders, work)


def test_a_partition_of_a_topic_made_again_is_left_to_a_thread(orders: Path) -> None:
    async def work(broker: Broker, produce: Produce) -> None:
        assert [await produce(batch(b"a")), await produce(batch(b"b"))] == [0, 1]
        with LogManager.open(orders) as manager:
            manager.delete_topic("orders")
            manager.create_topic("orders", 1)
        assert [await produce(batch(b"c")), await produce(batch(b"d"))] == [0, 1]

    run_with_broker(orders, work)


def test_a_reader_that_was_busy_during_an_append_learns_of_it(orders: Path) -> None:
    async def work(broker: Broker, produce: Produce) -> None:
        await produce(batch(b"a"))
        reader = broker.partitions.get("orders", 0).reader
        held, free = threading.Event(), threading.Event()

        def hold() -> None:
            with reader._guard:
                held.set()
                free.wait(30)

        busy = threading.Thread(target=hold)
        busy.start()
        held.wait(30)
        asyncio.get_running_loop().call_later(0.2, free.set)  # never, if the loop waits for it
        assert await produce(batch(b"b")) == 1
        assert free.is_set()
        busy.join()
        assert reader.log_end_offset == 2

    run_with_broker(orders, work)


def test_what_was_deleted_or_extended_here_is_known_at_once(client: WireClient, root: Path) -> None:
    topic = Topic(client, root)
    for _ in range(3):
        assert topic.produce(batch(b"a"))["errorCode"] == ErrorCode.NONE
        client.call(
            "CreatePartitions", 3, topics=[{"name": "orders", "count": 3, "assignments": None}]
        )
        assert topic.produce_all((2, batch(b"b")))[0]["errorCode"] == ErrorCode.NONE
        client.call("DeleteTopics", 5, topicNames=["orders"], timeoutMs=1000)
        refused = topic.produce(batch(b"c"))
        assert refused["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = Topic(client, root)


def test_settings_changed_here_are_in_force_at_once(client: WireClient, root: Path) -> None:
    topic = Topic(client, root)
    topic.produce(batch(b"a"))
    for size, code in ((10, ErrorCode.MESSAGE_TOO_LARGE), (1000, ErrorCode.NONE)) * 3:
        change = {"name": "max.message.bytes", "configOperation": 0, "value": str(size)}
        resource = {"resourceType": 2, "resourceName": "orders", "configs": [change]}
        client.call("IncrementalAlterConfigs", 1, resources=[resource], validateOnly=False)
        assert topic.produce(batch(b"b"))["errorCode"] == code


def test_a_request_behind_one_that_waits_is_answered_after_it(
    client: WireClient, root: Path
) -> None:
    topic = Topic(client, root)
    for value in (b"a", b"b"):
        topic.produce(batch(value))
    wanted = fetching.request(11, ("orders", topic.topic_id), {0: 2}, maxWaitMs=300, minBytes=1)
    fetch = client.send("Fetch", 11, **wanted)
    time.sleep(0.05)  # so that it arrives alone
    produce = client.send("Produce", 11, **topic.request((1, batch(b"c"))))
    waited = client.receive("Fetch", 11, fetch)
    assert waited["responses"][0]["partitions"][0]["records"] == b""
    assert client.receive("Produce", 11, produce)["responses"][0]["name"] == "orders"


@pytest.mark.parametrize("size", [10, 100_000], ids=["read", "sent from the file"])
@pytest.mark.parametrize("behind", [0, 1, 2], ids=["alone", "one behind", "a part of one behind"])
def test_a_fetch_that_waited_is_answered_with_what_comes(
    gateway: Gateway, client: WireClient, root: Path, size: int, behind: int
) -> None:
    topic = Topic(client, root)
    topic.produce(batch(b"a"))
    wanted = fetching.request(11, ("orders", topic.topic_id), {0: 1}, maxWaitMs=30_000, minBytes=1)
    with WireClient(gateway.bootstrap_servers) as other:
        for offset in (1, 2):
            wanted["topics"][0]["partitions"][0]["fetchOffset"] = offset
            fetch = client.send("Fetch", 11, **wanted)
            time.sleep(0.05)
            request = frame("Metadata", 9, 7, {"topics": [{"name": "orders"}]})
            pipelined = len(request).to_bytes(4, "big") + request
            if behind:
                client.send_raw(pipelined if behind == 1 else pipelined[:9])
                time.sleep(0.05)
            other.call("Produce", 11, **topic.request((0, batch(b"b" * size))))
            found = client.receive("Fetch", 11, fetch)["responses"][0]["partitions"][0]
            assert fetching.values_in(found["records"]) == [b"b" * size]
            if behind == 2:
                client.send_raw(pipelined[9:])
            if behind:
                assert client.receive("Metadata", 9, 7)["topics"][0]["name"] == "orders"


def test_requests_come_in_any_pieces(client: WireClient, root: Path) -> None:
    topic = Topic(client, root)
    topic.produce(batch(b"a"))
    frames = b""
    for number in range(1, 5):
        request = frame("Produce", 11, number, topic.request((0, batch(b"%d" % number))))
        frames += len(request).to_bytes(4, "big") + request
    size = len(frames) // 4
    for piece in (frames[: size // 2], frames[size // 2 : size * 2], frames[size * 2 :]):
        client.send_raw(piece)
        time.sleep(0.05)
    for number in range(1, 5):
        assert client.receive("Produce", 11, number)["responses"][0]["name"] == "orders"
    assert topic.values() == [b"a", b"1", b"2", b"3", b"4"]


def test_a_lock_of_another_process_holds_up_no_other_client(
    gateway: Gateway, root: Path, client: WireClient
) -> None:
    topic = Topic(client, root)
    for value in (b"a", b"b"):  # the second one in the event loop
        topic.produce(batch(value))
    with (
        LogManager.open(root) as manager,
        WireClient(gateway.bootstrap_servers, timeout_s=10) as other,
    ):
        with manager.log("orders", 0).writing():
            sent = client.send("Produce", 11, **topic.request((0, batch(b"c"))))
            for _ in range(3):
                found: dict[str, Any] = other.call("Metadata", 9, topics=[{"name": "orders"}])
                assert found["topics"][0]["errorCode"] == 0
        answer = client.receive("Produce", 11, sent)
    (partition,) = answer["responses"][0]["partitionResponses"]
    assert (partition["errorCode"], partition["baseOffset"]) == (0, 2)
    assert topic.values() == [b"a", b"b", b"c"]


# ---- the memory of requests ---------------------------------------------------------------------
def test_who_waits_for_memory_gets_it_when_it_fits() -> None:
    async def run() -> None:
        budget = MemoryBudget(10)
        await budget.take(8)
        large, small, gone = (asyncio.ensure_future(budget.take(size)) for size in (20, 3, 3))
        await asyncio.sleep(0)
        budget.give_back(1)
        gone.cancel()  # though it was about to get its share
        await asyncio.gather(small, gone, return_exceptions=True)
        assert small.done()
        assert gone.cancelled()
        assert not large.done()
        budget.give_back(7)
        assert not large.done()
        budget.give_back(3)  # alone, it may have more than there is
        await large
        waiting = asyncio.ensure_future(budget.take(1))
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.give_back(20)
        await waiting

    asyncio.run(run())
