"""A process keeps a bounded number of files open, however many partitions it uses."""

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.errors import FileMissingError
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.open_files import OpenFiles, open_files
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.segment.file_records import FileRecords
from streamlog.topic import TopicPartition
from tests.support.commits import Scene, values_in

LIMIT = 24
PARTITIONS = 60


@pytest.fixture
def few_files() -> Iterator[None]:
    before = open_files.limit
    open_files.limit = LIMIT
    yield
    open_files.limit = before


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_many_partitions_share_a_few_files(few_files: None, tmp_path: Path) -> None:
    gc.collect()
    with LogManager.open(tmp_path / "log", create=True) as manager:
        manager.create_topic("t", PARTITIONS)
        before = descriptors()
        for turn in range(2):
            for number in range(PARTITIONS):
                manager.log("t", number).append([Record(b"k", b"%d" % turn, ())])
                assert descriptors() - before <= LIMIT + 4
        for number in range(PARTITIONS):
            found = manager.log("t", number).read(0).records()
            assert [each.value for each in found] == [b"0", b"1"]
            assert len(manager.reader("t", number).read(0).table) == 2
            assert descriptors() - before <= LIMIT + 4


def test_commits_to_more_partitions_than_files_are_kept(few_files: None, tmp_path: Path) -> None:
    scene = Scene(LocalFileSystem(), root=str(tmp_path / "log"))
    scene.manager.create_topic("wide", PARTITIONS)
    gc.collect()
    before = descriptors()
    for version in range(3):
        rows = {number: [b"%d" % version] for number in range(PARTITIONS)}
        scene.commit(version, [scene.stage(version, rows, topic="wide")])
        assert descriptors() - before <= LIMIT + 4
    scene.commits.retire()
    assert descriptors() - before <= LIMIT + 4
    scene.manager.close()
    for number in range(PARTITIONS):
        found = values_in(scene.fs, f"{scene.root}/wide-{number}")
        assert found == [b"0", b"1", b"2"]


def test_a_process_with_few_descriptors_uses_hundreds_of_partitions(tmp_path: Path) -> None:
    program = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        from streamlog.root.manager import LogManager
        from streamlog.records.record import Record
        with LogManager.open({str(tmp_path / "log")!r}, create=True) as manager:
            manager.create_topic("t", 150)
            for turn in range(2):
                for number in range(150):
                    manager.log("t", number).append([Record(b"k", b"v", ())])
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_file_that_was_let_go_is_opened_again_and_another_one_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"first")
    records = FileRecords(LocalFileSystem(), str(path), writable=False)
    file = records.file
    assert records.release_file()
    assert file.pread(5, 0) == b"first", "whoever uses it just then is not disturbed"
    assert records.file.pread(5, 0) == b"first"
    records.release_file()
    (tmp_path / "other").write_bytes(b"other")
    os.rename(tmp_path / "other", path)
    with pytest.raises(FileMissingError, match="replaced"):
        records.file.pread(5, 0)


class Kept:
    def __init__(self) -> None:
        self.was_used = self.is_listed = False
        self.is_open, self.is_held = True, False

    def release_file(self) -> bool:
        self.is_open = self.is_held
        return not self.is_held


def test_what_was_not_used_for_longest_goes_first_and_what_is_held_stays() -> None:
    files = OpenFiles(4)
    kept = [Kept() for _ in range(4)]
    for each in kept:
        files.keep(each)
        each.was_used = False
    kept[0].was_used = kept[1].is_held = True
    more = [Kept() for _ in range(2)]
    for each in more:
        files.keep(each)
    assert [each.is_open for each in kept] == [True, True, False, False]
    assert all(each.is_open for each in more)
    del kept[:], each
    gc.collect()
    rest = [Kept() for _ in range(2)]
    for another in rest:
        files.keep(another)
    assert all(each.is_open for each in [*more, *rest]), "those that are gone count no more"


def test_a_lock_that_was_let_go_is_taken_again(few_files: None, tmp_path: Path) -> None:
    with LogManager.open(tmp_path / "log", create=True) as manager:
        manager.create_topic("t", 2)
        first, second = manager.logs([TopicPartition("t", 0), TopicPartition("t", 1)])
        assert first._session._lock.release_file()
        first.append([Record(b"k", b"v", ())])
        second.append([Record(b"k", b"v", ())])
        assert (first.log_end_offset, second.log_end_offset) == (1, 1)
