"""A disk that is full, lies, or is slow, for as long as a block lasts.

What is hit: every `Topic` of this process, and the streamlog sinks of queries that start in the
block, wherever their workers run. Spark's own files and other sinks are not.

    with full_disk():
        job()                     # fails, and says that the disk is full
    job()                         # goes on from the checkpoint
"""

import contextlib
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from streamlog.clock import SystemClock
from streamlog.fs.api import Buffer, FileSystem
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment, Operation
from streamlog.fs.local import LocalFileSystem
from streamlog.testing.frames import hides_helper

__all__ = ["Disk", "current_disk", "failed_fsync", "full_disk", "slow_disk"]
__tracebackhide__ = hides_helper

_SYNCS: Final = ("sync", "sync_directory")


@contextmanager
def full_disk(*, after: int = 0, files: str = "") -> Iterator[None]:
    """Have no room left: a write leaves a part of its bytes and fails with ENOSPC.

        with full_disk(), pytest.raises(DiskFullError):
            orders.append(["one too many"])

    Args:
        after: How many writes there is room for, in each process.
        files: Only files whose path ends like this: `.log`.
    """
    full = Fault(
        at=after + 1,
        operation="pwrite",
        path_suffix=files,
        errno=errno.ENOSPC,
        moment=Moment.TORN,
        is_lasting=True,
    )
    with _installed(Disk((full,))):
        yield


@contextmanager
def failed_fsync(*, after: int = 0, files: str = "") -> Iterator[None]:
    """Have one fsync fail with EIO: what it was to make durable may be lost.

        with failed_fsync(files=".log"), pytest.raises(StorageError):
            orders.append(["perhaps"])

    Args:
        after: How many work before, in each process.
        files: Only files whose path ends like this.
    """
    failed = Fault(at=after + 1, operation="sync", path_suffix=files, errno=errno.EIO)
    with _installed(Disk((failed,))):
        yield


@contextmanager
def slow_disk(delay_ms: float = 200) -> Iterator[None]:
    """Have every fsync take longer.

        with slow_disk(delay_ms=50):
            orders.append(["slowly"])

    Args:
        delay_ms: How much longer.
    """
    with _installed(Disk(delay_ms=delay_ms)):
        yield


class Disk(NamedTuple):
    """What is wrong with a disk; small and picklable.

    Attributes:
        faults: What fails.
        delay_ms: How much longer an fsync takes.
    """

    faults: tuple[Fault, ...] = ()
    delay_ms: float = 0.0

    @property
    def is_deadly(self) -> bool:
        """Whether a process that meets it dies."""
        return any(fault.errno is None for fault in self.faults)

    def file_system(self) -> FileSystem:
        """Return the machine's file system, as it is on such a disk."""
        return FaultyFileSystem(LocalFileSystem(), *self.faults, observe=self._delay)

    def _delay(self, operation: Operation, source: Buffer) -> None:
        del source
        if self.delay_ms and operation.name in _SYNCS:
            SystemClock().sleep_ms(self.delay_ms)


class _Machine:
    """The disk that this process believes in."""

    disk: Disk | None = None


def current_disk() -> FileSystem:
    """Return the machine's file system, with what the block we are in has done to its disk."""
    disk = _Machine.disk
    return LocalFileSystem() if disk is None else disk.file_system()


@contextmanager
def _installed(disk: Disk) -> Iterator[None]:
    before, _Machine.disk = _Machine.disk, disk
    try:
        with _changed_sinks(disk):
            yield
    finally:
        _Machine.disk = before


def _changed_sinks(disk: Disk) -> contextlib.AbstractContextManager[None]:
    """Have sinks use the disk, where there is a Spark to have any."""
    try:
        from streamlog.testing.sinks import DiskSink, changed_sinks
    except ImportError:
        return contextlib.nullcontext()
    return changed_sinks(DiskSink(disk))
