"""`streamlog topics`: creates, lists, describes, alters and deletes topics."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from streamlog.cli.output import EXIT_FINDING, Column, Findings, Kind, Output, human_size, remark
from streamlog.cli.readers import held_lines
from streamlog.cli.replica_status import (
    FILTERS,
    partition_row,
    print_replicas,
    replica_columns,
    replica_facts,
    with_node_lists,
)
from streamlog.cli.roots import bucket_url, open_manager
from streamlog.cli.verb import Settings
from streamlog.config.log_config import LogConfig
from streamlog.errors import InvalidRequestError, StreamLogError
from streamlog.fs.log_root import LogRoot
from streamlog.replication.status import PartitionStatus
from streamlog.root.deeds import Deed
from streamlog.root.manager import TopicDescription
from streamlog.root.replica_status import partition_statuses, root_set_at
from streamlog.root.topics import list_topics
from streamlog.topic import check_new_topic_name

if TYPE_CHECKING:
    from streamlog.cli.roots import AnyManager

__all__ = ["alter", "create", "delete", "describe", "list_", "topic_names"]


def create(
    settings: Settings,
    *,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    replication_factor: int | None,
    replica_assignment: str | None,
    if_not_exists: bool,
    adopt: bool,
) -> None:
    """Create a topic and print its summary."""
    own = dict(map(_key_and_value, configs))
    assignment = None
    if replica_assignment is not None:
        if partitions is not None or replication_factor is not None:
            raise click.UsageError(
                "--replica-assignment replaces --partitions and --replication-factor"
            )
        assignment = _assignment(replica_assignment)

    check_new_topic_name(name)
    LogConfig.from_properties(own)
    with open_manager(settings, create=True, adopt=adopt) as manager:
        made = manager.create_topic(
            name,
            partitions,
            own,
            if_not_exists=if_not_exists,
            replication_factor=replication_factor,
            replica_assignment=assignment,
        )
        _print_summaries(settings, [made])


def list_(settings: Settings) -> None:
    """Print a summary of every topic."""
    with open_manager(settings) as manager:
        described, errors = _describe_each(manager, manager.topics())
    _print_summaries(settings, described)
    if errors:
        raise Findings(errors)


def describe(settings: Settings, *, name: str | None, **filters: bool) -> None:
    """Print partitions, replicas and settings."""
    output = Output(settings)
    roots = None if bucket_url(settings.root) else root_set_at(settings.root)
    at = settings if roots is None else replace(settings, path=roots.home.path)
    with open_manager(at) as manager:
        names = manager.topics() if name is None else [name]
        described, errors = _describe_each(manager, names)
    nodes = {} if roots is None else roots.nodes()
    wanted = [FILTERS[name] for name, is_given in filters.items() if is_given]
    replicated = {each.name: [*partition_statuses(nodes, each.name)] for each in described}
    rows = [_described_row(each, replicated[each.name], wanted) for each in described]
    if output.format != "table":
        output.rows((row for row in rows if row["partitions"] or not wanted), ())
    else:
        shown = [
            pair
            for pair in zip(described, rows, strict=True)
            if pair[1]["partitions"] or not wanted
        ]
        for i, (topic, row) in enumerate(shown):
            output.write(b"\n" if i else b"")
            _print_description(output, topic, row, replicated[topic.name])
        output.flush()
    if errors:
        raise Findings(errors)


def alter(
    settings: Settings,
    *,
    name: str,
    configs: tuple[str, ...],
    delete_configs: tuple[str, ...],
    partitions: int | None,
) -> None:
    """Change settings or add partitions, and print the summary."""
    if not configs and not delete_configs and partitions is None:
        raise click.UsageError("nothing to alter: pass --config, --delete-config or --partitions")
    own = dict(map(_key_and_value, configs))

    with open_manager(settings) as manager:
        altered = manager.alter_topic(
            name, configs=own, delete_configs=delete_configs, partitions=partitions
        )
        _print_summaries(settings, [altered])


def delete(settings: Settings, *, name: str, yes: bool) -> None:
    """Delete a topic, after confirmation on a terminal."""
    with open_manager(settings) as manager:
        if not yes and sys.stdin.isatty() and not _is_confirmed(manager, name):
            remark(settings, "nothing was deleted")
            raise click.exceptions.Exit(EXIT_FINDING)
        left = manager.delete_topic(name)
    remark(settings, f"deleted topic {name}")
    for path in left:
        remark(settings, f"kept {path}: not a log file")


def _is_confirmed(manager: "AnyManager", name: str) -> bool:
    """Ask for confirmation; report the size of the topic."""
    described, errors = _describe_each(manager, [name])
    what = f"topic {name} of {manager.root}"
    if described:
        row = _summary(described[0])
        size = human_size(row["bytes"])
        what += f" with {row['partitions']} partitions, {row['offsets']} offsets, {size}"
    elif isinstance(errors[0], InvalidRequestError):
        raise errors[0]  # no such topic
    return click.confirm(f"delete {what}?", err=True)


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"expected KEY=VALUE, got {text!r}", param_hint="--config")
    return key.strip(), value.strip()


def _assignment(text: str) -> list[tuple[int, ...]]:
    """Return the nodes of each partition: `1:2,2:3`, as kafka-topics takes it."""
    try:
        return [tuple(map(int, row.split(":"))) for row in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"expected nodes as 1:2:3,2:3:1, got {text!r}", param_hint="--replica-assignment"
        ) from None


def _describe_each(
    manager: "AnyManager", names: Iterable[str]
) -> tuple[list[TopicDescription], list[StreamLogError]]:
    """Return the descriptions of topics, and the errors of those that cannot be described."""
    described, errors = [], []
    for name in names:
        try:
            described.append(manager.describe(name))
        except StreamLogError as error:
            errors.append(error)
    return described, errors


def _print_summaries(settings: Settings, described: list[TopicDescription]) -> None:
    columns = (
        Column("topic", "TOPIC"),
        Column("partitions", "PARTITIONS", Kind.NUMBER),
        Column("offsets", "OFFSETS", Kind.NUMBER),
        Column("bytes", "SIZE", Kind.SIZE),
        Column("topicId", "TOPIC ID"),
    )
    Output(settings).rows(map(_summary, described), columns)


def _summary(topic: TopicDescription) -> dict[str, Any]:
    spans = (each.log_end_offset - each.log_start_offset for each in topic.partitions)
    return {
        "topic": topic.name,
        "topicId": topic.topic_id,
        "partitions": len(topic.partitions),
        "offsets": sum(spans),
        "bytes": sum(each.size_bytes for each in topic.partitions),
    }


def _description(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topicId": topic.topic_id,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "leaderEpoch": each.leader_epoch,
                "logStartOffset": each.log_start_offset,
                "highWatermark": each.high_watermark,
                "logEndOffset": each.log_end_offset,
                "segments": each.segments,
                "bytes": each.size_bytes,
            }
            for each in topic.partitions
        ],
        "configs": [
            {"name": entry.key, "value": entry.value, "source": entry.source.value}
            for entry in topic.configs
        ],
        "readers": [
            {
                "reader": each.reader,
                "partition": each.partition.partition,
                "offset": each.offset,
                "keptFrom": each.kept_from,
                "keptBytes": each.bytes,
            }
            for each in topic.held
        ],
        "maintenance": [deed.to_json() for deed in topic.deeds],
    }


def _described_row(
    topic: TopicDescription,
    statuses: list[PartitionStatus],
    wanted: list[Callable[[PartitionStatus], bool]],
) -> dict[str, Any]:
    """Return a topic as a row, with the replicas of its partitions.

    A replicated partition is described by its leader; so is one that this root has no replica of.

    Args:
        topic: The topic.
        statuses: Its replicated partitions.
        wanted: Only partitions that one of these lets through; empty: all.
    """
    row = _description(topic)
    known = {each["partition"]: each for each in row["partitions"]}
    by_number = {each.partition.partition: each for each in statuses}
    for number, status in by_number.items():
        known[number] = partition_row(status)
    row["partitions"] = [
        partition | replica_facts(by_number.get(number), partition["leader"])
        for number, partition in sorted(known.items())
        if not wanted or (number in by_number and any(fits(by_number[number]) for fits in wanted))
    ]
    return row


def _print_description(
    output: Output, topic: TopicDescription, row: dict[str, Any], statuses: list[PartitionStatus]
) -> None:
    output.write(f"Topic {topic.name}, id {topic.topic_id or 'unknown'}\n".encode())
    output.table(
        [*map(with_node_lists, row["partitions"])],
        (
            Column("partition", "PART", Kind.NUMBER),  # short titles, to fit 80 columns
            Column("leader", "LEADER", Kind.NUMBER),
            Column("leaderEpoch", "EPOCH", Kind.NUMBER),
            Column("logStartOffset", "START", Kind.NUMBER),
            Column("highWatermark", "HW", Kind.NUMBER),
            Column("logEndOffset", "END", Kind.NUMBER),
            Column("segments", "SEGS", Kind.NUMBER),
            Column("bytes", "SIZE", Kind.SIZE),
            *replica_columns(statuses),
        ),
    )
    print_replicas(output, row["partitions"])
    columns = (Column("name", "CONFIG"), Column("value", "VALUE"), Column("source", "SOURCE"))
    shown = [each for each in row["configs"] if each["source"] != "default"]
    output.table(shown or [{"name": "(all at default)"}], columns)
    for line in [*held_lines(topic.held), *map(_deed_line, topic.deeds)]:
        output.write(f"{line}\n".encode())


def _deed_line(deed: Deed) -> str:
    when = datetime.fromtimestamp(deed.ms / 1000, timezone.utc)
    gone = f"{deed.segments} segments, {human_size(deed.bytes)}"
    where = f"partition {deed.partition}, log start now {deed.log_start_offset}"
    return f"{when:%Y-%m-%d %H:%M:%S}Z {deed.action} ({deed.reason}): removed {gone} of {where}"


def topic_names(root: str) -> Sequence[str]:
    """Return the topics of a root for shell completion; empty if they cannot be read."""
    try:
        if bucket_url(root) is not None:
            return open_manager(Settings(path=root)).topics()
        return list_topics(LogRoot.at(root))
    except StreamLogError:
        return ()
