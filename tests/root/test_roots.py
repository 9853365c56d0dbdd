"""Log roots: made, finished after a crash, refused."""

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streamlog.clock import ManualClock, SystemClock
from streamlog.config.server_config import ServerConfig, server_template
from streamlog.errors import (
    InvalidConfigError,
    InvalidRequestError,
    StorageError,
    UnavailableError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.files import make_directories, read_file
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.partition.topic_config import read_server_config
from streamlog.root.roots import check_root, is_our_root, make_root
from streamlog.root.topics import list_topics
from tests.support.child import child_that_stays
from tests.support.crash import every_crash_point

ROOT = "/data/root"


def make(fs: FileSystem, root: str = ROOT) -> None:
    make_root(LogRoot.at(root, fs=fs, clock=ManualClock(), random=random.Random(1)))


def write(fs: FileSystem, path: str, text: bytes = b"") -> None:
    with fs.open(path, OpenMode.CREATE_OR_WRITE) as file:
        file.truncate(0)
        file.pwrite(text, 0)


def test_new_root_has_all_it_needs() -> None:
    fs = MemoryFileSystem()
    make(fs)
    assert fs.list(ROOT) == [".kafka_cleanshutdown", ".streamlog", "meta.properties"]
    assert fs.list(f"{ROOT}/.streamlog") == [
        "commits", "locks", "readers", "server.properties", "staging", "topics",
    ]  # fmt: skip
    assert is_our_root(LogRoot.at(ROOT, fs=fs))
    assert read_file(fs, LogRoot.at(ROOT).server_properties, max_size=1 << 20) == (
        server_template().encode()
    )
    assert read_server_config(LogRoot.at(ROOT, fs=fs)) == ServerConfig()
    meta = read_meta_properties(fs, ROOT)
    assert meta is not None
    assert (meta.version, meta.node_id) == (1, 1)


def test_making_a_root_again_changes_nothing() -> None:
    fs = MemoryFileSystem()
    make(fs)
    write(fs, LogRoot.at(ROOT).server_properties, b"num.partitions=3\n")
    make(fs)
    assert read_server_config(LogRoot.at(ROOT, fs=fs)).num_partitions == 3


def test_crash_at_any_step_of_making_can_be_finished() -> None:
    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        make(fs)
        acknowledged.append("made")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        assert is_our_root(LogRoot.at(ROOT, fs=fs)) or not acknowledged
        make(fs)
        check_root(LogRoot.at(ROOT, fs=fs))
        assert read_server_config(LogRoot.at(ROOT, fs=fs)) == ServerConfig()
        assert read_meta_properties(fs, ROOT) is not None

    report = every_crash_point(workload, check)
    assert report.states > 60


def test_partitions_that_lie_there_become_topics() -> None:
    fs = MemoryFileSystem()
    for name in ("orders-0", "orders-1", "clicks-0", "notes", "orders-0-delete", "backup-2"):
        make_directories(fs, f"{ROOT}/{name}")
    for name in ("orders-0", "orders-1", "clicks-0"):
        write(fs, f"{ROOT}/{name}/{0:020}.log")
    write(fs, f"{ROOT}/backup-2/data.txt", b"a")
    make_root(LogRoot.at(ROOT, fs=fs, clock=ManualClock(), random=random.Random(1)), adopt=True)
    assert list_topics(LogRoot.at(ROOT, fs=fs)) == ["clicks", "orders"], (
        "what holds no log is no topic"
    )
    assert fs.stat(f"{ROOT}/.kafka_cleanshutdown") is None, "nobody knows how they were left"


@pytest.mark.parametrize("name", ["notes.txt", "backup-2/data.txt", f"orders-0/{0:020}.log"])
def test_a_root_is_created_only_in_an_empty_directory_unless_adopting(name: str) -> None:
    fs = MemoryFileSystem()
    path = f"{ROOT}/{name}"
    make_directories(fs, os.path.dirname(path))
    write(fs, path, b"a")
    before = fs.list(ROOT)
    with pytest.raises(InvalidRequestError, match="not empty") as caught:
        make(fs)
    assert "--adopt" in str(caught.value.hint)
    assert fs.list(ROOT) == before
    make_root(LogRoot.at(ROOT, fs=fs, clock=ManualClock(), random=random.Random(1)), adopt=True)
    assert read_file(fs, path, max_size=9) == b"a"


def test_an_empty_file_system_of_its_own_can_become_a_root() -> None:
    fs = MemoryFileSystem()
    make_directories(fs, f"{ROOT}/lost+found")
    make(fs)
    assert is_our_root(LogRoot.at(ROOT, fs=fs))


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/", "/var/log", "/proc/1/fd", "/data/link"])
def test_a_directory_of_the_operating_system_is_never_a_root(path: str) -> None:
    class Linked(MemoryFileSystem):
        def resolve(self, path: str) -> str:
            return "/etc" if path == "/data/link" else os.path.normpath(path)

    with pytest.raises(InvalidRequestError, match="operating system"):
        make_root(
            LogRoot.at(path, fs=Linked(), clock=ManualClock(), random=random.Random(1)), adopt=True
        )


def test_file_in_the_way_is_refused() -> None:
    fs = MemoryFileSystem()
    make_directories(fs, "/data")
    write(fs, ROOT)
    for call in (make, lambda fs: check_root(LogRoot.at(ROOT, fs=fs))):
        with pytest.raises(InvalidRequestError, match="must be a directory in /data/root"):
            call(fs)


def test_missing_root_names_the_command_to_type() -> None:
    with pytest.raises(UnknownTopicError, match=ROOT) as caught:
        check_root(LogRoot.at(ROOT, fs=MemoryFileSystem()))
    assert f"streamlog --path {ROOT} topics create" in str(caught.value.hint)


def test_unreadable_root_is_a_typed_error_with_a_hint() -> None:
    inner = MemoryFileSystem()
    make_directories(inner, ROOT)
    fs = FaultyFileSystem(inner, Fault(operation="list", errno=errno.EACCES))
    with pytest.raises(StorageError, match=ROOT) as caught:
        check_root(LogRoot.at(ROOT, fs=fs))
    assert caught.value.hint is not None


def test_brokers_log_dir_is_not_made_a_root() -> None:
    fs = MemoryFileSystem()
    make_directories(fs, f"{ROOT}/orders-0")
    write(fs, f"{ROOT}/meta.properties", b"version=1\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(InvalidRequestError, match="Kafka broker"):
        make(fs)
    assert fs.list(ROOT) == ["meta.properties", "orders-0"]


def test_world_writable_directory_is_refused(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    tmp_path.chmod(0o777)
    with pytest.raises(InvalidRequestError, match="world-writable") as caught:
        make_root(LogRoot.at(str(tmp_path), fs=fs, clock=SystemClock(), random=random.Random(1)))
    assert caught.value.hint == f"chmod o-w {tmp_path}"
    assert os.listdir(tmp_path) == []
    tmp_path.chmod(0o1777)
    make_root(LogRoot.at(str(tmp_path), fs=fs, clock=SystemClock(), random=random.Random(1)))


def test_directory_of_a_running_broker_is_refused(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / ".lock").touch()

    def hold() -> object:
        file = open(tmp_path / ".lock", "r+b")  # noqa: SIM115  # held until the child dies
        fcntl.lockf(file, fcntl.LOCK_EX)
        return file

    with child_that_stays(hold), pytest.raises(UnavailableError, match="running Kafka broker"):
        make_root(
            LogRoot.at(
                str(tmp_path), fs=LocalFileSystem(), clock=SystemClock(), random=random.Random(1)
            )
        )
    assert os.listdir(tmp_path) == [".lock"]


@pytest.mark.parametrize(
    ("text", "what"), [(b"num.partitionz=3", "num.partitions"), (b"a=\xff", "UTF-8")]
)
def test_bad_settings_name_their_file(text: bytes, what: str) -> None:
    fs = MemoryFileSystem()
    make(fs)
    write(fs, LogRoot.at(ROOT).server_properties, text)
    with pytest.raises(InvalidConfigError, match=what) as caught:
        read_server_config(LogRoot.at(ROOT, fs=fs))
    assert caught.value.path == LogRoot.at(ROOT).server_properties


def test_foreign_root_has_kafkas_defaults() -> None:
    fs = MemoryFileSystem()
    make_directories(fs, ROOT)
    assert read_server_config(LogRoot.at(ROOT, fs=fs)) == ServerConfig()
    assert fs.list(ROOT) == []
