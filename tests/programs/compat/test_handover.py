"""A root goes to a real broker and back, twice: the first shuts down, the second is killed.

Everything happens once, because a broker takes ten seconds to start; each test checks a different
part of the observations.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.manager import LogManager, TopicDescription
from streamlog.root.partition_log import PartitionLog
from tests.programs.compat import librdkafka, scenarios
from tests.programs.compat.answers import encoded, producers_of
from tests.programs.compat.broker import Broker
from tests.programs.compat.kafka import Kafka
from tests.support.cli import Ran, ok, streamlog
from tests.support.fingerprints import NOTHING, Fingerprint, digest

pytestmark = pytest.mark.compat

WRITTEN: tuple[Callable[[PartitionLog], None], ...] = (
    scenarios.every_codec,
    scenarios.idempotent_producers,
    scenarios.transactions,
    scenarios.as_follower,
    scenarios.cut_and_written_on,
    scenarios.nothing,
)
COMMITTED_ONLY = 2  # the partition with transactions, of which the last is open
SMALL = {"internal.segment.bytes": "3000", "index.interval.bytes": "200", "retention.ms": "-1"}
PRODUCER_ID = 2000  # of `idempotent_producers`, at the end in epoch 1 with sequence 9
SENT = 5  # records that each broker's producer appends

Rows = list[dict[str, Any]]


@dataclass
class Seen:
    """The observations; lists are by number of the broker.

    Attributes:
        root: The log root, after it came back.
        before: Our reading before each broker, by partition.
        consumed: What a real consumer read.
        fingerprints: Those of librdkafka's consumer, and of our reading, by partition.
        described: A broker's description of partition 1.
        offsets: The offsets that a real producer got in partition 1.
        refused: The result of the way back while a broker was running.
        barred: The result of a writer after the root was handed over.
        committed: The consumer group's offset according to the second broker.
        topics: Our description of topic `orders` after each broker.
        came_back: Our reading of its partition 1 after the first broker.
        producers: The state of its producers then.
        duplicate: Whether our log recognised a batch that was sent again.
    """

    root: Path
    before: list[dict[str, Rows]] = field(default_factory=list)
    consumed: list[dict[str, Rows]] = field(default_factory=list)
    fingerprints: list[tuple[dict[str, Fingerprint], dict[str, Fingerprint]]] = field(
        default_factory=list
    )
    described: list[dict[str, Any]] = field(default_factory=list)
    offsets: list[list[int]] = field(default_factory=list)
    refused: Ran | None = None
    barred: Ran | None = None
    committed: int = -1
    topics: list[TopicDescription] = field(default_factory=list)
    came_back: Rows = field(default_factory=list)
    producers: list[dict[str, Any]] = field(default_factory=list)
    duplicate: bool = False


def rows_of(record: Record) -> dict[str, Any]:
    row = encoded(record)
    del row["sequence"]
    return row


def read_all(root: Path) -> dict[str, Rows]:
    with LogManager.open(root) as manager:
        return {
            str(number): list(map(rows_of, read(manager.reader("orders", number))))
            for number in manager.partitions("orders")
        }


def fingerprints_of(root: Path) -> dict[str, Fingerprint]:
    """Return the fingerprints of committed records, while a broker owns the root."""
    found = {}
    for number in range(len(WRITTEN)):
        found[f"orders-{number}"] = NOTHING
        with LogReader.open(root / f"orders-{number}") as reader:
            for each in read(reader):
                one = digest(
                    each.offset,
                    each.timestamp or 0,
                    each.timestamp_type,
                    key=each.key,
                    value=each.value,
                    headers=each.headers,
                )
                found[f"orders-{number}"] = found[f"orders-{number}"].plus(Fingerprint(1, one))
    return found


def read(reader: LogReader) -> Iterator[Record]:
    at, end = reader.log_start_offset, reader.last_stable_offset
    aborted = {
        (entry.producer_id, entry.last_offset): entry.first_offset
        for segment in reader.segments
        for entry in segment.txn_index.entries
    }
    while at < end:
        info = reader.read(at, 1 << 20, end_offset=end)
        for batch in info.batches():
            is_aborted = batch.is_transactional and any(
                producer == batch.producer_id and first <= batch.base_offset < last
                for (producer, last), first in aborted.items()
            )
            if not batch.is_control and not is_aborted:
                yield from batch.records()
        at = info.next_offset


@pytest.fixture(scope="module")
def seen(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    scratch = tmp_path_factory.mktemp("handover")
    seen = Seen(scratch / "root")
    write(seen.root)
    seen.before.append(read_all(seen.root))
    ok("--path", seen.root, "handover", "--to-kafka")
    seen.barred = streamlog("--path", seen.root, "topics", "create", "too-late")
    with Broker.start(seen.root, scratch / "first") as broker:
        look(kafka, broker, seen)
        change(kafka, broker)
        seen.refused = streamlog("--path", seen.root, "handover", "--from-kafka")
    ok("--path", seen.root, "handover", "--from-kafka")
    write_on(seen)
    seen.before.append(read_all(seen.root))
    ok("--path", seen.root, "handover", "--to-kafka")
    with Broker.start(seen.root, scratch / "second") as broker:
        look(kafka, broker, seen)
        asked = {"bootstrap": broker.bootstrap, "group": "readers", "topic": "orders"}
        seen.committed = kafka.ask("committed", **asked)["offset"]
        broker.kill()
    ok("--path", seen.root, "handover", "--from-kafka")
    describe(seen)
    return seen


def write(root: Path) -> None:
    """Write the scenarios with current timestamps, because a broker expires old producers."""
    with pytest.MonkeyPatch.context() as patched, LogManager.open(root, create=True) as manager:
        patched.setattr(scenarios, "NOW", int(time.time() * 1000) - 1000)
        manager.create_topic("orders", len(WRITTEN), SMALL)
        manager.create_topic("unwanted", 1)
        for number, scenario in enumerate(WRITTEN):
            scenario(manager.log("orders", number))


def look(kafka: Kafka, broker: Broker, seen: Seen) -> None:
    asked = {"bootstrap": broker.bootstrap, "topic": "orders"}
    seen.consumed.append(kafka.ask("consume", **asked)["records"])
    theirs = librdkafka.consumed(broker.bootstrap, ["orders"])
    seen.fingerprints.append((theirs, fingerprints_of(seen.root)))
    seen.described.append(kafka.ask("describe", partition=1, **asked))
    seen.offsets.append(kafka.ask("produce", partition=1, count=SENT, **asked)["offsets"])


def change(kafka: Kafka, broker: Broker) -> None:
    """Act as users of a broker: create, change and delete topics, and read in a group."""
    asked: dict[str, Any] = {"bootstrap": broker.bootstrap}
    compact = {"cleanup.policy": "compact"}
    flushed = {"key": "flush.messages", "value": "7"}
    for answer in (
        kafka.ask("create", topic="made", partitions=2, configs=compact, **asked),
        kafka.ask("configure", topic="orders", **flushed, **asked),
        kafka.ask("delete", topic="unwanted", **asked),
        kafka.ask("commit", group="readers", topic="orders", offset=77, **asked),
    ):
        assert "error" not in answer, answer


def write_on(seen: Seen) -> None:
    describe(seen)
    seen.came_back = read_all(seen.root)["1"]
    with LogManager.open(seen.root) as manager:
        seen.producers = producers_of(manager.reader("orders", 1), now=int(time.time() * 1000))
        log = manager.log("orders", 1)
        again = scenarios.produced(PRODUCER_ID, 1, 8, scenarios.rows(110, 2))
        seen.duplicate = log.append_as_leader(again).duplicate
        log.append_as_leader(scenarios.produced(PRODUCER_ID, 1, 10, now_rows(3)))
        manager.log("orders", 5).append(now_rows(4), compression="zstd")


def now_rows(count: int) -> list[Record]:
    now = int(time.time() * 1000)
    return [each._replace(timestamp=now) for each in scenarios.rows(0, count)]


def describe(seen: Seen) -> None:
    with LogManager.open(seen.root) as manager:
        for number in manager.partitions("orders"):
            manager.log("orders", number)
    with LogManager.open(seen.root) as manager:
        seen.topics.append(manager.describe("orders"))


# ---- what the brokers saw -------------------------------------------------------------------
@pytest.mark.parametrize("life", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("partition", range(len(WRITTEN)))
def test_a_consumer_reads_what_we_read(seen: Seen, life: int, partition: int) -> None:
    assert seen.consumed[life][str(partition)] == seen.before[life][str(partition)]
    assert seen.before[life][str(partition)] or WRITTEN[partition] is scenarios.nothing


@pytest.mark.parametrize("life", [0, 1], ids=["first", "second"])
def test_a_consumer_of_another_library_reads_the_same(seen: Seen, life: int) -> None:
    theirs, ours = seen.fingerprints[life]
    assert theirs == ours
    assert sum(each.count for each in theirs.values()) > 300


def test_the_topic_keeps_id_and_settings(seen: Seen) -> None:
    for told, topic in zip(seen.described, seen.topics, strict=True):
        assert told["topicId"] == topic.topic_id
    assert seen.described[0]["configs"] == SMALL
    assert seen.described[1]["configs"] == {**SMALL, "flush.messages": "7"}


def test_the_broker_knows_our_idempotent_producers(seen: Seen) -> None:
    assert seen.described[0]["producers"][str(PRODUCER_ID)] == [1, 9]
    assert seen.described[1]["producers"][str(PRODUCER_ID)] == [1, 12]


def test_the_brokers_producers_get_ids_of_their_own(seen: Seen) -> None:
    first, second = (set(told["producers"]) for told in seen.described)
    assert len(second - first) == 1
    [theirs] = second - first
    assert int(theirs) > PRODUCER_ID


def test_the_brokers_producer_continues_at_our_log_end(seen: Seen) -> None:
    first = seen.before[0]["1"][-1]["offset"] + 1
    assert seen.offsets[0] == list(range(first, first + SENT))
    second = first + SENT + 3
    assert seen.offsets[1] == list(range(second, second + SENT))


def test_a_consumer_group_keeps_its_offset(seen: Seen) -> None:
    assert seen.committed == 77


# ---- what we saw ----------------------------------------------------------------------------
def test_the_way_back_is_refused_while_the_broker_runs(seen: Seen) -> None:
    assert seen.refused is not None
    assert seen.refused.code == 1
    assert "a running Kafka broker owns this log directory" in seen.refused.error


def test_a_writer_is_refused_while_a_broker_owns_the_root(seen: Seen) -> None:
    assert seen.barred is not None
    assert seen.barred.code == 2
    assert "the log.dir of a Kafka broker is read-only" in seen.barred.error


def test_we_read_what_the_broker_appended(seen: Seen) -> None:
    assert seen.came_back[:-SENT] == seen.before[0]["1"]
    assert [row["offset"] for row in seen.came_back[-SENT:]] == seen.offsets[0]


def test_idempotent_producers_continue_with_us(seen: Seen) -> None:
    states = {each["producerId"]: each["lastSequence"] for each in seen.producers}
    assert states[PRODUCER_ID] == 9
    assert SENT - 1 in states.values()
    assert seen.duplicate


def test_leader_epochs_rise_with_every_owner(seen: Seen) -> None:
    for number in (0, 1, 3):
        [first, second] = [topic.partitions[number].leader_epoch for topic in seen.topics]
        with LogReader.open(seen.root / f"orders-{number}") as reader:
            epochs = [entry.epoch for entry in reader.leader_epochs.entries]
        assert 0 < first < second == epochs[-1]
        assert epochs == sorted(set(epochs))


def test_topics_of_the_broker_are_topics_of_the_root(seen: Seen) -> None:
    with LogManager.open(seen.root) as manager:
        assert manager.topics() == ["__consumer_offsets", "made", "orders"]
        assert manager.topic_config("made").cleanup_policy == {"compact"}
        assert manager.topic_config("orders").flush_messages == 7


def test_nothing_is_lost_or_duplicated_after_a_broker_was_killed(seen: Seen) -> None:
    rows = read_all(seen.root)
    for number in range(len(WRITTEN)):
        before = seen.before[1][str(number)]
        assert rows[str(number)][: len(before)] == before
    assert [row["offset"] for row in rows["1"][-SENT:]] == seen.offsets[1]
    assert ok("--path", seen.root, "cat", "orders", "--count", 5).out
    assert ok("verify", seen.root).out == b""


def test_a_broker_does_not_start_on_streamlogs_own_state(seen: Seen, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(seen.root, root)
    with pytest.raises(RuntimeError, match="did not start"):
        Broker.start(root, tmp_path / "barred")
