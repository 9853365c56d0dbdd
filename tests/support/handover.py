"""Handover of a root to a broker and back, and a substitute for the broker.

`play_broker` changes the metadata log as a controller does at its first start and at a shutdown;
`tests/programs/compat/test_handover.py` uses a real broker.
"""

from collections.abc import Sequence
from random import Random

from streamlog.clock import Clock, ManualClock
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import make_directories, read_file
from streamlog.fs.log_root import LogRoot
from streamlog.handover.cluster_image import BOOTSTRAP_CHECKPOINT, CLUSTER_METADATA
from streamlog.handover.from_kafka import FromKafka
from streamlog.handover.plan import HandoverPlan
from streamlog.handover.to_kafka import ToKafka
from streamlog.partition.reader import LogReader
from streamlog.protocol.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from streamlog.records.batch import read_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from tests.support.commits import NOW, ROOT

__all__ = [
    "begin_transactions",
    "bootstrap_records",
    "from_kafka",
    "metadata_log",
    "play_broker",
    "to_kafka",
]

CLOCK = ManualClock(NOW)


def to_kafka(fs: FileSystem, root: str = ROOT, clock: Clock = CLOCK) -> HandoverPlan:
    """Hand a root over as the command does."""
    way = ToKafka(LogRoot(root, fs, clock, Random(5)))
    plan = way.plan()
    way.apply(plan)
    return plan


def from_kafka(fs: FileSystem, root: str = ROOT, clock: Clock = CLOCK) -> HandoverPlan:
    """Take a root back as the command does."""
    way = FromKafka(LogRoot.at(root, fs=fs, clock=clock))
    plan = way.plan()
    way.apply(plan)
    return plan


def begin_transactions(fs: FileSystem, partition: str, count: int) -> list[int]:
    """Let `count` producers begin a transaction each in one partition; return their offsets."""
    begun = []
    with PartitionLog.open(partition, fs=fs, clock=CLOCK, random=Random(3)) as log:
        for producer_id in range(count):
            builder = BatchBuilder(
                producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
            )
            builder.append(Record(value=b"undecided", timestamp=NOW))
            begun.append(log.append_as_leader(builder.build()).base_offset)
    return begun


def bootstrap_records(fs: FileSystem, root: str = ROOT) -> list[MetadataRecord]:
    """Return the records in a root's `bootstrap.checkpoint`."""
    data = read_file(fs, f"{root}/{BOOTSTRAP_CHECKPOINT}", max_size=1 << 30)
    return [
        decode_metadata_record(record.value or b"")
        for batch in read_batches(data)
        if not batch.is_control
        for record in batch.records()
    ]


def metadata_log(records: Sequence[MetadataRecord]) -> bytes:
    """Return the bytes of a metadata log that holds these records."""
    builder = BatchBuilder(partition_leader_epoch=1)
    for record in records:
        builder.append(Record(None, encode_metadata_record(record), timestamp=NOW))
    return builder.build()


def play_broker(
    fs: FileSystem, root: str = ROOT, more: Sequence[MetadataRecord] = (), *, values: int = 0
) -> None:
    """Start on a root, lead every partition, append to each, and stop.

    Args:
        fs: The file system of the root.
        root: A log.dir.
        more: Additional metadata records.
        values: The number of records for each partition.
    """
    known = bootstrap_records(fs, root)
    partitions = [each for each in known if isinstance(each, PartitionRecord)]
    elected = [PartitionChangeRecord(each.topic_id, each.partition, 1, None) for each in partitions]
    make_directories(fs, f"{root}/{CLUSTER_METADATA}")
    log = f"{root}/{CLUSTER_METADATA}/{0:020d}.log"
    with fs.open(log, OpenMode.CREATE) as file:
        file.pwrite(metadata_log([*known, *elected, *more]), 0)
        file.sync()
    fs.sync_directory(f"{root}/{CLUSTER_METADATA}")
    for each in partitions:
        _lead(fs, f"{root}/t-{each.partition}", each.leader_epoch + 1, values)


def _lead(fs: FileSystem, path: str, epoch: int, values: int) -> None:
    with LogReader.open(path, fs=fs) as reader:
        end, active, epochs = (
            reader.log_end_offset,
            reader.segments[-1],
            reader.leader_epochs.copy(),
        )
    epochs.assign(epoch, end)
    epochs.store(fs, path)
    if values:
        builder = BatchBuilder(base_offset=end, partition_leader_epoch=epoch)
        for number in range(values):
            builder.append(Record(None, b"the broker's %d" % number, timestamp=NOW))
        with fs.open(active.path, OpenMode.WRITE) as file:
            file.pwrite(builder.build(), active.size)
            file.sync()
