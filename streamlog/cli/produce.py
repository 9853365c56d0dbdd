"""`streamlog produce`: stdin to the log."""

import sys

import click

from streamlog.cli.completion import complete_topics
from streamlog.cli.settings import JSON_SHAPES, Settings, writing_verb

__all__ = ["produce"]


@click.command(short_help="Append stdin to a topic.", epilog=JSON_SHAPES)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write all records there, whatever their keys say.",
)
@click.option(
    "--key-separator",
    metavar="S",
    help=r"Lines are KEY S VALUE (\t for a tab); without it lines are values.",
)
@click.option(
    "--format",
    "input_format",
    type=click.Choice(("lines", "ndjson")),
    default="lines",
    show_default=True,
    help="What the input is; ndjson as `cat --format ndjson` has it.",
)
@click.option(
    "--encoding",
    type=click.Choice(("utf8", "base64", "hex")),
    default="utf8",
    show_default=True,
    help="How keys and values are written in the input.",
)
@click.option(
    "--compression.type",
    "compression_type",
    default="none",
    show_default=True,
    type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    help="The codec.",
)
@click.option(
    "--acks",
    type=click.Choice(("0", "1", "all", "-1")),
    default="all",
    show_default=True,
    help="Kafka's word; here all is durable before it is reported.",
)
@writing_verb
def produce(
    settings: Settings,
    *,
    topic: str,
    partition: int | None,
    key_separator: str | None,
    input_format: str,
    encoding: str,
    compression_type: str,
    acks: str,
) -> None:
    """Append stdin to a topic; synced to the disk, then told: one row a partition.

    A record's partition is the one it asks for, or follows from its key as in Kafka's Java
    client. Where a line is bad, those before it are appended and told, and the exit code is 2.

    \b
    Examples:
      echo hello | streamlog --path /tmp/log produce greetings
      printf 'eu:1\\nus:2\\n' | streamlog produce orders --key-separator :
      streamlog cat orders --format ndjson | streamlog produce copy --format ndjson
    """
    separator = _separator(key_separator, input_format)
    from streamlog.cli.output import Column, Kind, Output, remark
    from streamlog.cli.produce_input import LineParser, NdjsonParser
    from streamlog.cli.producing import Parser, Producer, produce_all
    from streamlog.clock import SystemClock
    from streamlog.log.manager import LogManager
    from streamlog.log.topic_appender import TopicAppender
    from streamlog.records.record import CompressionType

    stream = sys.stdin.buffer
    if stream.isatty():
        remark(settings, f"reading {input_format} from the terminal; Ctrl-D ends")
    now_ms = SystemClock().now_ms
    parser: Parser
    if input_format == "ndjson":
        parser = NdjsonParser(encoding, now_ms)
    else:
        parser = LineParser(separator, encoding, now_ms)
    columns = (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", Kind.NUMBER),
        Column("baseOffset", "BASE OFFSET", Kind.NUMBER),
        Column("lastOffset", "LAST OFFSET", Kind.NUMBER),
        Column("count", "COUNT", Kind.NUMBER),
    )
    codec = CompressionType.of(compression_type)
    with LogManager.open(settings.root) as manager:
        producer = Producer(TopicAppender(manager, topic, partition=partition, compression=codec))
        try:
            produce_all(settings, producer, parser, stream)
        finally:
            Output(settings).rows(producer.rows(), columns)


def _separator(text: str | None, input_format: str) -> bytes | None:
    if text is None:
        return None
    if input_format != "lines":
        raise click.UsageError("--key-separator is for --format lines")
    separator = text.replace("\\t", "\t").encode("utf-8", "surrogateescape")
    if not separator or b"\n" in separator:
        raise click.UsageError("--key-separator cannot be empty or hold a newline")
    return separator
