"""The commands on a root in an object store."""

import json
import time
import uuid

import pytest

from streamlog.bucket.keys import LATEST, SNAPSHOTS, STAGING, entry_key
from streamlog.bucket.places import shared_store
from streamlog.bucket.read_roots import BucketReadRoots
from streamlog.bucket.root import BucketRoot
from streamlog.clock import ManualClock, SystemClock
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.maintenance.bucket_runner import BucketMaintenance
from streamlog.root.readers import write_progress
from tests.support.cli import ok, streamlog


@pytest.fixture
def url(tmp_path):
    """A root with `orders` (two partitions) and three records, made by the commands."""
    url = f"file://{tmp_path}/bucket"
    ok("--path", url, "topics", "create", "orders", "--partitions", "2")
    rows = [{"key": "k", "value": f"v{n}", "partition": 0, "timestamp": 1000 + n} for n in range(3)]
    lines = "\n".join(map(json.dumps, rows)).encode()
    done = ok("--path", url, "produce", "orders", "--format", "ndjson", stdin=lines)
    assert done.rows == [
        {"topic": "orders", "partition": 0, "baseOffset": 0, "lastOffset": 2, "count": 3}
    ]
    return url


def test_records_are_produced_and_printed(url):
    ok("--path", url, "produce", "orders", "--atomic", "-p", "1", stdin=b"a\nb\n")
    rows = ok("--path", url, "cat", "orders").rows
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
        *[(0, n, f"v{n}") for n in range(3)],
        (1, 0, "a"),
        (1, 1, "b"),
    ]
    assert [row["value"] for row in ok("cat", url, "-p", "0", "-o", "-1").rows] == ["v2"]
    assert [row["value"] for row in ok("cat", url, "-o", "s@1001", "-c", "1").rows] == ["v1"]
    assert streamlog("--path", url, "cat", "nothing").code != 0


def test_a_url_names_a_root_a_topic_or_a_partition(url):
    ok("--path", url, "topics", "create", "other-1", "--partitions", "2")
    ok("--path", url, "produce", "other-1", "-p", "1", stdin=b"a\n")
    values = [f"v{n}" for n in range(3)]
    for name, wanted in (
        ("orders", values),
        ("orders/", values),
        ("orders-0", values),
        ("orders-1", []),
        ("other-1", ["a"]),  # a topic, before a partition of another
        ("other-1-0", []),
        ("other-1-1", ["a"]),
    ):
        assert [row["value"] for row in ok("cat", f"{url}/{name}").rows] == wanted, name
    rows = ok("offsets", f"{url}/orders").rows
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, 3), (1, 0)]
    for name in ("nothing", "orders-7", "orders/0"):
        assert streamlog("cat", f"{url}/{name}").code == 2


def test_topics_are_listed_described_altered_and_deleted(url):
    (topic,) = ok("--path", url, "topics", "list").rows
    assert (topic["topic"], topic["partitions"], topic["offsets"]) == ("orders", 2, 3)
    ok(
        "--path",
        url,
        "topics",
        "alter",
        "orders",
        "--config",
        "retention.ms=5",
        "--partitions",
        "3",
    )
    (topic,) = ok("--path", url, "topics", "describe", "orders").rows
    assert [each["logEndOffset"] for each in topic["partitions"]] == [3, 0, 0]
    set_here = [each for each in topic["configs"] if each["source"] == "topic"]
    assert set_here == [{"name": "retention.ms", "value": "5", "source": "topic"}]
    assert streamlog("--path", url, "topics", "create", "orders").code != 0
    refused = streamlog("--path", url, "topics", "create", "x", "--replication-factor", "3")
    assert "no replicas of ours" in refused.error
    ok("--path", url, "topics", "delete", "orders", "--yes")
    assert ok("--path", url, "topics", "list").rows == []


def test_offsets_are_printed_and_records_deleted(url):
    ok("--path", url, "delete-records", "orders:0:2")
    rows = ok("--path", url, "offsets", "orders", "--time", "earliest").rows
    assert [row["offset"] for row in rows] == [2, 0]
    rows = ok("--path", url, "offsets", "orders", "--time", "max-timestamp").rows
    assert [(row["offset"], row["timestamp"]) for row in rows] == [(2, 1002), (None, None)]


