"""Checkpoint files of a log root."""

import errno
import logging
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.clock import ManualClock
from streamlog.errors import CorruptCheckpointError, LockTimeoutError, StorageError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.files import make_directories, read_file
from streamlog.fs.log_root import CLEANER_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition import checkpoints
from streamlog.partition.checkpoints import format_checkpoint, parse_checkpoint
from streamlog.topic import TopicPartition
from tests.support.crash import every_crash_point

ROOT = "/logs"
NAME = RECOVERY_POINT_CHECKPOINT
PATH = f"{ROOT}/{NAME}"
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b.x-y_z", 0)


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    make_directories(made, LogRoot.at(ROOT).locks)
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def at(fs: FileSystem, clock: ManualClock | None = None) -> LogRoot:
    return LogRoot.at(ROOT, fs=fs, clock=clock)


def write(fs: MemoryFileSystem, text: bytes, path: str = PATH) -> None:
    with fs.open(path, OpenMode.CREATE_OR_WRITE) as file:
        file.truncate(0)
        file.pwrite(text, 0)


def test_file_is_kafkas(fs: MemoryFileSystem, clock: ManualClock) -> None:
    checkpoints.update_offsets(at(fs, clock), NAME, {B0: 7, A1: 2, A0: 0})
    assert read_file(fs, PATH, max_size=100) == b"0\n3\na 0 0\na 1 2\nb.x-y_z 0 7\n"
    assert checkpoints.read_offsets(fs, PATH) == {A0: 0, A1: 2, B0: 7}


def test_update_keeps_the_rows_of_others(fs: MemoryFileSystem, clock: ManualClock) -> None:
    checkpoints.write_recovery_points(at(fs, clock), {A0: 1, B0: 2})
    checkpoints.write_recovery_points(at(fs, clock), {A0: 5, A1: 6})
    assert checkpoints.read_recovery_points(at(fs)) == {A0: 5, A1: 6, B0: 2}


def test_each_kind_has_its_own_file(fs: MemoryFileSystem, clock: ManualClock) -> None:
    checkpoints.write_recovery_points(at(fs, clock), {A0: 1})
    checkpoints.write_log_start_offsets(at(fs, clock), {A0: 2})
    checkpoints.write_high_watermarks(at(fs, clock), {A0: 3})
    assert checkpoints.read_recovery_points(at(fs)) == {A0: 1}
    assert checkpoints.read_log_start_offsets(at(fs)) == {A0: 2}
    assert checkpoints.read_high_watermarks(at(fs)) == {A0: 3}
    assert fs.list(ROOT) == [
        ".streamlog", "log-start-offset-checkpoint", "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]  # fmt: skip


def test_removing_a_topic_leaves_the_others(fs: MemoryFileSystem, clock: ManualClock) -> None:
    checkpoints.write_recovery_points(at(fs, clock), {A0: 1, A1: 2, B0: 3})
    checkpoints.write_high_watermarks(at(fs, clock), {A0: 1})
    checkpoints.remove_topic(at(fs, clock), "a")
    assert checkpoints.read_recovery_points(at(fs)) == {B0: 3}
    assert checkpoints.read_high_watermarks(at(fs)) == {}
    assert not fs.stat(f"{ROOT}/{CLEANER_OFFSET_CHECKPOINT}")


def test_update_without_news_writes_nothing(fs: MemoryFileSystem, clock: ManualClock) -> None:
    checkpoints.write_recovery_points(at(fs, clock), {A0: 1})
    before = fs.stat(PATH)
    checkpoints.write_recovery_points(at(fs, clock), {A0: 1})
    assert fs.stat(PATH) == before


@pytest.mark.parametrize("text", [b"", b"0\n", b"0\n0\n"])
def test_missing_or_empty_file_has_no_rows(fs: MemoryFileSystem, text: bytes) -> None:
    assert checkpoints.read_offsets(fs, PATH) == {}
    write(fs, text)
    assert checkpoints.read_offsets(fs, PATH) == {}


MALFORMED = [
    b"1\n1\na 0 1\n", b"0\n2\na 0 1\n", b"0\n0\na 0 1\n", b"0\n1000000000000\n",
    b"0\n1\na 0\n", b"0\n1\na 0 1 2\n", b"0\n1\na 0 -1\n", b"0\n1\na 00 1\n",
    b"0\n1\na 2147483648 1\n", b"0\n1\na 0 9223372036854775808\n", b"0\n1\n../a 0 1\n",
    b"0\n1\n. 0 1\n", b"0\n2\na 0 1\na 0 2\n", b"0\n1\na\xff 0 1\n", b"\x00" * 40,
    b"0\n1\na 0 " + b"1" * 60 + b"\n", b"0\n1\n" + b"a" * 250 + b" 0 1\n", b"garbage",
    b"0\n1\na-delete 0 1\n\n",
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_file_is_refused_by_name(fs: MemoryFileSystem, text: bytes) -> None:
    write(fs, text)
    with pytest.raises(CorruptCheckpointError, match=NAME):
        checkpoints.read_offsets(fs, PATH)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    fs = MemoryFileSystem()
    fs.make_directory(ROOT)
    write(fs, b"0\n1\n" + data)
    try:
        checkpoints.read_offsets(fs, PATH)
    except CorruptCheckpointError:
        return


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=5))
def test_parse_inverts_format(rows: list[tuple[int, int]]) -> None:
    data = format_checkpoint(f"{a} {b}" for a, b in rows)
    parsed = [(int(a), int(b)) for _, (a, b) in parse_checkpoint(data, "x", columns=2)]
    assert parsed == rows


