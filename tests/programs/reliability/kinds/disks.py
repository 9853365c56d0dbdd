"""Real file systems, with power cuts under a writer or a disk that refuses writes.

*Power cuts*: a mounted image is shut down and mounted again. The shutdown drops everything
unsynced, as a power cut does (`FS_IOC_SHUTDOWN`); mounting replays the journal. An answer counts
only if the writer had noted it before the shutdown began, because a sync that runs during the
shutdown may falsely succeed.

*Refused writes*: the image is on a device that refuses blocks of records for a while
(`reliability.block_device`), so that an fsync fails as on a failing disk. Another process continues
in the same boot, with or without the contents of the page cache. Then the power is cut.
"""

import ctypes
import fcntl
import functools
import os
import pickle
import shutil
import signal
import struct
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from streamlog.fs import local
from streamlog.fs.local import LocalFileSystem
from streamlog.records.batch import check_crc, scan_batches
from tests.programs.reliability import scratch
from tests.programs.reliability.block_device import BLOCK_SIZE, DEVICE, BlockDevice, block_device
from tests.programs.reliability.history import Cleaned, Crashed, Event, History, Outcome, Retained
from tests.programs.reliability.invariants import Violation
from tests.programs.reliability.kinds.survival import (
    FIRST_LIFE,
    SECOND_LIFE,
    THIRD_LIFE,
    Case,
    go_on,
    survive,
)
from tests.programs.reliability.subject import Subject
from tests.programs.reliability.workloads import Workload

FS_IOC_SHUTDOWN: Final = 0x8004587D
JOURNAL_FLUSHED, JOURNAL_LOST = 1, 2
IMAGE_MIB: Final = {"ext4": 64, "xfs": 320}  # minimum of mkfs
CUTS: Final = 6  # per workload
ROUNDS: Final = 40  # upper bound of rounds before the power cut
PAGE: Final = 4096
WRITE_AND_WAIT: Final = 7  # all flags of sync_file_range


def missing(kind: str) -> str | None:
    """Return what this machine lacks for an image with such a file system, None for nothing."""
    if os.geteuid() != 0:
        return "root, to mount images"
    if shutil.which(f"mkfs.{kind}") is None:
        package = "xfsprogs" if kind == "xfs" else "e2fsprogs"
        return f"mkfs.{kind} (apt-get install {package})"
    if not os.path.exists("/dev/loop-control"):
        return "loop devices"
    try:
        with mounted(kind):
            return None
    except subprocess.CalledProcessError as error:
        return f"mounting {kind}: {error.stderr.decode(errors='replace').strip()}"


def missing_below(kind: str) -> str | None:
    """Return what this machine lacks for such a file system on a disk that refuses writes."""
    if not os.path.exists(DEVICE):
        return f"{DEVICE}, to serve the disk by FUSE"
    try:
        with _served(kind):
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        return missing(kind) or f"serving a disk for {kind}: {error}"


def power_cuts(kind: str) -> Callable[[Workload, Random], Iterator[Case]]:
    """Return the kind of fault for a file system."""

    def run(workload: Workload, random: Random) -> Iterator[Case]:
        with mounted(kind) as disk:
            for number in range(CUTS):
                flag = random.choice((JOURNAL_FLUSHED, JOURNAL_LOST))
                before = _work_until_cut(disk, workload, number, flag, random)
                found = in_child(functools.partial(_survive, disk, before, number))
                shutil.rmtree(disk.root, ignore_errors=True)
                os.sync()  # else the next power cut may undo part of the removal
                what = "kept" if flag == JOURNAL_FLUSHED else "lost"
                yield Case(f"power cut {number} of {kind}, the journal {what}", found)

    return run


