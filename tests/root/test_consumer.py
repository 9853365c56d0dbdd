"""`Consumer`: partitions without Spark and without groups, nothing skipped in silence."""

from collections.abc import Callable, Iterator

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.record import Record
from streamlog.root.consumer import Consumer
from streamlog.root.manager import LogManager
from streamlog.topic import TopicPartition

ROOT = "/logs"
NOW = 1_700_000_000_000
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def root(fs: MemoryFileSystem) -> Iterator[LogManager]:
    """`orders`: five records in partition 0, two in partition 1."""
    with LogManager.open(ROOT, create=True, fs=fs, clock=ManualClock(NOW)) as manager:
        manager.create_topic("orders", 2)
        for n in range(5):
            manager.log("orders", 0).append([Record(None, b"a%d" % n, (), NOW + n)])
        for n in range(2):
            manager.log("orders", 1).append([Record(None, b"b%d" % n, (), NOW + n)])
        yield manager


class Waiting(ManualClock):
    """A clock during whose waits somebody does something."""

    def __init__(self, *deeds: Callable[[], object]) -> None:
        super().__init__(NOW)
        self.deeds = list(deeds)

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms)
        if self.deeds:
            self.deeds.pop(0)()


def values(polled: dict[TopicPartition, list[Record]]) -> dict[int, list[bytes | None]]:
    return {each.partition: [record.value for record in part] for each, part in polled.items()}


ALL = {0: [b"a0", b"a1", b"a2", b"a3", b"a4"], 1: [b"b0", b"b1"]}


def test_all_records_of_all_partitions_are_polled_once(fs, root) -> None:
    with Consumer(ROOT, "orders", fs=fs) as consumer:
        assert consumer.assignment() == [P0, P1]
        assert values(consumer.poll()) == ALL
        assert consumer.poll() == {}
        assert (consumer.position(P0), consumer.position(P1)) == (5, 2)


def test_polls_are_bounded_and_partitions_take_turns(fs, root) -> None:
    with Consumer(ROOT, "orders", fs=fs) as consumer:
        polled = [consumer.poll(max_records=2) for _ in range(4)]
        assert [values(each) for each in polled] == [
            {0: [b"a0", b"a1"]},
            {1: [b"b0", b"b1"]},
            {0: [b"a2", b"a3"]},
            {0: [b"a4"]},
        ]
        assert consumer.position(P0) == 5


def test_a_record_that_was_not_polled_is_not_passed(fs, root) -> None:
    with Consumer(ROOT, "orders", fs=fs) as consumer:
        consumer.poll(max_records=3)
        assert (consumer.position(P0), consumer.position(P1)) == (3, 0)


def test_seek_and_its_kin(fs, root) -> None:
    with Consumer(ROOT, fs=fs) as consumer:
        consumer.assign([P0, ("orders", 1)])
        consumer.seek_to_end()
        assert consumer.poll() == {}
        consumer.seek(P0, 3)
        assert values(consumer.poll()) == {0: [b"a3", b"a4"]}
        consumer.seek_to_beginning(P1)
        assert values(consumer.poll()) == {1: ALL[1]}
        assert consumer.beginning_offsets() == {P0: 0, P1: 0}
        assert consumer.end_offsets() == {P0: 5, P1: 2}
        found = consumer.offsets_for_times({P0: NOW + 3, P1: NOW + 3})
        assert found[P0] is not None and found[P0].offset == 3 and found[P1] is None


def test_an_assignment_keeps_the_positions_of_what_was_assigned(fs, root) -> None:
    with Consumer(ROOT, fs=fs) as consumer:
        consumer.assign([P0])
        consumer.poll(max_records=2)
        consumer.assign([P1, P0])
        assert values(consumer.poll()) == {0: ALL[0][2:], 1: ALL[1]}


@pytest.mark.parametrize("offset", [-1, 6])
def test_a_position_outside_the_log_is_an_error_and_never_reset_in_silence(
    fs, root, offset: int
) -> None:
    with Consumer(ROOT, "orders", fs=fs) as consumer:
        consumer.seek(P0, offset)
        with pytest.raises(OffsetOutOfRangeError, match="position in orders-0"):
            consumer.poll()
        consumer.seek_to_beginning(P0)
        assert values(consumer.poll()) == ALL


def test_records_that_retention_took_are_an_error(fs, root) -> None:
    with Consumer(ROOT, "orders", fs=fs) as consumer:
        root.delete_records("orders", 0, 2)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll()


def test_polling_waits_for_records_and_gives_up_in_time(fs, root) -> None:
    clock = Waiting(lambda: None, lambda: root.log("orders", 1).append([Record(None, b"new")]))
    with Consumer(ROOT, "orders", fs=fs, clock=clock) as consumer:
        consumer.seek_to_end()
        assert values(consumer.poll(timeout_ms=1000)) == {1: [b"new"]}
        assert clock.monotonic_ms() == 200
        assert consumer.poll(timeout_ms=250) == {}
        assert clock.monotonic_ms() == 450


def test_a_partition_that_is_added_is_read_from_its_beginning(fs, root) -> None:
    def add() -> None:
        root.alter_topic("orders", partitions=3)
        root.log("orders", 2).append([Record(None, b"c0")])

    clock = Waiting(add)
    with Consumer(ROOT, "orders", fs=fs, clock=clock) as consumer:
        consumer.seek_to_end()
        assert values(consumer.poll(timeout_ms=5000)) == {2: [b"c0"]}


@pytest.mark.parametrize("is_recreated", [False, True])
def test_a_deleted_topic_is_an_error(fs, root, is_recreated: bool) -> None:
    with Consumer(ROOT, "orders", fs=fs) as consumer:
        consumer.poll()
        root.delete_topic("orders")
        if is_recreated:
            root.create_topic("orders", 2)
        with pytest.raises(UnknownTopicError):
            consumer.poll(timeout_ms=100)


def test_wrong_use_is_refused(fs, root) -> None:
    with Consumer(ROOT, fs=fs) as consumer:
        with pytest.raises(InvalidRequestError, match="nothing is assigned"):
            consumer.poll()
        with pytest.raises(InvalidRequestError, match="not assigned"):
            consumer.seek(P0, 0)
        for wanted in (("orders", 9), ("nothing", 0)):
            with pytest.raises(UnknownTopicError):
                consumer.assign([wanted])
    with pytest.raises(UnknownTopicError):
        Consumer(ROOT, "nothing", fs=fs)
    with pytest.raises(UnknownTopicError):
        Consumer("/nowhere", fs=fs)
    with pytest.raises(InvalidRequestError, match="closed"):
        consumer.poll()
