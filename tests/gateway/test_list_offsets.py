"""ListOffsets and OffsetForLeaderEpoch, in every version."""

from pathlib import Path
from typing import Any

import pytest

from streamlog import Record
from streamlog.gateway.error_codes import ErrorCode
from tests.gateway.fetching import append_transaction, create, end_transaction, writing
from tests.gateway.wire_client import WireClient

VERSIONS = range(1, 12)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
UPLOADED = -6


@pytest.fixture
def orders(root: Path, client: WireClient) -> WireClient:
    """Four records of the times 100, 300, 200, 400; the first is deleted; epochs 0 and 5."""
    create(root, "orders", 2, retention_ms=-1)
    with writing(root, "orders") as log:
        for timestamp in (100, 300, 200, 400):
            log.append([Record(value=b"x", timestamp=timestamp)])
        log.delete_records(1)
    (root / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n5 3\n")
    return client


def ask(
    client: WireClient, version: int, timestamp: int, isolation: int = 0, **partition: Any
) -> dict[str, Any]:
    wanted = {"partitionIndex": 0, "timestamp": timestamp} | partition
    topics = [{"name": partition.pop("topic", "orders"), "partitions": [wanted]}]
    values = {"replicaId": -1, "isolationLevel": isolation, "topics": topics}
    (topic,) = client.call("ListOffsets", version, **values)["topics"]
    (found,) = topic["partitions"]
    result: dict[str, Any] = found
    return result


def offset(found: dict[str, Any]) -> tuple[int, int]:
    assert found["errorCode"] == 0
    return found["offset"], found["timestamp"]


@pytest.mark.parametrize("version", VERSIONS)
def test_first_last_and_by_time(orders: WireClient, version: int) -> None:
    assert offset(ask(orders, version, LATEST)) == (4, -1)
    assert offset(ask(orders, version, EARLIEST)) == (1, -1)
    assert offset(ask(orders, version, 0)) == (1, 300)
    assert offset(ask(orders, version, 301)) == (3, 400)
    assert offset(ask(orders, version, 401)) == (-1, -1)
    assert offset(ask(orders, version, LATEST, partitionIndex=1)) == (0, -1)
    assert offset(ask(orders, version, 0, partitionIndex=1)) == (-1, -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        (MAX_TIMESTAMP, 7, (3, 400)),
        (EARLIEST_LOCAL, 8, (1, -1)),
        (LATEST_TIERED, 9, (-1, -1)),
        (UPLOADED, 11, (-1, -1)),
        (-7, 99, None),
    ],
)
def test_special_times_came_with_versions(
    orders: WireClient, version: int, timestamp: int, since: int, expected: tuple[int, int]
) -> None:
    found = ask(orders, version, timestamp)
    if version < since:
        assert found["errorCode"] == ErrorCode.UNSUPPORTED_VERSION
    else:
        assert offset(found) == expected


@pytest.mark.parametrize("version", [4, 7, 11])
def test_leader_epochs(orders: WireClient, version: int) -> None:
    assert ask(orders, version, LATEST)["leaderEpoch"] == 5
    assert ask(orders, version, EARLIEST)["leaderEpoch"] == 0
    assert ask(orders, version, 400)["leaderEpoch"] == 5
    fenced = ask(orders, version, LATEST, currentLeaderEpoch=4)
    assert (fenced["errorCode"], fenced["offset"]) == (ErrorCode.FENCED_LEADER_EPOCH, -1)
    unknown = ask(orders, version, LATEST, currentLeaderEpoch=6)
    assert unknown["errorCode"] == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_errors(orders: WireClient, version: int) -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(orders, version, LATEST, topic="gone")["errorCode"] == code
    assert ask(orders, version, LATEST, partitionIndex=2)["errorCode"] == code
    twice = [{"partitionIndex": 0, "timestamp": LATEST}] * 2
    values = {"replicaId": -1, "topics": [{"name": "orders", "partitions": twice}]}
    (topic,) = orders.call("ListOffsets", version, **values)["topics"]
    assert [each["errorCode"] for each in topic["partitions"]] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("version", [2, 3, 7, 11])
def test_read_committed_ends_at_the_open_transaction(
    root: Path, client: WireClient, version: int
) -> None:
    create(root, "orders")
    with writing(root, "orders") as log:
        append_transaction(log, 7, 0, b"done")
        end_transaction(log, 7, commits=True)
        append_transaction(log, 7, 1, b"open")
    assert offset(ask(client, version, LATEST))[0] == 3
    assert offset(ask(client, version, LATEST, isolation=1))[0] == 2
    assert offset(ask(client, version, 0, isolation=1))[0] == 0


def test_records_of_another_process_count_at_once(root: Path, orders: WireClient) -> None:
    for end in range(5, 10):
        with writing(root, "orders") as log:
            log.append([Record(value=b"y")])
        assert offset(ask(orders, 7, LATEST))[0] == end


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "found"), [(0, (0, 3)), (3, (0, 3)), (5, (5, 4)), (6, (-1, -1)), (-1, (-1, -1))]
)
def test_the_end_of_an_epoch(
    orders: WireClient, version: int, epoch: int, found: tuple[int, int]
) -> None:
    wanted = {"partition": 0, "leaderEpoch": epoch}
    values = {"replicaId": -1, "topics": [{"topic": "orders", "partitions": [wanted]}]}
    (topic,) = orders.call("OffsetForLeaderEpoch", version, **values)["topics"]
    (answer,) = topic["partitions"]
    assert answer == {
        "errorCode": 0, "partition": 0, "leaderEpoch": found[0], "endOffset": found[1]
    }  # fmt: skip


@pytest.mark.parametrize("version", [2, 3, 4])
def test_epochs_of_partitions_that_are_missing_or_fenced(orders: WireClient, version: int) -> None:
    fenced = {"partition": 0, "leaderEpoch": 0, "currentLeaderEpoch": 3}
    missing = {"partition": 7, "leaderEpoch": 0}
    values = {"replicaId": -1, "topics": [{"topic": "orders", "partitions": [fenced, missing]}]}
    (topic,) = orders.call("OffsetForLeaderEpoch", version, **values)["topics"]
    assert [each["errorCode"] for each in topic["partitions"]] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert all(each["endOffset"] == -1 for each in topic["partitions"])
