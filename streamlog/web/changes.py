"""The changes that pages can make, where the server allows them: produce, delete records."""

import pyarrow as pa

from streamlog.arrow.table_writer import write_table
from streamlog.bucket.places import is_bucket, root_paths
from streamlog.errors import InvalidRequestError
from streamlog.fs.local import LocalFileSystem
from streamlog.root.manager import LogManager

__all__ = ["delete_records", "parse_headers", "produce_record"]

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def parse_headers(text: str) -> list[tuple[str, bytes]]:
    """Return headers, one in each line: `name: value`.

    Raises:
        InvalidRequestError: A line has no colon.
    """
    headers = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidRequestError("not a header", got=line, expected="name: value")
        headers.append((name.strip(), value.strip().encode()))
    return headers


def produce_record(
    path: str,
    topic: str,
    *,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes]],
) -> tuple[int, int]:
    """Append one record, durably; return its partition and offset.

    Raises:
        StreamLogError: As `write_table`.
    """
    columns = {
        "key": pa.array([key], pa.binary()),
        "value": pa.array([value], pa.binary()),
        "headers": pa.array([[{"key": name, "value": it} for name, it in headers]], _HEADERS),
    }
    if partition is not None:
        columns["partition"] = pa.array([partition], pa.int32())
    (part,) = write_table(pa.table(columns), path, topic).parts
    return part.topic_partition.partition, part.base_offset


def delete_records(path: str, topic: str, partition: int, offset: int, *, force: bool) -> int:
    """Delete the records of a partition below an offset; return the new log start offset.

    Raises:
        StreamLogError: As `LogManager.delete_records`.
    """
    place = root_paths(path, LocalFileSystem())[0]
    if is_bucket(place):
        from streamlog.bucket.manager import BucketManager

        return BucketManager(place).delete_records(topic, partition, offset, force=force)
    with LogManager.open(place) as manager:
        return manager.delete_records(topic, partition, offset, force=force)
