"""A disk that is full, fails or is slow for the duration of a block.

This affects every `Topic` of this process and the streamlog sinks of queries started in the block,
including their workers. It does not affect Spark's own files or other sinks.

    with full_disk():
        job()                     # fails with DiskFullError
    job()                         # continues from the checkpoint
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
    """Fill the disk: a write stores part of its bytes and fails with ENOSPC.

        with full_disk(), pytest.raises(DiskFullError):
            orders.append(["one too many"])

    Args:
        after: Number of successful writes before, per process.
        files: Affect only paths with this suffix, such as `.log`.
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
    """Make one fsync fail with EIO; the unsynced data may be lost.

        with failed_fsync(files=".log"), pytest.raises(StorageError):
            orders.append(["perhaps"])

    Args:
        after: Number of successful fsyncs before, per process.
        files: Affect only paths with this suffix.
    """
    failed = Fault(at=after + 1, operation="sync", path_suffix=files, errno=errno.EIO)
    with _installed(disk_with(failed)):
        yield


@contextmanager
def slow_disk(delay_ms: float = 200) -> Iterator[None]:
    """Delay every fsync.

        with slow_disk(delay_ms=50):
            orders.append(["slowly"])

    Args:
        delay_ms: The delay in milliseconds.
    """
    with _installed(disk_with(delay_ms=delay_ms)):
        yield


def disk_with(*faults: Fault, delay_ms: float = 0.0) -> DiskFactory:
    """Return a factory of the local file system with faults; picklable, as Spark requires.

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
    """The disk of this process during a block; None: the real disk."""

    disk: DiskFactory | None = None


def current_disk() -> FileSystem:
    """Return the local file system with the faults of the enclosing block."""
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
    except ImportError:  # without pyspark only `Topic`s use the disk
        return nullcontext()
    return changed_sinks(DiskSink(disk))
