"""What a topic accepts: the one place of the rules for appends, commits and rows of a sink.

| rule | setting |
|---|---|
| a batch is at most this large | `max.message.bytes` |
| an append is at most this large | `segment.bytes` |
| a compressed batch decompresses to at most this much | `streamlog.max.decompressed.bytes` |
| every record has a key | `cleanup.policy` contains compact |
| batches have this codec | `compression.type` |
| CreateTime: timestamp -1, or within bounds around the present | `message.timestamp.*.max.ms` |

The lower bound of timestamps is never below 0. Kafka's producers refuse negative timestamps
(ProducerRecord), and so does its batch builder (MemoryRecordsBuilder.appendWithOffset); its leader
accepts them only in batches that it does not rebuild, as long as `message.timestamp.before.max.ms`
has its default.

Source: org.apache.kafka.storage.internals.log.LogValidator.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.records.layout import COMPRESSION_MASK, MAX_INT64, MIN_INT64
from streamlog.records.record import NO_TIMESTAMP, CompressionType

if TYPE_CHECKING:
    from streamlog.config.log_config import LogConfig

__all__ = ["TimeBounds", "TopicRules"]


class TimeBounds(NamedTuple):
    """The timestamps that a topic accepts at one moment, both ends included; -1 always is."""

    earliest: int
    latest: int

    def outside(self, timestamps: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which timestamps are refused: bool[n] for int64[n]."""
        outside: NDArray[np.bool_] = (timestamps < self.earliest) | (timestamps > self.latest)
        outside &= timestamps != NO_TIMESTAMP
        return outside

    def first_outside(self, timestamps: NDArray[np.int64]) -> int | None:
        """Return the index of the first refused timestamp; None if all are accepted."""
        if len(timestamps) == 0 or (
            self.earliest <= int(timestamps.min()) and int(timestamps.max()) <= self.latest
        ):
            return None  # the usual case, without a mask
        outside = self.outside(timestamps)
        return int(outside.argmax()) if outside.any() else None

    def __str__(self) -> str:
        return (
            f"{self.earliest} to {self.latest} ms (message.timestamp.before.max.ms, "
            "message.timestamp.after.max.ms)"
        )


_ANY_TIME = TimeBounds(MIN_INT64, MAX_INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """What a topic accepts.

    Attributes:
        max_batch_bytes: Size limit of one batch.
        max_append_bytes: Size limit of all batches of an append.
        max_decompressed_bytes: Size limit of a batch once decompressed.
        needs_keys: Whether every record must have a key.
        is_stamped: Whether records get the time of the append (LogAppendTime).
        before_max_ms: How far a timestamp may lie in the past.
        after_max_ms: How far a timestamp may lie in the future.
        compression_type: `compression.type` as it was set.
        codec: The codec of all batches; None: the writer's choice.
        level: The level of that codec; None: the library's default.
    """

    max_batch_bytes: int
    max_append_bytes: int
    max_decompressed_bytes: int
    needs_keys: bool
    is_stamped: bool
    before_max_ms: int
    after_max_ms: int
    compression_type: str
    codec: CompressionType | None
    level: int | None

    @classmethod
    def of(cls, config: "LogConfig") -> "TopicRules":
        """Return the rules that a topic's settings stand for.

        Source of the codec: BrokerCompressionType.targetCompression.
        """
        name = config.compression_type
        levels = {
            "gzip": config.compression_gzip_level,
            "lz4": config.compression_lz4_level,
            "zstd": config.compression_zstd_level,
        }
        return cls(
            max_batch_bytes=config.max_message_bytes,
            max_append_bytes=config.effective_segment_bytes,
            max_decompressed_bytes=config.effective_max_decompressed_bytes,
            needs_keys="compact" in config.cleanup_policy,
            is_stamped=config.message_timestamp_type == "LogAppendTime",
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            compression_type=name,
            codec=None if name == "producer" else CompressionType.of(name),
            level=levels.get(name),
        )

    @property
    def max_record_bytes(self) -> int:
        """Size limit of a batch that is appended alone."""
        return min(self.max_batch_bytes, self.max_append_bytes)

    def times(self, now_ms: int) -> TimeBounds:
        """Return the timestamps accepted at `now_ms`; any where records get the append's time."""
        if self.is_stamped:
            return _ANY_TIME
        return TimeBounds(
            max(0, now_ms - self.before_max_ms), min(MAX_INT64, now_ms + self.after_max_ms)
        )

    def append_time(self, now_ms: int) -> int:
        """Return the time that an append at `now_ms` stamps on records; -1 for none."""
        return now_ms if self.is_stamped else NO_TIMESTAMP

    def codec_for(self, wanted: CompressionType) -> CompressionType:
        """Return the codec of a batch whose writer wants `wanted`."""
        return wanted if self.codec is None else self.codec

    def accepted_codecs(self, attributes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which batches have an accepted codec: bool[b] for the attributes int64[b]."""
        codecs = attributes & COMPRESSION_MASK
        accepted: NDArray[np.bool_] = (
            codecs <= max(CompressionType) if self.codec is None else codecs == self.codec
        )
        return accepted
