"""`streamlog offsets`: where the partitions start, end, or stood at a time."""

from typing import TYPE_CHECKING, Any, Final

import click

from streamlog.cli.completion import complete_topics
from streamlog.cli.settings import JSON_SHAPES, Settings, reading_verb

if TYPE_CHECKING:
    from streamlog.cli.sources import Source

__all__ = ["offsets"]

_TIMES: Final = {"-2": "earliest", "-1": "latest", "-3": "max-timestamp"}  # GetOffsetShell


@click.command(short_help="Print one offset of each partition.", epilog=JSON_SHAPES)
@click.argument("source", metavar="[TOPIC|DIR]", required=False, shell_complete=complete_topics)
@click.option(
    "--time",
    "moment",
    metavar="WHEN",
    default="latest",
    show_default=True,
    help="earliest, latest (the high watermark), max-timestamp, or a time: the first record of"
    " that time or later. ms since 1970, 2026-11-01T10:00 (UTC unless it says otherwise), -1h.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; may be repeated.",
)
@reading_verb
def offsets(
    settings: Settings, *, source: str | None, moment: str, partitions: tuple[int, ...]
) -> None:
    """Print one offset of each partition, as kafka-get-offsets does.

    Without an argument: of every topic of the log root.

    \b
    Examples:
      streamlog --path /tmp/log offsets orders
      streamlog offsets orders --time earliest
      streamlog offsets /var/lib/kafka/orders-0 --time 1700000000000
    """
    from streamlog.cli.moments import parse_moment
    from streamlog.clock import SystemClock

    moment = _TIMES.get(moment, moment)
    if moment not in _TIMES.values():
        time = parse_moment(moment, SystemClock().now_ms())
        if time is None:
            raise click.BadParameter(
                f"{moment!r} is none of earliest, latest, max-timestamp, milliseconds, a date, or"
                " a time before now as -1h",
                param_hint="--time",
            )
        moment = str(time)
    from streamlog.cli.failures import Findings
    from streamlog.cli.output import Column, Kind, Output
    from streamlog.cli.sources import find_sources
    from streamlog.errors import StreamLogError

    rows = []
    with find_sources(settings, source, partitions) as sources:
        errors = list(sources.errors)
        for each in sources.opened:
            try:
                rows.append(_row(each, moment))
            except StreamLogError as error:
                errors.append(error)
    columns = (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", Kind.NUMBER),
        Column("offset", "OFFSET", Kind.NUMBER),
        Column("timestamp", "TIMESTAMP", Kind.NUMBER),
    )
    Output(settings).rows(rows, columns)
    if errors:
        raise Findings(errors)


def _row(source: "Source", moment: str) -> dict[str, Any]:
    from streamlog.records.record import IsolationLevel

    offset: int | None
    timestamp: int | None = None
    if moment == "earliest":
        offset = source.start_offset
    elif moment == "latest":
        offset = source.end_offset(IsolationLevel.READ_UNCOMMITTED)
    else:
        reader = source.reader
        is_largest = moment == "max-timestamp"
        found = reader.max_timestamp() if is_largest else reader.offset_for_timestamp(int(moment))
        offset, timestamp = (None, None) if found is None else found
    return {
        "topic": source.partition.topic,
        "partition": source.partition.partition,
        "offset": offset,
        "timestamp": timestamp,
    }
