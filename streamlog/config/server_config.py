"""Settings of log roots, and the defaults these have for their topics, under a broker's keys.

Declared like those of topics, see `streamlog.config.log_config`. A key in a root's file is one of
its own or a broker's name for a topic's setting (`log.retention.hours`); where several keys set the
same value, the finest unit wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from streamlog.config.kafka_keys import is_unsupported_broker_key, unsupported_key_error
from streamlog.config.log_config import ConfigValue, LogConfig, broker_synonyms
from streamlog.config.settings import (
    ANY,
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    at_least,
    between,
    check_settings,
    format_template,
    setting,
    settings_of,
    text_of,
    unknown_key_error,
)
from streamlog.errors import InvalidConfigError

__all__ = ["ConfigEntry", "ConfigSource", "ServerConfig", "server_template"]

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_NO_LIMIT: Final = 1.7976931348623157e308  # java.lang.Double.MAX_VALUE


class ConfigSource(Enum):
    """Where a setting in force comes from; each gives way to those before it."""

    TOPIC = "topic"
    SERVER = "server"
    DEFAULT = "default"


class ConfigEntry(NamedTuple):
    """A setting in force, as text, and where it comes from."""

    key: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of a log root, and the defaults it has for its topics; checked when made.

    Args:
        num_partitions: Of topics made without a number.
        auto_create_topics_enable: Whether writing to a missing topic makes it.
        producer_id_expiration_ms: When an idle producer's sequence is forgotten.
        log_retention_check_interval_ms: How often maintenance looks for what may go.
        log_cleaner_enable: Whether maintenance compacts.
        log_cleaner_backoff_ms: How often it looks for what may be compacted.
        log_cleaner_dedupe_buffer_size: Memory for the keys of one round of compaction.
        log_cleaner_io_buffer_load_factor: How full that may get.
        log_cleaner_io_max_bytes_per_second: How fast compaction reads and writes.
        offsets_retention_minutes: When a reader that is silent counts no more.
        streamlog_lock_timeout_ms: How long a writer waits for another one.
        streamlog_readers_max_bytes: How much of a partition readers may hold back; -1: no limit.
        topic_defaults: Topic keys that the root sets, as text.

    Raises:
        InvalidConfigError: A value is of the wrong kind or outside its bounds.

    Source: org.apache.kafka.server.config.ServerConfigs, ServerLogConfigs; Kafka 4.2.
    """

    # fmt: off
    num_partitions: int = setting(
        "num.partitions", INT, at_least(1),
        "How many partitions a topic gets that is made without saying so.",
        default=1,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", BOOLEAN, ANY,
        "Whether writing to a missing topic makes it (Kafka's default is true).",
        default=False,
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", INT, at_least(1),
        "How long after its last append a producer's sequence is remembered.",
        default=24 * _HOUR_MS, unit="ms",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", LONG, at_least(1),
        "How often maintenance between triggers looks for records that may go.",
        default=5 * _MINUTE_MS, unit="ms",
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", BOOLEAN, ANY,
        "Whether maintenance compacts topics whose cleanup.policy has compact.",
        default=True,
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", LONG, at_least(0),
        "How often maintenance between triggers looks for topics to compact.",
        default=15_000, unit="ms",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", LONG, at_least(1 << 20),
        "Memory for the keys of one round of compaction; more keys take more rounds.",
        default=128 << 20, unit="bytes",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", DOUBLE, between(0, 1),
        "How full that memory may get: the fuller, the slower is a search in it.",
        default=0.9,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, at_least(0),
        "How fast compaction reads and writes at most.",
        default=_NO_LIMIT, unit="bytes per second",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", INT, at_least(1),
        "A reader that has not moved for this long counts no more: nothing is kept for it.",
        default=7 * 24 * 60, unit="minutes",
    )
    streamlog_lock_timeout_ms: int = setting(
        "streamlog.lock.timeout.ms", LONG, at_least(0),
        "How long a writer waits for a lock that another one holds, a partition's or that of the "
        "commits of an app. Spark's writers have an option of their own. (Not a key of Kafka's.)",
        default=30_000, unit="ms",
    )
    streamlog_readers_max_bytes: int = setting(
        "streamlog.readers.max.bytes", LONG, at_least(-1),
        "How many bytes of a partition recorded readers may keep from being deleted, counted from "
        "the log end; -1: no limit. (Not a key of Kafka's.)",
        default=-1, unit="bytes",
    )
    # fmt: on
    topic_defaults: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_settings(self)
        LogConfig.from_properties(self.topic_defaults)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, ConfigValue], *, path: str | None = None
    ) -> "ServerConfig":
        """Return the settings that a root's properties stand for.

        Args:
            properties: Kafka's broker keys with their values, as text or as Python values.
            path: Where they come from, for errors.

        Raises:
            InvalidConfigError: An unknown or unsupported key, or an impossible value.
        """
        own = settings_of(ServerConfig)
        for key in properties:
            if key not in own and key not in broker_synonyms():
                raise _server_key_error(key, path)
        changes = {
            own[key].name: own[key].parse(value, path=path)
            for key, value in properties.items()
            if key in own
        }
        return cls(topic_defaults=_topic_defaults(properties, path), **changes)

    def to_properties(self) -> dict[str, str]:
        """Return the settings under their keys, as text; `from_properties` takes it back."""
        own = {key: getattr(self, each.name) for key, each in settings_of(ServerConfig).items()}
        properties = {key: text_of(value) for key, value in own.items()}
        for key, value in self.topic_defaults.items():
            properties[settings_of(LogConfig)[key].broker[0].key] = value
        return properties

    def log_config(
        self, properties: Mapping[str, ConfigValue], *, path: str | None = None
    ) -> LogConfig:
        """Return what is in force for a topic: its own settings over the root's over Kafka's.

        Args:
            properties: The topic's own settings.
            path: Where they come from, for errors.

        Raises:
            InvalidConfigError: An unknown or unsupported key, or an impossible value.
        """
        return LogConfig.from_properties({**self.topic_defaults, **properties}, path=path)

    def describe(self, properties: Mapping[str, ConfigValue]) -> list[ConfigEntry]:
        """Return every setting in force for a topic with its source, sorted by key.

        Args:
            properties: The topic's own settings.

        Raises:
            InvalidConfigError: An unknown or unsupported key, or an impossible value.
        """
        entries = []
        for key, value in sorted(self.log_config(properties).to_properties().items()):
            source = ConfigSource.DEFAULT
            if key in properties:
                source = ConfigSource.TOPIC
            elif key in self.topic_defaults:
                source = ConfigSource.SERVER
            entries.append(ConfigEntry(key, value, source))
        return entries


