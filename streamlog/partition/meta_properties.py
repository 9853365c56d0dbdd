"""The `meta.properties` of a log root: the ids of its cluster, its node and itself.

    version=1                           a KRaft broker
    cluster.id=MkU3OEVBNTcwNTJENDM2Qk
    node.id=1
    directory.id=LzI4Y0kwQjJTVkdoVVJ1ag     16 bytes as base64, optional

Version 0 (ZooKeeper) has `broker.id` and `cluster.id`, both optional. A new root gets version 1
with new ids; an existing file is kept.
"""

import random as random_module
from typing import Final, NamedTuple

from streamlog.config.properties import format_properties, parse_properties
from streamlog.errors import CorruptCheckpointError, FileMissingError, InvalidConfigError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import read_file, write_file_atomically
from streamlog.fs.log_root import META_PROPERTIES
from streamlog.partition.partition_metadata import new_topic_id

__all__ = ["MetaProperties", "read_meta_properties", "write_meta_properties"]

_META_SIZE_MAX: Final = 64 << 10
_MAX_NODE_ID: Final = 2**31 - 1
_FIRST_NODE_ID: Final = 1


class MetaProperties(NamedTuple):
    """The contents of a `meta.properties`; None for missing keys.

    Source: org.apache.kafka.metadata.properties.MetaProperties.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None

    @classmethod
    def fresh(cls, random: random_module.Random) -> "MetaProperties":
        """Return new ids for a new root."""
        return cls(1, new_topic_id(random), _FIRST_NODE_ID, new_topic_id(random))


def read_meta_properties(fs: FileSystem, root: str) -> MetaProperties | None:
    """Return the `meta.properties` of a directory, None if it has none.

    Raises:
        CorruptCheckpointError: The file is malformed.
    """
    path = f"{root}/{META_PROPERTIES}"
    try:
        text = read_file(fs, path, max_size=_META_SIZE_MAX).decode("utf-8", "backslashreplace")
        values = parse_properties(text, path)
    except FileMissingError:
        return None
    except InvalidConfigError as error:
        raise CorruptCheckpointError(error.what, path=path, got=error.got) from error
    version = _number(values, "version", path, limit=1)
    if version is None:
        raise _malformed(path, "version", values.get("version"), "0 or 1")
    node_id = _number(values, "node.id" if version == 1 else "broker.id", path, limit=_MAX_NODE_ID)
    cluster_id = values.get("cluster.id")
    if version == 1 and (node_id is None or not cluster_id):
        raise _malformed(path, "version 1", "no node.id or no cluster.id", "both")
    return MetaProperties(version, cluster_id, node_id, values.get("directory.id"))


def write_meta_properties(fs: FileSystem, root: str, properties: MetaProperties) -> None:
    """Write the `meta.properties` of a directory, durably."""
    values = {
        "version": str(properties.version),
        "cluster.id": properties.cluster_id,
        "node.id" if properties.version == 1 else "broker.id": (
            None if properties.node_id is None else str(properties.node_id)
        ),
        "directory.id": properties.directory_id,
    }
    text = format_properties({key: value for key, value in values.items() if value is not None})
    write_file_atomically(fs, f"{root}/{META_PROPERTIES}", text.encode("ascii"))


def _number(values: dict[str, str], key: str, path: str, *, limit: int) -> int | None:
    text = values.get(key)
    if text is None:
        return None
    word = text.strip()
    if not (word.isascii() and word.isdigit() and len(word) <= 10 and int(word) <= limit):
        raise _malformed(path, key, text[:40], f"0 to {limit}")
    return int(word)


def _malformed(path: str, key: str, got: str | None, expected: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"malformed meta.properties: {key}", path=path, got=got, expected=expected
    )