def test_readers_and_their_lag(url, tmp_path):
    checkpoint = tmp_path / "cp"
    for name, text in {
        "metadata": '{"id":"7f3d5dd2-94a1-4e9b-9d0d-1f1f0fd2f8f1"}',
        "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"orders": {"0": 1, "1": 0}}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)
    ok("--path", url, "readers", "add", "audit", "--checkpoint", checkpoint)
    rows = ok("--path", url, "readers", "list").rows
    assert [(row["reader"], row["partition"], row["offset"]) for row in rows] == [
        ("audit", 0, 1),
        ("audit", 1, 0),
    ]
    assert [(row["lag"], row["lagMs"]) for row in ok("--path", url, "lag").rows] == [(2, 2), (0, 0)]
    (row, _) = ok("--path", url, "readers", "plan", checkpoint, "--to", "1001").rows
    assert (row["currentOffset"], row["newOffset"], row["logEndOffset"]) == (1, 1, 3)
    ok("--path", url, "readers", "reset", checkpoint, "--to", "latest", "--stopped")
    assert [row["lag"] for row in ok("--path", url, "lag").rows] == [0, 0]
    ok("--path", url, "readers", "reset", checkpoint, "--to", '{"orders":{"0":1}}', "--stopped")
    assert streamlog("--path", url, "lag", "--over", "1").code == 1
    ok("--path", url, "readers", "forget", "audit")
    assert ok("--path", url, "readers", "list").rows == []


def test_a_checkpoint_in_a_store_tells_its_lag(url):
    location = f"memory:///{uuid.uuid4()}/cp"
    store = shared_store(location)
    lag = ("--path", url, "lag", "--checkpoint", location)
    ran = streamlog(*lag)
    assert (ran.code, "no checkpoint" in ran.error) == (2, True)
    store.put("metadata", b'{"id":"7f3d5dd2-94a1-4e9b-9d0d-1f1f0fd2f8f1"}')
    for number in (9, 10):
        offsets = json.dumps({"orders": {"0": number - 8}})
        store.put(f"offsets/{number}", f"v2\n{{}}\n0:{offsets}".encode())
        store.put(f"commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}')
    (first, second) = ok(*lag).rows
    assert (first["group"], first["currentOffset"], first["lag"]) == (location, 2, 1)
    assert abs(first["committedMs"] - time.time_ns() // 1_000_000) < 120_000
    assert (second["currentOffset"], second["lag"]) == (None, 0)


def test_damage_is_found_and_soundness_reported(url):
    ran = ok("verify", url, "--deep")
    assert "sound; checked 1 topic, 2 partitions" in ran.error
    state = BucketReadRoots(url).state()
    (stretch,) = [each for at in state.partitions.values() for each in at.stretches]
    store = shared_store(url)
    content = bytearray(store.get(stretch.key, max_size=1 << 20))
    content[-1] ^= 1
    store.put(stretch.key, bytes(content))
    ran = streamlog("verify", url)
    assert ran.code == 1
    assert "a batch that fails its checksum" in ran.error
    store.delete([stretch.key])
    assert "there is no such object" in streamlog("verify", url).error


def test_maintenance_applies_the_settings(url):
    ok("--path", url, "topics", "alter", "orders", "--config", "segment.ms=1")
    ok("--path", url, "maintain", "--dry-run")
    assert len(ok("--path", url, "cat", "orders").rows) == 3
    ok("--path", url, "maintain")  # the records are of 1970
    assert ok("--path", url, "cat", "orders").rows == []
    assert [row["offset"] for row in ok("--path", url, "offsets", "orders").rows] == [3, 0]
    ok("verify", url)


@pytest.mark.parametrize("kind", ["directory", "object store"])
def test_records_that_a_reader_needs_are_deleted_by_force_only(kind, tmp_path):
    """The same words in a directory and in an object store."""
    place = str(tmp_path / "root") if kind == "directory" else f"file://{tmp_path}/bucket"
    ok("--path", place, "topics", "create", "orders", "--config", "cleanup.policy=delete")
    ok("--path", place, "topics", "create", "table", "--config", "cleanup.policy=compact")
    ok("--path", place, "produce", "orders", stdin=b"a\nb\nc\n")
    offsets = {"orders": {"0": 1}}
    if kind == "directory":
        at = LogRoot.at(place, fs=LocalFileSystem())
        write_progress(at, "audit", offsets, now_ms=SystemClock().now_ms())
    else:
        root = BucketRoot(shared_store(place))
        root.refresh()
        root.readers.write_progress("audit", offsets, entry=1)
    assert ok("--path", place, "delete-records", "orders:0:1").rows[0]["lowWatermark"] == 1
    refused = streamlog("--path", place, "delete-records", "orders:0:2")
    assert refused.code == 2
    assert "reader audit has not finished what is to be deleted" in refused.error
    assert "readers forget audit" in refused.error
    forced = ok("--path", place, "delete-records", "orders:0:-1", "--force")
    assert forced.rows[0]["lowWatermark"] == 3
    compacted = streamlog("--path", place, "delete-records", "table:0:0")
    assert "records of table-0 cannot be deleted by offset" in compacted.error


def test_replica_commands_refuse_a_url(url):
    assert streamlog("--path", f"{url},s3://a/b", "cat", "orders").code != 0


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_dump_prints_segments_staged_objects_and_the_journal(kind, tmp_path, request):
    s3 = request.getfixturevalue("s3")
    url = s3.new_bucket() if kind == "s3" else f"file://{tmp_path}/bucket"
    ok("--path", url, "topics", "create", "orders")
    store = shared_store(url)
    clock = SystemClock()
    for _ in range(16):
        ok("--path", url, "produce", "orders", stdin=b"a\nb\n")
    [staged, *_] = [each.key for each in store.list(STAGING)]
    [batch] = ok("dump", f"{url}/{staged}", "--print-data-log").rows
    assert [record["value"] for record in batch["records"]] == ["a", "b"]
    [snapshot] = [each.key for each in store.list(SNAPSHOTS)]
    [row] = ok("dump", f"{url}/{snapshot}").rows
    assert row["number"] == 16
    assert row["topics"][0]["topic"] == "orders"
    later = ManualClock(clock.now_ms() + 2 * 3600 * 1000)
    root = BucketRoot(store, clock=later)
    root.refresh()
    with BucketMaintenance(root, fs=LocalFileSystem(), scratch=f"{tmp_path}/scratch") as work:
        assert work.run().errors == []
    [segment] = [each.key for each in store.list("orders-0/") if each.key.endswith(".log")]
    rows = ok("dump", f"{url}/{segment}", "--print-data-log").rows
    found = [record for row in rows for record in row["records"]]
    assert [record["offset"] for record in found] == list(range(32))
    assert {(record["topic"], record["partition"]) for record in found} == {("orders", 0)}
    index = segment.replace(".log", ".timeindex")
    assert ok("dump", f"{url}/{index}").rows[-1]["offset"] == 31
    assert ok("dump", f"{url}/{index}", "--verify-index-only").rows == []
    text = streamlog("dump", f"{url}/{segment}", f"{url}/{LATEST}", "--format", "table").out
    assert b"baseOffset: 30 lastOffset: 31" in text
    assert b'"number":' in text


def test_dump_names_an_object_that_is_missing_or_damaged(s3):
    url = s3.new_bucket()
    missing = f"{url}/orders-0/build/00000000000000000000.log"
    assert f"no such file in {missing}" in streamlog("dump", missing).error
    store = shared_store(url)
    store.put(entry_key(1), b"streamlog entry 1\n{}\ncrc32c 00000000\n")
    assert "entry file is damaged" in streamlog("dump", f"{url}/{entry_key(1)}").error
    store.put("orders-0/build/00000000000000000000.log", bytes(100))
    assert streamlog("dump", missing).code == 1
