"""Requests of consumers, and logs to read."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamlog import LogManager, Record
from streamlog.records.batch import read_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog
from tests.gateway.wire_client import WireClient

NOW = int(time.time() * 1000)
VERSIONS = range(4, 19)


def create(root: Path, topic: str, partitions: int = 1, **configs: Any) -> str:
    """Create a topic; return its id."""
    with LogManager.open(root, create=True) as manager:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        return manager.create_topic(topic, partitions, named).topic_id


@contextmanager
def writing(root: Path, topic: str, partition: int = 0) -> Iterator[PartitionLog]:
    """Open a partition as another process would."""
    with LogManager.open(root) as manager:
        yield manager.log(topic, partition)


def append(root: Path, topic: str, *values: bytes, partition: int = 0) -> None:
    """Append one batch for each value."""
    with writing(root, topic, partition) as log:
        for value in values:
            log.append([Record(value=value)])


def append_transaction(log: PartitionLog, producer: int, sequence: int, value: bytes) -> None:
    """Append a record of a transaction that stays open."""
    builder = BatchBuilder(
        producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )
    builder.append(Record(value=value, timestamp=NOW))
    log.append_as_leader(builder.build())


def end_transaction(log: PartitionLog, producer: int, *, commits: bool) -> None:
    """Append the marker that ends it."""
    kind = ControlRecordType.COMMIT if commits else ControlRecordType.ABORT
    marker = build_marker(
        EndTransactionMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=NOW
    )
    log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)


def request(
    version: int,
    topic: str | tuple[str, str],
    offsets: dict[int, int],
    partition: dict[str, Any] | None = None,
    **values: Any,
) -> dict[str, Any]:
    """Return the fields of a Fetch of partitions from offsets.

    Args:
        version: Its version.
        topic: The topic's name, or its name and id.
        offsets: The offset of each partition.
        partition: More fields of each partition.
        values: More fields of the request.
    """
    name, topic_id = topic if isinstance(topic, tuple) else (topic, topic)
    named = {"topicId": topic_id} if version >= 13 else {"topic": name}
    wanted = [
        {"partition": number, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}
        | (partition or {})
        for number, offset in offsets.items()
    ]
    fields = {"maxWaitMs": 0, "minBytes": 1, "maxBytes": 50 << 20, "isolationLevel": 0}
    fields["topics"] = [named | {"partitions": wanted}]
    return fields | values


def fetch_one(client: WireClient, version: int, *args: Any, **values: Any) -> dict[str, Any]:
    """Fetch one partition; return its fields."""
    answer = client.call("Fetch", version, **request(version, *args, **values))
    assert answer["errorCode"] == 0
    ((found,),) = [topic["partitions"] for topic in answer["responses"]]
    result: dict[str, Any] = found
    return result


def values_in(records: bytes) -> list[bytes | None]:
    """Return the values of all whole batches."""
    return [each.value for batch in read_batches(records) for each in batch.records()]
