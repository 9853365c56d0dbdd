"""The hash of the topics of a consumer group, by which a broker sees that they have changed.

    topic    int8 0, topic id (two int64), name (UTF-16, then int32 its length), int32 partitions,
             for each partition its int32 number and the racks of its replicas: none here
    group    the int64 hashes of its topics in the order of their names

All numbers are little-endian; the id's halves too, each as a number. Both are hashed by XXH3.

Source: org.apache.kafka.coordinator.group.Utils.computeTopicHash, computeGroupHash (KIP-1101).
"""

import base64
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from streamlog.binary.xxh3 import xxh3_64
from streamlog.gateway.groups.group import SubscribedTopic

__all__ = ["group_hash"]

_MAGIC: Final = 0
_HALVES: Final = struct.Struct(">QQ")
_HEAD: Final = struct.Struct("<bQQ")
_SIGNED: Final = struct.Struct("<q")
_UNSIGNED: Final = struct.Struct("<Q")


def group_hash(topics: Mapping[str, SubscribedTopic]) -> int:
    """Return the hash of topics by name, an int64; 0 without any."""
    return _hash_of(tuple(sorted(topics.items())))


@lru_cache(maxsize=256)
def _hash_of(topics: tuple[tuple[str, SubscribedTopic], ...]) -> int:
    if not topics:
        return 0
    hashes = b"".join(_UNSIGNED.pack(_topic_hash(*each)) for each in topics)
    (signed,) = _SIGNED.unpack(_UNSIGNED.pack(xxh3_64(hashes)))
    return int(signed)


@lru_cache(maxsize=4096)
def _topic_hash(name: str, topic: SubscribedTopic) -> int:
    topic_id = base64.urlsafe_b64decode(topic.topic_id + "==")
    units = name.encode("utf-16-le", "surrogatepass")
    numbers = struct.pack(f"<{topic.partitions}i", *range(topic.partitions))
    sizes = struct.pack("<i", len(units) // 2), struct.pack("<i", topic.partitions)
    head = _HEAD.pack(_MAGIC, *_HALVES.unpack(topic_id))
    return xxh3_64(b"".join((head, units, *sizes, numbers)))
