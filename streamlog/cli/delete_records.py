"""`streamlog delete-records`: raise the log start of partitions."""

import json
import re
from typing import TYPE_CHECKING, Final

import click

from streamlog.cli.settings import JSON_SHAPES, Settings, reading_verb

if TYPE_CHECKING:
    from streamlog.topic import TopicPartition

__all__ = ["delete_records"]

_ARGUMENT: Final = re.compile(
    r"(?P<topic>[^:]+):(?P<partition>[0-9]{1,9}):(?P<offset>-1|[0-9]{1,19})", re.ASCII
)
_SHAPE: Final = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 7}], "version": 1}'


@click.command(
    "delete-records",
    short_help="Delete the records below an offset.",
    epilog=JSON_SHAPES,
)
@click.argument("wanted", nargs=-1, metavar="[TOPIC:PARTITION:OFFSET]…")
@click.option(
    "--offset-json-file",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="What Kafka's kafka-delete-records takes: a list of topic, partition, offset.",
)
@click.option("--force", is_flag=True, help="Also what a recorded reader has not finished.")
@reading_verb
def delete_records(
    settings: Settings, *, wanted: tuple[str, ...], file: click.File | None, force: bool
) -> None:
    """Delete the records below an offset, -1: all there are; print where the logs begin now.

    The bytes go with the next maintenance, a whole segment at a time.

    \b
    Examples:
      streamlog delete-records orders:0:1200 orders:1:-1
      streamlog delete-records --offset-json-file offsets.json
    """
    offsets = [_argument(text) for text in wanted]
    if file is not None:
        offsets += _read(file.read())  # type: ignore[attr-defined]  # click opens it
    if not offsets:
        raise click.UsageError("nothing to delete: give TOPIC:PARTITION:OFFSET or a file")
    from streamlog.cli.failures import Findings
    from streamlog.cli.output import Column, Kind, Output
    from streamlog.errors import StreamLogError
    from streamlog.root.manager import LogManager

    rows, errors = [], []
    with LogManager.open(settings.root) as manager:
        for partition, offset in offsets:
            try:
                low = manager.delete_records(*partition, offset, force=force)
            except StreamLogError as error:
                errors.append(error)
                continue
            rows.append({**partition._asdict(), "lowWatermark": low})
    columns = (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", Kind.NUMBER),
        Column("lowWatermark", "LOW WATERMARK", Kind.NUMBER),
    )
    Output(settings).rows(rows, columns)
    if errors:
        raise Findings(errors)


def _argument(text: str) -> tuple["TopicPartition", int]:
    from streamlog.topic import TopicPartition

    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not TOPIC:PARTITION:OFFSET, as orders:0:1200")
    return TopicPartition(match["topic"], int(match["partition"])), int(match["offset"])


def _read(data: bytes) -> list[tuple["TopicPartition", int]]:
    """Return what a file asks for.

    Source: org.apache.kafka.tools.DeleteRecordsCommand.
    """
    try:
        document = json.loads(data)
        if document.get("version", 1) != 1:
            raise ValueError(f"the version is {document['version']!r}")
        texts = [f"{each['topic']}:{each['partition']}:{each['offset']}"
                 for each in document["partitions"]]  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) else "it has another shape"
        raise click.BadParameter(
            f"{why}; expected {_SHAPE}", param_hint="--offset-json-file"
        ) from None
    found = [_argument(text) for text in texts]
    if len({partition for partition, _ in found}) != len(found):
        raise click.BadParameter("a partition stands in it twice", param_hint="--offset-json-file")
    return found
