"""A topic of a test: filled with rows of any kind, read back without Spark."""

from datetime import datetime, timezone

import pytest

from streamlog import Header, Record
from streamlog.errors import InvalidRequestError
from streamlog.testing import Topic


@pytest.fixture
def topic(tmp_path):
    return Topic(tmp_path / "root", "orders")


class Row:
    """Behaves like a Spark row."""

    def asDict(self):  # noqa: N802 - Spark's name
        return {"key": "k", "value": "v"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("text", Record(value=b"text")),
        (b"\xff", Record(value=b"\xff")),
        (Record(b"k", b"v"), Record(b"k", b"v")),
        (Row(), Record(b"k", b"v")),
        ({"key": "k"}, Record(b"k", None)),
        ({"value": {"item": 7}}, Record(value=b'{"item": 7}')),
        ({"value": [1, "é"]}, Record(value='[1, "é"]'.encode())),
        ({"headers": {"h": "x"}}, Record(headers=(Header("h", b"x"),))),
        ({"headers": [("h", None)]}, Record(headers=(Header("h", None),))),
        ({"timestamp": 5}, Record(timestamp=5)),
        ({"timestamp": datetime(1970, 1, 2, tzinfo=timezone.utc)}, Record(timestamp=86_400_000)),
    ],
)
def test_rows_of_all_kinds_become_records(topic, row, expected):
    topic.append([row])

    (record,) = topic.records()
    assert record[:3] == expected[:3]
    assert expected.timestamp in (None, record.timestamp)


@pytest.mark.parametrize("row", [7, {"item": 7}, ("k", "v"), None])
def test_other_objects_are_refused_with_a_hint(topic, row):
    with pytest.raises(InvalidRequestError, match="unknown fields") as caught:
        topic.append([row])

    assert "value" in caught.value.hint
    assert topic.records() == []


def test_equal_keys_share_a_partition_and_others_alternate(tmp_path):
    topic = Topic(tmp_path / "root", "orders", partitions=3)

    topic.append([{"key": "k", "value": str(number)} for number in range(9)])
    topic.append(["0", "1", "2"])

    by_key = [topic.values(partition) for partition in range(3)]
    assert sorted(map(len, by_key)) == [1, 1, 10]
    assert [values[-1] for values in by_key] == ["0", "1", "2"]


def test_a_row_may_name_its_partition(tmp_path):
    topic = Topic(tmp_path / "root", "orders", partitions=2)

    appended = topic.append([{"value": "v", "partition": 1}, {"value": "w", "partition": 1}])

    assert {number: info.last_offset for number, info in appended.items()} == {1: 1}
    assert topic.values(1) == ["v", "w"]


def test_a_topic_is_found_again_with_its_rows_and_settings(tmp_path):
    Topic(tmp_path / "root", "orders", ["a"], configs={"retention.ms": "-1"})

    again = Topic(tmp_path / "root", "orders", ["b"])

    assert again.values() == ["a", "b"]


def test_late_rows_are_older_than_the_newest(topic):
    topic.append([{"value": "now", "timestamp": 10_000}])

    topic.append_late(["behind", {"value": "far", "timestamp": 9}], by_ms=4_000)

    assert [record.timestamp for record in topic.records()] == [10_000, 6_000, 6_000]


def test_a_topic_reads_as_arrow_and_pandas(topic):
    topic.append([{"key": "k", "value": "v"}])

    assert topic.arrow().select(["topic", "offset", "value"]).to_pylist() == [
        {"topic": "orders", "offset": 0, "value": b"v"}
    ]
    assert list(topic.pandas()["value"]) == [b"v"]


def test_bytes_that_are_not_text_and_tombstones_are_shown(topic):
    topic.append([b"\xff", {"key": "k", "value": None}])

    assert topic.values() == ["\\xff", None]
    assert repr(topic).endswith("'orders')")
