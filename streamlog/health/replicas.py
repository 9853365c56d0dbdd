"""Verifies the replicas of a replica set against each other: `streamlog verify --replicas`.

For each replicated partition:

    registers      all online roots hold the same state, and a majority can be reached
    availability   leader, ISR and `min.insync.replicas`, as in `streamlog.replication.status`
    ISR            each online member has everything below the high watermark
    logs           equal to the leader's, see `streamlog.health.replica_logs`

Without an online leader, the log with the last records stands in for it.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping

from streamlog.health.findings import Finding, FindingKind, Report
from streamlog.health.repeated import Repeated
from streamlog.health.replica_logs import compare_logs
from streamlog.partition.reader import LogReader
from streamlog.replication.status import Node, PartitionStatus, status_of
from streamlog.root.replica_status import partition_statuses

__all__ = ["verify_replicas"]

OnProgress = Callable[[int], None]


def verify_replicas(
    nodes: Mapping[int, Node], report: Report, *, on_progress: OnProgress = lambda size: None
) -> int:
    """Compare the replicas of all partitions; read-only, without a lock.

    Findings that running writers may cause are checked again, see `streamlog.health.repeated`.

    Args:
        nodes: The log roots of the replica set by node.
        report: Called with each finding.
        on_progress: Called with numbers of bytes compared.

    Returns:
        The number of replicated partitions.

    Raises:
        StorageError: A file cannot be read.
    """
    count = 0
    for status in partition_statuses(nodes):
        count += 1
        look = _PartitionLook(status, nodes, on_progress)
        first = status.reference
        if first is None:  # all replicas are offline: nothing is being written
            for finding in look():
                report(finding)
        else:
            Repeated(nodes[first.node].root, report).report(look, first.path)
    return count


class _PartitionLook:
    """Checks one partition; each call looks again, but only the first reports progress."""

    def __init__(
        self, status: PartitionStatus, nodes: Mapping[int, Node], on_progress: OnProgress
    ) -> None:
        self._known: PartitionStatus | None = status
        self._partition, self._config = status.partition, status.config
        self._nodes, self._on_progress = nodes, on_progress

    def __call__(self) -> list[Finding]:
        status = self._known or status_of(self._partition, self._nodes, self._config)
        on_progress = self._on_progress if self._known else lambda size: None
        self._known = None
        if status is None:
            return []  # deleted meanwhile
        found = [*_registers(status, self._nodes), *_availability(status), *_isr(status)]
        _compare(status, self._nodes, found.append, on_progress)
        return found


def _registers(status: PartitionStatus, nodes: Mapping[int, Node]) -> Iterator[Finding]:
    expected = f"partition epoch {status.state.partition_epoch}, as in the other roots"
    for node in status.stale_registers:
        yield Finding(
            kind=FindingKind.REGISTER_BEHIND,
            path=nodes[node].root.partition_register(status.partition),
            what=f"node {node} has an older state of {status.partition}, or none",
            expected=expected,
        )
    if not status.has_quorum:
        what = "no majority of the registers can be reached: the state may be stale"
        yield _finding(status, FindingKind.NO_QUORUM, what)


def _availability(status: PartitionStatus) -> Iterator[Finding]:
    for replica in status.replicas:
        if not replica.is_online:
            yield Finding(
                kind=FindingKind.OFFLINE_REPLICA,
                path=replica.path,
                what=f"replica of node {replica.node} is offline",
                got=replica.problem,
            )
    state, in_sync = status.state, f"nodes {list(status.in_sync)} in sync"
    if status.is_unavailable:
        got = f"leader {state.leader}" if state.has_leader else "no leader"
        what = "partition has no leader online"
        yield _finding(status, FindingKind.OFFLINE_PARTITION, what, got, "an online leader")
    if not status.is_under_replicated:
        return
    expected = f"nodes {list(state.replicas)}"
    what = "partition is under-replicated"
    yield _finding(status, FindingKind.UNDER_REPLICATED, what, in_sync, expected)
    expected = f"{status.min_isr} replicas (min.insync.replicas)"
    if status.is_under_min_isr:
        what = "writes with acks=all are refused"
        yield _finding(status, FindingKind.UNDER_MIN_ISR, what, in_sync, expected)
    elif status.is_at_min_isr:
        what = "the loss of one more replica stops writes with acks=all"
        yield _finding(status, FindingKind.AT_MIN_ISR, what, in_sync, f"more than {expected}")


def _isr(status: PartitionStatus) -> Iterator[Finding]:
    for replica in status.replicas:
        if replica.offsets is None or replica.node not in status.state.isr:
            continue
        committed = status.high_watermark or 0
        if replica.offsets.end < committed:
            yield Finding(
                kind=FindingKind.ISR_BEHIND,
                path=replica.path,
                what=f"node {replica.node} is in the ISR but lacks committed records",
                got=f"log end {replica.offsets.end}",
                expected=f"at least the high watermark {committed}",
            )


def _compare(
    status: PartitionStatus,
    nodes: Mapping[int, Node],
    report: Report,
    on_progress: OnProgress,
) -> None:
    """Compare all online logs with the leader's, which is looked at last: it is never shorter."""
    first = status.reference
    with contextlib.ExitStack() as stack:
        others = [
            stack.enter_context(LogReader.open(each.path, fs=nodes[each.node].root.fs))
            for each in status.replicas
            if each.is_online and each is not first
        ]
        if first is None or not others:
            return
        leader = stack.enter_context(LogReader.open(first.path, fs=nodes[first.node].root.fs))
        is_compacted = "compact" in status.config.cleanup_policy
        for other in others:
            compare_logs(leader, other, report, is_compacted=is_compacted, on_progress=on_progress)


def _finding(
    status: PartitionStatus,
    kind: FindingKind,
    what: str,
    got: object = None,
    expected: object = None,
) -> Finding:
    place = status.reference or status.replicas[0]
    return Finding(kind=kind, path=place.path, what=what, got=got, expected=expected)
