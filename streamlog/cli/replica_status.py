"""`streamlog replicas status`, and the replicas of a topic in `streamlog topics describe`."""

from collections.abc import Mapping
from typing import Any

import click

from streamlog.cli.output import EXIT_FINDING, Column, Kind, Output, remark
from streamlog.cli.verb import Settings
from streamlog.replication.status import PartitionStatus, metrics
from streamlog.root.replica_status import partition_statuses, replica_set_at

__all__ = [
    "FILTERS",
    "partition_row",
    "print_replicas",
    "replica_columns",
    "replica_facts",
    "status",
    "with_node_lists",
]

# Options of `topics describe`, as kafka-topics has them: what they let through.
FILTERS: Mapping[str, Any] = {
    "under_replicated_partitions": lambda each: each.is_under_replicated,
    "unavailable_partitions": lambda each: each.is_unavailable,
    "at_min_isr_partitions": lambda each: each.is_at_min_isr,
    "under_min_isr_partitions": lambda each: each.is_under_min_isr,
}

REPLICA_COLUMNS = (
    Column("partition", "PART", Kind.NUMBER),
    Column("node", "NODE", Kind.NUMBER),
    Column("role", "ROLE"),
    Column("logStartOffset", "START", Kind.NUMBER),
    Column("highWatermark", "HW", Kind.NUMBER),
    Column("logEndOffset", "END", Kind.NUMBER),
    Column("lag", "LAG", Kind.NUMBER),
    Column("problem", "PROBLEM"),
)


def partition_row(status: PartitionStatus) -> dict[str, Any]:
    """Return the facts of a replicated partition, those of its log as its leader has them."""
    known = status.reference
    offsets = None if known is None else known.offsets
    return {
        "partition": status.partition.partition,
        "leader": status.state.leader,
        "leaderEpoch": status.state.leader_epoch,
        "logStartOffset": 0 if offsets is None else offsets.start,
        "highWatermark": status.high_watermark or 0,
        "logEndOffset": 0 if offsets is None else offsets.end,
        "segments": 0 if known is None else known.segments,
        "bytes": 0 if known is None else known.size_bytes,
    }


def print_replicas(output: Output, partitions: list[dict[str, Any]]) -> None:
    """Print a table of the replicas of partitions; nothing if none is replicated."""
    rows = [{"partition": each["partition"]} | log for each in partitions for log in each["logs"]]
    columns = [column for column in REPLICA_COLUMNS if column.key != "problem"]
    if any(row["problem"] is not None for row in rows):
        columns = [*REPLICA_COLUMNS]
    output.table(rows, columns)


def with_node_lists(partition: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a partition for a table, lists of nodes as kafka-topics prints them."""
    lists = {name: partition[name] for name in ("replicas", "isr", "elr")}
    return partition | {name: ",".join(map(str, nodes)) for name, nodes in lists.items()}


def replica_columns(statuses: list[PartitionStatus]) -> tuple[Column, ...]:
    """Return the columns that describe the replicas of partitions in a table; none if none is."""
    if not statuses:
        return ()
    columns = [Column("replicas", "REPLICAS"), Column("isr", "ISR")]
    if any(each.state.elr for each in statuses):
        columns.append(Column("elr", "ELR"))
    return tuple(columns)


def replica_facts(status: PartitionStatus | None, node: int) -> dict[str, Any]:
    """Return the replicas of a partition as keys of its JSON object.

    Args:
        status: Its status; None if it is not replicated.
        node: The node that has the only replica.
    """
    if status is None:
        return {"partitionEpoch": 0, "replicas": [node], "isr": [node], "elr": []} | {
            "offlineReplicas": [],
            "logs": [],
        }
    state = status.state
    return {
        "partitionEpoch": state.partition_epoch,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "elr": list(state.elr),
        "offlineReplicas": list(status.offline),
        "logs": replica_rows(status),
    }


def replica_rows(status: PartitionStatus) -> list[dict[str, Any]]:
    """Return a row for each replica of a partition."""
    rows = []
    for each in status.replicas:
        offsets = each.offsets
        rows.append(
            {
                "node": each.node,
                "path": each.path,
                "role": _role(status, each.node),
                "leaderEpoch": each.leader_epoch,
                "logStartOffset": None if offsets is None else offsets.start,
                "highWatermark": None if offsets is None else offsets.high_watermark,
                "logEndOffset": None if offsets is None else offsets.end,
                "lag": status.lag(each),
                "problem": None if each.problem is None else str(each.problem),
            }
        )
    return rows


def _role(status: PartitionStatus, node: int) -> str:
    state = status.state
    if node == state.leader:
        return "leader"
    if node in state.isr:
        return "in sync"
    if node in state.elr:
        return "eligible"
    return "adding" if node in state.adding else "out of sync"


# ---- replicas status ----------------------------------------------------------------------------
def status(settings: Settings) -> None:
    """Print Kafka's metrics of replication; exit with 1 if a partition is under-replicated."""
    found = metrics(partition_statuses(replica_set_at(settings.root).nodes()))
    row = {_metric_name(name): value for name, value in found._asdict().items()}
    output = Output(settings)
    if output.format == "table":
        columns = (Column("metric", "METRIC"), Column("value", "VALUE", Kind.NUMBER))
        output.rows([{"metric": name, "value": value} for name, value in row.items()], columns)
    else:
        output.rows([row], ())
    if found.under_replicated_partitions or found.offline_partitions_count:
        remark(settings, "see: streamlog topics describe --under-replicated-partitions")
        raise click.exceptions.Exit(EXIT_FINDING)


def _metric_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
