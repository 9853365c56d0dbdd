"""The journal: one entry after another, whatever fails, with few requests."""

import itertools
import random
import threading

import pytest

from streamlog.binary.sealed import seal
from streamlog.bucket.actions import Action, Collected, SetLogStart
from streamlog.bucket.entries import parse_since
from streamlog.bucket.journal import HINT
from streamlog.bucket.keys import JOURNAL, LATEST, SNAPSHOTS, entry_key, snapshot_key
from streamlog.bucket.snapshots import format_snapshot, parse_snapshot
from streamlog.bucket.state import SNAPSHOT_EVERY
from streamlog.errors import CorruptCheckpointError, UnknownOutcomeError
from streamlog.fs.faults import Moment, SimulatedCrash
from streamlog.store.api import Content
from streamlog.store.faults import FaultyStore, StoreFault
from streamlog.store.remote import open_store
from tests.bucket.worlds import ORDERS, TOPIC_ID, commit, commit_to, journal_of, made_root


def counted() -> FaultyStore:
    return FaultyStore(open_store("memory:///"))


def test_an_idle_reader_makes_one_request() -> None:
    store = counted()
    made_root(store)
    reader = journal_of(store)
    reader.refresh()
    store.requests.clear()
    assert reader.refresh().number == 2
    assert [(each.operation, each.key) for each in store.requests] == [("get", entry_key(3))]


def test_a_reader_makes_two_requests_for_a_new_entry() -> None:
    store = counted()
    writer = made_root(store)
    reader = journal_of(store)
    reader.refresh()
    commit(writer, "a", 0)
    store.requests.clear()
    assert reader.refresh().partitions[ORDERS].end_offset == 3
    assert len(store.requests) == 2


def test_a_writer_makes_four_requests_at_most() -> None:
    store = counted()
    writer = made_root(store)
    for version in range(3 * SNAPSHOT_EVERY):
        store.requests.clear()
        commit(writer, "a", version)
        assert store.count("create") == 1
        assert store.count("put") == 1
        assert len(store.requests) <= 4


@pytest.mark.parametrize("entries", [1, 13, 14, 15, 16, 17, 30, 200])
def test_opening_takes_five_requests_at_most(entries: int) -> None:
    store = counted()
    writer = made_root(store)
    for version in range(entries):
        commit(writer, "a", version)
    store.requests.clear()
    reader = journal_of(store)
    assert reader.refresh() == writer.state
    assert len(store.requests) <= 5


def test_after_ten_thousand_commits_nothing_costs_more() -> None:
    """As long as retention keeps what there is to know in bounds; maintenance does."""
    store = counted()
    writer = made_root(store)
    for version in range(10_000):
        store.requests.clear()
        assert commit(writer, "a", version)
        assert len(store.requests) <= 4
        if version % 100 == 99:
            end = writer.state.partitions[ORDERS].end_offset
            retained = SetLogStart(topic_partition=ORDERS, topic_id=TOPIC_ID, offset=end - 30)
            keys = tuple(garbage.key for garbage in writer.state.garbage)
            actions: list[Action] = [*([Collected(keys=keys)] if keys else []), retained]
            writer.change(lambda state, made=actions: (made, None))
    store.requests.clear()
    reader = journal_of(store)
    assert reader.refresh() == writer.state
    assert reader.state.partitions[ORDERS].end_offset == 30_000
    assert len(store.requests) <= 5
    for prefix in (JOURNAL, SNAPSHOTS):
        sizes = [each.size for each in store.list(prefix)]
        quarter = len(sizes) // 4
        assert max(sizes[-quarter:]) < 1.1 * max(sizes[quarter:-quarter])


class WeighedStore(FaultyStore):
    """Counts the bytes that are written."""

    written = 0

    def create(self, key: str, content: Content) -> None:
        self.written += len(content)
        super().create(key, content)

    def put(self, key: str, content: Content) -> None:
        self.written += len(content)
        super().put(key, content)


def test_a_commit_writes_no_more_when_there_were_many_and_nothing_is_maintained() -> None:
    """A whole state is written seldom, other snapshots have the entries since."""
    store = WeighedStore(open_store("memory:///"))
    writer = made_root(store)
    written = []
    for first in range(0, 6000, 1500):
        before = store.written
        for version in range(first, first + 1500):
            commit(writer, "a", version)
        written.append(store.written - before)
    assert written[-1] < 1.1 * written[0]
    store.requests.clear()
    reader = journal_of(store)
    assert reader.refresh() == writer.state
    assert len(store.requests) <= 5
    assert len(reader.state.uses) == 6000


