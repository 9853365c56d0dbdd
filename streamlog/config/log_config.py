"""Settings of topics, under Kafka's own keys; those of log roots are in `server_config`.

Each setting is declared once, as a field of `LogConfig` or `ServerConfig`: its `setting(...)` holds
Kafka's key, type, default, bounds, description, unit, and its names in a broker's file. Reading,
checking, describing and the templates in `conf/` all derive from that.

The effective value of a topic setting comes from the topic's properties, else from the root's
(under the broker's name, such as `log.retention.hours`), else from Kafka's default. The error for
an unknown key suggests the nearest known one; a Kafka key that streamlog does not support is
reported as such.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from streamlog.config.kafka_keys import is_unsupported_topic_key, unsupported_key_error
from streamlog.config.settings import (
    ANY,
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    STRING,
    Setting,
    Synonym,
    at_least,
    between,
    check_settings,
    each_of,
    format_template,
    one_of,
    only,
    setting,
    settings_of,
    text_of,
    unknown_key_error,
)
from streamlog.errors import InvalidConfigError

__all__ = [
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "ConfigValue",
    "LogConfig",
    "broker_synonyms",
    "check_topic_keys",
    "is_own_key",
    "topic_template",
]

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 64 << 20  # `max.message.bytes` is 1 MiB by default

_OWN: Final = "streamlog."
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000

ConfigValue = str | int | float | bool


def _hours(name: str) -> Synonym:
    return Synonym(f"{name}.hours", _HOUR_MS)


def _minutes(name: str) -> Synonym:
    return Synonym(f"{name}.minutes", _MINUTE_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of a topic, with Kafka's defaults and bounds; checked when made.

    Args: one for each key of a topic, `segment_bytes` for `segment.bytes`.

    Raises:
        InvalidConfigError: A value is of the wrong kind or outside its bounds, or
            `min.compaction.lag.ms` is above `max.compaction.lag.ms`.

    Source: org.apache.kafka.storage.internals.log.LogConfig, TopicConfig; Kafka 4.2.
    """

    # fmt: off
    segment_bytes: int = setting(
        "segment.bytes", INT, at_least(1 << 20),
        "A segment rolls before it would exceed this size.",
        default=1 << 30, unit="bytes", broker="log.segment.bytes",
    )
    segment_ms: int = setting(
        "segment.ms", LONG, at_least(1),
        "A segment rolls when a new record is this much later than the segment's first batch.",
        default=7 * 24 * _HOUR_MS, unit="ms", broker=(Synonym("log.roll.ms"), _hours("log.roll")),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms", LONG, at_least(0),
        "Maximum random reduction of segment.ms, so that partitions do not all roll at the same "
        "time.",
        default=0, unit="ms", broker=(Synonym("log.roll.jitter.ms"), _hours("log.roll.jitter")),
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes", INT, at_least(4),
        "A segment rolls when one of its indexes reaches this size.",
        default=10 << 20, unit="bytes", broker="log.index.size.max.bytes",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes", INT, at_least(0),
        "An index gets an entry after this much of the log.",
        default=4096, unit="bytes", broker="log.index.interval.bytes",
    )
    flush_messages: int = setting(
        "flush.messages", LONG, at_least(1),
        "The log is synced after this many records. A power cut can lose records after the last "
        "sync.",
        default=MAX_LONG, unit="records", broker="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        "flush.ms", LONG, at_least(0),
        "The log is synced after this time. A power cut can lose records after the last sync.",
        default=MAX_LONG, unit="ms", broker="log.flush.interval.ms",
    )
    retention_bytes: int = setting(
        "retention.bytes", LONG, ANY,
        "Old segments are deleted while at least this much remains; -1: no limit.",
        default=-1, unit="bytes", broker="log.retention.bytes",
    )
    retention_ms: int = setting(
        "retention.ms", LONG, at_least(-1),
        "Segments are deleted when their newest record is older than this; -1: no limit.",
        default=7 * 24 * _HOUR_MS, unit="ms", broker=(
            Synonym("log.retention.ms"), _minutes("log.retention"), _hours("log.retention"),
        ),
    )
    cleanup_policy: frozenset[str] = setting(
        "cleanup.policy", LIST, each_of("compact", "delete"),
        "Fate of old records: delete removes whole segments according to retention.*, compact "
        "keeps the last record of each key; set both, or leave it empty for neither.",
        default=frozenset({"delete"}), broker="log.cleanup.policy",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", DOUBLE, between(0, 1),
        "Minimum dirty ratio: compaction starts when this share of the log is not compacted yet.",
        default=0.5, broker="log.cleaner.min.cleanable.ratio",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms", LONG, at_least(0),
        "How long compaction keeps tombstones (records without a value).",
        default=24 * _HOUR_MS, unit="ms", broker="log.cleaner.delete.retention.ms",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", LONG, at_least(0),
        "Minimum time that a record stays uncompacted.",
        default=0, unit="ms", broker="log.cleaner.min.compaction.lag.ms",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", LONG, at_least(1),
        "Maximum time that a record stays uncompacted; also rolls segments of compacted topics.",
        default=MAX_LONG, unit="ms", broker="log.cleaner.max.compaction.lag.ms",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms", LONG, at_least(0),
        "How long the files of a deleted segment stay, for readers that still use them.",
        default=60_000, unit="ms", broker="log.segment.delete.delay.ms",
    )
    max_message_bytes: int = setting(
        "max.message.bytes", INT, at_least(0),
        "Maximum size of an appended batch, after compression.",
        default=(1 << 20) + 12, unit="bytes", broker="message.max.bytes",
    )
    streamlog_max_decompressed_bytes: int = setting(
        "streamlog.max.decompressed.bytes", INT, at_least(1),
        "Maximum decompressed size of one compressed batch, for writers and readers; "
        "max.message.bytes if that is larger. (Not a Kafka key.)",
        default=DEFAULT_MAX_DECOMPRESSED_BYTES, unit="bytes",
        broker="streamlog.max.decompressed.bytes",
    )
    compression_type: str = setting(
        "compression.type", STRING,
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "Codec of the topic's batches; producer: the writer's choice.",
        default="producer", broker="compression.type",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level", INT, one_of(-1, *range(1, 10)),
        "gzip level; -1: the library's default.",
        default=-1, broker="compression.gzip.level",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level", INT, between(1, 17),
        "lz4 level.",
        default=9, broker="compression.lz4.level",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", INT, between(-131072, 22),
        "zstd level.",
        default=3, broker="compression.zstd.level",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type", STRING, one_of("CreateTime", "LogAppendTime"),
        "Timestamp of a record: CreateTime is set by the writer, LogAppendTime at the append.",
        default="CreateTime", broker="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", LONG, at_least(0),
        "How far a record's timestamp may lie before the time of the append.",
        default=MAX_LONG, unit="ms", broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", LONG, at_least(0),
        "How far a record's timestamp may lie after the time of the append.",
        default=_HOUR_MS, unit="ms", broker="log.message.timestamp.after.max.ms",
    )
    preallocate: bool = setting(
        "preallocate", BOOLEAN, only("false"),
        "Whether new segments are allocated at full size.",
        default=False, broker="log.preallocate",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas", INT, at_least(1),
        "Number of in-sync replicas without which an append with acks=all is refused; at most the "
        "number of replicas is asked for.",
        default=1, broker="min.insync.replicas",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", BOOLEAN, ANY,
        "Whether an out-of-sync replica may become leader when no replica in sync is online; "
        "acknowledged records can be lost.",
        default=False, broker="unclean.leader.election.enable",
    )
    internal_segment_bytes: int | None = setting(
        "internal.segment.bytes", INT, at_least(1),
        "Replaces segment.bytes without its lower bound, for tests.",
        default=None, unit="bytes",
    )
    # fmt: on

    def __post_init__(self) -> None:
        check_settings(self)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfigError(
                "min.compaction.lag.ms is above max.compaction.lag.ms",
                got=self.min_compaction_lag_ms,
                expected=f"at most {self.max_compaction_lag_ms}",
            )

    @property
    def effective_max_decompressed_bytes(self) -> int:
        """Decompressed size limit of appends: a batch allowed uncompressed may be compressed."""
        return max(self.streamlog_max_decompressed_bytes, self.max_message_bytes)

    @property
    def readable_decompressed_bytes(self) -> int:
        """Decompressed size limit of reads: lowering the setting hides nothing."""
        return max(self.effective_max_decompressed_bytes, DEFAULT_MAX_DECOMPRESSED_BYTES)

    @property
    def effective_segment_bytes(self) -> int:
        """The size a segment may reach: `internal.segment.bytes` if it is set."""
        if self.internal_segment_bytes is None:
            return self.segment_bytes
        return self.internal_segment_bytes

    @property
    def effective_segment_ms(self) -> int:
        """The age at which a segment is rolled: compaction only reaches closed segments."""
        if "compact" in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, ConfigValue], *, path: str | None = None
    ) -> "LogConfig":
        """Return the settings of a topic's properties.

        Args:
            properties: Kafka's topic keys with their values, as text or as Python values.
            path: Where they come from, for errors.

        Raises:
            InvalidConfigError: An unknown or unsupported key, or an invalid value.
        """
        return cls().with_overrides(properties, path=path)

    def with_overrides(
        self, properties: Mapping[str, ConfigValue], *, path: str | None = None
    ) -> "LogConfig":
        """Return these settings with those of `properties` in their place.

        Raises:
            InvalidConfigError: An unknown or unsupported key, or an invalid value.
        """
        check_topic_keys(properties, path=path)
        settings = settings_of(LogConfig)
        changes = {
            settings[key].name: settings[key].parse(value, path=path)
            for key, value in properties.items()
        }
        return replace(self, **changes) if changes else self

    def to_properties(self) -> dict[str, str]:
        """Return every setting under its key, as text; the inverse of `from_properties`."""
        values = {key: getattr(self, each.name) for key, each in settings_of(LogConfig).items()}
        return {key: text_of(value) for key, value in values.items() if value is not None}


