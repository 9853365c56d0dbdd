"""Real record batches for the tests of this folder."""

from collections.abc import Sequence

import numpy as np

from streamlog.bucket.root import BucketRoot
from streamlog.commits.commit_log import CommitOutcome
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import StagedFile
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder, EncodedBatches
from streamlog.records.record import Record
from streamlog.topic import TopicPartition


def batches_of(values: Sequence[bytes], *, timestamp: int = 1000) -> EncodedBatches:
    """Encode values, ten to a batch; the timestamps count up."""
    parts = []
    for first in range(0, len(values), 10):
        builder = BatchBuilder(base_offset=first)
        for number, value in enumerate(values[first : first + 10]):
            builder.append(Record(value=value, timestamp=timestamp + first + number))
        parts.append(builder.build())
    buffer = np.frombuffer(bytearray(b"".join(parts)), np.uint8)
    return EncodedBatches(buffer, scan_batches(buffer).table)


def stage(
    root: BucketRoot,
    app: str,
    version: int,
    rows: dict[TopicPartition, list[bytes]],
    *,
    task: int = 0,
    timestamp: int = 1000,
) -> StagedFile:
    """Stage one task's rows."""
    with root.stager(app, version, task) as stager:
        for partition, values in rows.items():
            stager.append(partition, batches_of(values, timestamp=timestamp))
        return stager.finish(rows=sum(map(len, rows.values())), checksum=version)


def commit(root: BucketRoot, app: str, version: int, *staged: StagedFile) -> CommitOutcome:
    """Commit staged files by the settings that the root has."""
    planned = {topic: root.state.config_of(topic) for topic in root.state.topics}
    return root.commits.commit(CommitIdentity(app, version), staged, planned=planned)


def values_of(root: BucketRoot, partition: TopicPartition, *, max_bytes: int = 500) -> list[bytes]:
    """Read all values of a partition, and check that the offsets have no gaps."""
    reader = root.reader(partition)
    offset, found = reader.log_start_offset, []
    while offset < reader.log_end_offset:
        info = reader.read(offset, max_bytes)
        for record in info.records():
            assert record.offset == offset
            found.append(record.value or b"")
            offset += 1
        assert info.next_offset == offset
    return found
