"""What an open partition says about itself: offsets, epochs, producers, segments, settings."""

from collections.abc import Mapping

from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.local_log import LocalLog
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.producer_state import ProducerState
from streamlog.partition.segments import Segments

__all__ = ["LogFacts"]


class LogFacts:
    """The facts that a handle knows of its partition, as of its last look; nothing is locked."""

    _log: LocalLog
    _clock: Clock

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._log.config

    @property
    def offsets(self) -> LogOffsets:
        """Log start, high watermark, log end and recovery point, taken together."""
        return self._log.offsets

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._log.offsets.start

    @property
    def log_end_offset(self) -> int:
        """The offset the next record gets, as this handle knows it."""
        return self._log.offsets.end

    @property
    def high_watermark(self) -> int:
        """Up to where records are committed; the log end while a topic has one replica."""
        return self._log.offsets.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open."""
        unstable = self._log.producer_state(self._clock.now_ms()).first_unstable_offset
        return self._log.offsets.stable(unstable)

    @property
    def recovery_point(self) -> int:
        """Everything below it is synced."""
        return self._log.offsets.recovery_point

    @property
    def leader_epoch(self) -> int:
        """The epoch the next batch carries."""
        return self._log.leader_epoch

    @property
    def leader_epochs(self) -> LeaderEpochCache:
        """Which epoch starts where."""
        return self._log.epochs

    @property
    def producers(self) -> Mapping[int, ProducerState]:
        """What is known of each producer, by id."""
        return self._log.producer_state(self._clock.now_ms()).producers

    @property
    def segments(self) -> Segments:
        """The segments as of now; the list never changes, a newer one replaces it."""
        return self._log.segments

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._log.segments.size
