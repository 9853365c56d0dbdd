"""The command's interface, continued: the verbs of readers; see `streamlog.cli.commands`."""

from typing import Final

import click

from streamlog.cli.verb import JSON_SHAPES, verb

__all__ = ["READER_COMMANDS"]


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


@click.command(short_help="Print the lag of queries.", epilog=JSON_SHAPES)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="DIR",
    help="checkpointLocation of a query; repeatable. Default: all recorded readers.",
)
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


READER_COMMANDS: Final = (readers, lag)
