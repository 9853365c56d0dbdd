"""Topics of a real broker are copied into a root, and from there to topics of another broker.

Everything happens once, because a broker takes ten seconds to start.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog.partition.reader import LogReader
from streamlog.transfer.places import open_source
from tests.programs.compat.broker import Broker, format_log_dir
from tests.programs.compat.librdkafka import PATIENCE_S, consumed, send
from tests.support.cli import ok, streamlog
from tests.support.fingerprints import NOTHING, Fingerprint, digest
from tests.support.killed_copy import kill_copy

pytestmark = pytest.mark.compat

QUICK = {
    "log.cleaner.backoff.ms": 100,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
}
COMPACTED = {
    "cleanup.policy": "compact",
    "max.compaction.lag.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SENT = 40_000


@contextlib.contextmanager
def brought_up(scratch: Path) -> Iterator[Broker]:
    scratch.mkdir()
    format_log_dir(scratch / "log-dir", scratch)
    with Broker.start(scratch / "log-dir", scratch / "broker", QUICK) as broker:
        yield broker


def create(bootstrap: str, topic: str, partitions: int, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs)
    admin.create_topics([new])[topic].result(PATIENCE_S)


def fill(bootstrap: str) -> None:
    """Write topics with every codec, transactions, times of the broker, and gaps."""
    create(bootstrap, "orders", 2, **{"retention.ms": "-1", "segment.bytes": "1048576"})
    for codec in CODECS:
        send(bootstrap, "orders", partitions=2, codec=codec, count=300)
    for name, is_aborted in (("a", False), ("b", True), ("c", False)):
        transaction = {"transaction": name, "is_aborted": is_aborted}
        send(bootstrap, "orders", partitions=2, codec="lz4", count=50, **transaction)
    create(bootstrap, "stamped", 1, **{"message.timestamp.type": "LogAppendTime"})
    for codec in ("none", "zstd"):
        send(bootstrap, "stamped", partitions=1, codec=codec, count=200)
    create(bootstrap, "compacted", 1, **COMPACTED)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(2000):
        key = b"once %d" % number if number % 50 == 0 else b"k%d" % (number % 7)
        producer.produce("compacted", b"%d" % number, key)
    producer.flush(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while consumed(bootstrap, ["compacted"])["compacted-0"].count > 200:
        assert time.monotonic() < deadline, "the broker did not compact"
        producer.produce("compacted", b"rolls the segment", b"k0")
        producer.flush(PATIENCE_S)
        time.sleep(0.3)
    create(bootstrap, "large", 1, **{"retention.ms": "-1"})
    send(bootstrap, "large", partitions=1, codec="lz4", count=SENT, size=400)


def fingerprints(root: Path, topics: tuple[str, ...]) -> dict[str, Fingerprint]:
    """Return what is in a root."""
    found: dict[str, Fingerprint] = {}
    for topic, at in open_source(str(root)).topics().items():
        for number in at.partitions if topic in topics else ():
            name = f"{topic}-{number}"
            found[name] = NOTHING
            with LogReader.open(root / name) as log:
                for each in log.records(isolation="read_committed"):
                    one = digest(
                        each.offset,
                        each.timestamp if each.timestamp is not None else -1,
                        each.timestamp_type,
                        key=each.key,
                        value=each.value,
                        headers=each.headers,
                    )
                    found[name] = found[name].plus(Fingerprint(1, one))
    return found


@dataclass
class Copied:
    """What consumers read of the first broker and of the second, and what is in the root."""

    source: dict[str, Fingerprint]
    root: Path
    there: dict[str, Fingerprint]
    refused: str
    resumed: list[int]


TOPICS = ("orders", "stamped", "compacted", "large")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Copied:
    scratch = tmp_path_factory.mktemp("copy-kafka")
    root, resumed = scratch / "root", []
    with brought_up(scratch / "one") as broker:
        fill(broker.bootstrap)
        source = consumed(broker.bootstrap, TOPICS)
        kill_copy(f"kafka://{broker.bootstrap}", root, 5)
        rows = ok("copy", f"kafka://{broker.bootstrap}", root).rows
        resumed += [row["startOffset"] for row in rows if row["topic"] == "large"]
    with brought_up(scratch / "two") as broker:
        url = f"kafka://{broker.bootstrap}"
        refused = streamlog("copy", root, url, "--topic", "orders").error
        only = scratch / "large"
        ok("copy", root, only, "--topic", "large")
        kill_copy(only, url, 4)
        (row,) = ok("copy", only, url).rows
        resumed.append(row["startOffset"])
        ok("copy", root, url, "--topic", "stamped")
        ok("copy", root, url, "--topic", "orders", "--topic", "compacted", "--new-offsets")
        again = ok("copy", root, url, "--new-offsets").rows
        assert [row["records"] for row in again] == [0] * 5
        there = consumed(broker.bootstrap, TOPICS)
    return Copied(source, root, there, refused, resumed)


def test_the_root_holds_what_consumers_of_the_broker_read(copied: Copied) -> None:
    assert fingerprints(copied.root, TOPICS) == copied.source
    assert copied.source["orders-0"].count == 5 * 150 + 2 * 25
    ok("verify", copied.root, "--deep")


def test_settings_and_ids_come_along(copied: Copied) -> None:
    topics = open_source(str(copied.root)).topics()
    assert set(topics) == set(TOPICS)
    assert topics["compacted"].configs == COMPACTED
    assert all(topic.topic_id is not None for topic in topics.values())


def test_copies_that_were_killed_went_on(copied: Copied) -> None:
    assert all(0 < start < SENT for start in copied.resumed), copied.resumed
    assert copied.there["large-0"] == copied.source["large-0"], "every field, and every offset"


def test_gaps_need_new_offsets(copied: Copied) -> None:
    assert "leaves no gaps" in copied.refused
    for name in ("orders-0", "orders-1", "stamped-0", "compacted-0"):
        assert copied.there[name].count == copied.source[name].count
