"""Settings of log roots and their defaults for topics, under a broker's keys.

They are declared like topic settings, see `streamlog.config.log_config`. A key in a root's file is
a root setting or a broker's name for a topic setting (`log.retention.hours`). If several keys set
the same value, the one with the finest unit wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple

from streamlog.config.kafka_keys import is_unsupported_broker_key, unsupported_key_error
from streamlog.config.log_config import ConfigValue, LogConfig, broker_synonyms
from streamlog.config.serve_config import ServeConfig
from streamlog.config.settings import (
    ANY,
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    Setting,
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

__all__ = ["ConfigEntry", "ConfigSource", "ServerConfig", "root_settings", "server_template"]

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_NO_LIMIT: Final = 1.7976931348623157e308  # java.lang.Double.MAX_VALUE


class ConfigSource(Enum):
    """Origin of an effective setting; each is overridden by those listed before it."""

    TOPIC = "topic"
    SERVER = "server"
    DEFAULT = "default"


class ConfigEntry(NamedTuple):
    """An effective setting, as text, and its origin."""

    key: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of a log root and its defaults for topics; checked on creation.

    There is an argument for each key of a root: `num_partitions` for `num.partitions`. `serve` are
    the settings of `streamlog serve`, `topic_defaults` the topic keys that the root sets, as text.

    Raises:
        InvalidConfigError: A value has the wrong type or is out of bounds.

    Source: org.apache.kafka.server.config.ServerConfigs, ServerLogConfigs; Kafka 4.2.
    """

    # fmt: off
    num_partitions: int = setting(
        "num.partitions", INT, at_least(1),
        "Number of partitions of a topic that is created without a number.",
        default=1,
    )
    default_replication_factor: int = setting(
        "default.replication.factor", INT, between(1, 32767),
        "Number of replicas of a topic that is created without a number; each takes a log root.",
        default=1,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", BOOLEAN, ANY,
        "Whether writing to a missing topic creates it (Kafka's default is true).",
        default=False,
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", INT, at_least(1),
        "How long the sequence of a producer is kept after its last append.",
        default=24 * _HOUR_MS, unit="ms",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", LONG, at_least(1),
        "Interval at which maintenance between triggers checks for records to delete.",
        default=5 * _MINUTE_MS, unit="ms",
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", BOOLEAN, ANY,
        "Whether maintenance compacts topics whose cleanup.policy contains compact.",
        default=True,
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", LONG, at_least(0),
        "Interval at which maintenance between triggers checks for topics to compact.",
        default=15_000, unit="ms",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", LONG, at_least(1 << 20),
        "Memory for the keys of one compaction round; more keys take more rounds.",
        default=128 << 20, unit="bytes",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", DOUBLE, between(0, 1),
        "Maximum fill ratio of that memory; a higher ratio makes lookups slower.",
        default=0.9,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, at_least(0),
        "Maximum rate at which compaction reads and writes.",
        default=_NO_LIMIT, unit="bytes per second",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", INT, at_least(1),
        "A reader that has not advanced for this long expires: maintenance keeps nothing for it. "
        "So do the committed offsets of a group without members.",
        default=7 * 24 * 60, unit="minutes",
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms", LONG, at_least(0),
        "A follower that has not caught up with its leader for this long leaves the ISR.",
        default=30_000, unit="ms",
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", INT, at_least(0),
        "How long a follower's fetch waits for records.",
        default=500, unit="ms",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", INT, at_least(0),
        "How much a follower copies at once; a larger batch is copied whole.",
        default=1 << 20, unit="bytes",
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", INT, at_least(0),
        "How long a follower whose copy has failed is left alone.",
        default=1000, unit="ms",
    )
    streamlog_lock_timeout_ms: int = setting(
        "streamlog.lock.timeout.ms", LONG, at_least(0),
        "How long a writer waits for a lock that another writer holds, of a partition or of an "
        "app's commits. Spark's writers have their own option. (Not a Kafka key.)",
        default=30_000, unit="ms",
    )
    streamlog_readers_max_bytes: int = setting(
        "streamlog.readers.max.bytes", LONG, at_least(-1),
        "Maximum bytes of a partition that recorded readers may protect from deletion, counted "
        "from the log end; -1: no limit. (Not a Kafka key.)",
        default=-1, unit="bytes",
    )
    # fmt: on
    serve: ServeConfig = field(default_factory=ServeConfig)
    topic_defaults: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_settings(self)
        LogConfig.from_properties(self.topic_defaults)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, ConfigValue], *, path: str | None = None
    ) -> "ServerConfig":
        """Return the settings of a root's properties.

        Args:
            properties: Kafka's broker keys with their values, as text or as Python values.
            path: Where they come from, for errors.

        Raises:
            InvalidConfigError: An unknown or unsupported key, or an invalid value.
        """
        for key in properties:
            if key not in root_settings() and key not in broker_synonyms():
                raise _server_key_error(key, path)
        return cls(
            serve=ServeConfig(**_given(ServeConfig, properties, path)),
            topic_defaults=_topic_defaults(properties, path),
            **_given(ServerConfig, properties, path),
        )

    def to_properties(self) -> dict[str, str]:
        """Return the settings under their keys, as text; the inverse of `from_properties`."""
        properties = {key: text_of(self.value(key)) for key in root_settings()}
        for key, value in self.topic_defaults.items():
            properties[settings_of(LogConfig)[key].broker[0].key] = value
        return properties

    def value(self, key: str) -> Any:
        """Return the value of one of `root_settings`."""
        owner = self if key in settings_of(ServerConfig) else self.serve
        return getattr(owner, root_settings()[key].name)

    def log_config(
        self, properties: Mapping[str, ConfigValue], *, path: str | None = None
    ) -> LogConfig:
        """Return the effective settings of a topic: its own, then the root's, then Kafka's.

        Args:
            properties: The topic's own settings.
            path: Where they come from, for errors.

        Raises:
            InvalidConfigError: An unknown or unsupported key, or an invalid value.
        """
        return LogConfig.from_properties({**self.topic_defaults, **properties}, path=path)

    def describe(self, properties: Mapping[str, ConfigValue]) -> list[ConfigEntry]:
        """Return every effective setting of a topic with its source, sorted by key.

        Args:
            properties: The topic's own settings.

        Raises:
            InvalidConfigError: An unknown or unsupported key, or an invalid value.
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


@cache
def root_settings() -> Mapping[str, Setting]:
    """Return the declarations of a root's settings by key, those of `serve` last."""
    return {**settings_of(ServerConfig), **settings_of(ServeConfig)}


