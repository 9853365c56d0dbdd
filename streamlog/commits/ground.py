"""What a decision stands on: files of Spark's, and the bytes below its first offset.

A decision may stand only on bytes that are synced or decided. On others, a power cut could take
the records below its offsets while the decision stays, and those offsets would never be filled.
"""

from collections.abc import Iterable

from streamlog.commits.pending import PendingDecisions
from streamlog.commits.standing import Standing
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.partition.log import Log

__all__ = ["make_ground_sure", "sync_paths"]


def sync_paths(fs: FileSystem, paths: Iterable[str]) -> None:
    """Make files and directories durable that somebody else wrote.

    Raises:
        StorageError: One is missing, or the disk refuses.
    """
    for path in paths:
        found = fs.stat(path)
        if found is not None and found.kind is FileKind.DIRECTORY:
            fs.sync_directory(path)
        else:
            with fs.open(path, OpenMode.READ) as file:
                file.sync()


def make_ground_sure(log: Log, standing: Standing, pending: PendingDecisions) -> None:
    """Sync a log unless its end lies on bytes that are synced or decided.

    Args:
        log: The partition, within `writing`.
        standing: Where the app stands that is going to decide.
        pending: The decisions of the root: another app's may end where the log does.

    Raises:
        CorruptCheckpointError: A decision cannot be read.
        UnavailableError: The disk refuses.
    """
    if log.recovery_point >= log.log_end_offset:
        return
    ground = log.topic_partition, log.topic_id, log.log_end_offset
    if standing.has_decided_up_to(*ground):
        return
    if any(decision.standing.has_decided_up_to(*ground) for decision in pending.newest()):
        return
    log.flush()
