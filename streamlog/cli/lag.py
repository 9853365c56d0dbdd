"""`streamlog lag`: how far behind the log queries are, from their checkpoints."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from streamlog.cli.settings import JSON_SHAPES, Settings, reading_verb

if TYPE_CHECKING:
    from streamlog.root.manager import LogManager
    from streamlog.root.readers import Reader

__all__ = ["lag"]


@click.command(short_help="Print how far queries are behind.", epilog=JSON_SHAPES)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="DIR",
    help="A query's checkpointLocation; may be repeated. Without one: every recorded reader.",
)
@click.option(
    "--over", type=click.IntRange(min=0), metavar="N", help="Exit with 1 where a lag is above N."
)
@reading_verb
def lag(settings: Settings, *, checkpoints: tuple[str, ...], over: int | None) -> None:
    """Print how many offsets queries are behind, as kafka-consumer-groups does.

    What a query has finished counts; also one of Spark's own Kafka source, for the topics that
    are here. A partition that was added since, and a topic that was deleted and created again,
    has no current offset: it lags by all that it holds.

    \b
    Example:
      streamlog --path /tmp/log lag --checkpoint /data/checkpoints/audit --over 100000
    """
    from streamlog.cli.failures import EXIT_FINDING
    from streamlog.cli.looked_at import counted
    from streamlog.cli.output import Column, Kind, Output, remark
    from streamlog.fs.local import LocalFileSystem
    from streamlog.root.manager import LogManager
    from streamlog.root.readers import list_readers, reader_at

    fs = LocalFileSystem()
    with LogManager.open(settings.root) as manager:
        found = [reader_at(fs, each, each, now_ms=0) for each in checkpoints]
        readers = found or list_readers(fs, manager.root)
        rows = [row for reader in readers for row in _rows(manager, reader)]
    columns = (
        Column("group", "GROUP"),
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", Kind.NUMBER),
        Column("currentOffset", "CURRENT-OFFSET", Kind.NUMBER),
        Column("logEndOffset", "LOG-END-OFFSET", Kind.NUMBER),
        Column("lag", "LAG", Kind.NUMBER),
    )
    Output(settings).rows(rows, columns)
    if not readers:
        remark(settings, "no reader is recorded: name a query's checkpoint with --checkpoint DIR")
    elif not rows:
        seen = counted(len(readers), "reader")
        remark(settings, f"{seen}, and no offset of a topic of this root in what they finished")
    if over is not None and any(row["lag"] > over for row in rows):
        raise click.exceptions.Exit(EXIT_FINDING)


def _rows(manager: "LogManager", reader: "Reader") -> Iterator[dict[str, Any]]:
    """Yield a row for each partition that a reader reads, or is going to read."""
    from streamlog.topic import TopicPartition

    read = {partition.topic for partition in reader.position.offsets}
    for topic in sorted(read.intersection(manager.topics())):
        for number in manager.partitions(topic):
            partition, log = TopicPartition(topic, number), manager.reader(topic, number)
            first = reader.goes_on_from(partition, log.topic_id)
            if first is None:
                continue
            yield {
                "group": reader.name,
                "topic": topic,
                "partition": number,
                "currentOffset": reader.stands_at(partition, log.topic_id),
                "logEndOffset": log.high_watermark,
                "lag": max(0, log.high_watermark - max(first, log.log_start_offset)),
            }
