"""A schema for the JSON of a topic."""

import pytest

import streamlog
from streamlog.arrow.json_sample import _sampled
from streamlog.errors import InvalidRequestError, UnknownTopicError
from streamlog.topic import TopicPartition
from tests.support.log_root import BOTH_KINDS, root

__all__ = ["root"]


@BOTH_KINDS
def test_the_sample_has_old_and_new_records_of_every_partition(root) -> None:
    root.create("events", partitions=3)
    root.append("events", 0, ['{"old": 1}', *['{"middle": 1}'] * 20, '{"new": "x"}'])
    root.append("events", 2, [b"\0\0\0\0\7" + b'{"other": 0.5}', "no"])

    found = streamlog.infer_json_schema(root.path, "events", sample=8)

    assert found == "`old` BIGINT, `middle` BIGINT, `new` STRING, `other` DOUBLE"


def test_keys_have_schemas_too_and_without_json_there_is_none(root) -> None:
    root.create("events").append("events", 0, ["no"], key=b'{"id": 7}')

    assert streamlog.infer_json_schema(root.path, "events", field="key") == "`id` BIGINT"
    with pytest.raises(InvalidRequestError, match="no schema can be inferred"):
        streamlog.infer_json_schema(root.path, "events")
    with pytest.raises(InvalidRequestError, match="invalid argument"):
        streamlog.infer_json_schema(root.path, "events", sample=0)
    with pytest.raises(UnknownTopicError):
        streamlog.infer_json_schema(root.path, "nothing")


@pytest.mark.parametrize("sample", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("sizes", [[0], [5], [1, 1, 1], [100, 0, 3], [2, 2, 50]])
def test_a_sample_is_within_the_log_and_within_its_size(sizes, sample) -> None:
    bounds = {TopicPartition("t", n): (10, 10 + size) for n, size in enumerate(sizes)}

    parts = _sampled(bounds, sample)

    seen = [(each.partition, offset) for each in parts for offset in range(*each[2:])]
    assert len(seen) == len(set(seen)) == min(sample, sum(sizes)) or sum(sizes) > sample
    assert len(seen) <= sample
    for part in parts:
        start, end = bounds[part.topic_partition]
        assert start <= part.start_offset < part.end_offset <= end
