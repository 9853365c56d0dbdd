"""The metadata of a KRaft cluster: reads its metadata log, and writes the file that starts one.

    ROOT/__cluster_metadata-0/
        00000000000000000123-0000000004.checkpoint    a snapshot of all records below offset 123
        00000000000000000100.log …                    the records
    ROOT/bootstrap.checkpoint                         the first records of an empty metadata log

A controller whose metadata log is empty starts with the records of `bootstrap.checkpoint`. Usually
they only set a version, but topics and partitions work as well, and get the ids and leader epochs
in the file.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamlog.errors import CorruptDataError, CorruptRecordError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import read_file
from streamlog.partition.reader import LogReader
from streamlog.protocol.metadata_records import (
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    MetadataRecordType,
    OtherRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from streamlog.records.batch import read_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record

__all__ = [
    "BOOTSTRAP_CHECKPOINT",
    "CLUSTER_METADATA",
    "ClusterImage",
    "PartitionImage",
    "TopicImage",
    "encode_bootstrap",
    "read_cluster_image",
]

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"  # BootstrapDirectory
CLUSTER_METADATA: Final = "__cluster_metadata-0"  # Topic.CLUSTER_METADATA_TOPIC_PARTITION
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint", re.ASCII)  # Snapshots
_MAX_SNAPSHOT_SIZE: Final = 1 << 30
_READ_SIZE: Final = 1 << 20
_RECORDS_IN_A_BATCH: Final = 1000  # far below 8 MiB, the largest batch of a metadata log
_HEADER_KEY: Final = b"\x00\x00\x00\x03"  # ControlRecordType.SNAPSHOT_HEADER
_HEADER_VALUE: Final = bytes(11)  # version 0, time of the last record 0, no tagged fields
_FOOTER_KEY: Final = b"\x00\x00\x00\x04"  # ControlRecordType.SNAPSHOT_FOOTER
_FOOTER_VALUE: Final = bytes(3)

# Records that do not depend on brokers or topics, so they are copied unchanged.
_CARRIED: Final = frozenset(
    {
        MetadataRecordType.DELEGATION_TOKEN,
        MetadataRecordType.USER_SCRAM_CREDENTIAL,
        MetadataRecordType.CLIENT_QUOTA,
        MetadataRecordType.ACCESS_CONTROL_ENTRY,
        MetadataRecordType.REMOVE_ACCESS_CONTROL_ENTRY,
        MetadataRecordType.REMOVE_USER_SCRAM_CREDENTIAL,
        MetadataRecordType.REMOVE_DELEGATION_TOKEN,
    }
)


class PartitionImage(NamedTuple):
    """A partition in a cluster's metadata."""

    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(slots=True)
class TopicImage:
    """A topic in a cluster's metadata: its id, its partitions by number, its settings."""

    topic_id: str
    partitions: dict[int, PartitionImage] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)


