"""The command's interface, continued: export and import; see `streamlog.cli.commands`."""

import re
from typing import Any, Final

import click

from streamlog.cli.verb import (
    JSON_SHAPES,
    complete_topics,
    decode_option,
    registry_option,
    schema_options,
    verb,
)

__all__ = ["EXCHANGE_COMMANDS"]

_FORMATS: Final = ("ndjson", "csv", "parquet", "delta", "iceberg")
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE: Final = re.compile(r"([0-9]{1,15}) ?([KMG]?)(?:i?B)?", re.ASCII | re.IGNORECASE)


class _Size(click.ParamType[int]):
    """A number of bytes, such as `128MiB`; K, M and G are powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        found = _SIZE.fullmatch(str(value))
        if found is None:
            self.fail(f"expected a size such as 128MiB, got {value!r}", param, ctx)
        return int(found[1]) * _UNITS[found[2].upper()]


_encoding = click.option(
    "--encoding",
    type=click.Choice(("utf8", "base64", "hex")),
    help="Encoding of keys, values and header values in ndjson and CSV. Default: utf8.",
)
_catalog = click.option(
    "--catalog",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Catalog of an Iceberg table, by its name in pyiceberg's configuration.",
)


@click.command("export", short_help="Export topics to files or tables.", epilog=f"{JSON_SHAPES}")
@click.argument("source", metavar="TOPIC|DIR", shell_complete=complete_topics)
@click.argument("target", metavar="TARGET")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(_FORMATS),
    default="parquet",
    show_default=True,
    help="Format of the target.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; repeatable.",
)
@click.option(
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="WHERE",
    help="Start of partitions that the target has nothing of: beginning, end, N, -N (the last N"
    " offsets) or a time, as of `cat`. End of all: e@TIME. Both: A..B, exclusive of B.",
)
@click.option(
    "--columns",
    metavar="NAME,…",
    help="Only these columns. Default: key, value, topic, partition, offset, timestamp,"
    " timestampType, headers.",
)
@click.option(
    "--target-file-size",
    type=_Size(),
    default="128MiB",
    show_default=True,
    metavar="SIZE",
    help="Size at which a file is complete and the next one begins.",
)
@_encoding
@click.option(
    "--isolation-level",
    default="read_committed",
    show_default=True,
    type=click.Choice(("read_committed", "read_uncommitted")),
    help="Whether to leave out aborted records and stop before open transactions.",
)
@_catalog
@decode_option
@registry_option
@schema_options("The schema that decides the types. Default: the latest one of TOPIC-value.")
@click.option(
    "--value-subject",
    metavar="NAME",
    help="Take the latest schema of this subject instead of TOPIC-value.",
)
@click.option("--key-subject", metavar="NAME", help="The same for keys; TOPIC-key by default.")
@click.option(
    "--mode",
    type=click.Choice(("PERMISSIVE", "FAILFAST"), case_sensitive=False),
    default="PERMISSIVE",
    show_default=True,
    help="What becomes of a record that cannot be decoded: a null with the reason in the column"
    " _error, or an error that ends its partition.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be exported; write nothing.")
@verb("exchange:export", is_formatted=False)
def export() -> None:
    """Export topics to files or to a table, with their offsets.

    Run the same command again to export what is new, or to go on after an interruption: no record
    is written twice. TARGET is a directory, for files also a URL of an object store, or
    NAMESPACE.TABLE of an Iceberg table. DIR may be a broker's log.dir; nothing there is changed.

    With --decode, keys and values become typed columns, or nested JSON in ndjson.

    \b
    Examples:
      streamlog --path /tmp/log export orders /data/orders
      streamlog export orders s3://bucket/orders --target-file-size 512MiB
      streamlog export orders /data/orders-csv --format csv --columns key,value,offset
      streamlog export orders /data/orders-delta --format delta
      streamlog export orders shop.orders --format iceberg --catalog prod
      streamlog export orders /data/orders -s value=avro -r http://localhost:8081
      streamlog export /mnt/kafka-logs/orders-0 /data/orders-0 -o -7d
    """


@click.command("import", short_help="Import files or tables into a topic.", epilog=f"{JSON_SHAPES}")
@click.argument("source", metavar="SOURCE")
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(_FORMATS),
    help="Format of the source. Default: that of its files' names, or Delta for such a directory.",
)
@click.option(
    "--columns",
    metavar="NAME[=COLUMN],…",
    help="Columns to import, and their names in the source. Default: those of key, value, headers,"
    " partition and timestamp that are there; any unknown one is an error.",
)
@_encoding
@click.option(
    "-z",
    "--compression.type",
    "compression_type",
    default="none",
    show_default=True,
    type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    help="Compression codec.",
)
@click.option(
    "--acks",
    type=click.Choice(("0", "1", "all", "-1")),
    default="all",
    show_default=True,
    help="How many replicas must hold the rows.",
)
@_catalog
@click.option(
    "--table-version",
    type=int,
    metavar="N",
    help="Version of a Delta table, snapshot id of an Iceberg table. Default: the last.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be imported; write nothing.")
@verb("exchange:import_", is_formatted=False)
def import_() -> None:
    """Import files or a table into a topic, each row exactly once.

    Run the same command again to go on after an interruption, or to import files that are new in
    the directory. SOURCE is a file, a directory of files or of a Delta table, a URL of either, or
    NAMESPACE.TABLE of an Iceberg table. A row goes to the partition it names, else its key decides.

    \b
    Examples:
      streamlog --path /tmp/log import /data/orders orders
      streamlog import clicks.csv clicks --columns key=user,value=payload
      streamlog import s3://bucket/orders orders --compression.type zstd
      streamlog import /data/orders-delta orders --columns key,value,timestamp
      streamlog import shop.orders orders --format iceberg --catalog prod
    """


EXCHANGE_COMMANDS: Final = (export, import_)