def test_many_processes_that_write_in_turn_leave_snapshots_that_all_can_read() -> None:
    """Each knows of other whole states, and goes on from whatever the others have left."""
    store = open_store("memory:///")
    made_root(store)
    writers = [journal_of(store, seed) for seed in range(4)]
    random_ = random.Random(4)
    for version in range(600):
        if version % 50 == 0:
            writers[random_.randrange(4)] = journal_of(store, version)
        assert commit(random_.choice(writers), "a", version)
    kinds = set()
    for each in store.list(SNAPSHOTS):
        content = store.get(each.key, max_size=each.size)
        kinds.add(parse_since(content, each.key) is None)
    assert kinds == {True, False}
    for number in (598, 602):
        store.put(LATEST, seal(HINT, {"number": number}, copies=1))
        reader = journal_of(store)
        while reader.state.number < 602:
            reader.refresh()
        assert reader.state.partitions[ORDERS].end_offset == 1800
        assert len(reader.state.partitions[ORDERS].stretches) == 600


def test_a_reader_far_behind_catches_up_in_one_call_and_few_requests() -> None:
    store = counted()
    writer = made_root(store)
    reader = journal_of(store)
    reader.refresh()
    for version in range(100):
        commit(writer, "a", version)
    store.requests.clear()
    reader.refresh()
    assert reader.refresh() == writer.state
    assert len(store.requests) <= 8


@pytest.mark.parametrize("lost", [LATEST, snapshot_key(16), snapshot_key(32)])
def test_hint_and_snapshots_only_save_requests(lost: str) -> None:
    store = open_store("memory:///")
    writer = made_root(store)
    for version in range(38):
        commit(writer, "a", version)
    store.delete([lost])
    reader = journal_of(store)
    while reader.state.number < writer.state.number:
        reader.refresh()
    assert reader.state == writer.state


def test_a_snapshot_is_the_state() -> None:
    store = open_store("memory:///")
    writer = made_root(store)
    for version in range(20):
        commit(writer, "a", version)
    content = format_snapshot(writer.state)
    assert parse_snapshot(content, "x") == writer.state
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 1
    with pytest.raises(CorruptCheckpointError):
        parse_snapshot(bytes(damaged), "x")


def test_many_writers_make_one_sequence_of_entries() -> None:
    store = open_store("memory:///")
    made_root(store)

    def write(name: str) -> None:
        journal = journal_of(store, seed=hash(name))
        for version in range(25):
            assert commit(journal, name, version)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader = journal_of(store)
    while reader.state.number < 102:
        reader.refresh()
    assert reader.state.partitions[ORDERS].end_offset == 300
    assert {
        app: ledger.standing.number for app, ledger in reader.state.apps.items()
    } == dict.fromkeys("abcd", 25)


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("count", [1, 2])
def test_a_lost_answer_makes_no_second_entry(moment: Moment, count: int) -> None:
    memory = open_store("memory:///")
    made_root(memory)
    store = FaultyStore(
        memory, [StoreFault(operation="create", moment=moment, first=2, count=count)]
    )
    writer = journal_of(store, seed=1)
    for version in range(4):
        assert commit(writer, "a", version)
    reader = journal_of(memory)
    assert reader.refresh().partitions[ORDERS].end_offset == 12
    assert reader.state.number == 6


@pytest.mark.parametrize(("moment", "lost_reads"), [(Moment.BEFORE, 0), (Moment.AFTER, 2)])
def test_a_writer_that_cannot_know_says_so_and_repeats_safely(
    moment: Moment, lost_reads: int
) -> None:
    memory = open_store("memory:///")
    made_root(memory)
    store = FaultyStore(
        memory,
        [
            StoreFault(operation="create", moment=moment, count=3),
            StoreFault(operation="get", key=entry_key(3), first=2, count=lost_reads),
        ],
    )
    writer = journal_of(store, seed=1)
    with pytest.raises(UnknownOutcomeError, match="may or may not have been made"):
        commit(writer, "a", 0)
    assert commit(journal_of(memory, seed=2), "a", 0) is (moment is Moment.BEFORE)
    assert commit(writer, "a", 0) is False
    assert writer.state.partitions[ORDERS].end_offset == 3


def test_a_crash_after_any_request_leaves_every_entry_whole() -> None:
    for number in itertools.count(1):
        memory = open_store("memory:///")
        made_root(memory)
        store = FaultyStore(memory, [StoreFault(first=number, moment=Moment.AFTER, is_crash=True)])
        writer = journal_of(store, seed=number)
        acknowledged = 0
        try:
            for version in range(18):
                commit(writer, "a", version)
                acknowledged += 1
        except SimulatedCrash:
            pass
        successor = journal_of(memory, seed=-number)
        successor.refresh()
        done = successor.state.partitions[ORDERS].end_offset // 3
        assert acknowledged <= done <= acknowledged + 1
        for version in range(18):
            commit(successor, "a", version)
        assert successor.state.partitions[ORDERS].end_offset == 18 * 3
        if acknowledged == 18:
            return


def test_an_entry_that_does_not_follow_is_refused_before_it_is_made() -> None:
    store = counted()
    writer = made_root(store)
    stale = random.Random(3)
    commit(writer, "a", stale.randrange(1))
    before = writer.state
    commit(writer, "a", 1)
    store.requests.clear()
    with pytest.raises(CorruptCheckpointError, match="does not follow the one before it"):
        writer.change(lambda state: (commit_to(before, "b", 0), None))
    assert store.count("create") == 0
