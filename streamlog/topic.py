"""Topic names and partition directories, under Kafka's rules and a few stricter ones."""

import re
from typing import Final, NamedTuple

from streamlog.errors import InvalidTopicError

__all__ = [
    "INTERNAL_TOPICS",
    "MAX_NAME_LENGTH",
    "PUT_ASIDE",
    "TopicPartition",
    "check_partition_directory",
    "check_new_topic_name",
    "check_topic_name",
    "parse_partition_directory",
]

MAX_NAME_LENGTH: Final = 249  # Topic.MAX_NAME_LENGTH
# Topic.INTERNAL_TOPICS: those that a cluster keeps for itself
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
MAX_PARTITION: Final = 2**31 - 1  # a partition is an int32

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)  # Topic.LEGAL_CHARS
_DIRECTORY: Final = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]*)", re.ASCII)
# UnifiedLog.STRAY_DIR_SUFFIX, FUTURE_DIR_SUFFIX: logs that a broker does not serve
PUT_ASIDE: Final = ("-stray", "-future")
# LogFileUtils and UnifiedLog: directories that are not live partitions
RESERVED_SUFFIXES: Final = ("-delete", *PUT_ASIDE, ".deleted", ".cleaned", ".swap")


class TopicPartition(NamedTuple):
    """A topic and a partition number; str() is the name of the partition directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_topic_name(name: str) -> str:
    """Return `name` if it is a valid topic name.

    Raises:
        InvalidTopicError: Empty, too long, `.` or `..`, or an illegal character.

    Source: org.apache.kafka.common.internals.Topic.validate.
    """
    if not name or name in (".", ".."):
        raise InvalidTopicError(
            "invalid topic name", got=repr(name), expected="a name other than '', '.' and '..'"
        )
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicError(
            "topic name is too long",
            got=f"{len(name)} characters",
            expected=f"at most {MAX_NAME_LENGTH}",
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicError(
            "illegal character in topic name",
            got=repr(name),
            expected="ASCII letters, digits, '.', '_' and '-'",
        )
    return name


def check_new_topic_name(name: str) -> str:
    """Return `name` if a new topic may have it.

    Kafka allows names that end like the directories it sets aside. Such topics are read but not
    created here, because they would be mistaken for those directories.

    Raises:
        InvalidTopicError: As `check_topic_name`, or a reserved suffix (`-delete`, `.deleted` …).
    """
    if check_topic_name(name).endswith(RESERVED_SUFFIXES):
        raise InvalidTopicError(
            "topic name has a suffix reserved for directories set aside",
            got=repr(name),
            expected=f"none of the suffixes {', '.join(RESERVED_SUFFIXES)}",
        )
    return name


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Parse the name of a partition directory; return None for other names.

    The partition follows the last dash, in canonical decimal: `orders-00` is not a partition.

    Source: UnifiedLog.parseTopicPartitionName.
    """
    match = _DIRECTORY.fullmatch(name)
    if match is None or name.endswith(RESERVED_SUFFIXES):
        return None
    topic, partition = match["topic"], int(match["partition"])
    if partition > MAX_PARTITION or len(topic) > MAX_NAME_LENGTH:
        return None
    if topic in (".", "..") or not _LEGAL.fullmatch(topic):
        return None
    return TopicPartition(topic, partition)


def check_partition_directory(path: str) -> TopicPartition:
    """Return the topic and partition that a directory is named after.

    Raises:
        InvalidTopicError: The name is not that of a partition directory.
    """
    partition = parse_partition_directory(path.rpartition("/")[2])
    if partition is None:
        raise InvalidTopicError(
            "not the name of a partition directory",
            path=path,
            expected="TOPIC-PARTITION, such as orders-0",
        )
    return partition
