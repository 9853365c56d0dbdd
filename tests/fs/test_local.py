"""Behaviour that only a real kernel shows: special files, forks, limits, failing fsync."""

import errno
import fcntl
import os
import resource
import signal
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from streamlog.errors import DiskFullError, PoisonedError, StorageError
from streamlog.fs.api import FileKind, OpenMode
from streamlog.fs.local import LocalFileSystem
from tests.support.child import child_that_stays, run_in_child

FS = LocalFileSystem()


# ---- special files --------------------------------------------------------------------------
@pytest.mark.parametrize("mode", [OpenMode.READ, OpenMode.WRITE, OpenMode.CREATE_OR_WRITE])
def test_a_fifo_is_refused_at_once(tmp_path: Path, mode: OpenMode) -> None:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    with pytest.raises(StorageError, match="not a regular file") as caught:
        FS.open(path, mode)
    assert caught.value.errno == errno.ENXIO
    found = FS.stat(path)
    assert found is not None
    assert found.kind is FileKind.OTHER


@pytest.mark.parametrize("mode", list(OpenMode))
def test_a_symbolic_link_is_never_followed(tmp_path: Path, mode: OpenMode) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"secret")
    link.symlink_to(target)
    with pytest.raises(StorageError) as caught:
        FS.open(str(link), mode)
    assert caught.value.errno == (errno.EEXIST if mode is OpenMode.CREATE else errno.ELOOP)
    found = FS.stat(str(link))
    assert found is not None
    assert found.kind is FileKind.SYMLINK
    FS.remove(str(link))
    assert target.read_bytes() == b"secret"


def test_a_dangling_link_is_a_name_and_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        FS.open(str(tmp_path / "link"), OpenMode.CREATE_OR_WRITE)
    with pytest.raises(StorageError):
        FS.try_lock(str(tmp_path / "link"), shared=False)
    assert FS.list(str(tmp_path)) == ["link"]


def test_a_device_is_refused() -> None:
    with pytest.raises(StorageError, match="not a regular file"):
        FS.open("/dev/null", OpenMode.WRITE)


def test_a_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(StorageError, match="not a regular file"):
            FS.open(str(tmp_path / "socket"), OpenMode.READ)


def test_set_mtime_and_link_act_on_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to("target")
    before = (tmp_path / "target").stat().st_mtime_ns
    FS.set_mtime(str(tmp_path / "link"), 1_000)
    FS.link(str(tmp_path / "link"), str(tmp_path / "second"))
    assert (tmp_path / "target").stat().st_mtime_ns == before
    assert (tmp_path / "second").is_symlink()


def test_resolve_follows_the_links_of_a_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    assert FS.resolve(str(tmp_path / "root" / "topic-0")) == str(
        (tmp_path / "real" / "topic-0").resolve()
    )


