"""A topic with everything that a format could lose, and helpers to export and import it."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamlog import Header, LogManager, Record, read_table
from streamlog.exchange.exporting import Exporter, ExportReport
from streamlog.exchange.import_source import ImportOptions
from streamlog.exchange.import_sources import import_units
from streamlog.exchange.importing import Importer, ImportReport
from streamlog.exchange.source import ExportSource
from streamlog.exchange.targets import TargetOptions, open_target
from streamlog.fs.api import FileSystem
from streamlog.root.offset_specs import Span

KEYS = (None, b"", b"plain", b"\xff\x00\xfe", b'quote " and , and \n and \r\n', "é€😀".encode())
VALUES = (
    b"",
    None,
    b"\xc3\x28 is no UTF-8",
    b'[{"json": "\\u0000"}]',
    b"\x00\x01",
    b"null",
    b"=",
    b" space ",
    "\u2028\u0085".encode(),
)
HEADERS = (
    (),
    (Header("h", b"text"),),
    (Header("h", None), Header("h", b""), Header("", b"\xff")),
    (Header('quote " \n', b"[]}"),),
)


def records(first: int, count: int) -> list[Record]:
    """Return records with every mix of fields; no two are the same."""
    return [
        Record(
            key=KEYS[number % len(KEYS)],
            value=VALUES[number % len(VALUES)],
            headers=HEADERS[number % len(HEADERS)],
            timestamp=-1 if number % 7 == 0 else 1_700_000_000_000 + number,
        )
        for number in range(first, first + count)
    ]


def fill(root: Path | str, topic: str, first: int, count: int, **place: Any) -> None:
    """Append records to both partitions of a topic; create what is missing."""
    with LogManager.open(root, create=True, **place) as manager:
        if topic not in manager.topics():
            manager.create_topic(topic, 2)
        for number in (0, 1):
            log = manager.log(topic, number)
            for at in range(first, first + count, 10):
                log.append(records(at, 10))


def export(
    root: Path | str,
    target: Path | str,
    format: str,
    *,
    topic: str | None = "orders",
    partitions: Sequence[int] | None = None,
    span: Span | None = None,
    fs: FileSystem | None = None,
    **options: Any,
) -> ExportReport:
    """Export a topic."""
    with ExportSource(str(root), topic, partitions=partitions, fs=fs) as source:
        chosen = TargetOptions(format, **options)
        there, columns = open_target(str(target), chosen, source.partitions, fs=fs)
        with contextlib.closing(there):
            return Exporter(source, there, columns, span).run()


def import_into(
    root: Path | str,
    topic: str,
    source: Path | str,
    *,
    fs: FileSystem | None = None,
    commit_bytes: int = 1 << 20,
    **options: Any,
) -> ImportReport:
    """Import into a topic, created with two partitions if it is missing."""
    with LogManager.open(root, fs=fs) as manager:
        if topic not in manager.topics():
            manager.create_topic(topic, 2)
    units = import_units(str(source), ImportOptions(**options), fs=fs)
    return Importer(str(root), topic, commit_bytes=commit_bytes, fs=fs).run(units)


def table(root: Path | str, topic: str = "orders") -> pa.Table:
    """Return all records without the name of their topic."""
    return read_table(str(root), topic, include_headers=True).drop_columns(["topic"])
