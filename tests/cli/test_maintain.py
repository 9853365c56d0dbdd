"""`streamlog maintain`, `delete-records`, `readers` and `lag`."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from streamlog.bucket.places import shared_store
from streamlog.bucket.root import BucketRoot
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.readers import write_progress
from streamlog.topic import TopicPartition
from tests.bucket.staged import commit, stage
from tests.root.test_readers import checkpoint
from tests.support.cli import ok, start, streamlog


@pytest.fixture
def old(root: Path) -> Path:
    """Three segments of a thing each, all of which may go by size but for the last one."""
    ok("topics", "alter", "orders", "--config", "internal.segment.bytes=100", "--path", root)
    for number in range(3):
        ok("produce", "orders", "--partition", 0, "--path", root, stdin=b"value %d\n" % number * 2)
    ok("topics", "alter", "orders", "--config", "retention.bytes=100", "--path", root)
    return root


def test_maintain_prints_its_deletions_and_reasons(old: Path) -> None:
    planned = ok("maintain", "--dry-run", "--path", old).rows
    done = ok("maintain", "--once", "--path", old).rows
    for row in (*planned, *done):
        assert row.pop("ms") > 0
    assert planned == done
    (row,) = done
    assert list(row) == [
        *("topic", "partition", "action", "reason", "segments", "bytes", "logStartOffset")
    ]
    assert (row["reason"], row["segments"], row["logStartOffset"]) == ("retention.bytes", 1, 2)
    assert ok("maintain", "--path", old).rows == []
    (described,) = ok("topics", "describe", "orders", "--path", old).rows
    assert [each["logStartOffset"] for each in described["maintenance"]] == [2]
    table = ok("topics", "describe", "orders", "--path", old, "--format", "table").out.decode()
    assert "retention (retention.bytes): removed 1 segments" in table


def test_maintain_builds_and_retains_in_an_object_store(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    root = BucketRoot(shared_store(url))
    root.create()
    root.create_topic("orders", configs={"internal.segment.bytes": 2000, "retention.bytes": 3000})
    now_ms = time.time_ns() // 1_000_000
    for version in range(4):
        rows = {TopicPartition("orders", 0): [b"%d" % number for number in range(100)]}
        commit(root, "q", version, stage(root, "q", version, rows, timestamp=now_ms))
    planned = ok("maintain", "--dry-run", "--path", url).rows
    assert [row["action"] for row in planned] == ["build"]
    done = ok("maintain", "--path", url).rows
    assert [(row["action"], row["reason"]) for row in done] == [
        ("build", "segment.bytes"),
        ("retention", "retention.bytes"),
    ]
    assert root.refresh().partitions[TopicPartition("orders", 0)].log_start_offset > 0
    again = ok("maintain", "--path", url)
    assert again.rows == [] and "nothing is due" in again.error


def test_maintain_prints_what_a_reader_protects(old: Path) -> None:
    write_progress(
        LogRoot.at(str(old)), "billing", {"orders": {"0": 1}}, now_ms=time.time_ns() // 1_000_000
    )
    ran = ok("maintain", "--path", old)
    assert ran.rows == []
    assert "reader billing keeps" in ran.error
    (row,) = ok("readers", "list", "--path", old).rows
    assert (row["reader"], row["offset"], row["isSilent"]) == ("billing", 1, False)
    assert row["keptBytes"] > 0
    (described,) = ok("topics", "describe", "orders", "--path", old).rows
    assert described["readers"][0]["reader"] == "billing"
    ok("readers", "forget", "billing", "--path", old)
    assert len(ok("maintain", "--path", old).rows) == 1


def test_maintain_leaves_a_root_that_another_process_maintains(old: Path) -> None:
    lock = LocalFileSystem().try_lock(f"{old}/.streamlog/locks/maintenance", shared=False)
    assert lock is not None
    ran = ok("maintain", "--path", old)
    lock.release()
    assert (ran.rows, "another process" in ran.error) == ([], True)


def test_maintain_with_an_interval_runs_until_it_is_stopped(old: Path) -> None:
    process = start("maintain", "--every", "1s", "--path", old)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["action"] == "retention"
    ok("delete-records", "orders:0:4", "--path", old)
    assert json.loads(process.stdout.readline())["reason"] == "log start"
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130


@pytest.fixture
def replicated(tmp_path: Path) -> list[Path]:
    """Three roots of a set; by size the first segments of the topic may go in each of them."""
    roots = [tmp_path / name for name in "abc"]
    for each in roots[1:]:
        ok("replicas", "add", each, "--path", roots[0])
    settings = ("--config", "internal.segment.bytes=100", "--config", "retention.bytes=100")
    ok("topics", "create", "orders", "--replication-factor", 3, *settings, "--path", roots[0])
    for number in range(3):
        ok("produce", "orders", "--path", roots[0], stdin=b"value %d\n" % number * 2)
    return roots


def test_several_roots_are_maintained_one_after_another(replicated: list[Path]) -> None:
    path = ",".join(map(str, replicated))
    planned = ok("maintain", "--dry-run", "--path", path).rows
    done = ok("maintain", "--path", path).rows
    for row in (*planned, *done):
        assert row.pop("ms") > 0
    assert planned == done
    assert [row["root"] for row in done] == [str(root) for root in replicated]
    assert {row["logStartOffset"] for row in done} == {2}
    assert ok("verify", *replicated, "--replicas").rows == []
    ran = ok("maintain", "--path", path, "--format", "table")
    assert ran.out == b""
    assert [line.split(": nothing is due")[0] for line in ran.error.splitlines()] == [
        str(root) for root in replicated
    ]


def test_a_root_that_is_offline_does_not_stop_the_others(replicated: list[Path]) -> None:
    away = replicated[1].rename(replicated[1].with_name("away"))
    path = ",".join(map(str, replicated))
    ran = streamlog("maintain", "--path", path)
    assert ran.code != 0
    assert str(replicated[1]) in ran.error
    assert [row["root"] for row in ran.rows] == [str(replicated[0]), str(replicated[2])]
    process = start("maintain", "--every", "1s", "--path", path)
    time.sleep(3)
    away.rename(replicated[1])
    assert process.stdout is not None
    row = json.loads(process.stdout.readline())
    assert (row["root"], row["logStartOffset"]) == (str(replicated[1]), 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--every", text) for text in ("soon", "", "0s", "5", "-5m", "366d")),
        ("--every", "5m", "--once"),
        ("--every", "5m", "--dry-run"),
    ],
)
def test_maintain_refuses_invalid_options(root: Path, arguments: tuple[str, ...]) -> None:
    assert streamlog("maintain", *arguments, "--path", root).code == 2


def test_records_below_an_offset_are_deleted_by_argument_and_by_file(
    old: Path, tmp_path: Path
) -> None:
    rows = ok("delete-records", "orders:0:3", "orders:1:-1", "--path", old).rows
    assert rows == [
        {"topic": "orders", "partition": 0, "lowWatermark": 3},
        {"topic": "orders", "partition": 1, "lowWatermark": 0},
    ]
    file = tmp_path / "offsets.json"
    wanted = [{"topic": "orders", "partition": 0, "offset": -1}]
    file.write_text(json.dumps({"partitions": wanted, "version": 1}))
    (row,) = ok("delete-records", "--offset-json-file", file, "--path", old).rows
    assert row["lowWatermark"] == 6
    assert ok("cat", "orders", "--path", old).rows == []


@pytest.mark.parametrize(
    "text", ["", "[]", '{"partitions":[{"topic":"orders"}]}', '{"partitions":[],"version":2}',
             '{"partitions":[{"topic":"orders","partition":0,"offset":-5}]}',
             '{"partitions":[{"topic":"o","partition":0,"offset":1},'
             '{"topic":"o","partition":0,"offset":2}]}'],
)  # fmt: skip
def test_a_file_that_kafka_would_not_take_is_refused(root: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(text)
    ran = streamlog("delete-records", "--offset-json-file", file, "--path", root)
    assert (ran.code, ran.rows) == (2, [])


def test_one_failing_partition_does_not_stop_the_others(old: Path) -> None:
    ran = streamlog("delete-records", "orders:1:9", "orders:0:2", "--path", old)
    assert ran.code == 2
    assert [row["lowWatermark"] for row in ran.rows] == [2]
    assert "high watermark" in ran.error


def test_a_query_is_recorded_by_checkpoint_and_its_lag_printed(old: Path, tmp_path: Path) -> None:
    sources = ['{"orders":{"0":4,"1":0},"elsewhere":{"0":9}}']
    directory = checkpoint(tmp_path / "audit", {0: sources}, done=0)
    rows = ok("readers", "add", "audit", "--checkpoint", directory, "--path", old).rows
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        *(("elsewhere", 0, 9), ("orders", 0, 4), ("orders", 1, 0))
    ]
    behind = ok("lag", "--checkpoint", directory, "--path", old).rows
    assert [(row["partition"], row["logEndOffset"], row["lag"]) for row in behind] == [
        *((0, 6, 2), (1, 0, 0), (2, 0, 0))  # the last was added since: it is kept as well
    ]
    assert [row["group"] for row in ok("lag", "--over", 2, "--path", old).rows] == ["audit"] * 3
    assert streamlog("lag", "--over", 1, "--path", old).code == 1
    first, *others = [row["lagMs"] for row in behind]
    assert (first > 0, others) == (True, [0, 0])
    assert streamlog("lag", "--over-time", f"{first}ms", "--path", old).code == 0
    assert streamlog("lag", "--over-time", f"{first - 1}ms", "--path", old).code == 1
    again = ("lag", "--watch", "--every", "100ms", "--count", 2, "--path", old)
    rows = ok(*again).rows
    assert [row["lag"] for row in rows] == [2, 0, 0] * 2
    assert [len({row["timeMs"] for row in rows[at : at + 3]}) for at in (0, 3)] == [1, 1]
    assert rows[3]["timeMs"] - rows[0]["timeMs"] >= 100
    assert streamlog(*again, "--over", 1).code == 1
    assert ok("maintain", "--path", old).rows[0]["logStartOffset"] == 2
    refused = streamlog("delete-records", "orders:0:5", "--path", old)
    assert (refused.code, "--force" in refused.error) == (2, True)
    ok("delete-records", "orders:0:5", "--force", "--path", old)


def test_lag_of_a_topic_that_was_created_again_is_all_that_it_holds(
    root: Path, tmp_path: Path
) -> None:
    def behind() -> list[tuple[Any, ...]]:
        rows = ok("lag", "--path", root).rows
        return [(row["partition"], row["currentOffset"], row["lag"]) for row in rows]

    with LogManager.open(root) as manager:
        manager.log("orders", 1).append([Record(value=b"x", timestamp=1)] * 5)
        manager.delete_topic("orders")
        manager.create_topic("orders", 3)
        topic_id = manager.describe("orders").topic_id
        manager.log("orders", 1).append([Record(value=b"x", timestamp=1)] * 2)
        manager.alter_topic("orders", partitions=4)
    for known, expected in ((topic_id, [1, 1]), ("AAAAAAAAAAAAAAAAAAAAAA", [None, 2])):
        offsets = {"$topicIds": {"orders": known}, "orders": {"0": 0, "1": 1, "2": 0}}
        write_progress(
            LogRoot.at(str(root)), "billing", offsets, now_ms=time.time_ns() // 1_000_000
        )
        rows = behind()
        assert [current for _, current, _ in rows][1] == expected[0]
        assert [number for *_, number in rows] == [0, expected[1], 0, 0]
        assert rows[3] == (3, None, 0)
