"""`streamlog copy`: copies topics from one log root to another, or from and to a Kafka cluster."""

from typing import Any

import click

from streamlog.cli.output import PARTITION_COLUMNS, Column, Kind, Output, Progress, counted, remark
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.errors import InvalidOptionError
from streamlog.fs.local import LocalFileSystem
from streamlog.root.offset_specs import parse_moment
from streamlog.transfer.copying import CopiedPartition, CopyRequest, TopicCopier, size_of
from streamlog.transfer.ends import CopyTarget
from streamlog.transfer.kafka_client import client_settings, is_kafka
from streamlog.transfer.kafka_copying import KafkaCopier
from streamlog.transfer.kafka_target import KafkaTarget
from streamlog.transfer.places import open_kafka_target, open_source, open_target

__all__ = ["copy"]


def copy(
    settings: Settings,
    *,
    source: str,
    target: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    moment: str | None,
    pairs: tuple[str, ...],
    command_config: str | None,
    new_offsets: bool,
) -> None:
    """Copy topics, and print what was copied of each partition."""
    to_time = None if moment is None else parse_moment(moment, SystemClock().now_ms())
    if moment is not None and to_time is None:
        raise click.BadParameter(
            f"expected milliseconds, a date or a time before now (-1h), got {moment!r}",
            param_hint="--to-time",
        )
    _check_ends(source, target, new_offsets=new_offsets, settings=[*pairs, command_config])
    kafka = client_settings(pairs, command_config, LocalFileSystem())
    request = CopyRequest(topics=topics, partitions=partitions, to_time=to_time)
    here = open_source(source, topics=topics, kafka_settings=kafka)
    try:
        in_offsets = here.is_rebuilt or is_kafka(target)
        size = size_of(here, request, in_offsets=in_offsets)
        with Progress(settings, f"copying {source}", size, is_count=in_offsets) as progress:
            if is_kafka(target):
                to_kafka = open_kafka_target(target, kafka_settings=kafka)
                exporter = KafkaCopier(
                    here,
                    to_kafka,
                    request,
                    new_offsets=new_offsets,
                    on_progress=progress.advance,
                )
                rows, remarks = _run(exporter, to_kafka)
            else:
                there = open_target(target)
                copier = TopicCopier(here, there, request, on_progress=progress.advance)
                rows, remarks = _run(copier, there)
    finally:
        here.close()
    _print(settings, rows, remarks, to_kafka=is_kafka(target))


def _check_ends(source: str, target: str, *, new_offsets: bool, settings: list[str | None]) -> None:
    """Refuse what does not go together."""
    if is_kafka(source) and is_kafka(target):
        raise InvalidOptionError(
            "one end of a copy is a log root",
            got=f"{source} and {target}",
            hint="from cluster to cluster: Kafka's MirrorMaker 2",
        )
    if new_offsets and not is_kafka(target):
        raise InvalidOptionError("--new-offsets is for a copy to a Kafka cluster", got=target)
    if any(settings) and not is_kafka(source) and not is_kafka(target):
        raise InvalidOptionError(
            "-X and --command-config are for a Kafka cluster, and no end is one",
            got=f"{source} and {target}",
            expected="kafka://HOST:PORT as SOURCE or TARGET",
        )


def _run(
    copier: TopicCopier | KafkaCopier, target: CopyTarget | KafkaTarget
) -> tuple[list[CopiedPartition], list[str]]:
    try:
        return list(copier.run()), copier.remarks
    finally:
        target.close()


def _print(
    settings: Settings, copied: list[CopiedPartition], remarks: list[str], *, to_kafka: bool
) -> None:
    count = Column("records", "RECORDS", Kind.NUMBER) if to_kafka else _BATCHES
    columns = (*PARTITION_COLUMNS, *_OFFSETS, count, Column("bytes", "BYTES", Kind.SIZE))
    Output(settings).rows([_row(each) for each in copied], columns)
    for each in remarks:
        remark(settings, each)
    size = sum(each.size for each in copied)
    what = f"{counted(len(copied), 'partition')}, {size} bytes copied, checked at the target"
    remark(settings, f"{what}; commits of queries and recorded readers are not copied")


_BATCHES = Column("batches", "BATCHES", Kind.NUMBER)
_OFFSETS = (
    Column("startOffset", "FROM", Kind.NUMBER),
    Column("endOffset", "TO", Kind.NUMBER),
)


def _row(copied: CopiedPartition) -> dict[str, Any]:
    number = {"records": copied.records} if copied.batches is None else {"batches": copied.batches}
    return {
        "topic": copied.topic_partition.topic,
        "partition": copied.topic_partition.partition,
        "startOffset": copied.start_offset,
        "endOffset": copied.end_offset,
        **number,
        "bytes": copied.size,
    }
