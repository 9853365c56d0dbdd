"""`streamlog offsets` prints offsets of partitions, `streamlog delete-records` deletes."""

import json
import re
from typing import Any, Final

import click

from streamlog.cli.output import PARTITION_COLUMNS, Column, Findings, Kind, Output
from streamlog.cli.roots import open_manager
from streamlog.cli.sources import Source, find_sources
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.errors import StreamLogError
from streamlog.records.record import IsolationLevel
from streamlog.root.offset_specs import parse_moment
from streamlog.topic import TopicPartition

__all__ = ["delete_records", "offsets"]


def offsets(
    settings: Settings, *, source: str | None, moment: str, partitions: tuple[int, ...]
) -> None:
    """Print one offset per partition."""
    moment = _TIMES.get(moment, moment)
    if moment not in _TIMES.values():
        time = parse_moment(moment, SystemClock().now_ms())
        if time is None:
            raise click.BadParameter(
                "expected earliest, latest, max-timestamp, milliseconds, a date or a time before"
                f" now (-1h), got {moment!r}",
                param_hint="--time",
            )
        moment = str(time)

    rows = []
    with find_sources(settings, source, partitions) as sources:
        errors = list(sources.errors)
        for each in sources.opened:
            try:
                rows.append(_row(each, moment))
            except StreamLogError as error:
                errors.append(error)
    columns = (
        *PARTITION_COLUMNS,
        Column("offset", "OFFSET", Kind.NUMBER),
        Column("timestamp", "TIMESTAMP", Kind.NUMBER),
    )
    Output(settings).rows(rows, columns)
    if errors:
        raise Findings(errors)


_TIMES: Final = {"-2": "earliest", "-1": "latest", "-3": "max-timestamp"}  # GetOffsetShell


def _row(source: Source, moment: str) -> dict[str, Any]:
    offset: int | None
    timestamp: int | None = None
    if moment == "earliest":
        offset = source.start_offset
    elif moment == "latest":
        offset = source.end_offset(IsolationLevel.READ_UNCOMMITTED)
    else:
        reader = source.reader
        is_largest = moment == "max-timestamp"
        found = reader.max_timestamp() if is_largest else reader.offset_for_timestamp(int(moment))
        offset, timestamp = (None, None) if found is None else found
    return {
        "topic": source.partition.topic,
        "partition": source.partition.partition,
        "offset": offset,
        "timestamp": timestamp,
    }


def delete_records(
    settings: Settings, *, wanted: tuple[str, ...], file: click.File | None, force: bool
) -> None:
    """Raise the log start of partitions and print the new low watermarks."""
    offsets = [_argument(text) for text in wanted]
    if file is not None:
        offsets += _read(file.read())  # type: ignore[attr-defined]  # click passes an open file
    if not offsets:
        raise click.UsageError("nothing to delete: pass TOPIC:PARTITION:OFFSET or a file")

    rows, errors = [], []
    with open_manager(settings) as manager:
        for partition, offset in offsets:
            try:
                low = manager.delete_records(*partition, offset, force=force)
            except StreamLogError as error:
                errors.append(error)
                continue
            rows.append({**partition._asdict(), "lowWatermark": low})
    columns = (
        *PARTITION_COLUMNS,
        Column("lowWatermark", "LOW WATERMARK", Kind.NUMBER),
    )
    Output(settings).rows(rows, columns)
    if errors:
        raise Findings(errors)


_ARGUMENT: Final = re.compile(
    r"(?P<topic>[^:]+):(?P<partition>[0-9]{1,9}):(?P<offset>-1|[0-9]{1,19})", re.ASCII
)
_SHAPE: Final = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 7}], "version": 1}'


def _argument(text: str) -> tuple[TopicPartition, int]:
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"expected TOPIC:PARTITION:OFFSET (orders:0:1200), got {text!r}")
    return TopicPartition(match["topic"], int(match["partition"])), int(match["offset"])


def _read(data: bytes) -> list[tuple[TopicPartition, int]]:
    """Return the partitions and offsets of a JSON file.

    Source: org.apache.kafka.tools.DeleteRecordsCommand.
    """
    try:
        document = json.loads(data)
        if document.get("version", 1) != 1:
            raise ValueError(f"unsupported version {document['version']!r}")
        texts = [f"{each['topic']}:{each['partition']}:{each['offset']}"
                 for each in document["partitions"]]  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) else "unexpected structure"
        raise click.BadParameter(
            f"{why}; expected {_SHAPE}", param_hint="--offset-json-file"
        ) from None
    found = [_argument(text) for text in texts]
    if len({partition for partition, _ in found}) != len(found):
        raise click.BadParameter("duplicate partition", param_hint="--offset-json-file")
    return found
