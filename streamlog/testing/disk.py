"""A disk that is full, lies, or is slow, for as long as a block lasts.

What is hit: every `Topic` of this process, and the streamlog sinks of queries that start in the
block, wherever their workers run. Spark's own files and other sinks are not.

    with full_disk():
        job()                     # fails, and says that the disk is full
    job()                         # goes on from the checkpoint
"""

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final

from streamlog.clock import SystemClock
from streamlog.fs.api import Buffer, FileSystem
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment, Operation
from streamlog.fs.local import LocalFileSystem
from streamlog.testing.frames import hides_helper
from streamlog.testing.queries import DiskFactory

__all__ = ["current_disk", "disk_with", "failed_fsync", "full_disk", "slow_disk"]
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
    with _installed(disk_with(full)):
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
    with _installed(disk_with(failed)):
        yield


@contextmanager
def slow_disk(delay_ms: float = 200) -> Iterator[None]:
    """Have every fsync take longer.

        with slow_disk(delay_ms=50):
            orders.append(["slowly"])

    Args:
        delay_ms: How much longer.
    """
    with _installed(disk_with(delay_ms=delay_ms)):
        yield


def disk_with(*faults: Fault, delay_ms: float = 0.0) -> DiskFactory:
    """Return what makes the machine's file system with faults; picklable, as Spark needs it.

    Args:
        *faults: The operations that fail.
        delay_ms: Added to each fsync, in milliseconds.
    """
    return partial(_faulty_file_system, faults, delay_ms)


def _faulty_file_system(faults: tuple[Fault, ...], delay_ms: float) -> FileSystem:
    def delay(operation: Operation, source: Buffer) -> None:
        del source
        if delay_ms and operation.name in _SYNCS:
            SystemClock().sleep_ms(delay_ms)

    return FaultyFileSystem(LocalFileSystem(), *faults, observe=delay)


class _Machine:
    """The disk of this process while a block lasts; None: the real one."""

    disk: DiskFactory | None = None


def current_disk() -> FileSystem:
    """Return the machine's file system, with the faults of the enclosing block."""
    return LocalFileSystem() if _Machine.disk is None else _Machine.disk()


@contextmanager
def _installed(disk: DiskFactory) -> Iterator[None]:
    before, _Machine.disk = _Machine.disk, disk
    try:
        with _changed_sinks(disk):
            yield
    finally:
        _Machine.disk = before


def _changed_sinks(disk: DiskFactory) -> AbstractContextManager[None]:
    """Put the sinks on the disk if Spark is installed."""
    try:
        from streamlog.testing.sinks import DiskSink, changed_sinks
    except ImportError:  # no pyspark: only a `Topic` can meet the disk
        return nullcontext()
    return changed_sinks(DiskSink(disk))
