"""Leader epochs; numbers are the conformance cases of Kafka's LeaderEpochFileCacheTest."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import CorruptCheckpointError, InvalidRequestError, StorageError
from streamlog.fs.api import OpenMode
from streamlog.fs.files import read_file
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.epochs import EpochEntry, LeaderEpochCache
from streamlog.records.batch import BatchTable

DIRECTORY = "/orders-0"
PATH = f"{DIRECTORY}/leader-epoch-checkpoint"


def cache(*pairs: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(tuple(EpochEntry(*pair) for pair in pairs))


def entries(known: LeaderEpochCache) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in known.entries]


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_directory(DIRECTORY)
    return made


def write(fs: MemoryFileSystem, text: bytes) -> None:
    with fs.open(PATH, OpenMode.CREATE_OR_WRITE) as file:
        file.truncate(0)
        file.pwrite(text, 0)


# ---- assign ---------------------------------------------------------------------------------
def test_175_later_epoch_at_the_same_offset_replaces_the_earlier() -> None:
    known = cache((2, 9))
    known.assign(3, 9)
    assert entries(known) == [(3, 9)]


def test_185_same_epoch_again_counts_only_with_an_earlier_offset() -> None:
    known = cache((1, 5), (2, 9))
    known.assign(2, 12)
    assert entries(known) == [(1, 5), (2, 9)]
    known.assign(2, 7)
    assert entries(known) == [(1, 5), (2, 7)]


def test_185c_assign_inside_the_list_removes_what_contradicts() -> None:
    known = cache((5, 11), (6, 12), (7, 13))
    known.assign(7, 12)
    assert entries(known) == [(5, 11), (7, 12)]
    assert known.end_offset_for(5, 20) == (5, 12)
    assert known.end_offset_for(6, 20) == (5, 12)


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_negative_epoch_or_offset_is_refused(epoch: int, offset: int) -> None:
    with pytest.raises(InvalidRequestError):
        LeaderEpochCache().assign(epoch, offset)


_STEPS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12)), max_size=10)


@given(_STEPS)
def test_epochs_and_offsets_ascend_whatever_is_assigned(steps: list[tuple[int, int]]) -> None:
    known = LeaderEpochCache()
    for epoch, offset in steps:
        known.assign(epoch, offset)
        assert known.latest_epoch == epoch
        pairs = entries(known)
        assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(pairs))


# ---- questions ------------------------------------------------------------------------------
def test_177_epoch_before_the_first_ends_where_the_first_starts() -> None:
    assert cache((5, 11), (6, 12), (7, 13)).end_offset_for(4, 20) == (4, 11)


def test_178_missing_epoch_is_answered_with_the_one_below() -> None:
    known = cache((0, 10), (2, 13), (4, 17))
    assert [known.end_offset_for(epoch, 99) for epoch in (1, 2, 3, 4)] == [
        (0, 13), (2, 17), (2, 17), (4, 99),
    ]  # fmt: skip


@pytest.mark.parametrize(("known", "epoch"), [(cache((2, 5)), 3), (cache((2, 5)), -1),
                                              (cache(), 0), (cache(), -1)])  # fmt: skip
def test_179_unknown_epoch_has_no_end(known: LeaderEpochCache, epoch: int) -> None:
    assert known.end_offset_for(epoch, 99) == (-1, -1)


def test_epoch_for_offset_is_that_of_the_last_start() -> None:
    known = cache((0, 10), (2, 13))
    assert [known.epoch_for_offset(at) for at in (9, 10, 12, 13, 99)] == [None, 0, 0, 2, 2]


# ---- truncation -----------------------------------------------------------------------------
THREE = ((2, 6), (3, 8), (4, 11))


@pytest.mark.parametrize(
    ("end", "left"), [(8, [(2, 6)]), (11, [(2, 6), (3, 8)]), (12, list(THREE))]
)
def test_181_truncate_from_end(end: int, left: list[tuple[int, int]]) -> None:
    known = cache(*THREE)
    known.truncate_from_end(end)
    assert entries(known) == left


@pytest.mark.parametrize(
    ("start", "left"),
    [(8, [(3, 8), (4, 11)]), (9, [(3, 9), (4, 11)]), (11, [(4, 11)]), (12, [(4, 12)])],
)
def test_182_truncate_from_start(start: int, left: list[tuple[int, int]]) -> None:
    known = cache(*THREE)
    known.truncate_from_start(start)
    assert entries(known) == left


@pytest.mark.parametrize("start", [1, 6])
def test_183_truncate_at_or_before_the_first_start_changes_nothing(start: int) -> None:
    known = cache(*THREE)
    known.truncate_from_start(start)
    assert entries(known) == list(THREE)


def test_185b_more_truncations() -> None:
    known = cache((0, 0), (1, 7), (2, 10))
    known.truncate_from_start(5)
    assert entries(known) == [(0, 5), (1, 7), (2, 10)]
    known = cache(*THREE)
    known.truncate_from_start(15)
    assert entries(known) == [(4, 15)]
    known = cache(*THREE)
    known.truncate_from_end(9)
    assert entries(known) == [(2, 6), (3, 8)]
    known.truncate_from_end(-1)
    known.truncate_from_start(-1)
    assert entries(known) == [(2, 6), (3, 8)]


# ---- from batches ---------------------------------------------------------------------------
def table(*batches: tuple[int, int]) -> BatchTable:
    made = BatchTable(np.zeros((len(batches), 14), np.int64))
    made.leader_epoch[:] = [epoch for epoch, _ in batches]
    made.base_offset[:] = [offset for _, offset in batches]
    return made


def test_batches_assign_each_epoch_above_the_last_one() -> None:
    known = cache((1, 0))
    known.assign_from(table((1, 5), (3, 7), (3, 8), (2, 9), (-1, 10), (4, 11)))
    assert entries(known) == [(1, 0), (3, 7), (4, 11)]


def test_batches_without_an_epoch_and_no_batches_assign_nothing() -> None:
    known = LeaderEpochCache()
    known.assign_from(table())
    known.assign_from(table((-1, 0), (-1, 4)))
    assert entries(known) == []
    known.assign_from(table((0, 5)))
    assert entries(known) == [(0, 5)]


# ---- the file -------------------------------------------------------------------------------
def test_file_is_kafkas(fs: MemoryFileSystem) -> None:
    cache((0, 0), (1, 8), (2, 10)).store(fs, DIRECTORY)
    assert read_file(fs, PATH, max_size=100) == b"0\n3\n0 0\n1 8\n2 10\n"
    assert LeaderEpochCache.load(fs, DIRECTORY) == cache((0, 0), (1, 8), (2, 10))


@pytest.mark.parametrize("text", [b"", b"0\n", b"0\n0\n"])
def test_file_without_entries_has_no_epochs(fs: MemoryFileSystem, text: bytes) -> None:
    write(fs, text)
    assert entries(LeaderEpochCache.load(fs, DIRECTORY)) == []


def test_missing_file_has_no_epochs(fs: MemoryFileSystem) -> None:
    assert entries(LeaderEpochCache.load(fs, DIRECTORY)) == []


@pytest.mark.parametrize(
    "text",
    [b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 0\n1 1\n", b"0\n1\n0\n", b"0\n1\n0 0 0\n", b"x",
     b"0\n1\n0 -1\n", b"0\n1\n-1 0\n", b"0\n1\n+1 0\n", b"0\n1\n01 0\n", b"0\n99999999999\n",
     b"0\n2\n1 5\n1 6\n", b"0\n2\n1 5\n2 5\n", b"0\n2\n2 5\n1 6\n", b"0\n1\n2147483648 0\n",
     b"0\n1\n0 9223372036854775808\n", b"\xff\xfe", b"0\n1\n\xd9\xa1 0\n"],
)  # fmt: skip
def test_malformed_file_is_refused_by_name(fs: MemoryFileSystem, text: bytes) -> None:
    write(fs, text)
    with pytest.raises(CorruptCheckpointError, match="leader-epoch-checkpoint"):
        LeaderEpochCache.load(fs, DIRECTORY)


def test_storing_what_stands_there_already_writes_nothing(fs: MemoryFileSystem) -> None:
    known = cache((0, 0))
    known.store(fs, DIRECTORY)
    inode = fs.stat(PATH)
    known.store(fs, DIRECTORY)
    known.copy().truncate_from_end(0)  # a copy changes on its own
    assert fs.stat(PATH) == inode
    LeaderEpochCache.load(fs, DIRECTORY).store(fs, DIRECTORY)
    assert fs.stat(PATH) == inode


def test_failed_store_is_tried_again_by_the_next(fs: MemoryFileSystem) -> None:
    known = cache((0, 0))
    with pytest.raises(StorageError):
        known.store(fs, "/nowhere-0")
    known.store(fs, DIRECTORY)
    assert LeaderEpochCache.load(fs, DIRECTORY) == known