def _given(kind: Any, properties: Mapping[str, ConfigValue], path: str | None) -> dict[str, Any]:
    """Return the fields of a settings class that properties set."""
    own = settings_of(kind)
    return {
        own[key].name: own[key].parse(value, path=path)
        for key, value in properties.items()
        if key in own
    }


def _server_key_error(key: str, path: str | None) -> InvalidConfigError:
    if is_unsupported_broker_key(key):
        return unsupported_key_error(key, "a broker's", path)
    topic_settings = settings_of(LogConfig)
    if key in topic_settings and topic_settings[key].broker:
        theirs = topic_settings[key].broker[0].key
        return InvalidConfigError(
            f"{key} is a topic setting, not a root setting",
            path=path, got=repr(key), expected=theirs, hint=f"use {theirs}",
        )  # fmt: skip
    known = {**root_settings(), **broker_synonyms()}
    return unknown_key_error(key, known, what="root setting", path=path)


def _topic_defaults(properties: Mapping[str, ConfigValue], path: str | None) -> dict[str, str]:
    """Return the topic keys that broker keys set; the finest unit wins."""
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
        "Settings of this log root and its defaults for topics, under the names that Kafka's "
        "brokers use. Kafka's defaults are shown; remove a # to change one. Topic settings "
        "override them: streamlog topics describe TOPIC shows the effective values."
    )
    topics = [
        (key, each) for key, (each, synonym) in broker_synonyms().items() if synonym.factor == 1
    ]
    return format_template(head, [*root_settings().items(), *topics])
