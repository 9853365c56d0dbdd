import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamlog.arrow.sink_topics import SinkTopics
from streamlog.errors import InvalidTopicError, UnknownTopicError
from streamlog.fs.log_root import LogRoot
from streamlog.root.manager import LogManager


def topics_of(path):
    return SinkTopics(LogRoot.at(path))


def allow_creation(root, *, partitions=3):
    with open(LogRoot.at(root.path).server_properties, "a") as file:
        file.write(f"\nauto.create.topics.enable=true\nnum.partitions={partitions}\n")


def test_a_topic_is_found_with_its_partitions_and_settings(root):
    root.create("orders", partitions=3, **{"max.message.bytes": 2000})

    target = topics_of(root.path).find("orders")

    assert (target.topic, target.partitions) == ("orders", 3)
    assert target.rules.max_batch_bytes == 2000


def test_a_topic_is_looked_up_once(root):
    root.create("orders")
    topics = topics_of(root.path)
    first = topics.find("orders")

    root.manager.delete_topic("orders")

    assert topics.find("orders") is first


def test_an_unknown_topic_says_what_to_type(root):
    root.create("orders")

    with pytest.raises(UnknownTopicError, match="there is no topic payments") as caught:
        topics_of(root.path).find("payments")

    assert caught.value.hint == f"create it: streamlog --path {root.path} topics create payments"
    assert root.manager.topics() == ["orders"]


def test_an_unknown_root_says_so(tmp_path):
    with pytest.raises(UnknownTopicError, match="there is no log root"):
        topics_of(tmp_path / "nowhere").find("orders")
    assert not (tmp_path / "nowhere").exists()


def test_an_impossible_topic_name_is_refused(root):
    with pytest.raises(InvalidTopicError):
        topics_of(root.path).find("a/b")


def test_a_root_may_allow_that_topics_are_made(root):
    allow_creation(root, partitions=3)

    assert topics_of(root.path).find("payments").partitions == 3
    assert root.manager.topics() == ["payments"]


def test_many_tasks_may_make_one_topic_at_once(root):
    allow_creation(root)
    start = threading.Barrier(6)

    def find(_):
        start.wait()
        return topics_of(root.path).find("payments")

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(find, range(6)))

    assert len({(each.topic, each.partitions) for each in found}) == 1
    with LogManager.open(root.path) as manager:
        assert manager.partitions("payments") == [0, 1, 2]
