"""`streamlog readers`: recorded readers and their positions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamlog.cli.output import (
    PARTITION_COLUMNS,
    Column,
    Kind,
    Output,
    counted,
    human_size,
    remark,
)
from streamlog.cli.roots import bucket_url
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.errors import StreamLogError, UnavailableError
from streamlog.fs.local import LocalFileSystem
from streamlog.root.manager import LogManager
from streamlog.root.read_roots import ReadRoots
from streamlog.root.readers import Held, Reader, add_reader, forget_reader

if TYPE_CHECKING:
    from streamlog.bucket.readers import BucketReaders

__all__ = ["add", "forget", "held_lines", "list_"]


def list_(settings: Settings) -> None:
    """Print the recorded readers with the bytes kept for them."""
    fs, clock = LocalFileSystem(), SystemClock()
    url = bucket_url(settings.root)
    if url is not None:
        _list_in_bucket(settings, url)
        return
    roots = ReadRoots(settings.root, fs=fs)
    known = roots.recorded_readers()
    with LogManager.open(roots.first_online.path) as manager:
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
        remark(settings, "no readers are recorded; see: streamlog readers add --help")
    elif not rows:
        remark(settings, f"{counted(len(known), 'reader')} recorded, none with an offset yet")


def add(settings: Settings, *, name: str, checkpoint: str) -> None:
    """Record a query and print its position."""
    url = bucket_url(settings.root)
    if url is not None:
        recorded = _readers_of(url).add(name, checkpoint)
        offsets = sorted(recorded.position.offsets.items())
        _print(settings, [_row(recorded, *partition, offset) for partition, offset in offsets])
        return
    now_ms = SystemClock().now_ms()
    roots = ReadRoots(settings.root)
    failures = roots.in_each(lambda root: add_reader(root, name, checkpoint, now_ms=now_ms))
    _remark_offline(settings, failures)
    (added,) = [each for each in roots.recorded_readers() if each.name == name]
    offsets = sorted(added.position.offsets.items())
    _print(settings, [_row(added, *partition, offset) for partition, offset in offsets])


def forget(settings: Settings, *, name: str) -> None:
    """Remove a reader."""
    url = bucket_url(settings.root)
    if url is not None:
        _readers_of(url).forget(name)
        remark(settings, f"removed reader {name}")
        return
    failures = ReadRoots(settings.root).in_each(lambda root: forget_reader(root, name))
    _remark_offline(settings, failures)
    remark(settings, f"removed reader {name}")


def _readers_of(url: str) -> "BucketReaders":
    from streamlog.bucket.places import shared_store
    from streamlog.bucket.readers import BucketReaders

    return BucketReaders(shared_store(url), SystemClock())


def _list_in_bucket(settings: Settings, url: str) -> None:
    known = [each.reader for each in _readers_of(url).recorded()]
    rows = [
        _row(reader, *partition, offset)
        for reader in known
        for partition, offset in sorted(reader.position.offsets.items())
    ]
    _print(settings, rows)
    if not known:
        remark(settings, "no readers are recorded; see: streamlog readers add --help")


def _remark_offline(settings: Settings, failures: Mapping[str, StreamLogError]) -> None:
    for error in failures.values():
        if isinstance(error, UnavailableError):
            remark(settings, f"unchanged in an unreachable log root: {error.sentence}")


def _row(reader: Reader, topic: str, partition: int, offset: int) -> dict[str, Any]:
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
    columns = (
        Column("reader", "READER"),
        *PARTITION_COLUMNS,
        Column("offset", "OFFSET", Kind.NUMBER),
        Column("keptBytes", "KEPT FOR IT", Kind.SIZE),
        Column("isSilent", "SILENT"),
        Column("checkpoint", "CHECKPOINT"),
        Column("problem", "PROBLEM"),
    )
    Output(settings).rows(rows, columns)


def held_lines(held: Sequence[Held]) -> list[str]:
    """Return a line per partition with records that a reader keeps from deletion."""
    lines = []
    for each in held:
        if each.bytes or each.kept_from > each.offset:
            line = f"reader {each.reader} keeps {human_size(each.bytes)} of {each.partition}"
            line += f" from offset {each.offset} on"
            if each.kept_from > each.offset:
                line += f", limited to {each.kept_from} and later by streamlog.readers.max.bytes"
            lines.append(line)
    return lines
