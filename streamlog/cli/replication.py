"""`streamlog elect`, `streamlog reassign` and `streamlog replicate`."""

import signal
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click

from streamlog.cli.output import PARTITION_COLUMNS, Column, Findings, Kind, Output, Progress, remark
from streamlog.cli.replica_status import with_node_lists
from streamlog.cli.verb import Settings
from streamlog.errors import StreamLogError, UnavailableError, UnknownTopicError
from streamlog.replication.election import ElectionType
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.status import PartitionStatus
from streamlog.root.replica_set import ReplicaSet
from streamlog.topic import TopicPartition

__all__ = ["elect", "reassign", "replicate"]


def elect(
    settings: Settings,
    *,
    wanted: tuple[str, ...],
    preferred: bool,
    unclean: bool,
    commits: bool,
) -> None:
    """Hold an election for each partition and print the leaders."""
    if preferred == unclean:
        raise click.UsageError("pass --preferred or --unclean")
    if commits and not unclean:
        raise click.UsageError("--commits needs --unclean: the next commit elects otherwise")
    if unclean and not wanted and not commits:
        raise click.UsageError("--unclean may lose records: name the topics or partitions")
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    states: list[tuple[TopicPartition, PartitionState]] = []
    errors: list[StreamLogError] = []
    with ReplicaSet.open(settings.root) as replica_set:
        if commits:
            state = replica_set.elect_commits()
            remark(settings, f"node {state.leader} leads the commits, nodes {[*state.isr]} in sync")
        for partition in _selected(replica_set, wanted) if wanted or not commits else ():
            try:
                states.append((partition, replica_set.elect(*partition, kind)))
            except StreamLogError as error:
                errors.append(error)
        online = replica_set.roots.online()
    _print_states(settings, states)
    if preferred:
        for partition, state in states:
            first = state.replicas[0]
            if state.leader != first:
                why = "in sync yet" if first in online else "online"
                remark(settings, f"[{partition}] not led by node {first}: it is not {why}")
    if errors:
        raise Findings(errors)


def reassign(settings: Settings, *, partition: str, replicas: str) -> None:
    """Move a partition to other nodes and print its state."""
    topic, number = _partition(partition)
    if number is None:
        raise click.BadParameter("expected TOPIC:PARTITION", param_hint="TOPIC:PARTITION")
    try:
        nodes = tuple(map(int, replicas.split(",")))
    except ValueError:
        raise click.BadParameter(
            f"expected nodes as 1,2,3, got {replicas!r}", param_hint="--replicas"
        ) from None
    with ReplicaSet.open(settings.root) as replica_set:
        (wanted,) = _selected(replica_set, (partition,))
        size = replica_set.bytes_to_copy(topic, number, nodes)
        with Progress(settings, f"copying {wanted}", size) as progress:
            state = replica_set.reassign(topic, number, nodes, on_progress=progress.advance)
    _print_states(settings, [(wanted, state)])


def replicate(settings: Settings, *, once: bool, follow: bool) -> None:
    """Bring all replicas up to date, once or until SIGTERM or Ctrl-C."""
    if once and follow:
        raise click.UsageError("--once excludes --follow")
    with ReplicaSet.open(settings.root) as replica_set:
        if follow:
            stop = threading.Event()
            _stop_at_signals(stop)
            replica_set.follow(stop)
            remark(settings, "stopped")
            return
        failed = replica_set.replicate_once()
        statuses = [each for each in replica_set.describe() if each.partition not in failed]
    _print_states(settings, [(each.partition, each.state) for each in statuses])
    behind = [_behind(each) for each in statuses if each.is_under_replicated]
    if failed or behind:
        raise Findings([*failed.values(), *behind])


def _behind(status: PartitionStatus) -> StreamLogError:
    """Return the error for a partition some of whose replicas could not catch up."""
    missing = [each for each in status.replicas if each.node not in status.in_sync]
    problems = {each.problem.sentence for each in missing if each.problem is not None}
    nodes = ", ".join(str(each.node) for each in missing)
    return UnavailableError(
        f"[{status.partition}] replicas could not catch up",
        got=f"node {nodes} behind" + "".join(f": {each}" for each in sorted(problems)),
        hint="streamlog replicas status",
    )


def _stop_at_signals(stop: threading.Event) -> None:
    """Finish the current round at SIGTERM or SIGINT, then close in order."""

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _partition(text: str) -> tuple[str, int | None]:
    """Return the parts of `TOPIC` or `TOPIC:PARTITION`."""
    topic, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdigit()):
        raise click.BadParameter(f"expected TOPIC or TOPIC:PARTITION, got {text!r}")
    return topic, int(number) if colon else None


def _selected(replica_set: ReplicaSet, wanted: Sequence[str]) -> list[TopicPartition]:
    """Return the replicated partitions that arguments name; all without any.

    Raises:
        UnknownTopicError: An argument names none.
    """
    known = replica_set.partitions()
    if not wanted:
        return known
    selected: dict[TopicPartition, None] = {}
    for text in wanted:
        topic, number = _partition(text)
        found = [each for each in known if each.topic == topic and number in (None, each.partition)]
        if not found:
            raise UnknownTopicError(
                f"there is no replicated partition {text}",
                path=replica_set.roots.home.path,
                hint="list the topics: streamlog topics describe",
            )
        selected |= dict.fromkeys(found)
    return list(selected)


def _print_states(settings: Settings, states: list[tuple[TopicPartition, PartitionState]]) -> None:
    columns = (
        *PARTITION_COLUMNS,
        Column("leader", "LEADER", Kind.NUMBER),
        Column("leaderEpoch", "EPOCH", Kind.NUMBER),
        Column("replicas", "REPLICAS"),
        Column("isr", "ISR"),
    )
    output = Output(settings)
    rows = [_state_row(partition, state) for partition, state in states]
    output.rows([*map(with_node_lists, rows)] if output.format == "table" else rows, columns)


def _state_row(partition: TopicPartition, state: PartitionState) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": state.leader,
        "leaderEpoch": state.leader_epoch,
        "partitionEpoch": state.partition_epoch,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "elr": list(state.elr),
    }
