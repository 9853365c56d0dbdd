"""The lock of one partition's maintenance: one process at a time cleans it.

`<root>/.streamlog/locks/<topic>-<partition>.maintenance` (of a topic's name that is too long for
that the front and a hash), held (`flock`) from the first byte that
is read to the last rename. Writers do not wait for it. Taken before the partition's own lock,
never after; who holds that one may try this, without waiting.
"""

from streamlog.clock import Clock
from streamlog.fs.api import FileLock, FileSystem
from streamlog.fs.files import write_lock_holder
from streamlog.fs.names import fitting_name
from streamlog.partition.locks import locks_directory
from streamlog.topic import TopicPartition

__all__ = ["is_being_maintained", "maintenance_lock_path", "try_maintenance_lock"]


def maintenance_lock_path(root: str, partition: TopicPartition) -> str:
    """Return the path of the lock file of a partition's maintenance."""
    return f"{locks_directory(root)}/{fitting_name(str(partition), '.maintenance')}"


def try_maintenance_lock(
    fs: FileSystem, clock: Clock, root: str, partition: TopicPartition
) -> FileLock | None:
    """Take the lock of a partition's maintenance; None while somebody else has it.

    Raises:
        StorageError: The lock file cannot be opened.
    """
    lock = fs.try_lock(maintenance_lock_path(root, partition), shared=False)
    if lock is not None:
        write_lock_holder(lock, now_ms=clock.now_ms(), what="clean")
    return lock


def is_being_maintained(fs: FileSystem, root: str, partition: TopicPartition) -> bool:
    """Tell whether somebody is at a partition's maintenance now.

    Raises:
        StorageError: The lock file cannot be opened.
    """
    path = maintenance_lock_path(root, partition)
    if fs.stat(path) is None:
        return False
    lock = fs.try_lock(path, shared=True)
    if lock is None:
        return True
    lock.release()
    return False
