"""Produce and transactions on a disk that fails: Kafka's error codes, and no record twice."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from streamlog import LogManager
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.gateway.broker import Broker
from streamlog.gateway.coordinator_log import TxnProducer
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.handlers import producers, writing
from streamlog.gateway.request import Peer, Request
from streamlog.gateway.settings import GatewaySettings
from streamlog.gateway.transactions.coordinator import TransactionCoordinator
from streamlog.topic import TopicPartition
from tests.gateway.test_transactions import seen
from tests.gateway.test_writing import batch

LOG = "00000000000000000000.log"


def _request(api: str, version: int, **values: Any) -> Request:
    return Request(
        api, version, "test", values, Peer("/127.0.0.1", ("127.0.0.1", 0), "ANONYMOUS"), []
    )


async def _produce(broker: Broker, sequence: int, value: bytes) -> tuple[int, int]:
    how = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
    data = {"index": 0, "records": batch(value, **how)}
    topic = {"name": "orders", "topicId": "", "partitionData": [data]}
    values = {"transactionalId": None, "acks": -1, "timeoutMs": 1000, "topicData": [topic]}
    answer = await writing.produce(broker, _request("Produce", 9, **values))
    assert answer is not None
    (partition,) = answer["responses"][0]["partitionResponses"]
    return partition["errorCode"], partition["baseOffset"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with LogManager.open(tmp_path / "root", create=True) as manager:
        manager.create_topic("orders", 1)
    return tmp_path / "root"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("earlier", [0, 1], ids=["in a thread", "in the event loop"])
def test_a_failed_write_is_a_storage_error_and_a_repeat_comes_once(
    root: Path, number: int, earlier: int
) -> None:
    fault = Fault(operation="pwrite", path_suffix=f"orders-0/{LOG}", at=1 + earlier, errno=number)

    async def run() -> None:
        fs = FaultyFileSystem(LocalFileSystem(), fault)
        manager = LogManager.open(root, fs=fs)
        broker = Broker(manager, GatewaySettings(), asyncio.get_running_loop())
        for _ in range(earlier):
            how = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 0}
            await broker.run(broker.partitions.get("orders", 0).append, batch(b"0", **how))
        assert await _produce(broker, 0, b"a") == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert await _produce(broker, 0, b"a") == (ErrorCode.NONE, earlier)
        assert await _produce(broker, 0, b"a") == (ErrorCode.NONE, earlier)
        assert await _produce(broker, 1, b"b") == (ErrorCode.NONE, earlier + 1)
        broker.close()

    asyncio.run(run())
    assert seen(root) == [b"0"] * earlier + [b"a", b"b"]


def test_no_producer_id_is_assigned_from_a_block_that_is_not_durable(root: Path) -> None:
    async def run() -> None:
        fault = Fault(operation="rename", path_suffix="producer-ids", errno=errno.EIO)
        manager = LogManager.open(root, fs=FaultyFileSystem(LocalFileSystem(), fault))
        broker = Broker(manager, GatewaySettings(), asyncio.get_running_loop())
        values = {"transactionalId": None, "transactionTimeoutMs": 1, "producerId": -1}
        request = _request("InitProducerId", 4, **values, producerEpoch=-1)
        codes = [(await producers.init_producer_id(broker, request))["errorCode"] for _ in range(2)]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        broker.close()

    asyncio.run(run())


def test_markers_are_repeated_until_they_are_written(root: Path) -> None:
    """The end is decided; a disk that fails only delays the markers."""
    # The first write to the log is the batch, the second the marker.
    fault = Fault(operation="pwrite", path_suffix=f"orders-0/{LOG}", at=2, errno=errno.EIO)

    async def run() -> None:
        fs = FaultyFileSystem(LocalFileSystem(), fault)
        manager = LogManager.open(root, fs=fs)
        broker = Broker(manager, GatewaySettings(), asyncio.get_running_loop())
        coordinator = broker.coordinator(TransactionCoordinator)
        outcome = await coordinator.init_producer("t", 60_000, None)
        producer = outcome.producer
        place = TopicPartition("orders", 0)
        async with coordinator.appending("t", producer, [place], adds=True) as code:
            assert code is ErrorCode.NONE
            how = {"producer_id": producer.producer_id, "producer_epoch": 0, "base_sequence": 0}
            records = batch(b"a", **how, is_transactional=True)
            await broker.run(broker.partitions.get("orders", 0).append, records)
        ended = await coordinator.end("t", producer, is_commit=True, version=2)
        assert ended.code is ErrorCode.NONE
        assert ended.producer == TxnProducer(producer.producer_id, 1)
        written = [each for each in fs.operations if each.name == "pwrite" and LOG in each.path]
        assert sum("orders-0" in each.path for each in written) == 3
        described = await coordinator.transaction("t")
        assert described is not None and described.state.is_complete
        coordinator.begin_to_stop()
        broker.close()

    asyncio.run(run())
    assert seen(root) == [b"a"]
