"""The log cleaner: finds the dirty part of a partition and cleans it.

    cleaner = LogCleaner(manager)
    if cleaner.cleanable(partition).is_due:
        report = cleaner.clean(partition, should_pause=budget.is_spent)
        if report is None: ...              # another process is cleaning it
        elif not report.is_finished: ...    # paused: the next call continues

`streamlog.maintenance` decides which partitions of a root are cleaned, and when.

Source: org.apache.kafka.storage.internals.log.LogCleaner.
"""

import logging
import random as random_module
from collections.abc import Callable

from streamlog.cleaner.choosing import Cleanable, find_cleanable
from streamlog.cleaner.offset_map import OffsetMap
from streamlog.cleaner.round import CleaningRound, CleanReport, Throttle
from streamlog.errors import CorruptDataError, InvalidRecordError, StreamLogError
from streamlog.fs.api import FileLock
from streamlog.partition.checkpoints import read_cleaner_offsets
from streamlog.partition.locks import try_maintenance_lock
from streamlog.records.layout import MAX_INT64
from streamlog.root.manager import LogManager
from streamlog.topic import TopicPartition

__all__ = ["CleanReport", "Cleanable", "LogCleaner"]

_logger = logging.getLogger(__name__)


def never() -> bool:
    """Never pause."""
    return False


class LogCleaner:
    """Keeps the last record of each key, in topics whose `cleanup.policy` has compact.

    Not thread-safe. Close it, or use it as a context manager: a paused round holds the maintenance
    lock of its partition.

    Args:
        manager: The root, open.
        random: For the key of the hash, which must not be guessable; the system's by default.

    Attributes:
        uncleanable: Partitions that this cleaner does not clean again, with the damage found.
    """

    def __init__(self, manager: LogManager, *, random: random_module.Random | None = None) -> None:
        self._manager, self._fs, self._clock = manager, manager.fs, manager.clock
        self._random = random or random_module.SystemRandom()
        self._paused: tuple[CleaningRound, FileLock] | None = None
        self.uncleanable: dict[TopicPartition, StreamLogError] = {}

    @property
    def paused(self) -> TopicPartition | None:
        """The partition whose round is paused, None without one."""
        return None if self._paused is None else self._paused[0].report.topic_partition

    # ---- choosing ----------------------------------------------------------------------------
    def cleanable(self, partition: TopicPartition, *, held_from: int = MAX_INT64) -> Cleanable:
        """Return the part of a partition that can be cleaned, and whether it is due.

        Args:
            partition: The partition, of any `cleanup.policy`.
            held_from: Recorded readers need all records from this offset on.

        Raises:
            StreamLogError: The partition cannot be opened or read.
        """
        log = self._manager.local_log(*partition)
        log.catch_up()
        return find_cleanable(
            log,
            read_cleaner_offsets(self._manager.log_root).get(partition),
            config=log.config,
            now_ms=self._clock.now_ms(),
            held_from=held_from,
        )

    # ---- cleaning ----------------------------------------------------------------------------
    def clean(
        self,
        partition: TopicPartition,
        *,
        held_from: int = MAX_INT64,
        should_pause: Callable[[], bool] = never,
    ) -> CleanReport | None:
        """Clean a partition, due or not; continue a round of it that was paused.

        A paused round of another partition is given up first.

        Args:
            partition: The partition.
            held_from: Recorded readers need all records from this offset on.
            should_pause: Called after each step of a few milliseconds.

        Returns:
            The work done so far; None while another process maintains this partition.

        Raises:
            CorruptDataError: A batch is damaged; this cleaner does not clean the partition again.
            UnavailableError: A segment was deleted meanwhile, or a file operation failed: nothing
                is lost, and the next call starts over.

        Source: LogCleaner.CleanerThread.cleanLog.
        """
        if self._paused is not None and self._paused[0].report.topic_partition != partition:
            self.close()
        if self._paused is None:
            lock = try_maintenance_lock(self._manager.log_root, partition)
            if lock is None:
                return None
            try:
                self._paused = self._begin(partition, held_from), lock
            except BaseException:
                lock.release()
                raise
        try:
            report = self._paused[0].go_on(should_pause)
        except (CorruptDataError, InvalidRecordError) as error:
            self.uncleanable[partition] = error
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        if report.is_finished:
            self.close()
        return report

    def _begin(self, partition: TopicPartition, held_from: int) -> CleaningRound:
        config = self._manager.server_config
        cleanable = self.cleanable(partition, held_from=held_from)
        offset_map = OffsetMap(
            memory=config.log_cleaner_dedupe_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            random=self._random,
        )
        throttle = Throttle(self._clock, config.log_cleaner_io_max_bytes_per_second)
        return CleaningRound(
            self._manager.log_root,
            self._manager.local_log(*partition),
            cleanable,
            offset_map=offset_map,
            throttle=throttle,
        )

    def close(self) -> None:
        """Give up a paused round; segments that it has replaced stay replaced."""
        paused, self._paused = self._paused, None
        if paused is not None:
            paused[1].release()

    def __enter__(self) -> "LogCleaner":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