def refused_writes(kind: str) -> Callable[[Workload, Random], Iterator[Case]]:
    """Return the kind of fault for a file system."""

    def run(workload: Workload, random: Random) -> Iterator[Case]:
        with _served(kind) as (disk, device):
            for number in range(CUTS):
                before = _work_until_refused(disk, device, workload, number, random)
                drops_cache = random.random() < 0.5
                go_on = functools.partial(
                    _go_on_and_flush, disk, before, number, drops_cache=drops_cache
                )
                history, found = in_child(go_on)
                disk.cut_power(random.choice((JOURNAL_FLUSHED, JOURNAL_LOST)))
                disk.unmount()
                disk.mount()
                history.append(Crashed(lost_power=True))
                found += in_child(
                    functools.partial(_survive, disk, history, number, life=THIRD_LIFE)
                )
                shutil.rmtree(disk.root, ignore_errors=True)
                os.sync()
                cache = "dropped" if drops_cache else "kept"
                what = f"{device.refused} writes to {kind} refused so far, the cache {cache}"
                yield Case(f"round {number}: {what}, a power cut", found)

    return run


class Disk:
    """A mounted image; the file and the mount point are below one directory."""

    def __init__(self, place: Path, image: Path) -> None:
        self.image, self.mount_point = image, place / "mounted"
        self.root = f"{self.mount_point}/logs"
        self.diary = place / "diary"

    def mount(self) -> None:
        """Mount the image, which replays its journal."""
        _run("mount", "-o", "loop", str(self.image), str(self.mount_point))

    def unmount(self) -> None:
        _run("umount", str(self.mount_point))

    def cut_power(self, flag: int) -> None:
        """Drop all unsynced data; every later call on the file system fails."""
        directory = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, FS_IOC_SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(directory)


@contextmanager
def mounted(kind: str, *, mib: int = 0) -> Iterator[Disk]:
    """Create a file system on an image of `mib` MiB and mount it; 0: the minimum size."""
    with scratch.place() as place:
        image = place / "image"
        with image.open("wb") as file:
            file.truncate((mib or IMAGE_MIB[kind]) << 20)
        with _file_system(kind, Disk(place, image)) as disk:
            yield disk


@contextmanager
def _served(kind: str) -> Iterator[tuple[Disk, BlockDevice]]:
    with scratch.place() as place:
        directory = place / "device"
        directory.mkdir()
        # Compile now, not while the kernel waits for an answer.
        holds_records(memoryview(bytes(BLOCK_SIZE)))
        with (
            block_device(directory, IMAGE_MIB[kind] << 20, holds_records) as device,
            _file_system(kind, Disk(place, device.path)) as disk,
        ):
            yield disk, device


@contextmanager
def _file_system(kind: str, disk: Disk) -> Iterator[Disk]:
    """Create a file system on an image and mount it."""
    disk.mount_point.mkdir()
    _run(f"mkfs.{kind}", "-q", str(disk.image))
    disk.mount()
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk.mount_point)], check=False, capture_output=True)


def holds_records(block: memoryview) -> bool:
    """Return whether a block of the disk begins with a sound record batch."""
    scan = scan_batches(block)
    return len(scan.table) > 0 and check_crc(block, scan.table) > 0


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


