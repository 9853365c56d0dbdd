"""Settings of topics and roots."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.config.log_config import LogConfig, topic_template
from streamlog.config.properties import parse_properties
from streamlog.config.serve_config import ServeConfig
from streamlog.config.server_config import ConfigEntry, ConfigSource, ServerConfig, server_template
from streamlog.config.settings import settings_of
from streamlog.errors import InvalidConfigError

CONF = Path(__file__).parents[2] / "conf"

# facts: Kafka 4.2's defaults and what lies just outside of the bounds
DEFAULTS = {
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "segment.jitter.ms": "0",
    "segment.index.bytes": "10485760",
    "index.interval.bytes": "4096",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "cleanup.policy": "delete",
    "min.cleanable.dirty.ratio": "0.5",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "9223372036854775807",
    "file.delete.delay.ms": "60000",
    "max.message.bytes": "1048588",
    "streamlog.max.decompressed.bytes": "67108864",
    "compression.type": "producer",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "preallocate": "false",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
}
ALLOWED = {
    "segment.bytes": ["1048576", "2147483647"],
    "segment.ms": ["1"],
    "segment.index.bytes": ["4"],
    "index.interval.bytes": ["0"],
    "flush.messages": ["1"],
    "flush.ms": ["0"],
    "retention.bytes": ["-9223372036854775808", "0"],
    "retention.ms": ["-1", "0", " 5 ", "+7"],
    "cleanup.policy": ["compact", "compact,delete", "delete , compact", ""],
    "min.cleanable.dirty.ratio": ["0", "1", "1e-3", ".25"],
    "max.compaction.lag.ms": ["1"],
    "max.message.bytes": ["0"],
    "streamlog.max.decompressed.bytes": ["1", "2147483647"],
    "compression.type": ["uncompressed", "zstd", "lz4", "snappy", "gzip"],
    "compression.gzip.level": ["1", "9"],
    "compression.lz4.level": ["1", "17"],
    "compression.zstd.level": ["-131072", "22"],
    "message.timestamp.type": ["LogAppendTime"],
    "internal.segment.bytes": ["1", "600"],
    "preallocate": ["FALSE"],
    "min.insync.replicas": ["1", "2"],
    "unclean.leader.election.enable": ["true", "False"],
}
REFUSED = {
    "segment.bytes": [
        "1048575",
        "2147483648",
        "",
        "1e6",
        "1_048_576",
        "0x100000",
        "\uff11\uff10\uff14\uff18\uff15\uff17\uff16",
    ],
    "segment.ms": ["0"],
    "segment.jitter.ms": ["-1"],
    "segment.index.bytes": ["3"],
    "index.interval.bytes": ["-1"],
    "flush.messages": ["0", "9223372036854775808"],
    "flush.ms": ["-1"],
    "retention.bytes": ["9223372036854775808", "all"],
    "retention.ms": ["-2"],
    "cleanup.policy": ["remove", "compact,compact", "compact,,delete", "Delete"],
    "min.cleanable.dirty.ratio": ["1.01", "-0.1", "nan", "half"],
    "delete.retention.ms": ["-1"],
    "min.compaction.lag.ms": ["-1"],
    "max.compaction.lag.ms": ["0"],
    "streamlog.max.decompressed.bytes": ["0", "2147483648", "many"],
    "max.message.bytes": ["-1"],
    "compression.type": ["none", "ZSTD", "brotli"],
    "compression.gzip.level": ["0", "10", "-2"],
    "compression.lz4.level": ["0", "18"],
    "compression.zstd.level": ["-131073", "23"],
    "message.timestamp.type": ["createtime"],
    "preallocate": ["true", "yes", "1"],
    "min.insync.replicas": ["0", "2147483648"],
    "unclean.leader.election.enable": ["yes"],
    "internal.segment.bytes": ["0"],
}


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(key, value) for key, values in table.items() for value in values]


def test_defaults_are_kafkas() -> None:
    assert LogConfig().to_properties() == DEFAULTS
    assert LogConfig() == LogConfig.from_properties({}) == LogConfig.from_properties(DEFAULTS)


@pytest.mark.parametrize(
    ("limit", "message", "writing", "reading"),
    [
        (1 << 20, 1000, 1 << 20, 64 << 20),
        (1 << 20, 5 << 20, 5 << 20, 64 << 20),
        (1 << 28, 1000, 1 << 28, 1 << 28),
        (1 << 20, 1 << 28, 1 << 28, 1 << 28),
    ],
)
def test_what_may_be_appended_plain_may_be_compressed_and_what_may_be_written_is_read(
    limit: int, message: int, writing: int, reading: int
) -> None:
    config = LogConfig(streamlog_max_decompressed_bytes=limit, max_message_bytes=message)
    assert config.effective_max_decompressed_bytes == writing
    assert config.readable_decompressed_bytes == reading


def test_fields_are_called_after_their_keys() -> None:
    for kind in (LogConfig, ServerConfig, ServeConfig):
        for key, declared in settings_of(kind).items():
            assert hasattr(kind(), declared.name), key
            assert declared.default == getattr(kind(), declared.name)


@pytest.mark.parametrize(("key", "value"), pairs(ALLOWED))
def test_value_inside_its_bounds_is_taken_and_given_back(key: str, value: str) -> None:
    config = LogConfig.from_properties({key: value})
    assert LogConfig.from_properties(config.to_properties()) == config
    assert key in config.to_properties()


@pytest.mark.parametrize(("key", "value"), pairs(REFUSED))
def test_value_outside_its_bounds_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=key) as caught:
        LogConfig.from_properties({key: value}, path="orders.properties")
    assert caught.value.path == "orders.properties"
    assert caught.value.got == repr(value)
    assert caught.value.expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("segment_bytes", 5), ("segment_ms", "1"), ("preallocate", 0), ("cleanup_policy", "delete"),
     ("retention_ms", True), ("segment_bytes", None), ("compression_type", b"gzip")],
)  # fmt: skip
def test_fields_given_in_python_are_checked_as_well(name: str, value: object) -> None:
    with pytest.raises(InvalidConfigError):
        LogConfig(**{name: value})


def test_python_values_are_taken_as_properties() -> None:
    config = LogConfig.from_properties({"retention.ms": -1, "preallocate": False})
    assert config.retention_ms == -1


def test_min_compaction_lag_above_max_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms is above"):
        LogConfig.from_properties({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"})


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("segmet.bytes", "segment.bytes"), ("retention_ms", "retention.ms"),
     ("cleanup.polisy", "cleanup.policy"), ("log.segment.bytes", "segment.bytes"),
     ("log.retention.hours", "retention.ms"), ("message.max.bytes", "max.message.bytes")],
)  # fmt: skip
def test_unknown_topic_key_names_the_nearest_known_one(key: str, nearest: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        LogConfig.from_properties({key: "1"})
    assert repr(key) in str(caught.value)
    assert caught.value.hint == f"use {nearest}"


def test_key_unlike_any_other_is_refused_without_a_guess() -> None:
    with pytest.raises(InvalidConfigError, match="unknown topic setting") as caught:
        LogConfig.from_properties({"zzzz": "1"})
    assert caught.value.hint is None


@pytest.mark.parametrize(
    "key", ["remote.storage.enable", "local.retention.ms", "message.downconversion.enable"]
)
def test_topic_key_that_only_kafka_supports_is_refused_with_that_word(key: str) -> None:
    with pytest.raises(InvalidConfigError, match="not supported"):
        LogConfig.from_properties({key: "1"})


@pytest.mark.parametrize(
    "key",
    ["log.dirs", "listeners", "broker.id", "node.id", "zookeeper.connect", "num.io.threads",
     "log.cleaner.threads", "offsets.topic.replication.factor", "ssl.keystore.password"],
)  # fmt: skip
def test_broker_key_that_only_kafka_supports_is_refused_with_that_word(key: str) -> None:
    with pytest.raises(InvalidConfigError, match="not supported") as caught:
        ServerConfig.from_properties({key: "a secret"})
    assert "a secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("log.segmnt.bytes", "log.segment.bytes"), ("segment.bytes", "log.segment.bytes"),
     ("retention.ms", "log.retention.ms"), ("num.partition", "num.partitions")],
)  # fmt: skip
def test_unknown_root_key_names_the_nearest_known_one(key: str, nearest: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        ServerConfig.from_properties({key: "1"})
    assert caught.value.hint == f"use {nearest}"


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [({"log.retention.hours": "2"}, 7_200_000),
     ({"log.retention.hours": "-1"}, -1),
     ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
     ({"log.retention.hours": "2", "log.retention.ms": "5", "log.retention.minutes": "3"}, 5)],
)  # fmt: skip
def test_of_several_units_the_finest_counts(properties: dict[str, str], retention_ms: int) -> None:
    assert ServerConfig.from_properties(properties).log_config({}).retention_ms == retention_ms


@pytest.mark.parametrize(
    ("key", "value"),
    [("log.roll.hours", "0"), ("log.retention.hours", "2562047788016"), ("log.roll.hours", "1.5"),
     ("log.retention.minutes", "-2"), ("num.partitions", "0"),
     ("auto.create.topics.enable", "maybe")],
)  # fmt: skip
def test_root_value_outside_its_bounds_is_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidConfigError):
        ServerConfig.from_properties({key: value, "log.roll.ms": "7", "log.retention.ms": "7"})


def test_the_names_of_old_in_a_servers_file() -> None:
    server = ServerConfig.from_properties({
        "log.segment.bytes": "2097152", "log.roll.hours": "1", "log.roll.jitter.hours": "1",
        "log.index.size.max.bytes": "1024", "log.index.interval.bytes": "100",
        "log.flush.interval.messages": "10", "log.flush.interval.ms": "1000",
        "log.retention.bytes": "5", "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0.1", "log.cleaner.delete.retention.ms": "1",
        "log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "3",
        "log.segment.delete.delay.ms": "4", "message.max.bytes": "99", "compression.type": "lz4",
        "log.message.timestamp.type": "LogAppendTime",
        "log.message.timestamp.before.max.ms": "8", "log.message.timestamp.after.max.ms": "9",
    })  # fmt: skip
    assert server.log_config({}) == LogConfig(
        segment_bytes=2097152, segment_ms=3_600_000, segment_jitter_ms=3_600_000,
        segment_index_bytes=1024, index_interval_bytes=100, flush_messages=10, flush_ms=1000,
        retention_bytes=5, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.1,
        delete_retention_ms=1, min_compaction_lag_ms=2, max_compaction_lag_ms=3,
        file_delete_delay_ms=4, max_message_bytes=99, compression_type="lz4",
        message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=8,
        message_timestamp_after_max_ms=9,
    )  # fmt: skip
    assert ServerConfig.from_properties(server.to_properties()) == server


def test_topic_comes_before_root_comes_before_default() -> None:
    server = ServerConfig.from_properties({"log.flush.interval.messages": "10",
                                           "log.retention.hours": "1"})  # fmt: skip
    own = {"flush.messages": "1"}
    described = {entry.key: entry for entry in server.describe(own)}
    assert described["flush.messages"] == ConfigEntry("flush.messages", "1", ConfigSource.TOPIC)
    assert described["retention.ms"] == ("retention.ms", "3600000", ConfigSource.SERVER)
    assert described["segment.ms"] == ("segment.ms", "604800000", ConfigSource.DEFAULT)
    assert list(described) == sorted(DEFAULTS)


def test_effective_sizes_and_times() -> None:
    config = LogConfig.from_properties({"internal.segment.bytes": "600", "segment.ms": "100",
                                        "max.compaction.lag.ms": "7"})  # fmt: skip
    assert config.effective_segment_bytes == 600
    assert config.effective_segment_ms == 100
    compacted = config.with_overrides({"cleanup.policy": "compact"})
    assert compacted.effective_segment_ms == 7
    assert LogConfig().effective_segment_bytes == LogConfig().segment_bytes


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=20), max_size=3))
def test_any_properties_are_taken_or_refused(properties: dict[str, str]) -> None:
    for kind in (LogConfig, ServerConfig):
        try:
            kind.from_properties(properties)
        except InvalidConfigError:
            continue


def test_templates_in_conf_are_those_of_the_table() -> None:
    assert (CONF / "server.properties").read_text() == server_template()
    assert (CONF / "topics" / "template.properties").read_text() == topic_template()


def test_templates_without_their_comment_marks_are_the_defaults() -> None:
    def switched_on(text: str) -> dict[str, str]:
        return parse_properties(text.replace("\n#", "\n").replace("\n ", "\n# "))

    assert len(switched_on(topic_template())) == len(DEFAULTS)
    server = ServerConfig.from_properties(switched_on(server_template()))
    assert server.log_config({}) == LogConfig()
    assert server.num_partitions == ServerConfig().num_partitions
    assert LogConfig.from_properties(switched_on(topic_template())) == LogConfig()
    assert parse_properties(server_template()) == {}


@pytest.mark.parametrize(
    "path", sorted(CONF.glob("topics/*.properties")), ids=lambda path: path.name
)
def test_every_topic_file_in_conf_can_be_used(path: Path) -> None:
    LogConfig.from_properties(parse_properties(path.read_text(), str(path)))


def test_spark_defaults_are_lines_of_key_and_value() -> None:
    settings = parse_properties((CONF / "spark-defaults.conf").read_text())
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert all(key.startswith("spark.") and value for key, value in settings.items())
