"""Commits of a replica set after one of its roots was restored from an older copy of itself."""

from random import Random

import pyarrow as pa
import pytest

from streamlog.arrow.table_writer import write_table
from streamlog.commits.commit_files import CommitFiles
from streamlog.errors import NoQuorumError
from streamlog.fs.api import FileKind, OpenMode
from streamlog.fs.files import read_file
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.replication.election import ElectionType
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.root.manager import LogManager
from streamlog.root.replica_roots import add_root
from streamlog.root.replica_set import ReplicaSet
from streamlog.root.roots import make_root

NAMES = ("a", "b", "c")
ALL = "/a,/b,/c"


def three_roots() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    roots = [LogRoot.at(f"/{name}", fs=fs) for name in NAMES]
    make_root(roots[0])
    for root in roots[1:]:
        add_root(roots[0], root.path)
    with LogManager.open("/a", fs=fs) as manager:
        manager.create_topic("t", 1, replication_factor=3)
    return fs


def write(fs: MemoryFileSystem, version: int) -> bool:
    rows = pa.table({"value": [f"v{version}".encode()]})
    return write_table(rows, ALL, "t", txn_app_id="app", txn_version=version, fs=fs).is_replay


def retire(fs: MemoryFileSystem) -> None:
    with LogManager.open(ALL, fs=fs) as manager:
        manager.commits.retire()


def restore(fs: MemoryFileSystem, older: MemoryFileSystem, name: str) -> None:
    """Replace a root by a copy of what it was."""
    fs.rename(f"/{name}", f"/{name}-replaced")
    copy(older, fs, f"/{name}")


def copy(source: MemoryFileSystem, target: MemoryFileSystem, path: str) -> None:
    found = source.stat(path)
    assert found is not None
    if found.kind is FileKind.DIRECTORY:
        target.make_directory(path)
        for name in source.list(path):
            copy(source, target, f"{path}/{name}")
    else:
        with target.open(path, OpenMode.CREATE) as file:
            file.pwrite(read_file(source, path, max_size=1 << 20), 0)


def isr(fs: MemoryFileSystem) -> set[int]:
    found = RootSet.open([LogRoot.at(f"/{name}", fs=fs) for name in NAMES])
    assert found is not None
    return set(found.register(COMMITS).read().isr)


def values(fs: MemoryFileSystem, name: str) -> list[str]:
    with LogReader.open(f"/{name}/t-0", fs=fs) as reader:
        return [(record.value or b"").decode() for record in reader.records()]


def replicate(fs: MemoryFileSystem) -> None:
    with ReplicaSet.open([f"/{name}" for name in NAMES], fs=fs) as replicas:
        assert replicas.replicate_once() == {}


@pytest.fixture(params=["pending", "retired"])
def fs(request: pytest.FixtureRequest) -> MemoryFileSystem:
    """Return a set of roots that committed version 0."""
    found = three_roots()
    write(found, 0)
    if request.param == "retired":
        retire(found)
    return found


@pytest.mark.parametrize("is_retired", [False, True])
def test_a_follower_restored_from_an_older_copy_is_noticed_and_copied_again(
    fs: MemoryFileSystem, is_retired: bool
) -> None:
    older = fs.crash_clone(Random(1), power=False)
    write(fs, 1)
    if is_retired:
        retire(fs)
    restore(fs, older, "c")
    write(fs, 2)
    assert isr(fs) == {1, 2}
    write(fs, 3)
    assert isr(fs) == {1, 2, 3}
    own, copied = (CommitFiles(LogRoot.at(f"/{name}", fs=fs), 5) for name in "ac")
    assert copied.last_number("app/t") == own.last_number("app/t") == 4
    replicate(fs)
    for name in NAMES:
        assert values(fs, name) == ["v0", "v1", "v2", "v3"]


@pytest.mark.parametrize("is_retired", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_a_leader_restored_from_an_older_copy_learns_what_it_decided(
    fs: MemoryFileSystem, number: int, is_retired: bool
) -> None:
    older = fs.crash_clone(Random(1), power=False)
    for version in range(1, number + 1):
        write(fs, version)
    if is_retired:
        retire(fs)
    restore(fs, older, "a")
    assert write(fs, number), "decided before the root was restored"
    assert not write(fs, number + 1)
    replicate(fs)
    for name in NAMES:
        assert values(fs, name) == [f"v{version}" for version in range(number + 2)]


@pytest.mark.parametrize("is_retired", [False, True])
def test_a_root_elected_after_it_was_restored_learns_from_the_others(
    fs: MemoryFileSystem, is_retired: bool
) -> None:
    older = fs.crash_clone(Random(1), power=False)
    write(fs, 1)
    if is_retired:
        retire(fs)
    restore(fs, older, "b")
    fs.rename("/a", "/lost")
    assert write(fs, 1), "decided before the root was restored"
    assert not write(fs, 2)
    for name in ("b", "c"):
        assert values(fs, name)[:2] == ["v0", "v1"]


def test_an_unclean_election_goes_on_with_the_last_root(fs: MemoryFileSystem) -> None:
    for name in ("a", "b"):
        fs.rename(f"/{name}", f"/{name}-lost")
    with pytest.raises(NoQuorumError, match="elect --unclean --commits"):
        write(fs, 1)
    with ReplicaSet.open("/c", fs=fs) as replicas:
        assert replicas.elect_commits().leader == 3
        replicas.elect("t", 0, ElectionType.UNCLEAN)
    assert write(fs, 0), "it had been in sync"
    assert not write(fs, 1)
    for name in ("a", "b"):
        fs.rename(f"/{name}-lost", f"/{name}")
    replicate(fs)
    write(fs, 2)
    assert isr(fs) == {1, 2, 3}
    for name in NAMES:
        assert values(fs, name)[:2] == ["v0", "v1"]
