"""Parts of a root that another user has put into a directory that everybody may write to."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog.clock import ManualClock, SystemClock
from streamlog.errors import InvalidRequestError
from streamlog.fs.api import FileKind
from streamlog.fs.files import write_file_atomically
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.maintenance.runner import Maintenance
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.root.readers import check_progress
from tests.support.child import run_in_child
from tests.support.commits import values_in

NOW = 1_700_000_000_000
ROOT = "/shared"
ME, STRANGER, TEAM = 1000, 2000, 3000
RECORD = [Record(None, b"value", (), NOW)]
PARTS = (
    *(".streamlog", "t-0", "meta.properties", "recovery-point-offset-checkpoint"),
    *("log-start-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint"),
)


def made(mode: int, *, owner: int = 0) -> MemoryFileSystem:
    """Return a root of mine with a topic, in a directory with that mode and owner."""
    fs = MemoryFileSystem()
    fs.make_directory(ROOT)
    fs.set_access(ROOT, owner=owner, group=TEAM, mode=0o700)
    fs.user = ME
    with LogManager.open(ROOT, create=True, fs=fs) as manager:
        manager.create_topic("t", 1)
        manager.log("t", 0).append(RECORD)
        manager.log("t", 0).flush()
    for name in PARTS:
        if fs.stat(f"{ROOT}/{name}") is None:
            write_file_atomically(fs, f"{ROOT}/{name}", b"0\n0\n")
    fs.set_access(ROOT, owner=owner, group=TEAM, mode=mode)
    return fs


def append(fs: MemoryFileSystem) -> None:
    with PartitionLog.open(f"{ROOT}/t-0", fs=fs) as log:
        log.append(RECORD)


def append_through_a_manager(fs: MemoryFileSystem) -> None:
    with LogManager.open(ROOT, fs=fs) as manager:
        manager.log("t", 0).append(RECORD)


def create_topic(fs: MemoryFileSystem) -> None:
    with LogManager.open(ROOT, fs=fs) as manager:
        manager.create_topic("u", 1)


def delete_topic(fs: MemoryFileSystem) -> None:
    with LogManager.open(ROOT, fs=fs) as manager:
        manager.delete_topic("t")


def maintain(fs: MemoryFileSystem) -> None:
    Maintenance(ROOT, fs=fs, clock=ManualClock(NOW)).run()


def read_in_a_group(fs: MemoryFileSystem) -> None:
    check_progress(LogRoot.at(ROOT, fs=fs), "group")


WRITERS = (
    *(append, append_through_a_manager, create_topic, delete_topic, maintain),
    read_in_a_group,
)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("part", [".streamlog", "recovery-point-offset-checkpoint"])
def test_a_writer_refuses_files_planted_in_a_world_writable_directory(
    part: str, write: Callable[[MemoryFileSystem], None]
) -> None:
    fs = made(0o1777)
    fs.set_access(f"{ROOT}/{part}", owner=STRANGER, group=STRANGER, mode=0o777)
    before = fs.list(ROOT)
    with pytest.raises(InvalidRequestError, match="another user owns this part") as caught:
        write(fs)
    assert caught.value.path == f"{ROOT}/{part}"
    assert fs.list(ROOT) == before


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_a_root_may_be_a_strangers(part: str) -> None:
    fs = made(0o1777)
    append(fs)
    fs.set_access(f"{ROOT}/{part}", owner=STRANGER, group=STRANGER, mode=0o777)
    with pytest.raises(InvalidRequestError, match="another user owns this part"):
        append(fs)


def test_an_empty_directory_of_a_stranger_becomes_no_partition() -> None:
    fs = made(0o1777)
    fs.make_directory(f"{ROOT}/u-0")
    fs.set_access(f"{ROOT}/u-0", owner=STRANGER, group=STRANGER, mode=0o777)
    with pytest.raises(InvalidRequestError, match="another user owns this part"):
        PartitionLog.open(f"{ROOT}/u-0", fs=fs)
    assert fs.list(f"{ROOT}/u-0") == []


@pytest.mark.parametrize("owner", [0, ME, STRANGER])
def test_parts_of_root_of_mine_and_of_the_directorys_owner_are_trusted(owner: int) -> None:
    fs = made(0o1777, owner=STRANGER)
    for part in PARTS:
        fs.set_access(f"{ROOT}/{part}", owner=owner, group=owner, mode=0o750)
    append(fs)
    assert values_in(fs, f"{ROOT}/t-0") == [b"value"] * 2


@pytest.mark.parametrize("mode", [0o2770, 0o3770, 0o1770, 0o755])
def test_a_directory_that_a_group_shares_works_whoever_made_its_parts(mode: int) -> None:
    fs = made(mode)
    for part in PARTS:
        fs.set_access(f"{ROOT}/{part}", owner=STRANGER, group=TEAM, mode=0o2770)
    for write in (append, create_topic, maintain, read_in_a_group):
        write(fs)
    assert values_in(fs, f"{ROOT}/t-0") == [b"value"] * 2


def test_what_lies_there_is_still_read() -> None:
    fs = made(0o1777)
    for part in PARTS:
        fs.set_access(f"{ROOT}/{part}", owner=STRANGER, group=STRANGER, mode=0o755)
    assert values_in(fs, f"{ROOT}/t-0") == [b"value"]


# ---- one run by root ------------------------------------------------------------------------
def test_one_run_by_root_locks_the_owner_of_a_root_out_of_nothing() -> None:
    fs = MemoryFileSystem()
    fs.make_directory(ROOT)
    fs.set_access(ROOT, owner=ME, group=TEAM, mode=0o750)
    for user in (ME, 0):
        fs.user = user
        with LogManager.open(ROOT, create=True, fs=fs) as manager:
            manager.create_topic("t", 1, if_not_exists=True)
            manager.log("t", 0).append(RECORD)
            manager.log("t", 0).roll()
            manager.create_topic(f"of-{user}", 1)
        maintain(fs)
    assert _owners(fs, ROOT) == {ME}


def _owners(fs: MemoryFileSystem, path: str) -> set[int]:
    found = fs.stat(path)
    assert found is not None
    below = fs.list(path) if found.kind is FileKind.DIRECTORY else []
    return {found.owner}.union(*(_owners(fs, f"{path}/{name}") for name in below))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be root")
def test_one_run_by_root_locks_the_owner_out_of_nothing_on_a_disk(tmp_path: Path) -> None:
    for above in tmp_path.parents:
        if above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    root = tmp_path / "root"
    root.mkdir()
    os.chown(root, ME, TEAM)

    def write(root: Path = root) -> object:
        with LogManager.open(root, create=True, fs=LocalFileSystem()) as manager:
            manager.create_topic("t", 1, if_not_exists=True)
            manager.log("t", 0).append([Record(None, b"value", (), SystemClock().now_ms())])
            manager.log("t", 0).flush()
            manager.log("t", 0).roll()
        Maintenance(root).run()
        return len(values_in(LocalFileSystem(), f"{root}/t-0"))

    def write_as_owner() -> object:
        os.setgid(TEAM)
        os.setuid(ME)
        return write()

    write(tmp_path / "first")  # imports what another user may not be able to
    assert [run_in_child(each) for each in (write_as_owner, write, write_as_owner)] == [*"123"]
    assert {os.stat(path).st_uid for path in root.rglob("*")} == {ME}
