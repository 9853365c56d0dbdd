"""The lag of a streaming query, computed from the progress that Spark reports.

Spark's Kafka source reports its lag as `metrics`. A Python source can report neither metrics nor
its name: Spark fills `description` with the name of a Java object.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from streamlog.errors import InvalidOptionError, InvalidRequestError
from streamlog.query.offsets import SourceOffset, parse_source_offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ["OffsetsBehindLatest", "lag", "offsets_of"]


class OffsetsBehindLatest(NamedTuple):
    """How many offsets the partitions of a source are behind; named as in Kafka's `metrics`.

    Attributes:
        min_offsets_behind_latest: The smallest lag of a partition.
        max_offsets_behind_latest: The largest lag of a partition.
        avg_offsets_behind_latest: The mean.
        partitions: The lag of each partition, by `topic-partition`.
    """

    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    partitions: Mapping[str, int]


def lag(
    progress: "StreamingQueryProgress | Mapping[str, Any] | str | None",
) -> list[OffsetsBehindLatest | None]:
    """Return how far each source of a query was behind when a batch ended.

    Args:
        progress: `query.lastProgress`, the progress of a listener's event, or its JSON.

    Returns:
        One for each source, in their order; None for a source of another kind, or one that has
        not reported yet. Empty before the first batch.

    Raises:
        InvalidRequestError: `progress` is not the progress of a query.

    Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream.metrics.
    """
    if progress is None:
        return []
    if not isinstance(progress, Mapping):
        progress = json.loads(progress if isinstance(progress, str) else progress.json)
    sources = progress.get("sources") if isinstance(progress, Mapping) else None
    if not isinstance(sources, list):
        raise InvalidRequestError(
            "not the progress of a query", got=repr(progress)[:80], expected="query.lastProgress"
        )
    return [_behind(source) for source in sources]


def _behind(source: Mapping[str, Any]) -> OffsetsBehindLatest | None:
    end, latest = offsets_of(source.get("endOffset")), offsets_of(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    partitions = {
        str(partition): max(0, offset - end.offsets.get(partition, 0))
        for partition, offset in sorted(latest.offsets.items())
    }
    counts = list(partitions.values()) or [0]
    return OffsetsBehindLatest(min(counts), max(counts), sum(counts) / len(counts), partitions)


def offsets_of(document: object) -> SourceOffset | None:
    """Return an offset of a progress; None without one, or of a source of another kind."""
    try:
        return parse_source_offset(document) if isinstance(document, str | Mapping) else None
    except InvalidOptionError:  # a source of another kind
        return None
