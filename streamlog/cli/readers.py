"""`streamlog readers`: who reads this root, how far, and what is kept for whom."""

from typing import TYPE_CHECKING, Any

import click

from streamlog.cli.settings import JSON_SHAPES, Settings, reading_verb

if TYPE_CHECKING:
    from streamlog.root.readers import Reader

__all__ = ["readers"]


@click.group(short_help="Record who reads this root.")
@reading_verb
def readers(settings: Settings) -> None:
    """Record who reads this root: maintenance keeps what a recorded reader has not finished.

    A query with the option kafka.group.id records itself.
    """


@readers.command("list", short_help="List the recorded readers.", epilog=JSON_SHAPES)
@reading_verb
def list_(settings: Settings) -> None:
    """List the recorded readers, where each is, and how many bytes are kept for it.

    \b
    Example:
      streamlog --path /tmp/log readers list
    """
    from streamlog.cli.looked_at import counted
    from streamlog.cli.output import remark
    from streamlog.clock import SystemClock
    from streamlog.fs.local import LocalFileSystem
    from streamlog.root.manager import LogManager
    from streamlog.root.readers import list_readers

    fs, clock = LocalFileSystem(), SystemClock()
    with LogManager.open(settings.root) as manager:
        known = list_readers(fs, manager.root)
        minutes = manager.server_config.offsets_retention_minutes
        held = {
            (each.reader, each.partition): each.bytes
            for topic in manager.topics()
            for each in manager.describe(topic).held
        }
    rows = []
    for reader in known:
        is_silent = reader.is_silent(clock.now_ms(), minutes)
        for partition, offset in sorted(reader.position.offsets.items()):
            row = _row(reader, *partition, offset)
            kept = held.get((reader.name, partition), 0)
            rows.append({**row, "keptBytes": 0 if is_silent else kept, "isSilent": is_silent})
    _print(settings, rows)
    if not known:
        remark(settings, "no reader is recorded: see streamlog readers add --help")
    elif not rows:
        remark(settings, f"{counted(len(known), 'reader')}, and no offset of any of them yet")


@readers.command(short_help="Record a query by its checkpoint.", epilog=JSON_SHAPES)
@click.argument("name")
@click.option(
    "--checkpoint", required=True, metavar="DIR", help="The query's checkpointLocation, local."
)
@reading_verb
def add(settings: Settings, *, name: str, checkpoint: str) -> None:
    """Record a query that knows nothing of it, by its checkpoint; one of Kafka's source will do.

    \b
    Example:
      streamlog --path /tmp/log readers add audit --checkpoint /data/checkpoints/audit
    """
    from streamlog.clock import SystemClock
    from streamlog.fs.local import LocalFileSystem
    from streamlog.root.readers import add_reader

    now_ms = SystemClock().now_ms()
    added = add_reader(LocalFileSystem(), settings.root, name, checkpoint, now_ms=now_ms)
    offsets = sorted(added.position.offsets.items())
    _print(settings, [_row(added, *partition, offset) for partition, offset in offsets])


@readers.command()
@click.argument("name")
@reading_verb
def forget(settings: Settings, *, name: str) -> None:
    """Strike a reader off: nothing is kept for it any more.

    \b
    Example:
      streamlog --path /tmp/log readers forget audit
    """
    from streamlog.cli.output import remark
    from streamlog.fs.local import LocalFileSystem
    from streamlog.root.readers import forget_reader

    forget_reader(LocalFileSystem(), settings.root, name)
    remark(settings, f"forgot reader {name}")


def _row(reader: "Reader", topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {
        "reader": reader.name,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "committedMs": reader.committed_ms,
        "checkpoint": reader.checkpoint,
        "problem": reader.problem,
    }


def _print(settings: Settings, rows: list[dict[str, Any]]) -> None:
    from streamlog.cli.output import Column, Kind, Output

    columns = (
        Column("reader", "READER"),
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", Kind.NUMBER),
        Column("offset", "OFFSET", Kind.NUMBER),
        Column("keptBytes", "KEPT FOR IT", Kind.SIZE),
        Column("isSilent", "SILENT"),
        Column("checkpoint", "CHECKPOINT"),
        Column("problem", "PROBLEM"),
    )
    Output(settings).rows(rows, columns)
