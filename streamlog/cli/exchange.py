"""`streamlog export` and `streamlog import`: topics to and from files and tables."""

import contextlib
from collections.abc import Callable
from typing import Any

from streamlog.cli.decode_options import decoding_arguments
from streamlog.cli.output import (
    PARTITION_COLUMNS,
    Column,
    Findings,
    Kind,
    Output,
    Progress,
    counted,
    human_size,
    remark,
)
from streamlog.cli.sources import inside_bucket
from streamlog.cli.verb import Settings, is_path
from streamlog.clock import SystemClock
from streamlog.exchange.exporting import ExportedPartition, Exporter, ExportReport
from streamlog.exchange.import_source import ImportOptions
from streamlog.exchange.import_sources import import_units
from streamlog.exchange.importing import Importer, ImportReport
from streamlog.exchange.source import ExportSource
from streamlog.exchange.targets import TargetOptions, open_target
from streamlog.records.record import IsolationLevel
from streamlog.root.offset_specs import parse_offsets

__all__ = ["export", "import_"]


# ---- export ----------------------------------------------------------------------------------
def export(
    settings: Settings,
    *,
    source: str,
    target: str,
    file_format: str,
    partitions: tuple[int, ...],
    offsets: tuple[str, ...],
    columns: str | None,
    target_file_size: int,
    encoding: str | None,
    isolation_level: str,
    catalog: str,
    dry_run: bool,
    decode: tuple[str, ...],
    **decoding: str | None,
) -> None:
    """Export topics, and print what was exported; `decoding` are the options beside `decode`."""
    span = parse_offsets(offsets, SystemClock().now_ms())
    options = TargetOptions(
        file_format,
        columns,
        encoding or "utf8",
        target_file_size,
        catalog,
        decoding_arguments(decode, decoding),
    )
    with _open_source(settings, source, partitions, IsolationLevel(isolation_level)) as here:
        there, read = open_target(target, options, here.partitions)
        exporter = Exporter(here, there, read, span)
        with contextlib.closing(there):
            if dry_run:
                plan = exporter.plan()
                rows = [
                    {**_names(each.topic, each.partition), **_range(each), "bytes": size}
                    for each, size in ((part, here.size_of(part)) for part in plan)
                ]
                Output(settings).rows(rows, _PLAN_COLUMNS)
                return
            report = _with_bar(settings, f"exporting {source}", exporter.run)
    Output(settings).rows(map(_exported, report.partitions), _EXPORT_COLUMNS)
    records = sum(each.records for each in report.partitions)
    written, size = report.written
    what = f"{counted(records, 'record')} in {counted(written, there.unit)}"
    remark(settings, what if size is None else f"{what}, {human_size(size)}")
    if found := report.findings():
        raise Findings(found)


def _open_source(
    settings: Settings, source: str, partitions: tuple[int, ...], isolation: IsolationLevel
) -> ExportSource:
    path, topic = (source, None) if is_path(source) else (settings.root, source)
    wanted: tuple[int, ...] = partitions
    if topic is None and "://" in path:
        path, topic, found = inside_bucket(path, partitions)
        wanted = tuple(found)
    return ExportSource(path, topic, partitions=wanted or None, isolation=isolation)


def _with_bar(settings: Settings, title: str, run: Callable[..., ExportReport]) -> ExportReport:
    """Run with a progress bar, whose total is known once the run has begun."""
    with contextlib.ExitStack() as stack:
        bars: list[Progress] = []

        def begin(size: int) -> None:
            bars.append(stack.enter_context(Progress(settings, title, size)))

        return run(on_size=begin, on_progress=lambda size: bars[0].advance(size))


_RANGE_COLUMNS = (
    *PARTITION_COLUMNS,
    Column("startOffset", "FROM", Kind.NUMBER),
    Column("endOffset", "TO", Kind.NUMBER),
)
_PLAN_COLUMNS = (*_RANGE_COLUMNS, Column("bytes", "BYTES", Kind.SIZE))
_EXPORT_COLUMNS = (*_RANGE_COLUMNS, Column("count", "RECORDS", Kind.NUMBER))


def _names(topic: str, partition: int) -> dict[str, Any]:
    return {"topic": topic, "partition": partition}


def _range(part: Any) -> dict[str, Any]:
    return {"startOffset": part.start_offset, "endOffset": part.end_offset}


def _exported(part: ExportedPartition) -> dict[str, Any]:
    return {**_names(*part.topic_partition), **_range(part), "count": part.records}


# ---- import ----------------------------------------------------------------------------------
def import_(
    settings: Settings,
    *,
    source: str,
    topic: str,
    file_format: str | None,
    columns: str | None,
    encoding: str | None,
    compression_type: str,
    acks: str,
    catalog: str,
    table_version: int | None,
    dry_run: bool,
) -> None:
    """Import files or a table, and print the offsets of each partition."""
    chosen = ImportOptions.parse_columns(columns)
    options = ImportOptions(file_format, chosen, encoding, catalog, table_version)
    units = import_units(source, options)
    importer = Importer(settings.root, topic, compression_type=compression_type, acks=acks)
    if dry_run:
        rows = [
            {
                "name": unit.name,
                "bytes": unit.size,
                "rows": 0 if state is None else state.rows,
                "isComplete": state is not None and state.is_complete,
            }
            for unit, state in zip(units, importer.plan(units), strict=True)
        ]
        Output(settings).rows(rows, _UNIT_COLUMNS)
        return
    with Progress(settings, f"importing {source}", sum(each.size for each in units)) as progress:
        report = importer.run(units, on_progress=progress.advance)
    rows = [
        {**_names(*partition), "baseOffset": first, "lastOffset": last, "count": count}
        for partition, (first, last, count) in sorted(report.parts.items())
    ]
    Output(settings).rows(rows, _IMPORT_COLUMNS)
    remark(settings, _summary(report))


def _summary(report: ImportReport) -> str:
    text = f"{counted(report.rows, 'row')} imported from {counted(report.units, 'source')}"
    if report.complete:
        text += f"; {counted(report.complete, 'source')} had been imported before"
    if report.ignored:
        text += f"; not imported: {', '.join(report.ignored)}"
    return text


_IMPORT_COLUMNS = (
    *PARTITION_COLUMNS,
    Column("baseOffset", "FIRST", Kind.NUMBER),
    Column("lastOffset", "LAST", Kind.NUMBER),
    Column("count", "ROWS", Kind.NUMBER),
)
_UNIT_COLUMNS = (
    Column("name", "SOURCE"),
    Column("bytes", "BYTES", Kind.SIZE),
    Column("rows", "IMPORTED ROWS", Kind.NUMBER),
    Column("isComplete", "COMPLETE"),
)