# ---- names of other places ------------------------------------------------------------------
@cache
def broker_synonyms() -> Mapping[str, tuple[Setting, Synonym]]:
    """Return the topic settings that a broker's file may set, by their names there."""
    declared = settings_of(LogConfig).values()
    return {synonym.key: (each, synonym) for each in declared for synonym in each.broker}


def is_own_key(key: str) -> bool:
    """Return whether a setting is streamlog's own, unknown to brokers."""
    return key.startswith(_OWN)


def check_topic_keys(keys: Iterable[str], *, path: str | None = None) -> None:
    """Raise an error for a key that is no topic setting.

    Raises:
        InvalidConfigError: Suggests the nearest key, or says that a broker has it.
    """
    for key in keys:
        if key not in settings_of(LogConfig):
            raise _topic_key_error(key, path)


def _topic_key_error(key: str, path: str | None) -> InvalidConfigError:
    if is_unsupported_topic_key(key):
        return unsupported_key_error(key, "a topic's", path)
    if key in broker_synonyms():
        ours = broker_synonyms()[key][0].key
        return InvalidConfigError(
            f"{key} is a root's setting, not a topic's",
            path=path, got=repr(key), expected=ours, hint=f"use {ours}",
        )  # fmt: skip
    return unknown_key_error(key, settings_of(LogConfig), what="topic setting", path=path)


# ---- the template ---------------------------------------------------------------------------
def topic_template() -> str:
    """Return a text with every key of a topic, commented out with Kafka's default."""
    head = (
        "Topic settings with Kafka's defaults. Set them on a new topic with streamlog topics "
        "create TOPIC --config KEY=VALUE; the settings of a topic are stored in "
        "ROOT/.streamlog/topics/TOPIC.properties."
    )
    keys = [each for each in settings_of(LogConfig).items() if each[1].default is not None]
    return format_template(head, keys)
