"""`streamlog cat`: the records of a topic or a directory."""

import click

from streamlog.cli.completion import complete_topics
from streamlog.cli.settings import JSON_SHAPES, Settings, decompressing, reading_verb

__all__ = ["cat"]


@click.command(short_help="Print records.", epilog=JSON_SHAPES)
@click.argument("source", metavar="TOPIC|DIR", shell_complete=complete_topics)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; may be repeated.",
)
@click.option(
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="WHERE",
    help="Where to start: beginning, end, N, -N (the last N of each partition), or a time: s@MS,"
    " 2026-11-01T10:00 (UTC unless it says otherwise), -90s, -30m, -1h, -7d. Where to stop: e@ and"
    " a time. Both: A..B, up to B without it.",
)
@click.option(
    "-c", "--count", type=click.IntRange(min=0), metavar="N", help="At most N records in all."
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Go on with what is appended, in partitions added later, too, until Ctrl-C.",
)
@click.option(
    "--isolation-level",
    default="read_committed",
    show_default=True,
    type=click.Choice(("read_committed", "read_uncommitted")),
    help="Whether to leave out what is aborted or not yet committed.",
)
@click.option(
    "--output-format",
    metavar="FORMAT",
    help=r"As kcat's -f: %t %p %o %T %k %K %s %S %R %h and \n \t \xHH.",
)
@click.option(
    "--encoding",
    type=click.Choice(("utf8", "base64", "hex")),
    default="utf8",
    show_default=True,
    help="How keys, values and header values become text.",
)
@decompressing
@reading_verb
def cat(
    settings: Settings,
    *,
    source: str,
    partitions: tuple[int, ...],
    offsets: tuple[str, ...],
    count: int | None,
    follow: bool,
    isolation_level: str,
    output_format: str | None,
    encoding: str,
    max_decompressed_bytes: int | None,
) -> None:
    """Print records, partition by partition, from the beginning to the present end.

    The argument is a topic of the log root, or any path with a slash: a log root, a partition's
    directory, one .log file, whoever wrote it. Nothing there is changed. The first records before
    damage are printed, then the damage is told and the exit code is 1.

    \b
    Examples:
      streamlog --path /tmp/log cat orders -o -10
      streamlog cat orders -o -1h --output-format '%p:%o %k=%s\\n'
      streamlog cat orders -p 0 -o 100..200
      streamlog cat orders -o 2026-11-01T10:00..2026-11-01T10:05
      streamlog cat /var/lib/kafka/orders-0 --format ndjson | jq .value
      streamlog cat orders --format ndjson | streamlog produce copy --format ndjson
    """
    if output_format is not None and settings.format is not None:
        raise click.UsageError("--output-format and --format exclude each other")
    if follow and settings.format == "json":
        raise click.UsageError("--follow never ends, and a JSON list must; use --format ndjson")
    from streamlog.cli.moments import OffsetSpec, parse_offsets
    from streamlog.cli.output import Output
    from streamlog.cli.reading import Reading, read_all
    from streamlog.cli.record_writers import JsonWriter, TableWriter, TextWriter
    from streamlog.cli.sources import find_sources
    from streamlog.clock import SystemClock
    from streamlog.records.record import IsolationLevel

    output = Output(settings)
    writer: TextWriter | TableWriter | JsonWriter
    if output_format is not None:
        writer = TextWriter(output, output_format, encoding)
    elif output.format == "table":
        writer = TableWriter(output, encoding)
    else:
        writer = JsonWriter(output, encoding, is_list=output.format == "json")
    clock = SystemClock()
    span = parse_offsets(offsets, clock.now_ms())
    if follow and span.end != OffsetSpec("end"):
        raise click.UsageError("--follow has no end; leave the end out of --offset")
    reading = Reading(span, count, follow, IsolationLevel(isolation_level))
    limit = max_decompressed_bytes
    with find_sources(settings, source, partitions, max_decompressed_bytes=limit) as sources:
        read_all(settings, sources, reading, writer, clock)
