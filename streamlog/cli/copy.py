"""`streamlog copy`: copies topics from one log root to another."""

from typing import Any

import click

from streamlog.cli.output import PARTITION_COLUMNS, Column, Kind, Output, Progress, counted, remark
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.root.offset_specs import parse_moment
from streamlog.transfer.copying import CopiedPartition, CopyRequest, TopicCopier, size_of
from streamlog.transfer.places import open_source, open_target

__all__ = ["copy"]


def copy(
    settings: Settings,
    *,
    source: str,
    target: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    moment: str | None,
) -> None:
    """Copy topics, and print what was copied of each partition."""
    to_time = None if moment is None else parse_moment(moment, SystemClock().now_ms())
    if moment is not None and to_time is None:
        raise click.BadParameter(
            f"expected milliseconds, a date or a time before now (-1h), got {moment!r}",
            param_hint="--to-time",
        )
    request = CopyRequest(topics=topics, partitions=partitions, to_time=to_time)
    here = open_source(source)
    size = size_of(here, request)
    there = open_target(target)
    rows: list[dict[str, Any]] = []
    try:
        with Progress(settings, f"copying {source}", size) as progress:
            copier = TopicCopier(here, there, request, on_progress=progress.advance)
            rows += map(_row, copier.run())
    finally:
        there.close()
    Output(settings).rows(rows, _COLUMNS)
    for each in copier.remarks:
        remark(settings, each)
    copied = sum(row["bytes"] for row in rows)
    what = f"{counted(len(rows), 'partition')}, {copied} bytes copied, checked at the target"
    remark(settings, f"{what}; commits of queries and recorded readers are not copied")


_COLUMNS = (
    *PARTITION_COLUMNS,
    Column("startOffset", "FROM", Kind.NUMBER),
    Column("endOffset", "TO", Kind.NUMBER),
    Column("batches", "BATCHES", Kind.NUMBER),
    Column("bytes", "BYTES", Kind.SIZE),
)


def _row(copied: CopiedPartition) -> dict[str, Any]:
    return {
        "topic": copied.topic_partition.topic,
        "partition": copied.topic_partition.partition,
        "startOffset": copied.start_offset,
        "endOffset": copied.end_offset,
        "batches": copied.batches,
        "bytes": copied.size,
    }
