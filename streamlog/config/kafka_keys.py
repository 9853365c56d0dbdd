"""Settings of Kafka that streamlog does not support: each is refused with that reason."""

from typing import Final

from streamlog.errors import InvalidConfigError

__all__ = ["is_unsupported_broker_key", "is_unsupported_topic_key", "unsupported_key_error"]

# Kafka's topic keys without a meaning here. Source: TopicConfig; LogConfig, throttling.
_TOPIC_KEYS: Final = frozenset({
    "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
    "local.retention.bytes", "local.retention.ms", "message.downconversion.enable",
    "message.format.version", "message.timestamp.difference.max.ms",
    "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable",
})  # fmt: skip

# Families of broker keys of which none has a meaning here, and single keys of other families.
# Source: org.apache.kafka.server.config, KafkaConfig.
_BROKER_FAMILIES: Final = (
    "add.partitions.", "advertised.", "alter.", "authorizer.", "background.", "broker.",
    "client.", "config.providers", "connection", "controlled.", "controller.", "create.topic.",
    "delegation.", "delete.topic.", "early.start.", "eligible.", "fetch.", "follower.",
    "group.", "initial.", "inter.broker.", "kafka.metrics.", "leader.", "listener",
    "log.dir", "max.connection", "max.incremental.", "max.request.",
    "metadata.", "metric", "node.", "offset", "password.", "principal.", "process.",
    "queued.", "quota.", "remote.", "replica", "request.", "reserved.", "sasl.", "security.",
    "server.", "share.", "socket.", "ssl.", "telemetry.", "transaction", "unstable.",
    "zookeeper.",
)  # fmt: skip
_BROKER_KEYS: Final = frozenset({
    "allow.everyone.if.no.acl.found", "auto.include.jmx.reporter", "auto.leader.rebalance.enable",
    "log.cleaner.io.buffer.size", "log.cleaner.threads",
    "log.flush.offset.checkpoint.interval.ms", "log.flush.scheduler.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "log.local.retention.bytes", "log.local.retention.ms",
    "log.message.downconversion.enable", "log.message.format.version",
    "log.message.timestamp.difference.max.ms", "num.io.threads", "num.network.threads",
    "num.recovery.threads.per.data.dir", "num.replica.alter.log.dirs.threads",
    "num.replica.fetchers",
    "producer.id.expiration.check.interval.ms", "producer.purgatory.purge.interval.requests",
    "super.users",
})  # fmt: skip


def is_unsupported_topic_key(key: str) -> bool:
    """Return whether a key is one of Kafka's topic keys without a meaning here."""
    return key in _TOPIC_KEYS


def is_unsupported_broker_key(key: str) -> bool:
    """Return whether a key is one of Kafka's broker keys without a meaning here."""
    return key in _BROKER_KEYS or key.startswith(_BROKER_FAMILIES)


def unsupported_key_error(key: str, whose: str, path: str | None) -> InvalidConfigError:
    """Return the error about such a key; `whose` is `a topic's` or `a broker's`."""
    return InvalidConfigError(
        f"{key} is {whose} setting of Kafka, not supported by streamlog",
        path=path, got=repr(key), hint=f"remove {key}",
    )  # fmt: skip
