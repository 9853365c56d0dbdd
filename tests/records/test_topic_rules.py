"""The rules of a topic: which settings they come from, and the bounds of timestamps."""

import numpy as np
import pytest

from streamlog.config.log_config import LogConfig
from streamlog.records.record import CompressionType
from streamlog.records.topic_rules import TimeBounds, TopicRules

NOW = 1_700_000_000_000
HOUR = 3_600_000


def rules(**settings: object) -> TopicRules:
    return TopicRules.of(LogConfig(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (0, NOW + HOUR)),
        ({"message_timestamp_before_max_ms": 1000}, (NOW - 1000, NOW + HOUR)),
        ({"message_timestamp_before_max_ms": 2 * NOW}, (0, NOW + HOUR)),
        ({"message_timestamp_after_max_ms": 2**63 - 1}, (0, 2**63 - 1)),
        ({"message_timestamp_type": "LogAppendTime"}, (-(2**63), 2**63 - 1)),
    ],
)
def test_the_lower_bound_of_timestamps_is_never_negative_unless_any_is_accepted(
    settings: dict[str, object], expected: tuple[int, int]
) -> None:
    assert rules(**settings).times(NOW) == expected


def test_both_ends_and_no_timestamp_are_accepted() -> None:
    times = TimeBounds(10, 20)
    stamps = np.array([10, 20, -1, 9, 21, -2], np.int64)
    assert times.outside(stamps).tolist() == [False, False, False, True, True, True]
    assert times.first_outside(stamps) == 3
    assert times.first_outside(stamps[:3]) is None
    assert times.first_outside(stamps[:0]) is None
    assert str(times).startswith("10 to 20 ms (message.timestamp.before.max.ms")


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", CompressionType.NONE, None),
        ("snappy", CompressionType.SNAPPY, None),
        ("zstd", CompressionType.ZSTD, 3),
    ],
)
def test_the_codec_is_the_topics_or_the_writers(
    name: str, codec: CompressionType | None, level: int | None
) -> None:
    topic = rules(compression_type=name)
    assert (topic.codec, topic.level) == (codec, level)
    wanted = CompressionType.GZIP if codec is None else codec
    assert topic.codec_for(CompressionType.GZIP) is wanted
    accepted = topic.accepted_codecs(np.arange(8, dtype=np.int64) | 8)  # bit 3: timestamp type
    assert accepted.tolist() == [
        each <= CompressionType.ZSTD if codec is None else each == codec for each in range(8)
    ]


def test_limits_come_from_the_settings_in_force() -> None:
    topic = rules(
        internal_segment_bytes=500, max_message_bytes=1000, cleanup_policy=frozenset({"compact"})
    )
    assert (topic.max_batch_bytes, topic.max_append_bytes, topic.max_record_bytes) == (
        1000,
        500,
        500,
    )
    assert topic.max_decompressed_bytes == 64 << 20
    assert topic.needs_keys and not topic.is_stamped