def _server_key_error(key: str, path: str | None) -> InvalidConfigError:
    if is_unsupported_broker_key(key):
        return unsupported_key_error(key, "a broker's", path)
    topic_settings = settings_of(LogConfig)
    if key in topic_settings and topic_settings[key].broker:
        theirs = topic_settings[key].broker[0].key
        return InvalidConfigError(
            f"{key} is a topic's setting, not a root's",
            path=path, got=repr(key), expected=theirs, hint=f"use {theirs}",
        )  # fmt: skip
    known = {**settings_of(ServerConfig), **broker_synonyms()}
    return unknown_key_error(key, known, what="root setting", path=path)


def _topic_defaults(properties: Mapping[str, ConfigValue], path: str | None) -> dict[str, str]:
    """Return the topic keys that broker keys set; of several for one the finest unit counts."""
    defaults = {}
    for key, each in settings_of(LogConfig).items():
        for synonym in reversed(each.broker):
            if synonym.key in properties:
                value = each.parse(properties[synonym.key], factor=synonym.factor, path=path)
                defaults[key] = text_of(value)
    return defaults


# ---- templates ------------------------------------------------------------------------------
def server_template() -> str:
    """Return the text of a new root's `server.properties`: every key, commented out."""
    head = (
        "Settings of this log root, and the defaults it has for its topics, under the names that "
        "Kafka's brokers use. Kafka's defaults are shown; take a # away to change one. A topic's "
        "own settings come first: streamlog topics describe TOPIC shows what is in force."
    )
    own = settings_of(ServerConfig).items()
    topics = [
        (key, each) for key, (each, synonym) in broker_synonyms().items() if synonym.factor == 1
    ]
    return format_template(head, [*own, *topics])