# ---- rights and limits ----------------------------------------------------------------------
def test_a_foreign_file_is_refused_with_the_line_that_shows_why(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.write_bytes(b"x")
    path.chmod(0)
    _open_to_everybody(tmp_path)

    def open_as_nobody() -> object:
        if os.getuid() == 0:
            os.setuid(65534)
        with pytest.raises(StorageError) as caught:
            FS.open(str(path), OpenMode.READ)
        return caught.value.errno, caught.value.hint

    assert run_in_child(open_as_nobody) == repr(
        (errno.EACCES, f"check owner and mode: ls -ld {path}")
    )


def test_created_files_and_directories_are_private(tmp_path: Path) -> None:
    def create_without_umask() -> object:
        os.umask(0)
        FS.open(str(tmp_path / "file"), OpenMode.CREATE).close()
        FS.make_directory(str(tmp_path / "directory"))
        return [oct(os.stat(tmp_path / name).st_mode & 0o7777) for name in ("file", "directory")]

    assert run_in_child(create_without_umask) == repr(["0o660", "0o770"])


def test_a_full_disk_leaves_a_prefix_and_raises_a_typed_error(tmp_path: Path) -> None:
    def write_past_the_limit() -> object:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with FS.open(str(tmp_path / "a"), OpenMode.CREATE) as file:
            with pytest.raises(DiskFullError) as caught:
                file.pwrite(b"x" * 5000, 0)  # the kernel accepts 1000 bytes and refuses the rest
            with pytest.raises(DiskFullError):
                file.truncate(2000)
            return errno.errorcode[caught.value.errno], file.stat().size, file.pread(9999, 0)

    assert run_in_child(write_past_the_limit) == repr(("EFBIG", 1000, b"x" * 1000))


def test_running_out_of_descriptors_names_the_limit_to_raise(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")

    def open_too_many() -> object:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        with pytest.raises(StorageError) as caught:
            FS.open(str(tmp_path / "a"), OpenMode.READ)
        return errno.errorcode[caught.value.errno], "ulimit -n" in str(caught.value.hint)

    assert run_in_child(open_too_many) == repr(("EMFILE", True))


# ---- a failing sync -------------------------------------------------------------------------
def test_a_failed_sync_poisons_the_handle_for_good(tmp_path: Path) -> None:
    file = FS.open(str(tmp_path / "a"), OpenMode.CREATE)
    file.pwrite(b"before", 0)
    saved = os.dup(file.descriptor())
    reader, writer = os.pipe()
    os.dup2(writer, file.descriptor())  # the kernel refuses to sync a pipe
    with pytest.raises(StorageError) as caught:
        file.sync()
    assert not isinstance(caught.value, PoisonedError)
    assert caught.value.errno == errno.EINVAL
    os.dup2(saved, file.descriptor())  # now the kernel would report success
    for call in (file.sync, lambda: file.pwrite(b"x", 0), lambda: file.truncate(0)):
        with pytest.raises(PoisonedError, match="an earlier sync failed"):
            call()
    assert file.pread(10, 0) == b"before"
    file.close()
    for descriptor in (saved, reader, writer):
        os.close(descriptor)


# ---- short reads and writes -----------------------------------------------------------------
def test_short_reads_are_continued() -> None:
    path = "/proc/kallsyms"  # a regular file that the kernel returns page by page
    if not os.path.exists(path):
        pytest.skip("this kernel hides its symbols")
    size = 50_000
    with open(path, "rb") as file:
        expected = file.read(size)
    with FS.open(path, OpenMode.READ) as reader:
        assert len(os.pread(reader.descriptor(), size, 0)) < size
        assert reader.pread(size, 0) == expected
        target = np.zeros(size, dtype=np.uint8)
        assert reader.pread_into(target, 0) == size
        assert target.tobytes() == expected


def test_signals_during_reads_and_writes_are_harmless(tmp_path: Path) -> None:
    seen = []
    previous = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        content = os.urandom(8 << 20)
        with FS.open(str(tmp_path / "a"), OpenMode.CREATE) as file:
            for _ in range(5):
                file.pwrite(content, 0)
                assert file.pread(len(content), 0) == content
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert seen


# ---- locks between processes ----------------------------------------------------------------
def test_a_lock_excludes_another_process(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held = FS.try_lock(path, shared=False)
    assert held is not None
    assert run_in_child(lambda: FS.try_lock(path, shared=False)) == "None"
    held.release()
    assert run_in_child(lambda: FS.try_lock(path, shared=False)).startswith("LocalLock(")


def test_a_forked_child_neither_owns_nor_releases_its_parents_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held = FS.try_lock(path, shared=False)
    assert held is not None

    def meddle() -> object:
        mine = held.is_mine()
        held.release()
        held.release()
        return mine

    assert run_in_child(meddle) == "False"
    assert held.is_mine()
    assert FS.try_lock(path, shared=False) is None
    held.release()


def test_release_frees_the_lock_although_a_forked_child_is_alive(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held = FS.try_lock(path, shared=False)
    assert held is not None
    with child_that_stays(lambda: None):
        held.release()
        again = FS.try_lock(path, shared=False)
        assert again is not None
        again.release()


def test_a_killed_owner_frees_the_lock_although_its_forked_child_is_alive(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    reader, writer = os.pipe()

    def lock_and_fork() -> object:
        held = FS.try_lock(path, shared=False)
        if os.fork() == 0:  # returns in the grandchild once it has released the lock file
            os.write(writer, os.getpid().to_bytes(4, "little"))
            signal.pause()
        return held

    with child_that_stays(lock_and_fork) as owner:
        grandchild = int.from_bytes(os.read(reader, 4), "little")
        assert FS.try_lock(path, shared=False) is None
        os.kill(owner, signal.SIGKILL)
        os.waitid(os.P_PID, owner, os.WEXITED | os.WNOWAIT)
        try:
            os.kill(grandchild, 0)
            taken = FS.try_lock(path, shared=False)
            assert taken is not None
            taken.release()
        finally:
            os.kill(grandchild, signal.SIGKILL)
    os.close(reader)
    os.close(writer)


def test_a_lock_file_removed_between_open_and_lock_is_opened_again(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    rounds, taken, overlaps = 300, [], []
    holders = 0
    guard = threading.Lock()

    def take_and_remove() -> None:
        nonlocal holders
        for _ in range(rounds):
            lock = FS.try_lock(path, shared=False)
            if lock is None:
                continue
            with guard:
                holders += 1
                overlaps.append(holders)
            taken.append(1)
            with guard:
                holders -= 1
            FS.remove(path)
            lock.release()

    threads = [threading.Thread(target=take_and_remove) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken
    assert max(overlaps) == 1


def test_a_brokers_lock_is_seen_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_bytes(b"")

    def hold_like_a_broker() -> object:
        file = path.open("r+b")
        fcntl.lockf(file, fcntl.LOCK_EX)  # the lock that FileChannel.tryLock takes
        return file

    with child_that_stays(hold_like_a_broker) as broker:
        assert FS.broker_lock_is_held(str(path))
        assert FS.broker_lock_is_held(str(path)), "asking did not take it away"
        assert run_in_child(lambda: FS.broker_lock_is_held(str(path))) == "True"
        os.kill(broker, signal.SIGKILL)
        os.waitid(os.P_PID, broker, os.WEXITED | os.WNOWAIT)
        assert not FS.broker_lock_is_held(str(path))


# ---- handles --------------------------------------------------------------------------------
def test_an_unreferenced_file_closes_its_descriptor(tmp_path: Path) -> None:
    file = FS.open(str(tmp_path / "a"), OpenMode.CREATE)
    descriptor = file.descriptor()
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_no_descriptor_leaks_when_opening_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with pytest.raises(StorageError):
            FS.open(str(tmp_path / "fifo"), OpenMode.READ)
        with pytest.raises(StorageError):
            FS.open(str(tmp_path), OpenMode.READ)
        assert not FS.broker_lock_is_held(str(tmp_path / "missing"))
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_are_closed_in_programs_that_a_process_starts(tmp_path: Path) -> None:
    with FS.open(str(tmp_path / "a"), OpenMode.CREATE) as file:
        assert not os.get_inheritable(file.descriptor())


def test_boot_id_is_the_kernels() -> None:
    assert FS.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _open_to_everybody(directory: Path) -> None:
    """Let another user reach a file below pytest's private directories."""
    while directory != directory.parent and directory.stat().st_uid == os.getuid():
        directory.chmod(directory.stat().st_mode | 0o111)
        if directory.parent.stat().st_mode & 0o001:
            break
        directory = directory.parent


def test_a_lock_file_that_is_replaced_between_many_locks_is_noticed(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = FS.try_lock(path, shared=False)
    assert lock is not None
    for _ in range(3):
        lock.pause()
        assert lock.resume()
    lock.pause()
    FS.remove(path)
    other = FS.try_lock(path, shared=False)
    assert other is not None
    until_ns = time.monotonic_ns() + 1_000_000
    while time.monotonic_ns() < until_ns:
        pass
    assert not lock.resume()
    lock.release()
    assert other.is_mine()
    other.release()


def test_a_stat_names_the_device(tmp_path: Path) -> None:
    found = LocalFileSystem().stat(str(tmp_path))
    assert found is not None and found.device == os.stat(tmp_path).st_dev


def test_a_lent_handle_outlives_the_file_it_was_lent_by(tmp_path: Path) -> None:
    path = str(tmp_path / "lent")
    with LocalFileSystem().open(path, OpenMode.CREATE) as file:
        file.pwrite(b"records", 0)
        lent = file.lend()
        assert file.lend() is lent
        descriptor = lent.descriptor()
        assert descriptor != file.descriptor()
    os.unlink(path)
    assert lent.pread(7, 0) == b"records"
    del lent
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
