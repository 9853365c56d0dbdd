"""Transactions over the wire: what consumers see, who is fenced, what survives a crash."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamlog import LogManager
from streamlog.gateway import Gateway, serve
from streamlog.gateway.error_codes import ErrorCode
from streamlog.records.record import IsolationLevel
from tests.gateway.test_writing import Topic, batch
from tests.gateway.wire_client import WireClient

NONE = ErrorCode.NONE


class Txn:
    """A transactional producer that speaks one generation of the protocol.

    `version` 2 is KIP-890: Produce adds partitions, each end raises the epoch.
    """

    def __init__(self, client: WireClient, topic: Topic, name: str = "t", version: int = 2):
        self.client, self.topic, self.name, self.version = client, topic, name, version
        self.producer_id, self.epoch, self.sequences = -1, -1, [0, 0]

    def begin(self, timeout_ms: int = 60_000, version: int = 5, **how: Any) -> int:
        answer = self.client.call(
            "InitProducerId",
            version,
            transactionalId=self.name,
            transactionTimeoutMs=timeout_ms,
            **how,
        )
        if not answer["errorCode"]:
            self.producer_id, self.epoch = answer["producerId"], answer["producerEpoch"]
            self.sequences = [0, 0]
        return int(answer["errorCode"])

    @property
    def ids(self) -> dict[str, int]:
        return {"producerId": self.producer_id, "producerEpoch": self.epoch}

    def add(self, *partitions: int, version: int = 3) -> int:
        own = {f"v3AndBelow{key[0].upper()}{key[1:]}": each for key, each in self.ids.items()}
        answer = self.client.call(
            "AddPartitionsToTxn",
            version,
            v3AndBelowTransactionalId=self.name,
            v3AndBelowTopics=[{"name": self.topic.name, "partitions": list(partitions)}],
            **own,
        )
        (result,) = answer["resultsByTopicV3AndBelow"]
        codes = {each["partitionErrorCode"] for each in result["resultsByPartition"]}
        assert len(codes) == 1
        return int(codes.pop())

    def send(self, *values: bytes, partition: int = 0, version: int | None = None) -> int:
        how: dict[str, Any] = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        how |= {"base_sequence": self.sequences[partition], "is_transactional": True}
        request = self.topic.request((partition, batch(*values, **how)))
        request["transactionalId"] = self.name
        version = version or (12 if self.version == 2 else 9)
        answer = self.client.call("Produce", version, **request)
        code = int(answer["responses"][0]["partitionResponses"][0]["errorCode"])
        if not code:
            self.sequences[partition] += len(values)
        return code

    def end(self, *, commit: bool, version: int | None = None) -> int:
        version = version or (5 if self.version == 2 else 3)
        answer = self.client.call(
            "EndTxn", version, transactionalId=self.name, committed=commit, **self.ids
        )
        if not answer["errorCode"] and version >= 5:
            if answer["producerEpoch"] != self.epoch:
                self.sequences = [0, 0]
            self.producer_id, self.epoch = answer["producerId"], answer["producerEpoch"]
        return int(answer["errorCode"])

    def describe(self) -> dict[str, Any]:
        (answer,) = self.client.call("DescribeTransactions", 0, transactionalIds=[self.name])[
            "transactionStates"
        ]
        return dict(answer)


def seen(root: Path, partition: int = 0, name: str = "orders") -> list[bytes | None]:
    """Return what a read_committed consumer gets."""
    with LogManager.open(str(root)) as manager:
        reader = manager.reader(name, partition)
        return [r.value for r in reader.records(isolation=IsolationLevel.READ_COMMITTED)]


def eventually(check: Callable[[], bool], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def topic(client: WireClient, root: Path) -> Topic:
    return Topic(client, root)


@pytest.fixture
def txn(client: WireClient, topic: Topic) -> Txn:
    made = Txn(client, topic)
    assert made.begin() == NONE
    return made


def test_commit_and_abort_with_version_2(txn: Txn, root: Path) -> None:
    first = txn.epoch
    assert txn.send(b"a", b"b") == NONE
    assert txn.send(b"c", partition=1) == NONE
    assert seen(root) == seen(root, 1) == []
    state = txn.describe()
    assert state["transactionState"] == "Ongoing"
    assert state["topics"] == [{"topic": "orders", "partitions": [0, 1]}]
    assert txn.end(commit=True) == NONE
    assert txn.epoch == first + 1
    assert (seen(root), seen(root, 1)) == ([b"a", b"b"], [b"c"])
    assert txn.send(b"d") == NONE
    assert txn.end(commit=False) == NONE
    assert txn.epoch == first + 2
    assert txn.send(b"e") == NONE
    assert txn.end(commit=True) == NONE
    assert seen(root) == [b"a", b"b", b"e"]
    assert txn.describe()["transactionState"] == "CompleteCommit"


@pytest.mark.parametrize("version", range(4))
def test_commit_and_abort_with_version_0(
    client: WireClient, topic: Topic, root: Path, version: int
) -> None:
    txn = Txn(client, topic, version=0)
    assert txn.begin(version=version) == NONE
    first = txn.epoch
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        assert txn.add(0, 1, version=version) == NONE
        assert txn.send(value, version=7) == NONE
        assert txn.end(commit=commit, version=version) == NONE
        assert txn.epoch == first
    assert seen(root) == [b"a", b"c"]


def test_a_batch_needs_its_partition_in_the_transaction(txn: Txn, root: Path) -> None:
    assert txn.send(b"a", version=10) == ErrorCode.INVALID_TXN_STATE
    assert txn.send(b"a", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert txn.add(0) == NONE
    assert txn.send(b"a", version=11) == NONE
    assert txn.send(b"b", partition=1, version=11) == ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("version", "code"), [(12, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (9, ErrorCode.NONE)]
)
def test_an_unknown_producer_begins_at_sequence_0_in_version_2(
    txn: Txn, version: int, code: ErrorCode
) -> None:
    assert txn.begin() == 0
    assert txn.add(0, 1) == 0
    txn.sequences = [5, 0]
    assert txn.send(b"late", version=version) == code
    assert txn.send(b"first", partition=1, version=version) == 0
    assert txn.send(b"second", partition=1, version=version) == 0
    assert txn.end(commit=True) == 0
    # The next transaction begins at 0 again, in the next epoch.
    txn.sequences = [0, 2]
    assert txn.send(b"late", partition=1, version=12) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    txn.sequences = [0, 0]
    assert txn.send(b"first", partition=1, version=12) == 0


def test_a_new_producer_fences_the_one_before(client: WireClient, txn: Txn, root: Path) -> None:
    assert txn.send(b"a") == NONE
    other = Txn(client, txn.topic)
    assert other.begin() == ErrorCode.CONCURRENT_TRANSACTIONS  # the open one is aborted first
    assert other.begin() == NONE
    assert other.producer_id == txn.producer_id
    assert other.epoch > txn.epoch
    assert txn.send(b"b") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert txn.end(commit=True) == ErrorCode.PRODUCER_FENCED
    assert txn.end(commit=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert txn.add(0) == ErrorCode.PRODUCER_FENCED
    assert txn.add(0, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert other.send(b"c") == NONE
    assert other.end(commit=True) == NONE
    assert seen(root) == [b"c"]


def test_a_producer_continues_after_an_error_with_its_id(txn: Txn) -> None:
    before = txn.ids
    assert txn.begin(**before) == NONE
    assert txn.epoch == before["producerEpoch"] + 1
    assert txn.begin(**before) == NONE  # the answer was lost: the same epoch again
    assert txn.epoch == before["producerEpoch"] + 1
    assert txn.begin(producerId=txn.producer_id, producerEpoch=77) == ErrorCode.PRODUCER_FENCED
    assert (
        txn.begin(version=3, producerId=txn.producer_id + 1, producerEpoch=0)
        == ErrorCode.INVALID_PRODUCER_EPOCH
    )


def test_repeated_ends_are_recognized(txn: Txn) -> None:
    assert txn.send(b"a") == NONE
    first = dict(txn.ids)
    assert txn.end(commit=True) == NONE
    after = dict(txn.ids)
    txn.epoch = first["producerEpoch"]
    assert txn.end(commit=True) == NONE  # the answer was lost: the same new epoch
    assert txn.ids == after
    txn.epoch = first["producerEpoch"]
    assert txn.end(commit=False) == ErrorCode.INVALID_TXN_STATE
    txn.epoch = after["producerEpoch"]
    assert txn.end(commit=True) == ErrorCode.INVALID_TXN_STATE  # nothing was begun
    assert txn.end(commit=False) == NONE  # a client that is not sure aborts
    assert txn.epoch == after["producerEpoch"] + 1


def test_unknown_ids_and_partitions(client: WireClient, topic: Topic) -> None:
    txn = Txn(client, topic, "nobody")
    txn.producer_id, txn.epoch = 5, 0
    assert txn.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert txn.add(0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert txn.send(b"a") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert txn.add(9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert txn.describe()["errorCode"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert txn.begin(timeout_ms=10**9) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    txn.name = ""
    assert txn.begin() == ErrorCode.INVALID_REQUEST


def test_partitions_are_verified_each_for_itself(client: WireClient, txn: Txn) -> None:
    txn.begin()
    assert txn.add(0) == ErrorCode.NONE
    topics = [{"name": txn.topic.name, "partitions": [0, 1]}]
    verified = {"transactionalId": txn.name, "verifyOnly": True, "topics": topics, **txn.ids}
    (result,) = client.call("AddPartitionsToTxn", 5, transactions=[verified])[
        "resultsByTransaction"
    ]
    (by_topic,) = result["topicResults"]
    assert [each["partitionErrorCode"] for each in by_topic["resultsByPartition"]] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ]


def test_a_transactional_batch_needs_a_transactional_id(txn: Txn) -> None:
    txn.name = None  # type: ignore[assignment] # an idempotent producer has no name
    assert txn.send(b"a") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_transactions_are_listed(client: WireClient, topic: Topic) -> None:
    busy, idle = Txn(client, topic, "busy-1"), Txn(client, topic, "idle-1")
    assert busy.begin() == idle.begin() == NONE
    assert busy.send(b"a") == NONE

    def found(version: int = 2, **filters: Any) -> list[str]:
        wanted = {"stateFilters": [], "producerIdFilters": [], **filters}
        answer = client.call("ListTransactions", version, **wanted)
        assert answer["errorCode"] == NONE
        return sorted(each["transactionalId"] for each in answer["transactionStates"])

    assert [found(version) for version in range(3)] == [["busy-1", "idle-1"]] * 3
    assert found(stateFilters=["Ongoing"]) == ["busy-1"]
    assert found(stateFilters=["Empty"]) == ["idle-1"]
    assert found(producerIdFilters=[idle.producer_id]) == ["idle-1"]
    assert found(transactionalIdPattern="i.*") == ["idle-1"]
    assert found(transactionalIdPattern="b") == []
    wanted = {"stateFilters": ["Sleeping"], "producerIdFilters": []}
    answer = client.call("ListTransactions", 0, **wanted)
    assert (answer["unknownStateFilters"], answer["transactionStates"]) == (["Sleeping"], [])
    answer = client.call("ListTransactions", 2, transactionalIdPattern="(", **wanted)
    assert answer["errorCode"] == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_states_survive_a_restart(root: Path) -> None:
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        txn = Txn(client, Topic(client, root))
        assert txn.begin() == NONE
        assert txn.send(b"a") == NONE
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        txn.client = client
        assert txn.describe()["transactionState"] == "Ongoing"
        assert txn.send(b"b") == NONE
        assert txn.end(commit=True) == NONE
    assert seen(root) == [b"a", b"b"]


def test_a_transaction_that_times_out_is_aborted(root: Path) -> None:
    with LogManager.open(str(root), create=True):
        settings = root / ".streamlog/server.properties"
        settings.write_text("transaction.abort.timed.out.transaction.cleanup.interval.ms=50\n")
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        txn = Txn(client, Topic(client, root))
        assert txn.begin(timeout_ms=100) == NONE
        assert txn.send(b"a") == NONE
        eventually(lambda: txn.describe()["transactionState"] == "CompleteAbort")
        assert txn.send(b"b") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert txn.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert txn.begin() == NONE
        assert txn.send(b"c") == NONE
        assert txn.end(commit=True) == NONE
    assert seen(root) == [b"c"]


def test_idle_ids_expire(root: Path) -> None:
    with LogManager.open(str(root), create=True):
        settings = root / ".streamlog/server.properties"
        settings.write_text(
            "transaction.remove.expired.transaction.cleanup.interval.ms=50\n"
            "transactional.id.expiration.ms=100\n"
        )
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        txn = Txn(client, Topic(client, root))
        assert txn.begin() == NONE
        before = txn.producer_id
        eventually(lambda: txn.describe()["errorCode"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        assert txn.begin() == NONE
        assert txn.producer_id != before
        assert txn.send(b"a") == NONE
        time.sleep(0.3)
        assert txn.describe()["transactionState"] == "Ongoing"


@pytest.mark.parametrize("commit", [True, False])
def test_decided_transactions_are_finished_after_a_crash(root: Path, commit: bool) -> None:
    """As after kill -9 between the decision and the markers: the log holds the decision only."""
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        txn = Txn(client, Topic(client, root))
        assert txn.begin() == NONE
        assert txn.send(b"a", b"b") == NONE
        state = txn.describe()
    _decide(root, txn, state, commit=commit)
    assert seen(root) == []
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        txn.client = client
        wanted = "CompleteCommit" if commit else "CompleteAbort"
        eventually(lambda: txn.describe()["transactionState"] == wanted)
        assert seen(root) == ([b"a", b"b"] if commit else [])
        txn.epoch += 1
        txn.sequences = [0, 0]
        assert txn.send(b"c") == NONE
        assert txn.end(commit=True) == NONE
    assert seen(root) == ([b"a", b"b"] if commit else []) + [b"c"]


def _decide(root: Path, txn: Txn, state: dict[str, Any], *, commit: bool) -> None:
    from streamlog import Record
    from streamlog.gateway.coordinator_log import java_hash
    from streamlog.gateway.transactions.state import TransactionMetadata, TransactionState
    from streamlog.topic import TopicPartition

    decided = TransactionMetadata(
        transactional_id=txn.name,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch + 1,
        timeout_ms=60_000,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        updated_ms=state["transactionStartTimeMs"],
        started_ms=state["transactionStartTimeMs"],
        partitions=frozenset([TopicPartition("orders", 0)]),
        client_version=2,
    )
    key, value = decided.record
    with LogManager.open(str(root)) as manager:
        number = (java_hash(txn.name) & 0x7FFFFFFF) % 50
        manager.log("__transaction_state", number).append([Record(key, value)])


def test_aiokafka_writes_transactions(gateway: Gateway, root: Path) -> None:
    from aiokafka import AIOKafkaProducer

    with LogManager.open(str(root)) as manager:
        manager.create_topic("orders", 1)

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=gateway.bootstrap_servers, transactional_id="aio"
        )
        async with producer:
            for number in range(4):
                await producer.begin_transaction()
                await producer.send_and_wait("orders", b"%d" % number, partition=0)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()

    asyncio.run(run())
    assert seen(root) == [b"0", b"2"]
