"""`streamlog produce`: stdin or a file to the log."""

from typing import IO, TYPE_CHECKING, Any

import click

from streamlog.cli.completion import complete_topics
from streamlog.cli.settings import JSON_SHAPES, Settings, writing_verb

if TYPE_CHECKING:
    from streamlog.cli.producing import Parser

__all__ = ["produce"]


@click.command(short_help="Append stdin or a file to a topic.", epilog=JSON_SHAPES)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("file", type=click.File("rb"), default="-", metavar="[FILE]")
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write all records there, whatever they ask for and whatever their keys say.",
)
@click.option(
    "--ignore-partition",
    is_flag=True,
    help="Go by the keys, whatever partition ndjson asks for: for a copy to a topic with fewer.",
)
@click.option(
    "--atomic",
    is_flag=True,
    help="All records or none, once the input ends: nothing is written where a line is bad.",
)
@click.option(
    "-K",
    "--key-separator",
    metavar="S",
    help=r"Lines are KEY S VALUE (\t for a tab); without it lines are values.",
)
@click.option("-k", "--key", metavar="KEY", help="The key of all records; for lines without one.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of all records; may be repeated. For lines.",
)
@click.option(
    "-Z", "--null", "has_nulls", is_flag=True, help="Empty keys and values are null. For lines."
)
@click.option(
    "--timestamp",
    metavar="WHEN",
    help="The timestamp of all records: ms since 1970, 2026-11-01T10:00 (UTC unless it says"
    " otherwise), or -1h; the present unless told. For lines.",
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
    "-z",
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
    file: IO[bytes],
    partition: int | None,
    ignore_partition: bool,
    atomic: bool,
    compression_type: str,
    acks: str,
    **parsing: Any,
) -> None:
    """Append stdin, or a file, to a topic; prints a row a partition once it is synced.

    A record's partition is the one it asks for, or follows from its key as in Kafka's Java
    client. Where a line is bad, or a partition is not there, the records before it are appended
    and reported, and the exit code is 2; with --atomic nothing is appended then.

    \b
    Examples:
      echo hello | streamlog --path /tmp/log produce greetings
      printf 'eu:1\\nus:2\\n' | streamlog produce orders -K :
      streamlog produce orders lines.txt --key eu --header source=file
      streamlog cat orders --format ndjson | streamlog produce copy --format ndjson
      streamlog cat orders --format ndjson | streamlog produce smaller --format ndjson \\
        --ignore-partition
    """
    parser = _parser(**parsing)
    from streamlog.cli.output import Column, Kind, Output, remark
    from streamlog.cli.producing import AtomicProducer, LineProducer, produce_all
    from streamlog.records.record import CompressionType
    from streamlog.root.manager import LogManager
    from streamlog.root.topic_appender import TopicAppender

    if file.isatty():
        remark(settings, f"reading {parsing['input_format']} from the terminal; Ctrl-D ends")
    columns = (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", Kind.NUMBER),
        Column("baseOffset", "BASE OFFSET", Kind.NUMBER),
        Column("lastOffset", "LAST OFFSET", Kind.NUMBER),
        Column("count", "COUNT", Kind.NUMBER),
    )
    with LogManager.open(settings.root) as manager:
        kind = AtomicProducer if atomic else TopicAppender
        codec = CompressionType.of(compression_type)
        appender = kind(manager, topic, partition=partition, compression=codec)
        producer = LineProducer(appender, ignore_partition=ignore_partition)
        try:
            produce_all(settings, producer, parser, file)
        finally:
            Output(settings).rows(producer.rows(), columns)


def _parser(
    *,
    input_format: str,
    encoding: str,
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    has_nulls: bool,
    timestamp: str | None,
) -> "Parser":
    """Return what makes records of the input; refuse options that do not go together."""
    separator = _separator(key_separator, input_format)
    if input_format != "lines" and (key is not None or headers or has_nulls or timestamp):
        raise click.UsageError(
            "--key, --header, --null and --timestamp are for --format lines; ndjson has fields"
        )
    if key is not None and separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other")
    pairs = [_header(text) for text in headers]
    from streamlog.cli.moments import parse_moment
    from streamlog.cli.produce_input import LineParser, NdjsonParser
    from streamlog.cli.producing import Dressing, DressingParser
    from streamlog.clock import SystemClock

    now_ms = SystemClock().now_ms
    if input_format == "ndjson":
        return NdjsonParser(encoding, now_ms)
    time_ms = None if timestamp is None else parse_moment(timestamp, now_ms())
    if timestamp is not None and time_ms is None:
        raise click.BadParameter(
            f"{timestamp!r} is neither milliseconds nor a date nor a time before now as -1h",
            param_hint="--timestamp",
        )
    dressing = Dressing(
        None if key is None else key.encode("utf-8", "surrogateescape"),
        tuple(pairs),
        has_nulls=has_nulls,
        timestamp=time_ms,
    )
    return DressingParser(LineParser(separator, encoding, now_ms), dressing)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode("utf-8", "surrogateescape")


def _separator(text: str | None, input_format: str) -> bytes | None:
    if text is None:
        return None
    if input_format != "lines":
        raise click.UsageError("--key-separator is for --format lines")
    separator = text.replace("\\t", "\t").encode("utf-8", "surrogateescape")
    if not separator or b"\n" in separator:
        raise click.UsageError("--key-separator cannot be empty or hold a newline")
    return separator
