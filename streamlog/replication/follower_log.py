"""The log of one follower, driven by the process that writes to the leader.

A follower never acts by itself: the leader's writer appends to it under its lock, or copies what
it lacks. A follower whose disk fails is offline and tried again after a while, with a new handle:
nothing is retried on one that failed.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Final

from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.errors import NotLeaderError, StreamLogError
from streamlog.fs.api import Buffer
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.log import Log
from streamlog.partition.reader import LogReader
from streamlog.records.batch import BatchTable
from streamlog.replication.abandoned import note_abandoned
from streamlog.replication.completeness import ReplicaPositions, positions_of
from streamlog.replication.copying import copy_to_follower
from streamlog.replication.follower import Follower
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.leader import Leader
from streamlog.replication.messages import OffsetsForLeaderEpoch

__all__ = ["FollowerLog", "LogPositions"]

FIRST_RETRY_MS: Final = 1_000.0
LONGEST_RETRY_MS: Final = 60_000.0
SETTINGS_STAND_MS: Final = 100.0

_logger = logging.getLogger(__name__)


class LogPositions:
    """The positions of a log as the protocol reads them; see `messages.ReplicaLog`."""

    __slots__ = ("_log",)

    def __init__(self, log: Log | LogReader) -> None:
        self._log = log

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    @property
    def epochs(self) -> LeaderEpochCache:
        """The leader epochs."""
        return self._log.leader_epochs


class FollowerLog:
    """A follower's log: opened when it is first needed, kept in step with the leader's.

    Args:
        node: Its node.
        open_log: Opens the log, which must not lead.
        clock: Measures the time until an offline follower is tried again.

    Attributes:
        node: Its node.
        high_watermark: The one it was last given, -1 if none since it was opened.
        log_start_offset: Its log start then.
    """

    def __init__(self, node: int, open_log: Callable[[], Log], clock: Clock) -> None:
        self.node = node
        self._open_log, self._clock = open_log, clock
        self._log: Log | None = None
        self.high_watermark = self.log_start_offset = -1
        self._matches: int | None = None  # the leader epoch in which its log was truncated to match
        self._later_epoch = self._overruled_epoch = -1
        self._retry_at_ms = 0.0
        self._wait_ms = 0.0
        self._settings: tuple[LogConfig | None, float] = (None, 0.0)

    @property
    def is_due(self) -> bool:
        """Whether it is online, or was offline long enough to be tried again."""
        return self._wait_ms == 0.0 or self._clock.monotonic_ms() >= self._retry_at_ms

    def failed(self) -> None:
        """Record a failure: release the handle, and double the wait before the next try."""
        self._wait_ms = min(LONGEST_RETRY_MS, max(FIRST_RETRY_MS, 2 * self._wait_ms))
        self._retry_at_ms = self._clock.monotonic_ms() + self._wait_ms
        self.close()

    def succeeded(self) -> None:
        """Record that the follower answers."""
        self._wait_ms = 0.0

    def overrule(self) -> None:
        """Record that the later leader epoch in its log or register is not the decided one.

        This happens after an unclean election by a minority of the roots: the others may have
        elected another leader, whose records are truncated now.
        """
        self._overruled_epoch = self._later_epoch

    def positions(self) -> ReplicaPositions:
        """Return the positions of the log, opened if it is not.

        Raises:
            StreamLogError: It cannot be locked or read.
        """
        log = self._opened()
        with log.locked():
            return positions_of(self.node, log)

    # ---- under the follower's lock -------------------------------------------------------------
    def append(
        self,
        leader: Leader,
        source: Log,
        batches: tuple[Buffer, BatchTable] | None,
        *,
        settings: ReplicationSettings,
        check: Callable[[], None],
        max_bytes: int | None,
    ) -> int:
        """Append batches to the log, or copy everything that it lacks; return its log end.

        Args:
            leader: Answers where epochs end, and knows the high watermark.
            source: The leader's log, whose lock this process holds.
            batches: What the leader appended just now; None to copy only.
            settings: The truncation rule.
            check: Called under the follower's lock; raises if another leader was elected.
            max_bytes: How much to copy at most if it lags; None: everything.

        Raises:
            NotLeaderError: Another leader was elected.
            StreamLogError: The follower cannot be locked, read or written.
        """
        log = self._opened()
        self._keep_settings(log, source.config)
        with log.locked():
            check()
            self._check_not_later(log, leader.leader_epoch)
            if self._matches != leader.leader_epoch:
                self._truncate(log, leader, settings)
                self._matches = leader.leader_epoch
            high_watermark = source.high_watermark
            if batches is not None and log.log_end_offset == int(batches[1].base_offset[0]):
                log.append_copied(*batches, sync=True, high_watermark=high_watermark)
            elif log.log_end_offset != source.log_end_offset:
                copy_to_follower(source, log, refresh=_nothing, check=_nothing, max_bytes=max_bytes)
            if log.log_start_offset < source.log_start_offset <= log.log_end_offset:
                log.raise_log_start(source.log_start_offset)
            if log.high_watermark < high_watermark:
                log.raise_high_watermark(high_watermark)
            self.high_watermark = high_watermark
            self.log_start_offset = log.log_start_offset
            return log.log_end_offset

    def _keep_settings(self, log: Log, leaders: LogConfig) -> None:
        """Look at the topic's settings when the leader's have changed, else a few times a second.

        All roots have the same ones, and two `stat` calls for each append take too long.
        """
        at_ms = self._clock.monotonic_ms()
        known, until_ms = self._settings
        if leaders is not known or at_ms >= until_ms:
            log.keep_settings(0.0)
            self._settings = leaders, at_ms + SETTINGS_STAND_MS
        else:
            log.keep_settings(until_ms)

    def catch_up(
        self,
        leader: Leader,
        source: LogReader,
        *,
        settings: ReplicationSettings,
        check: Callable[[], None],
        is_durable: bool,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        """Copy what the log lacks, without the leader's lock; the follower's is held per piece.

        Raises: As `append`.
        """
        log = self._opened()
        with log.locked():
            check()
            self._check_not_later(log, leader.leader_epoch)
            if self._matches != leader.leader_epoch:
                self._truncate(log, leader, settings)
                self._matches = leader.leader_epoch
        copy_to_follower(
            source,
            log,
            refresh=source.refresh,
            check=check,
            is_durable=is_durable,
            on_progress=on_progress,
        )

    def _check_not_later(self, log: Log, leader_epoch: int) -> None:
        """Refuse the writer of a former leader, whose election the root's register has missed.

        Raises:
            NotLeaderError: The log has a later leader epoch.
        """
        latest = log.leader_epochs.latest_epoch
        if latest is None or latest <= leader_epoch or latest == self._overruled_epoch:
            return
        self._later_epoch = latest
        raise NotLeaderError(
            "another leader was elected, and has written to the follower",
            path=log.path,
            got=f"leader epoch {leader_epoch}",
            expected=f"leader epoch {latest}",
        )

    def sync(self) -> None:
        """Sync the log, unless that is done.

        Raises:
            StreamLogError: It cannot be locked or synced.
        """
        log = self._opened()
        with log.locked():
            if log.recovery_point < log.log_end_offset:
                log.sync()

    def _opened(self) -> Log:
        if self._log is None:
            self._log = self._open_log()
            self._matches = None
            self.high_watermark = self.log_start_offset = -1
        return self._log

    def _truncate(self, log: Log, leader: Leader, settings: ReplicationSettings) -> None:
        """Truncate the log to where it agrees with the leader's, by epoch."""
        for epoch, start_offset in log.leader_epochs.entries:
            if epoch > leader.leader_epoch:  # overruled: the leader cannot be asked for its end
                self._truncate_to(log, start_offset, leader.leader_epoch)
                break
        follower = Follower(
            self.node,
            leader.state,
            LogPositions(log),
            settings,
            high_watermark=log.high_watermark,
        )
        while not follower.is_truncated:
            request = follower.request()
            assert isinstance(request, OffsetsForLeaderEpoch), "asks first, by the rule in use"
            step = follower.epoch_answered(leader.offsets_for_leader_epoch(request))
            if step.truncate_to is None:
                break
            self._truncate_to(log, step.truncate_to, leader.leader_epoch)

    def _truncate_to(self, log: Log, offset: int, leader_epoch: int) -> None:
        end = log.log_end_offset
        if offset < log.high_watermark:
            _logger.warning(
                "[%s] committed records are truncated from %s, as after an unclean election: "
                "offsets %d to %d",
                log.topic_partition,
                log.root,
                offset,
                log.high_watermark - 1,
            )
        if offset < end:
            note_abandoned(log.log_root, log, offset, leader_epoch=leader_epoch)
        log.truncate_replica(offset)
        if offset < end:
            _logger.info("[%s] truncated %s to %d", log.topic_partition, log.path, offset)

    def close(self) -> None:
        """Release the log; the next use opens it again."""
        log, self._log = self._log, None
        if log is not None:
            with contextlib.suppress(StreamLogError):
                log.close()


def _nothing() -> None:
    pass
