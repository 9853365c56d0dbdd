"""`infer_json_schema`: a schema for the JSON of a topic, from a sample of its records."""

import contextlib
from typing import Final, Literal

import pyarrow as pa

from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.log_view import OffsetRange, TopicChoice
from streamlog.arrow.reading import read_ranges
from streamlog.arrow.views import open_read_roots, open_view
from streamlog.bucket.places import root_paths
from streamlog.decoding import json_inference
from streamlog.errors import InvalidRequestError
from streamlog.fs.local import LocalFileSystem
from streamlog.records.record import IsolationLevel
from streamlog.root.read_roots import ReadRoots, RootPaths
from streamlog.topic import TopicPartition

__all__ = ["infer_json_schema"]

_FETCH_BYTES: Final = 1 << 20


def infer_json_schema(
    path: RootPaths,
    topic: str,
    *,
    sample: int = 10_000,
    field: Literal["key", "value"] = "value",
) -> str:
    """Return a schema that fits the JSON of a topic, from a sample of its records.

    The sample is the beginning and the end of each partition, so that it has old and new records.
    Look at the result before you use it: a field that the sample does not have is not in it.

    Args:
        path: A log root; see `read_table`.
        topic: The topic.
        sample: Maximum number of offsets to look at.
        field: What the JSON is: `value` or `key`. Confluent's framing is skipped.

    Returns:
        A DDL such as `id BIGINT, name STRING`: for the option `valueSchema`, for Spark's
        `from_json`, and for `pyspark.sql.types.StructType.fromDDL`.

    Raises:
        UnknownTopicError: No such path or topic.
        InvalidRequestError: No value of the sample is a JSON object with a field.
        CorruptDataError: A batch is damaged.
        StorageError: The disk or the store prevents reading.
    """
    if sample < 1 or field not in ("key", "value"):
        raise InvalidRequestError(
            "invalid argument of infer_json_schema",
            got=f"sample={sample!r}, field={field!r}",
            expected="a positive sample, and key or value",
        )
    fs = LocalFileSystem()
    roots = open_read_roots(root_paths(path, fs), fs=fs)
    committed = IsolationLevel.READ_COMMITTED
    with contextlib.closing(open_view(roots, TopicChoice(topics=(topic,)), committed)) as view:
        bounds = {
            partition: (each.log_start_offset, each.end_offset)
            for partition, each in view.bounds.items()
        }
        ranges = [view.planned(part) for part in _sampled(bounds, sample)]
        batches = read_ranges(
            ranges,
            decoder=ArrowDecoder((field,)),
            isolation=committed,
            fail_on_data_loss=False,  # retention may delete records meanwhile
            fs=roots.fs if isinstance(roots, ReadRoots) else fs,
            fetch_bytes=_FETCH_BYTES,
        )
        values = [batch.column(field) for batch in batches]
    found = pa.chunked_array(values, pa.binary()).combine_chunks()
    return json_inference.infer_json_schema(found)


def _sampled(bounds: dict[TopicPartition, tuple[int, int]], sample: int) -> list[OffsetRange]:
    """Return the beginning and the end of each partition, about equal shares of the sample."""
    used = {partition: each for partition, each in bounds.items() if each[0] < each[1]}
    parts: list[OffsetRange] = []
    left = sample
    for index, (partition, (start, end)) in enumerate(sorted(used.items())):
        share = max(1, left // (len(used) - index))
        if left <= 0:
            break
        first = min(end, start + (share + 1) // 2)
        last = max(first, end - share // 2)
        parts.append(OffsetRange(*partition, start, first))
        if last < end:
            parts.append(OffsetRange(*partition, last, end))
        left -= first - start + end - last
    return parts
