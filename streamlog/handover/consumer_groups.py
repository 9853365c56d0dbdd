"""What a broker has to be told so that it goes on with consumer groups (KIP-848).

Their records stand in `__consumer_offsets`. A broker reads them, but refuses their members as long
as its cluster does not have the feature `group.version`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from streamlog.fs.log_root import LogRoot
from streamlog.partition.reader import LogReader
from streamlog.protocol.internal_topics import Decoder, OffsetsKey, parse_internal
from streamlog.protocol.metadata_records import GROUP_RESOURCE, ConfigRecord, MetadataRecord
from streamlog.root.group_configs import read_group_configs
from streamlog.root.manager import LogManager
from streamlog.root.topics import topic_exists

__all__ = ["GROUP_FEATURES", "group_config_records", "has_consumer_groups"]

# GroupVersion.GV_1, and the MetadataVersion that it depends on: 4.0-IV0.
GROUP_FEATURES: Final[Mapping[str, int]] = {"group.version": 1, "metadata.version": 22}

_READ_SIZE: Final = 4 << 20
_KEY: Final = int(OffsetsKey.CONSUMER_GROUP).to_bytes(2, "big")


def has_consumer_groups(manager: LogManager) -> bool:
    """Whether any consumer group of KIP-848 is in the log.

    Raises:
        CorruptDataError: Records are damaged.
        StorageError: They cannot be read.
    """
    topic = Decoder.OFFSETS.value
    if not topic_exists(manager.log_root, topic):
        return False
    return any(_has_group(manager.reader(topic, number)) for number in manager.partitions(topic))


def _has_group(reader: LogReader) -> bool:
    groups: dict[bytes, bool] = {}
    at = reader.log_start_offset
    while at < reader.high_watermark:
        info = reader.read(at, _READ_SIZE)
        for record in info.records():
            key, value = record.key, record.value
            if key is None or not key.startswith(_KEY):
                continue
            if parse_internal(Decoder.OFFSETS, key, value) is not None:
                groups[key] = value is not None
        if info.next_offset <= at:
            break
        at = info.next_offset
    return any(groups.values())


def group_config_records(root: LogRoot) -> Iterator[MetadataRecord]:
    """Yield the records of the settings of groups.

    Raises:
        CorruptDataError: The file with them is damaged.
    """
    for group, own in read_group_configs(root).items():
        for key, value in own.items():
            yield ConfigRecord(GROUP_RESOURCE, group, key, value)