# ---- the writer --------------------------------------------------------------------------------
class _Diary(list[Event]):
    """A history that is written to a file event by event."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = os.open(path, os.O_WRONLY)

    def append(self, event: Event) -> None:
        super().append(event)
        os.write(self._descriptor, pickle.dumps(event))


def _work_until_cut(
    disk: Disk, workload: Workload, number: int, flag: int, random: Random
) -> History:
    seed = random.randrange(1 << 30)
    disk.diary.write_bytes(b"")  # the power may fail before the writer creates the file
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            scratch.die_with(parent)
            _work(disk, workload, number, Random(seed))
        finally:
            os._exit(0)
    deadline = time.monotonic() + random.uniform(0.02, 0.4)
    while time.monotonic() < deadline:
        time.sleep(0.005)
    noted = disk.diary.stat().st_size  # read before the cut, see the module's docstring
    disk.cut_power(flag)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    disk.unmount()
    disk.mount()
    return _read_diary(disk.diary, noted)


def _work_until_refused(
    disk: Disk, device: BlockDevice, workload: Workload, number: int, random: Random
) -> History:
    disk.diary.write_bytes(b"")
    in_child(functools.partial(_work_on, disk, device, workload, number, random.randrange(99)))
    device.refuse(False)
    return _read_diary(disk.diary, disk.diary.stat().st_size)


def _work_on(disk: Disk, device: BlockDevice, workload: Workload, number: int, at: int) -> None:
    """Perform a workload and flush; from a random operation on, the disk refuses records."""
    local._boot_id = f"boot-{number}"
    subject = Subject(LocalFileSystem(), _Diary(disk.diary), life=FIRST_LIFE, root=disk.root)
    operations = [*workload.operations, "flush"]
    for position, operation in enumerate(operations):
        if position == at % len(operations):
            device.refuse(True)
        subject.perform(operation)


def _work(disk: Disk, workload: Workload, number: int, random: Random) -> None:
    local._boot_id = f"boot-{number}"
    subject = Subject(LocalFileSystem(), _Diary(disk.diary), life=FIRST_LIFE, root=disk.root)
    for _ in range(ROUNDS):
        for operation in workload.operations:
            subject.perform(operation)
            if random.random() < 0.3:
                _write_back_early(disk.root, random)


def _write_back_early(root: str, random: Random) -> None:
    """Have the kernel write some pages of one log, so that others are missing after the cut."""
    path = random.choice([*Path(root).glob("*/*.log")])
    pages = path.stat().st_size // PAGE + 1
    descriptor = os.open(path, os.O_RDWR)
    start = random.randrange(pages) * PAGE
    libc = ctypes.CDLL(None)
    libc.sync_file_range(descriptor, ctypes.c_int64(start), ctypes.c_int64(PAGE), WRITE_AND_WAIT)
    os.close(descriptor)


def _read_diary(path: Path, noted: int) -> History:
    """Return the acknowledged events before the cut, and the attempts since then."""
    history: History = []
    with path.open("rb") as file:
        while True:
            try:
                event = pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                break  # the kill truncated the last entry
            is_told = file.tell() <= noted
            is_tried = getattr(event, "outcome", None) is Outcome.UNKNOWN
            if is_told or is_tried or isinstance(event, Cleaned | Retained):
                history.append(event)
    return [*history, Crashed(lost_power=True)]


def _go_on_and_flush(
    disk: Disk, before: History, number: int, *, drops_cache: bool
) -> tuple[History, list[Violation]]:
    """Let another process of the same boot continue; unsynced data may be missing."""
    local._boot_id = f"boot-{number}"
    if drops_cache:
        for path in Path(disk.root).rglob("*.log"):
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    history = list(before)
    life = SECOND_LIFE
    found = go_on(LocalFileSystem(), history, life=life, root=disk.root, finally_do=("flush",))
    return history, found


# ---- who comes after ---------------------------------------------------------------------------
def _survive(
    disk: Disk, before: History, number: int, *, life: int = SECOND_LIFE
) -> list[Violation]:
    local._boot_id = f"boot-{number}-after"
    return survive(LocalFileSystem(), before, life=life, root=disk.root)


def in_child(work: Callable[[], Any]) -> Any:
    """Return the result of a function that runs in a forked child, which closes all its files."""
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            scratch.die_with(parent)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(_outcome(work))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        raise ChildProcessError(f"the process after a power cut ended with status {status}")
    outcome = pickle.loads(answer)
    if isinstance(outcome, str):
        raise ChildProcessError(outcome)
    return outcome


def _outcome(work: Callable[[], Any]) -> bytes:
    """Return the pickled result of a function, or the traceback of its error."""
    try:
        return pickle.dumps(work())
    except Exception:  # noqa: BLE001 - told by whoever waits for it
        return pickle.dumps(traceback.format_exc())
