"""The high watermark of one of several replicas: what a writer adopts, and what a reader sees.

It stands in the lock file's state, which each raise replaces, and in the root's
`replication-offset-checkpoint`, which follows with the recovery point. The state counts within one
boot. After a reboot the lower of the two counts: either may be old, and the checkpoint has no
checksum. A high watermark that is too low costs nothing but time, since the leader raises it again.
"""

from collections.abc import Callable
from typing import Final

from streamlog.errors import CorruptDataError
from streamlog.fs.log_root import HIGH_WATERMARK_CHECKPOINT, LogRoot
from streamlog.partition import checkpoints
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.locks import SharedState, look_at_state
from streamlog.topic import TopicPartition

__all__ = ["SeenHighWatermark", "adopted_high_watermark"]

_ATTEMPTS: Final = 3  # at reading a state while its writer replaces it


def adopted_high_watermark(
    state: SharedState | None, boot_id: str, checkpointed: Callable[[], int | None]
) -> int:
    """Return the high watermark to go on with; the caller keeps it within the log.

    Args:
        state: The state in the lock file, also where its writer died: what was committed stays
            committed.
        boot_id: Of this boot.
        checkpointed: Returns that of the checkpoint, None if unknown.
    """
    if state is not None and state.boot_id == boot_id:
        return state.offsets.high_watermark
    known = checkpointed() or 0
    return known if state is None else min(known, state.offsets.high_watermark)


class SeenHighWatermark:
    """The high watermark of a replica, as a reader without the lock sees it.

    It never goes back while the records below it stay. Where they were truncated and replaced,
    the epoch of the last one differs.

    Args:
        root: The log root.
        partition: The partition.

    Attributes:
        offset: The high watermark.
    """

    def __init__(self, root: LogRoot, partition: TopicPartition) -> None:
        self._root, self._partition = root, partition
        self._stamp: tuple[int, int, int] | None = None
        self._checkpointed: int | None = None
        self._epoch: int | None = None  # of the record below `offset`
        self.offset = 0

    @classmethod
    def find(cls, root: LogRoot, partition: TopicPartition) -> "SeenHighWatermark | None":
        """Return that of a partition, None if it is not one of several replicas."""
        if root.fs.stat(root.partition_register(partition)) is None:
            return None
        return cls(root, partition)

    def refresh(self, start: int, end: int, epochs: Callable[[], LeaderEpochCache]) -> None:
        """Look at the files again.

        Args:
            start: The log start.
            end: The log end as it was read before this call.
            epochs: Returns the current leader epochs.
        """
        before = _readable(epochs)  # before the state: a later truncation must show as another
        found = min(self._read(), end)
        if found < self.offset <= end:
            now = _readable(epochs).epoch_for_offset(self.offset - 1)
            if now == self._epoch:
                return
        self.offset = max(start, found)
        self._epoch = before.epoch_for_offset(self.offset - 1)

    def _read(self) -> int:
        state = None
        for _ in range(_ATTEMPTS):
            state = look_at_state(self._root, self._partition)
            if state is not None:
                break
        boot_id = self._root.fs.boot_id()
        return adopted_high_watermark(state, boot_id, self._read_checkpoint)

    def _read_checkpoint(self) -> int | None:
        found = self._root.fs.stat(self._root.checkpoint(HIGH_WATERMARK_CHECKPOINT))
        stamp = None if found is None else (found.mtime_ns, found.inode, found.size)
        if stamp != self._stamp:
            self._checkpointed = checkpoints.read_high_watermarks(self._root).get(self._partition)
            self._stamp = stamp
        return self._checkpointed


def _readable(epochs: Callable[[], LeaderEpochCache]) -> LeaderEpochCache:
    """Return the leader epochs, none where the file is damaged: records stay readable."""
    try:
        return epochs()
    except CorruptDataError:
        return LeaderEpochCache()
