"""The command's interface, continued: the verbs that show pages; see `streamlog.cli.commands`."""

from typing import Final

import click

from streamlog.cli.verb import JSON_SHAPES, decode_option, registry_option, verb

__all__ = ["PAGE_COMMANDS"]


@click.command(short_help="Write a page about a log root.", epilog=JSON_SHAPES)
@click.argument("root", required=False, type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Where to write; - for stdout. Default: report.html, stdout with --format json.",
)
@click.option(
    "--hours",
    type=click.IntRange(1, 24 * 366),
    default=48,
    show_default=True,
    metavar="N",
    help="How many hours the rates cover, up to now or to the newest record if that is old.",
)
@click.option("--verify", is_flag=True, help="Check every byte of the logs as well.")
@verb("report:report")
def report() -> None:
    """Write one HTML page about a log root: topics, partitions, segments, readers, commits, health.

    ROOT is a log root, a broker's log.dir, a partition's directory, or the URL of a root in an
    object store; by default that of --path. Nothing there is changed. Only metadata, indexes and
    the offsets of consumer groups are read, unless --verify is given. The page needs no network and
    no scripts. With --format json the same facts are printed as one object.

    \b
    Examples:
      streamlog --path /tmp/log report
      streamlog report /var/lib/kafka -o broker.html
      streamlog report s3://bucket/log --format json | jq '.topics[].name'
    """


@click.command(short_help="Show a log root in the browser, live.")
@click.argument("root", required=False, type=click.Path())
@click.option(
    "--listen",
    default="127.0.0.1:8095",
    show_default=True,
    metavar="HOST:PORT",
    help="Address on the loopback; port 0 is any free one.",
)
@click.option("--allow-writes", is_flag=True, help="Allow to produce records and to delete them.")
@click.option("--open", "should_open", is_flag=True, help="Open a browser.")
@decode_option
@registry_option
@verb("ui:ui", is_formatted=False)
def ui() -> None:
    """Show a log root in the browser: the report, live, and a browser of records.

    Records can be searched by offset, time, key, text and JSON path, followed as they arrive, and
    downloaded. Nothing is written without --allow-writes. Needs the extra `ui`. With --decode and
    --schema-registry, keys and values are shown decoded; searches look at the bytes of the log.

    \b
    Examples:
      streamlog --path /tmp/log ui
      streamlog ui /var/lib/kafka --listen 127.0.0.1:0
      streamlog ui s3://bucket/log --open
      streamlog ui /var/lib/kafka -s value=avro -r http://registry:8081
    """


PAGE_COMMANDS: Final = (report, ui)
