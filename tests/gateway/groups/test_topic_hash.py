"""The hash of a group's topics, compared with what a broker's own library makes of them."""

from streamlog.gateway.groups.group import SubscribedTopic
from streamlog.gateway.groups.topic_hash import group_hash

ID = "AQIDBAUGBwgREhMUFRYXGA"  # 0x0102…08, 0x1112…18


def test_the_hash_of_a_topic_is_a_brokers() -> None:
    # Made with hash4j 0.22.0, which Kafka 4.2.0 ships, by the steps of Utils.computeTopicHash.
    assert group_hash({"orders": SubscribedTopic(ID, 3)}) == 8632239608810869865


def test_no_topics_have_the_hash_0() -> None:
    assert group_hash({}) == 0


def test_each_property_of_a_topic_changes_the_hash() -> None:
    hashes = {
        group_hash(topics)
        for topics in (
            {"orders": SubscribedTopic(ID, 3)},
            {"orders": SubscribedTopic(ID, 4)},
            {"order": SubscribedTopic(ID, 3)},
            {"orders": SubscribedTopic("AgIDBAUGBwgREhMUFRYXGA", 3)},
            {"orders": SubscribedTopic(ID, 3), "other": SubscribedTopic(ID, 3)},
        )
    }
    assert len(hashes) == 5


def test_the_order_of_topics_does_not_matter() -> None:
    one, other = SubscribedTopic(ID, 3), SubscribedTopic(ID, 1)
    assert group_hash({"a": one, "b": other}) == group_hash({"b": other, "a": one})
