"""The offsets JSON: equal offsets are equal text, Kafka's JSON is accepted, all else is refused."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidOptionError
from streamlog.query.offsets import (
    SourceOffset,
    parse_partition_numbers,
    parse_source_offset,
)
from streamlog.topic import TopicPartition

TOPICS = st.sampled_from(["a", "b", "orders", "orders.dead", "Z_1"])
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
NUMBERS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=8)


TOPIC_IDS = st.binary(min_size=16, max_size=16).map(
    lambda data: base64.urlsafe_b64encode(data).decode().rstrip("=")
)


@given(NUMBERS, NUMBERS, st.dictionaries(TOPICS, TOPIC_IDS))
def test_parse_inverts_to_json(offsets, epochs, topic_ids):
    offset = SourceOffset(offsets=offsets, leader_epochs=epochs, topic_ids=topic_ids)
    assert parse_source_offset(json.dumps(offset.to_json())) == offset


@given(NUMBERS, st.randoms())
def test_equal_offsets_are_equal_text_whatever_the_order_of_insertion(offsets, random):
    shuffled = list(offsets.items())
    random.shuffle(shuffled)
    assert json.dumps(SourceOffset(offsets=offsets).to_json()) == json.dumps(
        SourceOffset(offsets=dict(shuffled)).to_json()
    )


def test_partitions_are_sorted_by_number_and_reserved_keys_come_first():
    offset = SourceOffset(
        offsets={TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3},
        leader_epochs={TopicPartition("b", 9): 4},
        topic_ids={"b": f"{'A' * 21}Q", "a": f"{'A' * 21}g"},
    )
    assert json.dumps(offset.to_json()) == (
        '{"$leaderEpochs/b": {"9": 4}, "$topicId/a": {"0": 2}, "$topicId/b": {"0": 1}, '
        '"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    )


def test_offsets_of_older_checkpoints_are_read():
    offset = SourceOffset(
        offsets={TopicPartition("b", 9): 2},
        leader_epochs={TopicPartition("b", 9): 4},
        topic_ids={"b": f"{'A' * 21}Q"},
    )
    old = {"$leaderEpochs": {"b": {"9": 4}}, "$topicIds": {"b": f"{'A' * 21}Q"}, "b": {"9": 2}}
    assert parse_source_offset(old) == offset == parse_source_offset(offset.to_json())


def test_offset_without_ids_and_epochs_is_the_json_of_kafkas_source():
    offset = SourceOffset(offsets={TopicPartition("orders", 0): 123})
    assert offset.to_json() == {"orders": {"0": 123}}


def test_compact_json_of_kafkas_source_is_read():
    parsed = parse_source_offset('{"orders":{"1":20,"0":10}}')
    assert parsed.offsets == {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 20}
    assert parsed.leader_epochs == {}
    assert parsed.topic_ids == {}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "null",
        "[]",
        "7",
        '{"orders": 7}',
        '{"orders": {"x": 7}}',
        '{"orders": {"00": 7}}',
        '{"orders": {"-1": 7}}',
        '{"orders": {"2147483648": 7}}',
        '{"orders": {"0": "7"}}',
        '{"orders": {"0": 7.5}}',
        '{"orders": {"0": true}}',
        '{"orders": {"0": -1}}',
        '{"orders": {"0": 9223372036854775808}}',
        '{"or/ders": {"0": 7}}',
        '{"$other": {"0": 7}}',
        '{"$topicIds": 7}',
        '{"$topicIds": {"orders": 7}}',
        '{"$leaderEpochs": 7}',
        '{"$leaderEpochs/orders": 7}',
        '{"$leaderEpochs/or/ders": {"0": 7}}',
        '{"$topicId/orders": 7}',
        '{"$topicId/orders": {"0": "7"}}',
        '{"$topicId/orders": {"0": -1}}',
        '{"$topicId/orders": {"0": 340282366920938463463374607431768211456}}',
        '{"\u0663": {"\u0663": 7}}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_refused_with_a_typed_error(document):
    with pytest.raises(InvalidOptionError):
        parse_source_offset(document)


def test_minimum_lets_the_named_positions_pass_and_no_less():
    assert parse_partition_numbers('{"a": {"0": -2}}', "startingOffsets", minimum=-2)
    with pytest.raises(InvalidOptionError, match="startingOffsets: must map each partition"):
        parse_partition_numbers('{"a": {"0": -3}}', "startingOffsets", minimum=-2)