def test_damaged_file_reads_as_missing_with_a_warning(
    fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    write(fs, b"0\n7\n")
    with caplog.at_level(logging.WARNING):
        assert checkpoints.read_recovery_points(at(fs)) == {}
    assert NAME in caplog.text


def test_update_keeps_a_damaged_file_beside_the_new_one(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    write(fs, b"0\n7\n")
    checkpoints.write_recovery_points(at(fs, clock), {A0: 1})
    assert checkpoints.read_recovery_points(at(fs)) == {A0: 1}
    assert read_file(fs, f"{PATH}.corrupt", max_size=10) == b"0\n7\n"


def test_what_stands_there_already_is_durable_too(fs: MemoryFileSystem, clock: ManualClock) -> None:
    checkpoints.write_recovery_points(at(fs, clock), {A0: 1})
    bad = FaultyFileSystem(fs, Fault(operation="sync_directory", errno=errno.EIO))
    with pytest.raises(StorageError):
        checkpoints.write_recovery_points(at(bad, clock), {A0: 2})
    assert checkpoints.read_recovery_points(at(fs)) == {A0: 2}
    checkpoints.write_recovery_points(at(fs, clock), {A0: 2})
    after = fs.crash_clone(Random(0), power=True, loss="everything")
    assert checkpoints.read_recovery_points(at(after)) == {A0: 2}


def test_update_waits_for_the_root_lock_and_then_gives_up(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    held = fs.try_lock(LogRoot.at(ROOT).checkpoints_lock, shared=False)
    assert held is not None
    with pytest.raises(LockTimeoutError):
        checkpoints.write_recovery_points(at(fs, clock), {A0: 1})
    held.release()
    checkpoints.write_recovery_points(at(fs, clock), {A0: 1})
    assert checkpoints.read_recovery_points(at(fs)) == {A0: 1}


def test_crash_at_any_step_leaves_the_old_rows_or_the_new(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    old, new = {A0: 1, B0: 2}, {A0: 5, A1: 6, B0: 2}
    checkpoints.write_recovery_points(at(fs, clock), old)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        checkpoints.write_recovery_points(at(fs, clock), {A0: 5, A1: 6})
        acknowledged.append(new)

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        assert checkpoints.read_offsets(fs, PATH) in (acknowledged or (old, new))
        checkpoints.write_recovery_points(at(fs, clock), new)
        assert checkpoints.read_offsets(fs, PATH) == new

    report = every_crash_point(workload, check, prepared=fs)
    assert [operation.name for operation in report.operations][-2:] == ["rename", "sync_directory"]
