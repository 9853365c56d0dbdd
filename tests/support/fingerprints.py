"""The content of a partition as a number that does not depend on the order of reading.

A record's digest is the first 8 bytes of SHA-256 over offset, timestamp, timestamp type, key, value
and headers, each field with its length (-1 for null), big-endian. A fingerprint is the number of
records and the sum of their digests modulo 2^64. `compat/oracle/Traffic.java` computes the same for
the records of a real consumer.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

__all__ = ["NOTHING", "Fingerprint", "digest", "fingerprints", "fingerprints_of"]

MODULUS = 2**64
_FACTS = struct.Struct(">qqb")
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)
_RESULT = "topic string, partition int, count long, sum string"

Headers = Iterable[tuple[str, bytes | None]]


class Fingerprint(NamedTuple):
    """The number of records, and the sum of their digests."""

    count: int
    sum: int

    def plus(self, other: "Fingerprint") -> "Fingerprint":
        """Return the fingerprint of the union."""
        return Fingerprint(self.count + other.count, (self.sum + other.sum) % MODULUS)


NOTHING = Fingerprint(0, 0)


def digest(
    offset: int,
    timestamp: int,
    timestamp_type: int,
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> int:
    """Return the digest of a record; its timestamp is in milliseconds."""
    kept = list(headers)
    parts = [_FACTS.pack(offset, timestamp, timestamp_type)]
    parts += [_field(key), _field(value), _LENGTH.pack(len(kept))]
    for name, content in kept:
        parts += [_field(name.encode()), _field(content)]
    return int.from_bytes(hashlib.sha256(b"".join(parts)).digest()[:8], "big")


def _field(data: bytes | None) -> bytes:
    return _NULL if data is None else _LENGTH.pack(len(data)) + data


def fingerprints(frame: DataFrame) -> dict[str, Fingerprint]:
    """Return the fingerprint of each partition in a frame of the source, headers included."""
    found: dict[str, Fingerprint] = {}
    for row in frame.mapInArrow(_of_batches, _RESULT).collect():
        name = f"{row['topic']}-{row['partition']}"
        part = Fingerprint(row["count"], int(row["sum"]))
        found[name] = found.get(name, NOTHING).plus(part)
    return found


def fingerprints_of(batches: Iterable[pa.RecordBatch]) -> dict[str, Fingerprint]:
    """Return the fingerprint of each partition in batches of the source's schema, with headers."""
    return {f"{topic}-{number}": each for (topic, number), each in _added_up(batches).items()}


def _added_up(batches: Iterable[pa.RecordBatch]) -> dict[tuple[str, int], Fingerprint]:
    found: dict[tuple[str, int], Fingerprint] = {}
    for batch in batches:
        for place, one in _digests(batch):
            found[place] = found.get(place, NOTHING).plus(Fingerprint(1, one))
    return found


def _of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the fingerprints of one task's batches; runs in Spark's workers."""
    rows = [
        {"topic": topic, "partition": partition, "count": each.count, "sum": str(each.sum)}
        for (topic, partition), each in _added_up(batches).items()
    ]
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("count", pa.int64()),
            ("sum", pa.string()),
        ]
    )
    yield pa.RecordBatch.from_pylist(rows, schema)


def _digests(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], int]]:
    names = ("topic", "partition", "offset", "timestampType", "key", "value", "headers")
    microseconds = batch["timestamp"].cast(pa.int64()).to_pylist()
    columns = [batch[name].to_pylist() for name in names]
    for time, topic, partition, offset, kind, key, value, headers in zip(
        microseconds, *columns, strict=True
    ):
        pairs = [(each["key"], each["value"]) for each in headers or ()]
        one = digest(offset, time // 1000, kind, key=key, value=value, headers=pairs)
        yield (topic, partition), one
