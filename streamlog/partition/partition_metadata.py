"""A partition's `partition.metadata`: the id that its topic got at creation.

    version: 0
    topic_id: AAAAAAAAAAEAAAAAAAAAAg          16 bytes, base64 for URLs, no padding, no newline

A topic that is deleted and created again has another id, by which readers detect it.
"""

import base64
import random as random_module
import re
import uuid
from typing import Final

from streamlog.errors import CorruptCheckpointError, FileMissingError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import read_file, write_file_atomically

__all__ = [
    "PARTITION_METADATA",
    "format_partition_metadata",
    "new_topic_id",
    "parse_partition_metadata",
    "parse_topic_id",
    "read_topic_id",
    "topic_id_hex",
    "write_topic_id",
]

PARTITION_METADATA: Final = "partition.metadata"  # PartitionMetadataFile
_MAX_SIZE: Final = 4096
_LINE: Final = re.compile(r"([a-z_]+)\s*:\s*(\S+)", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_ID: Final = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]", re.ASCII)  # 128 bits: the last has 2 of them
_ZERO_ID: Final = "A" * 22  # Uuid.ZERO_UUID


def new_topic_id(random: random_module.Random) -> str:
    """Return a new topic id with 122 random bits.

    Source: org.apache.kafka.common.Uuid.randomUuid: version 4, never with a leading dash.
    """
    while True:
        fresh = uuid.UUID(int=random.getrandbits(128), version=4)
        text = base64.urlsafe_b64encode(fresh.bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def topic_id_hex(topic_id: str) -> str:
    """Return the 32 hexadecimal digits of a topic id.

    Raises:
        CorruptCheckpointError: `topic_id` is not a topic id.
    """
    return base64.urlsafe_b64decode(f"{parse_topic_id(topic_id)}==").hex()


def parse_topic_id(text: str, *, path: str | None = None) -> str:
    """Return `text` if it is a valid topic id.

    Raises:
        CorruptCheckpointError: It is not 22 characters of base64, or all zero.
    """
    if not _ID.fullmatch(text) or text == _ZERO_ID:
        raise CorruptCheckpointError(
            "not a topic id",
            path=path,
            got=repr(text[:80]),
            expected="16 bytes that are not all zero, as 22 characters of base64",
        )
    return text


def parse_partition_metadata(data: bytes, path: str) -> str:
    """Return the topic id that a `partition.metadata` holds.

    Raises:
        CorruptCheckpointError: The text cannot be parsed.

    Source: PartitionMetadataFile.PartitionMetadataReadBuffer.
    """
    values: dict[str, str] = {}
    for line in data.decode("ascii", "backslashreplace").splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is None or match[1] in values:
            raise _malformed(path, repr(line[:80]))
        values[match[1]] = match[2]
    if "version" not in values or "topic_id" not in values:
        raise _malformed(path, f"keys {', '.join(sorted(values)) or 'none'}")
    if not _NUMBER.fullmatch(values["version"]):
        raise _malformed(path, f"version {values['version'][:20]!r}")
    return parse_topic_id(values["topic_id"], path=path)


def format_partition_metadata(topic_id: str) -> bytes:
    """Return the bytes of a `partition.metadata`."""
    return f"version: 0\ntopic_id: {topic_id}".encode("ascii")


def read_topic_id(fs: FileSystem, directory: str) -> str | None:
    """Return the topic id of a partition's directory, None without such a file.

    Raises:
        CorruptCheckpointError: The file cannot be parsed.
        StorageError: The file cannot be read.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        data = read_file(fs, path, max_size=_MAX_SIZE)
    except FileMissingError:
        return None
    return parse_partition_metadata(data, path)


def write_topic_id(fs: FileSystem, directory: str, topic_id: str) -> None:
    """Write a partition's `partition.metadata`, durably."""
    path = f"{directory}/{PARTITION_METADATA}"
    write_file_atomically(fs, path, format_partition_metadata(topic_id))


def _malformed(path: str, got: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "malformed partition.metadata", path=path, got=got, expected="version and topic_id"
    )
