"""What is wrong with a root, as far as its metadata shows it; `verify` reads every byte."""

import os
import shlex
from collections.abc import Iterable, Iterator
from typing import Final

from streamlog.errors import CorruptDataError, InvalidRequestError, StreamLogError
from streamlog.fs.files import stat_directory
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import Finding, Severity
from streamlog.health.verify import verify, verify_state
from streamlog.overview.model import HealthRemark, PartitionOverview, RootKind, TopicOverview
from streamlog.root.read_roots import Directories, ReadRoots
from streamlog.root.readers import Reader
from streamlog.root.replica_status import partition_statuses, root_set_at
from streamlog.root.roots import is_our_root
from streamlog.segment.filenames import KEPT_ASIDE
from streamlog.topic import PUT_ASIDE
from streamlog.words import counted

__all__ = [
    "by_severity",
    "remark_of_error",
    "remarks_of_reader",
    "remarks_of_replicas",
    "remarks_of_root",
    "remarks_of_topics",
    "remarks_of_verify",
]

_ORDER: Final = ("damage", "degraded", "repairable", "note")
_HOUR_MS: Final = 3_600_000
_NAMED: Final = 3


def by_severity(remarks: Iterable[HealthRemark]) -> tuple[HealthRemark, ...]:
    """Return remarks, worst first."""
    return tuple(sorted(remarks, key=lambda each: _ORDER.index(each.severity)))


def remark_of_error(error: StreamLogError, where: str) -> HealthRemark:
    """Return the remark for something that cannot be read."""
    severity = "damage" if isinstance(error, CorruptDataError) else "degraded"
    return HealthRemark(severity=severity, where=where, what=error.sentence, cure=error.hint)


def _remark_of_finding(finding: Finding, root: LogRoot) -> HealthRemark:
    got = "" if finding.got is None else f": {finding.got}"
    cure = None
    if finding.severity is Severity.REPAIRABLE:
        cure = f"streamlog repair {shlex.quote(root.path)} --dry-run"
    return HealthRemark(
        severity=finding.severity.value,
        where=os.path.relpath(finding.path, root.path),
        what=f"{finding.what}{got}",
        cure=cure,
    )


# ---- the root ------------------------------------------------------------------------------------
def remarks_of_root(root: LogRoot, kind: RootKind, found: Directories) -> Iterator[HealthRemark]:
    """Yield what the files beside the logs show."""
    if is_our_root(root):
        findings: list[Finding] = []
        try:
            verify_state(root, findings.append, is_deep=False)
        except StreamLogError as error:
            yield remark_of_error(error, root.path)
        yield from (_remark_of_finding(each, root) for each in findings)
    if kind is RootKind.BROKER:
        yield from _remarks_of_broker(root)
    if kind is not RootKind.PARTITION:
        yield from _set_aside(root)
    yield from _kept_aside(root, found)


def _remarks_of_broker(root: LogRoot) -> Iterator[HealthRemark]:
    if root.fs.broker_lock_is_held(root.broker_lock):
        yield HealthRemark(
            severity="note",
            where=os.path.basename(root.broker_lock),
            what="a broker is running here: this is one moment of a moving log",
        )
    elif root.fs.stat(root.clean_shutdown) is None:
        yield HealthRemark(
            severity="note",
            where=os.path.basename(root.clean_shutdown),
            what="the broker did not shut down cleanly: it will check the ends of its logs when it"
            " starts, and may cut records that are not whole",
            cure=f"streamlog verify {shlex.quote(root.path)}",
        )


def _set_aside(root: LogRoot) -> Iterator[HealthRemark]:
    names = [name for name in root.fs.list(root.path) if name.endswith(("-delete", *PUT_ASIDE))]
    if names:
        yield HealthRemark(
            severity="note",
            where=_some(names),
            what="partitions that a broker has set aside or is deleting: their records are not"
            " shown",
        )


