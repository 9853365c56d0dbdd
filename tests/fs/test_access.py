"""Owners, groups and modes of new files, and of files that replace others."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import make_directories, temporary_copy, write_file_atomically
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.memory import MemoryFileSystem
from tests.support.child import run_in_child
from tests.support.place import Place

FS = LocalFileSystem()
ALICE, BOB, TEAM = 41_001, 41_002, 41_003
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


def access(path: Path) -> tuple[int, int, str]:
    found = os.stat(path)
    return found.st_uid, found.st_gid, oct(found.st_mode & 0o7777)


def shared(path: Path, owner: int, group: int, mode: int) -> Path:
    """Give a directory, reachable through all its parents, to another user."""
    for above in path.parents:
        if os.stat(above).st_uid == os.getuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


def as_user(user: int, groups: list[int], do: Callable[[], object]) -> str:
    def become() -> object:
        os.umask(0o002)
        os.setgroups(groups)
        os.setgid(user)
        os.setuid(user)
        return do()

    return run_in_child(become)


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_the_umask_decides_whether_the_group_may_write_and_others_never_may(
    tmp_path: Path, umask: int
) -> None:
    def make() -> object:
        os.umask(umask)
        FS.open(str(tmp_path / "created"), OpenMode.CREATE).close()
        FS.open(str(tmp_path / "opened"), OpenMode.CREATE_OR_WRITE).close()
        lock = FS.try_lock(str(tmp_path / "locked"), shared=False)
        assert lock is not None
        make_directories(FS, str(tmp_path / "made"))
        names = ("created", "opened", "locked", "made")
        return [os.stat(tmp_path / name).st_mode & 0o7777 for name in names]

    assert run_in_child(make) == repr([0o660 & ~umask] * 3 + [0o770 & ~umask])


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    path.chmod(0o604)
    write_file_atomically(FS, str(path), b"new")
    assert access(path)[2] == "0o604"


def test_a_replaced_file_keeps_owner_group_and_mode_in_memory_too() -> None:
    fs = MemoryFileSystem()
    write_file_atomically(fs, "/state", b"old")
    fs.set_access("/state", owner=ALICE, group=TEAM, mode=0o664)
    write_file_atomically(fs, "/state", b"new")
    found = fs.stat("/state")
    assert found is not None and found.access == (ALICE, TEAM, 0o664)


@as_root
def test_a_file_replaced_by_root_keeps_owner_group_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    os.chown(path, ALICE, TEAM)
    path.chmod(0o664)
    write_file_atomically(FS, str(path), b"new")
    assert access(path) == (ALICE, TEAM, "0o664")
    with temporary_copy(FS, str(path)) as copy:
        assert access(Path(copy.path)) == (ALICE, TEAM, "0o664")


@as_root
def test_a_file_created_by_root_belongs_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    place = shared(tmp_path / "place", ALICE, TEAM, 0o750)
    FS.open(str(place / "created"), OpenMode.CREATE).close()
    FS.open(str(place / "opened"), OpenMode.CREATE_OR_WRITE).close()
    lock = FS.try_lock(str(place / "locked"), shared=False)
    assert lock is not None
    make_directories(FS, str(place / "a" / "b"))
    write_file_atomically(FS, str(place / "a" / "b" / "new"), b"new")
    for path in place.rglob("*"):
        assert access(path)[:2] == (ALICE, TEAM), path


@as_root
def test_members_of_a_group_write_together_in_a_setgid_directory(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    share = shared(tmp_path / "share", ALICE, TEAM, 0o2770)
    path = share / "state"

    def write() -> object:
        write_file_atomically(FS, str(path), b"by %d" % os.getuid())
        make_directories(FS, str(share / "directory"))
        return access(path), access(share / "directory")

    theirs = (ALICE, TEAM, "0o2770")
    assert as_user(ALICE, [TEAM], write) == repr(((ALICE, TEAM, "0o660"), theirs))
    assert as_user(BOB, [TEAM], write) == repr(((BOB, TEAM, "0o660"), theirs))
    assert as_user(ALICE, [TEAM], write) == repr(((ALICE, TEAM, "0o660"), theirs))


@as_root
def test_a_group_that_cannot_be_kept_gives_its_rights_to_no_other_group(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    place = shared(tmp_path / "open", ALICE, ALICE, 0o777)
    path = place / "state"
    path.write_bytes(b"old")
    os.chown(path, ALICE, TEAM)
    path.chmod(0o664)

    def write() -> object:
        write_file_atomically(FS, str(path), b"new")
        return access(path)

    assert as_user(BOB, [], write) == repr((BOB, BOB, "0o644"))


def test_access_is_reported_and_applied_alike_everywhere(place: Place) -> None:
    one, other = place.write("one", b""), place.write("other", b"")
    fs: FileSystem = place.fs
    before = fs.stat(one)
    assert before is not None and before.owner == fs.user_id()
    with fs.open(other, OpenMode.WRITE) as file:
        file.adopt_access(before._replace(mode=0o600))
        assert file.stat().access == (before.owner, before.group, 0o600)
    after = fs.stat(other)
    assert after is not None and after.mode == 0o600
