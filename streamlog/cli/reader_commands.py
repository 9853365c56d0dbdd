"""The command's interface, continued: the verbs of readers; see `streamlog.cli.commands`."""

from typing import Final

import click

from streamlog.cli.verb import JSON_SHAPES, verb

__all__ = ["READER_COMMANDS"]

_of_checkpoints = click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="DIR|URL",
    help="checkpointLocation of a query; repeatable. Default: all recorded readers.",
)


@click.group(short_help="Manage recorded readers.")
@verb()
def readers() -> None:
    """Manage recorded readers. Maintenance keeps records that they have not finished.

    A query with the option kafka.group.id records itself.
    """


@readers.command("list", short_help="List the recorded readers.", epilog=JSON_SHAPES)
@verb("readers:list_")
def readers_list() -> None:
    """List the recorded readers with their positions and the bytes kept for them.

    \b
    Example:
      streamlog --path /tmp/log readers list
    """


@readers.command("add", short_help="Record a query by its checkpoint.", epilog=JSON_SHAPES)
@click.argument("name")
@click.option(
    "--checkpoint",
    required=True,
    metavar="DIR",
    help="checkpointLocation of the query, on a local path.",
)
@verb("readers:add")
def readers_add() -> None:
    """Record a query by its checkpoint. The query needs no change.

    Queries that read with Spark's Kafka source can be recorded as well.

    \b
    Example:
      streamlog --path /tmp/log readers add audit --checkpoint /data/checkpoints/audit
    """


@readers.command("forget", short_help="Remove a recorded reader.")
@click.argument("name")
@verb("readers:forget")
def readers_forget() -> None:
    """Remove a recorded reader. Maintenance no longer keeps records for it.

    \b
    Example:
      streamlog --path /tmp/log readers forget audit
    """


checkpoint_argument = click.argument("checkpoint", metavar="CHECKPOINT", type=click.Path())
to_option = click.option(
    "--to", required=True, metavar="WHERE", help="earliest, latest, a time, or offsets as JSON."
)
source_option = click.option(
    "--source",
    "sources",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this source of the query, numbered from 0; repeatable. Default: all.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
stopped_option = click.option(
    "--stopped", is_flag=True, help="The query is stopped, whatever the signs."
)


@readers.command("plan", short_help="Print what a reset would do.", epilog=JSON_SHAPES)
@checkpoint_argument
@to_option
@source_option
@verb("reset:plan")
def readers_plan() -> None:
    """Print what `readers reset` would do. Changes nothing.

    \b
    Example:
      streamlog --path /tmp/log readers plan /data/checkpoints/audit --to -2h
    """


@readers.command("reset", short_help="Let a stopped query go on elsewhere.", epilog=JSON_SHAPES)
@checkpoint_argument
@to_option
@source_option
@dry_run_option
@stopped_option
@click.option(
    "--skip-unfinished", is_flag=True, help="Count a planned batch that did not finish as finished."
)
@verb("reset:reset")
def readers_reset() -> None:
    """Let a stopped query go on from other offsets. The former checkpoint is kept beside it.

    CHECKPOINT is the query's checkpointLocation, of our source or of Spark's Kafka source. WHERE is
    earliest, latest, a time (milliseconds since 1970, ISO 8601, or such as -2h before now: the
    first record of that time or later), or JSON such as {"orders":{"0":23,"1":-1}}, where -1 is the
    end, -2 the beginning, and partitions that are left out stay where they are.

    The numbers of batches go on, so an exactly-once sink appends rows that are read again. State
    and watermark stay as they are.

    Refuses while there are signs that the query runs: Spark takes no lock, so nothing shows that
    for sure. Refuses if a batch was planned but not finished: its sink may have the rows.

    \b
    Examples:
      streamlog --path /tmp/log readers reset /data/checkpoints/audit --to earliest --dry-run
      streamlog --path /tmp/log readers reset /data/checkpoints/audit --to 2026-01-31T12:00Z
      streamlog --path /tmp/log readers reset /data/checkpoints/audit --to '{"orders":{"0":23}}'
    """


@readers.command("move", short_help="Let another connector go on.", epilog=JSON_SHAPES)
@checkpoint_argument
@click.option(
    "--to",
    required=True,
    type=click.Choice(("kafka", "streamlog")),
    help="The connector that goes on.",
)
@dry_run_option
@stopped_option
@verb("reset:move")
def readers_move() -> None:
    """Let a stopped query go on with Spark's Kafka source, or with ours, at the same offsets.

    The former checkpoint is kept beside it. Kafka's source reads offsets without the leader epochs
    and topic ids that ours adds. Ours reads both; the command checks that this root has the
    offsets, and adds them.

    \b
    Examples:
      streamlog readers move /data/checkpoints/audit --to kafka
      streamlog --path /tmp/log readers move /data/checkpoints/audit --to streamlog --dry-run
    """


@click.command(short_help="Print the lag of queries.", epilog=JSON_SHAPES)
@_of_checkpoints
@click.option(
    "--over", type=click.IntRange(min=0), metavar="N", help="Exit with 1 if any lag exceeds N."
)
@click.option(
    "--over-time", metavar="DURATION", help="Exit with 1 if any lag in time exceeds 30s, 5m, 1h …"
)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C; on a terminal, in place.")
@click.option("--every", metavar="DURATION", help="Interval of --watch. Default: 2s.")
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="End --watch after N measurements."
)
@verb("lag:lag")
def lag() -> None:
    """Print the lag of queries in offsets, like kafka-consumer-groups, and in time.

    Counts from the last finished batch. Also works for queries of Spark's Kafka source, for the
    topics of this root. A partition added since then, or a topic deleted and recreated, has no
    current offset; its lag is everything it contains.

    The lag in time is the timestamp of the last record less that of the last one finished.

    \b
    Examples:
      streamlog --path /tmp/log lag --checkpoint /data/checkpoints/audit --over 100000
      streamlog --path /tmp/log lag --over-time 5m
      streamlog --path /tmp/log lag --watch --every 10s
    """


@click.command(short_help="Lag and offsets for Prometheus.")
@_of_checkpoints
@click.option(
    "--textfile", metavar="FILE", help="Write a file, for node_exporter; once or --every."
)
@click.option("--listen", metavar="HOST:PORT", help="Answer scrapes until Ctrl-C.")
@click.option("--every", metavar="DURATION", help="Write the file every 15s, 1m … until Ctrl-C.")
@verb("metrics:metrics", is_formatted=False)
def metrics() -> None:
    """Print the offsets of the log and the lag of queries in Prometheus' text format.

    Names are those of kafka_exporter where it has one. The file is replaced as a whole. A port is
    measured at each scrape. Needs the extra: pip install "pyspark-streamlog[metrics]".

    \b
    Examples:
      streamlog --path /tmp/log metrics
      streamlog --path /tmp/log metrics --textfile /var/lib/node_exporter/streamlog.prom --every 15s
      streamlog --path /tmp/log metrics --listen 127.0.0.1:9308
    """


READER_COMMANDS: Final = (readers, lag, metrics)