class ClusterImage:
    """A cluster's metadata as of the last record applied.

    Attributes:
        topics: Topics by name.
        features: Levels of features by name.
        next_producer_id: The first producer id that is not assigned.
        groups: Settings of groups by name.
        carried: Records that do not depend on brokers or topics, in order.

    Source: org.apache.kafka.image.MetadataImage.
    """

    __slots__ = (
        "_names",
        "_transaction",
        "carried",
        "features",
        "groups",
        "next_producer_id",
        "topics",
    )

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.features: dict[str, int] = {}
        self.groups: dict[str, dict[str, str]] = {}
        self.next_producer_id = 0
        self.carried: list[MetadataRecord] = []
        self._names: dict[str, str] = {}
        self._transaction: list[MetadataRecord] | None = None

    def apply(self, record: MetadataRecord) -> None:
        """Apply the next record; records of a transaction are applied when it ends.

        Raises:
            CorruptRecordError: The record changes an unknown topic or partition.
        """
        kind = record.api_key if isinstance(record, OtherRecord) else None
        if kind == MetadataRecordType.BEGIN_TRANSACTION:
            self._transaction = []
        elif kind == MetadataRecordType.ABORT_TRANSACTION:
            self._transaction = None
        elif kind == MetadataRecordType.END_TRANSACTION:
            held, self._transaction = self._transaction or [], None
            for each in held:
                self._apply(each)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        match record:
            case TopicRecord():
                self._names[record.topic_id] = record.name
                self.topics[record.name] = TopicImage(record.topic_id)
            case PartitionRecord():
                made = PartitionImage(record.leader_epoch, record.replicas)
                self._topic(record.topic_id).partitions[record.partition] = made
            case PartitionChangeRecord():
                self._change(record)
            case RemoveTopicRecord():
                self._topic(record.topic_id)
                del self.topics[self._names.pop(record.topic_id)]
            case ConfigRecord():
                self._configure(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case FeatureLevelRecord():
                self.features[record.name] = record.level
            case OtherRecord():
                if record.api_key in _CARRIED:
                    self.carried.append(record)

    def _change(self, record: PartitionChangeRecord) -> None:
        partitions = self._topic(record.topic_id).partitions
        known = partitions.get(record.partition)
        if known is None:
            raise CorruptRecordError(
                "cluster metadata changes a partition that was never created",
                got=f"partition {record.partition} of topic id {record.topic_id}",
            )
        partitions[record.partition] = PartitionImage(
            known.leader_epoch + (record.leader is not None),
            known.replicas if record.replicas is None else record.replicas,
        )

    def _configure(self, record: ConfigRecord) -> None:
        if record.resource_type == GROUP_RESOURCE:
            _set(self.groups.setdefault(record.resource_name, {}), record)
        elif record.resource_type != TOPIC_RESOURCE:
            self.carried.append(record)
        elif record.resource_name in self.topics:
            _set(self.topics[record.resource_name].configs, record)

    def _topic(self, topic_id: str) -> TopicImage:
        name = self._names.get(topic_id)
        if name is None:
            raise CorruptRecordError(
                "cluster metadata changes a topic that was never created", got=topic_id
            )
        return self.topics[name]


def _set(configs: dict[str, str], record: ConfigRecord) -> None:
    configs.pop(record.key, None)
    if record.value is not None:
        configs[record.key] = record.value


# ---- reading --------------------------------------------------------------------------------
def read_cluster_image(fs: FileSystem, directory: str) -> ClusterImage:
    """Read a metadata log to its end; in a cluster of one node all its records are committed.

    Args:
        fs: The file system of the directory.
        directory: A `__cluster_metadata-0`; read-only and without locks.

    Raises:
        CorruptDataError: A file is damaged.
        StorageError: A file cannot be read.
    """
    image = ClusterImage()
    snapshots = [name for name in fs.list(directory) if _SNAPSHOT.fullmatch(name)]
    position = 0
    if snapshots:
        path = f"{directory}/{max(snapshots)}"
        position = int(max(snapshots)[:20])
        _apply_all(image, _snapshot_records(fs, path), path)
    with LogReader.open(directory, fs=fs) as reader:
        _apply_all(image, _log_records(reader, max(position, reader.log_start_offset)), directory)
    return image


def _apply_all(image: ClusterImage, records: Iterable[Record], path: str) -> None:
    for record in records:
        try:
            image.apply(decode_metadata_record(record.value or b""))
        except CorruptDataError as error:
            error.path, error.offset = path, record.offset
            raise


def _snapshot_records(fs: FileSystem, path: str) -> Iterator[Record]:
    for batch in read_batches(read_file(fs, path, max_size=_MAX_SNAPSHOT_SIZE), path=path):
        batch.check()
        if not batch.is_control:
            yield from batch.records()


def _log_records(reader: LogReader, start_offset: int) -> Iterator[Record]:
    at = start_offset
    while at < reader.log_end_offset:
        info = reader.read(at, _READ_SIZE)
        yield from info.records()
        at = info.next_offset


# ---- writing --------------------------------------------------------------------------------
def encode_bootstrap(records: Iterable[MetadataRecord], *, now_ms: int) -> bytes:
    """Return a `bootstrap.checkpoint` with these records.

    Args:
        records: The first records of an empty metadata log, with a level of `metadata.version`.
        now_ms: The timestamp of the records.

    Source: org.apache.kafka.metadata.util.BatchFileWriter.
    """
    batches = [_batch([Record(_HEADER_KEY, _HEADER_VALUE)], 0, now_ms, is_control=True)]
    values = [encode_metadata_record(record) for record in records]
    for at in range(0, len(values), _RECORDS_IN_A_BATCH):
        chunk = [Record(None, value) for value in values[at : at + _RECORDS_IN_A_BATCH]]
        batches.append(_batch(chunk, at + 1, now_ms))
    footer = [Record(_FOOTER_KEY, _FOOTER_VALUE)]
    batches.append(_batch(footer, len(values) + 1, now_ms, is_control=True))
    return b"".join(batches)


def _batch(
    records: list[Record], base_offset: int, now_ms: int, *, is_control: bool = False
) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, is_control=is_control, partition_leader_epoch=0)
    for record in records:
        builder.append(record._replace(timestamp=now_ms))
    return builder.build()
