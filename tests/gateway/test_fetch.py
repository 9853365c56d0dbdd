"""Fetch: what is returned, how much of it, when, and which errors."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamlog import LogManager, Record
from streamlog.fs.notices import DirectoryNotices
from streamlog.gateway import Gateway, serve
from streamlog.gateway.error_codes import ErrorCode
from streamlog.maintenance.runner import Maintenance
from streamlog.partition.reader import LogReader
from streamlog.root.partition_log import PartitionLog
from tests.gateway.fetching import (
    VERSIONS,
    append,
    append_transaction,
    create,
    end_transaction,
    fetch_one,
    request,
    values_in,
    writing,
)
from tests.gateway.wire_client import WireClient


@pytest.fixture
def topic(root: Path) -> tuple[str, str]:
    """A topic of 3 batches in partition 0 and an empty partition 1; its name and id."""
    topic_id = create(root, "orders", 2)
    append(root, "orders", b"a", b"b", b"c")
    return "orders", topic_id


@pytest.fixture
def served(topic: tuple[str, str], client: WireClient) -> Iterator[tuple[WireClient, Any]]:
    """A connected client and the topic."""
    yield client, topic


# ---- what is returned -----------------------------------------------------------------------
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_returns_the_bytes_of_the_segment(
    root: Path, served: tuple[WireClient, Any], version: int
) -> None:
    client, topic = served
    answer = fetch_one(client, version, topic, {0: 0})
    assert answer["records"] == (root / "orders-0" / f"{0:020}.log").read_bytes()
    assert (answer["errorCode"], answer["highWatermark"], answer["lastStableOffset"]) == (0, 3, 3)
    assert answer["abortedTransactions"] is None


def test_a_fetch_within_a_batch_returns_the_whole_batch(root: Path, client: WireClient) -> None:
    create(root, "wide")
    with writing(root, "wide") as log:
        log.append([Record(value=b"%d" % each) for each in range(10)])
    answer = fetch_one(client, 11, "wide", {0: 7})
    assert len(values_in(answer["records"])) == 10


@pytest.mark.parametrize(("limit", "count"), [(0, 1), (1, 1), (70, 1), (1 << 20, 3)])
def test_the_first_batch_is_whole_however_large(
    served: tuple[WireClient, Any], limit: int, count: int
) -> None:
    client, topic = served
    for values in ({"maxBytes": limit}, {"partition": {"partitionMaxBytes": limit}}):
        answer = fetch_one(client, 12, topic, {0: 0}, **values)
        assert len(values_in(answer["records"])) == count


def test_the_limit_holds_for_all_partitions_together(root: Path, client: WireClient) -> None:
    create(root, "wide", 3)
    for number in range(3):
        append(root, "wide", b"x" * 1000, b"y" * 1000, partition=number)
    values = request(12, "wide", {0: 0, 1: 0, 2: 0}, maxBytes=3300)
    (found,) = client.call("Fetch", 12, **values)["responses"]
    sizes = [len(values_in(each["records"])) for each in found["partitions"]]
    assert sizes == [2, 1, 0]
    assert [each["highWatermark"] for each in found["partitions"]] == [2, 2, 2]


def test_fetch_max_bytes_bounds_the_clients_limit(root: Path) -> None:
    create(root, "wide", 1)
    (root / ".streamlog" / "server.properties").write_text("fetch.max.bytes=1024\n")
    append(root, "wide", *[b"x" * 500] * 8)
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        assert len(fetch_one(client, 12, "wide", {0: 0})["records"]) == 1024


@pytest.mark.parametrize("version", [4, 11, 12, 16, 18])
@pytest.mark.parametrize("offset", [-1, 4, 1 << 40])
def test_an_offset_out_of_range_is_answered_at_once(
    served: tuple[WireClient, Any], version: int, offset: int
) -> None:
    client, topic = served
    answer = fetch_one(client, version, topic, {0: offset}, maxWaitMs=30_000)
    assert answer["errorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer["highWatermark"], answer["records"]) == (-1, b"")


def test_the_log_start_is_respected_and_told(root: Path, client: WireClient) -> None:
    create(root, "orders")
    append(root, "orders", b"a", b"b", b"c")
    assert fetch_one(client, 12, "orders", {0: 1})["errorCode"] == 0
    with writing(root, "orders") as log:
        log.delete_records(2)
    deadline = time.monotonic() + 10
    while fetch_one(client, 12, "orders", {0: 1})["errorCode"] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert fetch_one(client, 12, "orders", {0: 1})["errorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch_one(client, 12, "orders", {0: 2})["logStartOffset"] == 2


# ---- unknown topics -------------------------------------------------------------------------
@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_topic_or_partition(served: tuple[WireClient, Any], version: int) -> None:
    client, topic = served
    by_id = version >= 13
    missing = ("gone", "AAAAAAAAAAAAAAAAAAAAAg")
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch_one(client, version, missing, {0: 0}, maxWaitMs=30_000)["errorCode"] == code
    answer = fetch_one(client, version, topic, {2: 0}, maxWaitMs=30_000)
    assert answer["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_another_process_recreates_is_the_new_one(
    root: Path, served: tuple[WireClient, Any]
) -> None:
    client, topic = served
    assert values_in(fetch_one(client, 12, topic, {0: 0})["records"]) == [b"a", b"b", b"c"]
    with LogManager.open(root) as manager:
        manager.delete_topic("orders")
    gone = fetch_one(client, 13, topic, {0: 0})["errorCode"]
    assert gone == ErrorCode.UNKNOWN_TOPIC_ID
    new = ("orders", create(root, "orders", 2))
    append(root, "orders", b"new")
    assert values_in(fetch_one(client, 12, new, {0: 0})["records"]) == [b"new"]
    assert values_in(fetch_one(client, 16, new, {0: 0})["records"]) == [b"new"]
    assert fetch_one(client, 13, topic, {0: 0})["errorCode"] == ErrorCode.UNKNOWN_TOPIC_ID


# ---- leader epochs --------------------------------------------------------------------------
@pytest.fixture
def epochs(root: Path, client: WireClient) -> WireClient:
    """A partition with epochs 0 to 2 from offsets 0, 2 and 3 on, four records in all."""
    create(root, "led")
    append(root, "led", b"a", b"b", b"c", b"d")
    (root / "led-0" / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 2\n2 3\n")
    return client


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (2, ErrorCode.NONE),
        (1, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
@pytest.mark.parametrize("version", [9, 11, 12])
def test_another_leader_epoch_is_fenced(
    epochs: WireClient, version: int, epoch: int, code: ErrorCode
) -> None:
    answer = fetch_one(epochs, version, "led", {0: 0}, {"currentLeaderEpoch": epoch})
    assert answer["errorCode"] == code


def test_a_fenced_client_learns_the_leader(root: Path, epochs: WireClient) -> None:
    with LogManager.open(root) as manager:
        topic_id = manager.describe("led").topic_id
    values = request(16, ("led", topic_id), {0: 0}, {"currentLeaderEpoch": 0})
    answer = epochs.call("Fetch", 16, **values)
    (partition,) = answer["responses"][0]["partitions"]
    (node,) = epochs.call("Metadata", 12, topics=[])["brokers"]
    assert partition["currentLeader"] == {"leaderId": node["nodeId"], "leaderEpoch": 2}
    assert answer["nodeEndpoints"] == [node]


@pytest.mark.parametrize(
    ("epoch", "offset", "diverging"),
    [
        (2, 4, None),
        (0, 2, None),
        (0, 3, {"epoch": 0, "endOffset": 2}),
        (1, 4, {"epoch": 1, "endOffset": 3}),
    ],
)
def test_a_diverging_log_is_told_where(
    epochs: WireClient, epoch: int, offset: int, diverging: dict[str, int] | None
) -> None:
    values = {"lastFetchedEpoch": epoch}
    answer = fetch_one(
        epochs, 12, "led", {0: offset}, values, maxWaitMs=0 if diverging is None else 30_000
    )
    assert answer["errorCode"] == 0
    found = answer["divergingEpoch"]
    assert found == (diverging or {"epoch": -1, "endOffset": -1})
    unknown = fetch_one(epochs, 12, "led", {0: offset}, {"lastFetchedEpoch": 9})
    assert unknown["errorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE


# ---- transactions ---------------------------------------------------------------------------
@pytest.mark.parametrize("version", [4, 11, 12, 16, 18])
def test_read_committed_stops_at_open_transactions_and_lists_the_aborted(
    root: Path, client: WireClient, version: int
) -> None:
    topic = ("paid", create(root, "paid"))
    with writing(root, "paid") as log:
        append_transaction(log, 7, 0, b"aborted")
        append_transaction(log, 8, 0, b"committed")
        end_transaction(log, 7, commits=False)
        end_transaction(log, 8, commits=True)
        append_transaction(log, 7, 1, b"open")
    everything = fetch_one(client, version, topic, {0: 0})
    assert everything["abortedTransactions"] is None
    assert len(values_in(everything["records"])) == 5
    committed = fetch_one(client, version, topic, {0: 0}, isolationLevel=1)
    assert committed["abortedTransactions"] == [{"producerId": 7, "firstOffset": 0}]
    assert (committed["highWatermark"], committed["lastStableOffset"]) == (5, 4)
    assert len(values_in(committed["records"])) == 4
    after = fetch_one(client, version, topic, {0: 3}, isolationLevel=1)
    assert after["abortedTransactions"] == []
    at_end = fetch_one(client, version, topic, {0: 4}, isolationLevel=1)
    assert (at_end["errorCode"], at_end["records"]) == (0, b"")


def test_a_commit_of_another_process_wakes_read_committed(root: Path, client: WireClient) -> None:
    create(root, "paid")
    with writing(root, "paid") as log:
        append_transaction(log, 7, 0, b"x")
        timer = threading.Timer(0.3, end_transaction, (log, 7), {"commits": True})
        timer.start()
        answer = fetch_one(client, 12, "paid", {0: 0}, isolationLevel=1, maxWaitMs=30_000)
        timer.join()
    assert values_in(answer["records"])[0] == b"x"


# ---- waiting --------------------------------------------------------------------------------
def test_an_empty_fetch_waits_as_long_as_the_client_says(served: tuple[WireClient, Any]) -> None:
    client, topic = served
    begun = time.monotonic()
    answer = fetch_one(client, 12, topic, {0: 3}, maxWaitMs=300)
    assert 0.3 <= time.monotonic() - begun < 5
    assert (answer["errorCode"], answer["records"]) == (0, b"")


def test_min_bytes_are_waited_for(root: Path, served: tuple[WireClient, Any]) -> None:
    client, topic = served
    correlation_id = client.send(
        "Fetch", 12, **request(12, topic, {0: 3}, minBytes=2000, maxWaitMs=30_000)
    )
    for _ in range(3):
        append(root, "orders", b"x" * 900)
        time.sleep(0.1)
    (found,) = client.receive("Fetch", 12, correlation_id)["responses"]
    assert len(values_in(found["partitions"][0]["records"])) == 3


def test_more_bytes_than_a_fetch_may_return_are_not_waited_for(
    served: tuple[WireClient, Any],
) -> None:
    client, topic = served
    answer = fetch_one(client, 12, topic, {0: 0}, minBytes=1 << 30, maxBytes=80, maxWaitMs=30_000)
    assert len(values_in(answer["records"])) == 1


@pytest.fixture(params=["noticed by the kernel", "looked for"])
def noticing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "looked for":
        monkeypatch.setattr(DirectoryNotices, "open", classmethod(lambda _: None))


@pytest.mark.usefixtures("noticing")
def test_records_of_another_process_wake_20_consumers_within_100_ms(
    root: Path, gateway: Gateway
) -> None:
    create(root, "orders")
    clients = [WireClient(gateway.bootstrap_servers) for _ in range(20)]
    waited = []
    with writing(root, "orders") as log:
        for turn in range(10):
            sent = [
                each.send("Fetch", 12, **request(12, "orders", {0: turn}, maxWaitMs=30_000))
                for each in clients
            ]
            time.sleep(0.15)
            begun = time.monotonic()
            log.append([Record(value=b"%d" % turn)])
            for each, correlation_id in zip(clients, sent, strict=True):
                (found,) = each.receive("Fetch", 12, correlation_id)["responses"]
                assert values_in(found["partitions"][0]["records"]) == [b"%d" % turn]
            waited.append(time.monotonic() - begun)
    for each in clients:
        each.close()
    assert sorted(waited)[5] < 0.1


def test_partitions_without_news_are_seldom_looked_at(
    root: Path, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(root, "orders", 50)
    looked: Counter[str] = Counter()
    real = LogReader.may_have_changed

    def counted(reader: LogReader) -> bool:
        looked[reader.path] += 1
        return real(reader)

    wanted = dict.fromkeys(range(50), 0)
    client.call("Fetch", 12, **request(12, "orders", wanted, maxWaitMs=0))
    correlation_id = client.send("Fetch", 12, **request(12, "orders", wanted, maxWaitMs=30_000))
    time.sleep(0.3)
    monkeypatch.setattr(LogReader, "may_have_changed", counted)
    time.sleep(1)  # 20 looks and more without notices
    assert sum(looked.values()) <= 50  # one sweep at most
    append(root, "orders", b"x")
    (found,) = client.receive("Fetch", 12, correlation_id)["responses"]
    assert values_in(found["partitions"][0]["records"]) == [b"x"]


@pytest.mark.usefixtures("noticing")
def test_records_of_a_recreated_topic_wake_a_consumer(root: Path, client: WireClient) -> None:
    for value in (b"old", b"new"):
        create(root, "orders")
        correlation_id = client.send(
            "Fetch", 12, **request(12, "orders", {0: 0}, maxWaitMs=30_000, minBytes=1)
        )
        time.sleep(0.2)
        begun = time.monotonic()
        append(root, "orders", value)
        (found,) = client.receive("Fetch", 12, correlation_id)["responses"]
        assert values_in(found["partitions"][0]["records"]) == [value]
        assert time.monotonic() - begun < 1.5  # with opening and closing the root
        with LogManager.open(root) as manager:
            manager.delete_topic("orders")


def test_a_deletion_answers_a_parked_fetch(root: Path, served: tuple[WireClient, Any]) -> None:
    client, topic = served
    correlation_id = client.send("Fetch", 13, **request(13, topic, {0: 3}, maxWaitMs=30_000))
    time.sleep(0.2)
    with LogManager.open(root) as manager:
        manager.delete_topic("orders")
    (found,) = client.receive("Fetch", 13, correlation_id)["responses"]
    assert found["partitions"][0]["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_ends_is_not_waited_for(served: tuple[WireClient, Any]) -> None:
    client, topic = served
    begun = time.monotonic()
    sent = client.send("Fetch", 12, **request(12, topic, {0: 3}, maxWaitMs=20_000))
    time.sleep(0.3)
    client.end()
    (found,) = client.receive("Fetch", 12, sent)["responses"]
    assert found["partitions"][0]["errorCode"] == 0
    assert time.monotonic() - begun < 10


def test_the_fetch_of_a_client_that_is_gone_ends(topic: tuple[str, str], gateway: Gateway) -> None:
    gone = WireClient(gateway.bootstrap_servers)
    gone.send("Fetch", 12, **request(12, topic, {0: 3}, maxWaitMs=60_000))
    port = gone.port
    time.sleep(0.3)
    gone.close()

    def is_held() -> bool:
        """Whether the gateway keeps its end; it runs in this process."""
        found = psutil.Process().net_connections("tcp")
        return any(each.raddr and each.raddr.port == port for each in found)

    deadline = time.monotonic() + 20
    while is_held():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- files that change while they are sent --------------------------------------------------
def _change(root: Path, log: PartitionLog, change: str) -> None:
    log.append([Record(key=b"k", value=b"last")])
    log.roll()
    if change == "delete":
        log.delete_records(log.log_end_offset)
    with Maintenance(root) as maintenance:
        maintenance.run()


@pytest.mark.parametrize("change", ["roll", "delete", "compact"])
def test_a_slow_consumer_gets_the_bytes_that_were_there(
    root: Path, client: WireClient, change: str
) -> None:
    policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}
    create(root, "large", 1, file_delete_delay_ms=0, **(policy if change == "compact" else {}))
    with LogManager.open(root) as manager:
        log = manager.log("large", 0)
        for number in range(64):
            log.append([Record(key=b"k%d" % (number % 8), value=b"%02d" % number * 250_000)])
        path = root / "large-0" / f"{0:020}.log"
        expected = path.read_bytes()
        values = request(12, "large", {0: 0}, {"partitionMaxBytes": 1 << 30}, maxBytes=1 << 30)
        correlation_id = client.send("Fetch", 12, **values)
        time.sleep(0.5)  # the socket is full by now
        _change(root, log, change)
        if change != "roll":
            assert not path.exists() or path.stat().st_size < len(expected)
        (found,) = client.receive("Fetch", 12, correlation_id)["responses"]
    records = found["partitions"][0]["records"]
    assert records == expected[: len(records)]
    assert len(records) > 30_000_000


def test_a_file_truncated_while_it_is_sent_closes_the_connection(
    root: Path, gateway: Gateway, client: WireClient
) -> None:
    create(root, "large")
    append(root, "large", *[b"x" * 900_000] * 40)
    values = request(12, "large", {0: 0}, {"partitionMaxBytes": 1 << 30}, maxBytes=1 << 30)
    client.send("Fetch", 12, **values)
    time.sleep(0.5)
    with (root / "large-0" / f"{0:020}.log").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ConnectionError):
        client.receive_frame()
    with WireClient(gateway.bootstrap_servers) as other:
        assert other.call("ApiVersions", 3)["errorCode"] == 0


def test_a_damaged_segment_is_answered_and_not_waited_for(root: Path, client: WireClient) -> None:
    create(root, "bad")
    append(root, "bad", *[b"x" * 900] * 20)
    path = root / "bad-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[:17] = b"\xff" * 17
    path.write_bytes(data)
    for index in path.parent.glob("*.*index"):
        index.unlink()
    answer = fetch_one(client, 12, "bad", {0: 0}, maxWaitMs=30_000)
    assert answer["errorCode"] in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