def _kept_aside(root: LogRoot, found: Directories) -> Iterator[HealthRemark]:
    """Yield a remark about tails and damaged files that a repair has kept."""
    kept = [
        f"{os.path.basename(places[0])}/{name}"
        for numbers in found.values()
        for places in numbers.values()
        if stat_directory(root.fs, places[0]) is not None and not places[0].endswith(".log")
        for name in root.fs.list(places[0])
        if KEPT_ASIDE.search(name)
    ]
    if kept:
        yield HealthRemark(
            severity="note",
            where=_some(kept),
            what="bytes that were cut from a log and kept; they are not part of it",
            cure="look at them with streamlog dump, then remove them",
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


# ---- replicas ------------------------------------------------------------------------------------
def remarks_of_replicas(roots: ReadRoots) -> Iterator[HealthRemark]:
    """Yield which log roots of a replica set are offline, and which partitions lack replicas."""
    if not roots.is_set:
        return
    for path in roots.offline:
        yield HealthRemark(
            severity="degraded",
            where=path,
            what="this log root of the replica set is offline",
            cure="mount its disk; to replace it: streamlog replicas add --help",
        )
    try:
        found = root_set_at(list(roots.paths))
        statuses = [] if found is None else [*partition_statuses(found.nodes())]
    except StreamLogError as error:
        yield remark_of_error(error, roots.name)
        return
    lacking = [each for each in statuses if len(each.in_sync) < len(each.state.replicas)]
    if lacking:
        yield HealthRemark(
            severity="degraded",
            where=_some([str(each.partition) for each in lacking]),
            what=f"{counted(len(lacking), 'partition')} with a replica that is not in sync",
            cure="streamlog replicate --once",
        )
    leaderless = [str(each.partition) for each in statuses if each.leader is None]
    if leaderless:
        yield HealthRemark(
            severity="degraded",
            where=_some(leaderless),
            what=f"{counted(len(leaderless), 'partition')} whose leader is offline: the next writer"
            " elects another one",
        )


# ---- topics and readers --------------------------------------------------------------------------
def remarks_of_topics(topics: Iterable[TopicOverview], now_ms: int) -> Iterator[HealthRemark]:
    """Yield what the facts about segments show."""
    for topic in topics:
        for partition in topic.partitions:
            yield from _remarks_of_partition(topic, partition)
        newest = topic.newest_ms
        if newest is not None and newest > now_ms + _HOUR_MS:
            yield HealthRemark(
                severity="note",
                where=topic.name,
                what=f"has records up to {(newest - now_ms) // _HOUR_MS} hours in the future:"
                " retention.ms keeps their segments until then",
            )


def _remarks_of_partition(
    topic: TopicOverview, partition: PartitionOverview
) -> Iterator[HealthRemark]:
    for segment in partition.segments:
        if segment.problem is not None:
            yield HealthRemark(
                severity="damage",
                where=f"{topic.name}-{partition.partition}",
                what=segment.problem,
                cure=f"streamlog verify {shlex.quote(partition.path)}",
            )


def remarks_of_reader(reader: Reader, *, is_silent: bool) -> Iterator[HealthRemark]:
    """Yield what is wrong with a recorded reader."""
    if reader.problem is not None:
        yield HealthRemark(
            severity="degraded",
            where=f"reader {reader.name}",
            what=f"its checkpoint cannot be read, so its position may be stale: {reader.problem}",
            cure=f"streamlog readers forget {reader.name}",
        )
    elif is_silent:
        yield HealthRemark(
            severity="note",
            where=f"reader {reader.name}",
            what="has been silent for longer than offsets.retention.minutes: nothing is kept for"
            " it any more",
            cure=f"streamlog readers forget {reader.name}",
        )


def remarks_of_verify(root: LogRoot, path: str) -> Iterator[HealthRemark]:
    """Yield what a check of every byte below a path finds."""
    findings: list[Finding] = []
    try:
        verify(root.fs, path, findings.append)
    except InvalidRequestError as error:
        yield HealthRemark(severity="note", where=path, what=error.sentence, cure=error.hint)
    except StreamLogError as error:
        yield remark_of_error(error, path)
    yield from (_remark_of_finding(each, root) for each in findings)
