"""Settings of a log root that only `streamlog serve` uses, under a broker's keys.

They are declared like topic settings, see `streamlog.config.log_config`, and stand in the root's
`server.properties` beside those of `streamlog.config.server_config`.
"""

from dataclasses import dataclass
from typing import Final

from streamlog.config.settings import (
    ANY,
    BOOLEAN,
    INT,
    LONG,
    ORDERED_LIST,
    STRING,
    at_least,
    check_order,
    check_settings,
    one_of,
    sequence_of,
    setting,
)

__all__ = ["ServeConfig"]

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """What a server of Kafka's protocol keeps to; checked on creation.

    Args: one for each key, `group_max_size` for `group.max.size`.

    Raises:
        InvalidConfigError: A value has the wrong type or is out of bounds.

    Source: org.apache.kafka.server.config.ServerConfigs, GroupCoordinatorConfig,
        TransactionLogConfig, TransactionStateManagerConfig; Kafka 4.2.
    """

    # fmt: off
    log_initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms", LONG, at_least(0),
        "How long `streamlog serve` runs before it first checks retention and compaction.",
        default=30_000, unit="ms",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", LONG, at_least(1),
        "Interval at which `streamlog serve` checks for committed offsets that expired.",
        default=10 * _MINUTE_MS, unit="ms",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", INT, at_least(1),
        "Number of partitions that __consumer_offsets is created with.",
        default=50,
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", INT, at_least(1),
        "Segment size that __consumer_offsets is created with.",
        default=100 << 20, unit="bytes",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", INT, ANY,
        "Maximum length of the text that a consumer commits with an offset.",
        default=4096, unit="bytes",
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", INT, ANY,
        "How long a new group waits for more members before its first rebalance (Kafka's default "
        "is 3000; the server.properties that Kafka ships sets 0).",
        default=0, unit="ms",
    )
    group_max_size: int = setting(
        "group.max.size", INT, at_least(1),
        "Maximum number of members of a group.",
        default=2**31 - 1,
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", INT, ANY,
        "Minimum session timeout that a member may ask for.",
        default=6000, unit="ms",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", INT, ANY,
        "Maximum session timeout that a member may ask for.",
        default=30 * _MINUTE_MS, unit="ms",
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms", INT, at_least(1),
        "How long a member of a consumer group (KIP-848) may be silent.",
        default=45_000, unit="ms",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms", INT, at_least(1),
        "Interval at which members of consumer groups (KIP-848) send heartbeats.",
        default=5_000, unit="ms",
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size", INT, at_least(1),
        "Maximum number of members of a consumer group (KIP-848).",
        default=2**31 - 1,
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms", INT, at_least(1),
        "Minimum session timeout of a consumer group (KIP-848).",
        default=45_000, unit="ms",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms", INT, at_least(1),
        "Maximum session timeout of a consumer group (KIP-848).",
        default=60_000, unit="ms",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms", INT, at_least(1),
        "Minimum heartbeat interval of a consumer group (KIP-848).",
        default=5_000, unit="ms",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms", INT, at_least(1),
        "Maximum heartbeat interval of a consumer group (KIP-848).",
        default=15_000, unit="ms",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors", ORDERED_LIST, sequence_of("uniform", "range"),
        "Assignors that members of consumer groups (KIP-848) may ask for; the first one is the "
        "default.",
        default=("uniform", "range"),
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy", STRING,
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        "Whether a classic group with members becomes a consumer group (KIP-848) when a consumer "
        "of that protocol joins, and the way back when the last one leaves.",
        default="bidirectional",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        "group.consumer.regex.refresh.interval.ms", INT, at_least(10_000),
        "Interval at which patterns of consumer groups (KIP-848) are matched with all topics "
        "again; new topics are found within 10 seconds.",
        default=10 * _MINUTE_MS, unit="ms",
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", INT, at_least(1),
        "Maximum timeout that a transactional client may ask for.",
        default=15 * _MINUTE_MS, unit="ms",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", INT, at_least(1),
        "A transactional id that had no transaction for this long expires.",
        default=7 * 24 * _HOUR_MS, unit="ms",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, at_least(1),
        "Interval at which serve checks for transactions that timed out.",
        default=10_000, unit="ms",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, at_least(1),
        "Interval at which serve checks for transactional ids that expired.",
        default=_HOUR_MS, unit="ms",
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", INT, at_least(1),
        "Number of partitions of __transaction_state, which serve creates on first use.",
        default=50,
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", INT, at_least(1 << 20),
        "Segment size of __transaction_state.",
        default=100 << 20, unit="bytes",
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", INT, at_least(1),
        "Maximum size of a request to `streamlog serve`.",
        default=100 << 20, unit="bytes",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", LONG, at_least(1),
        "How long a client of `streamlog serve` may be silent before it is disconnected.",
        default=10 * _MINUTE_MS, unit="ms",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes", LONG, at_least(1),
        "Maximum bytes of requests that `streamlog serve` holds (Kafka's default: no limit).",
        default=256 << 20, unit="bytes",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", BOOLEAN, ANY,
        "Whether clients of `streamlog serve` may delete topics.",
        default=True,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", INT, at_least(1024),
        "Maximum bytes that `streamlog serve` returns for a fetch; a larger batch is sent whole.",
        default=55 << 20, unit="bytes",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", INT, at_least(0),
        "Maximum number of consumers for which `streamlog serve` keeps a fetch session.",
        default=1000,
    )
    # fmt: on

    def __post_init__(self) -> None:
        check_settings(self)
        for kind in ("session.timeout.ms", "heartbeat.interval.ms"):
            least, most = (f"group.consumer.{each}.{kind}" for each in ("min", "max"))
            check_order(self, least, f"group.consumer.{kind}", most)
        check_order(
            self,
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.session.timeout.ms",
            is_strict=True,
        )
