"""Retirement: once the logs hold decided batches durably, remove the decisions and staged files.

    settle:  sync the logs, each under its own lock → write their recovery points together
    retire:  make the ledger durable, under the app's lock
    clear:   remove the decisions → remove the staged files

A crash after any step leaves files that are no longer needed and never loses one that is. Only
`retire` takes the app's lock, for two syncs regardless of the number of partitions, so a query
never waits for its logs to be synced. `settle` and `clear` need no lock: decisions never change,
synced bytes stay synced, and a decision that the ledger covers counts as retired.

Syncing megabytes of logs takes tenths of a second, and so does removing dozens of files from a disk
mounted with `discard`: longer than a trigger of a query. The sink therefore retires in a background
thread between triggers (`BackgroundChores`).
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from streamlog.commits.decisions import Decision, Standing
from streamlog.commits.history import History, Ledgers
from streamlog.commits.mirror import Mirror
from streamlog.commits.pending import PendingDecisions, decision_key
from streamlog.commits.staging import StagingArea, staged_version
from streamlog.commits.term import Term
from streamlog.errors import (
    CorruptCheckpointError,
    CorruptDataError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.partition.log import Log
from streamlog.partition.recovery_points import write_recovery_points
from streamlog.partition.root_marks import RootMarks
from streamlog.topic import TopicPartition

__all__ = [
    "RETIRE_AFTER_MS",
    "BackgroundChores",
    "Chores",
    "DroppedPart",
    "OpenLogs",
    "RetireReport",
    "Retired",
    "Retirement",
    "Settled",
    "at_once",
    "find_target",
    "is_due",
]

RETIRE_SIZE: Final = 64 << 20  # unretired bytes of one partition: bounds the work after a power cut
RETIRE_AFTER_MS: Final = 60_000
RETIRE_COUNT: Final = 64  # decisions: keeps the directory small
STAGED_FILE_AGE_MS: Final = 7 * 24 * 3600 * 1000

_logger = logging.getLogger(__name__)

OpenLogs = Callable[[Sequence[TopicPartition]], Sequence[Log]]
Chores = Callable[[Callable[[], None]], None]
_Part = tuple[TopicPartition, str]  # with the id of its topic


class DroppedPart(NamedTuple):
    """A decision's part for a partition that no longer exists."""

    topic_partition: TopicPartition
    topic_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireReport:
    """The result of a retirement.

    Attributes:
        retired: Number of retired decisions.
        dropped: Their parts for partitions that no longer exist.
        removed_files: Number of removed staged files.
    """

    retired: int = 0
    dropped: tuple[DroppedPart, ...] = ()
    removed_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of `Retirement.settle`.

    Attributes:
        names: The decisions.
        dropped: Their parts for partitions that no longer exist.
        failed: Errors of partitions that could not be applied or synced.
        partitions: All partitions that the decisions name.
    """

    names: frozenset[str]
    dropped: tuple[DroppedPart, ...]
    failed: Mapping[_Part, StreamLogError]
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """Decisions that are retired but whose files still exist.

    Attributes:
        app: The app.
        is_anonymous: Whether the app commits once; it has no ledger to record its retirement.
        decisions: Names of the decisions to remove.
        files: Names of the staged files to remove.
        report: The result so far.
        error: Why later decisions are not retired, None if all are.
    """

    app: str
    is_anonymous: bool
    decisions: tuple[str, ...]
    files: tuple[str, ...]
    report: RetireReport
    error: StreamLogError | None


def is_due(standing: Standing, now_ms: int) -> bool:
    """Return whether an app has enough unretired data to retire now.

    Args:
        standing: The app's standing.
        now_ms: The time; if the clock went backwards, retirement is due.
    """
    if standing.unretired == 0:
        return False
    return (
        standing.unretired >= RETIRE_COUNT
        or not 0 <= now_ms - standing.unretired_since_ms < RETIRE_AFTER_MS
        or any(at.unretired_size >= RETIRE_SIZE for at in standing.partitions.values())
    )


def find_target(open_logs: OpenLogs, partition: TopicPartition, topic_id: str) -> Log | DroppedPart:
    """Return the partition that a decision names, or why it no longer exists."""
    try:
        log = open_logs([partition])[0]
    except UnknownTopicError:
        return DroppedPart(partition, topic_id, "the topic was deleted")
    if log.topic_id != topic_id:
        return DroppedPart(partition, topic_id, "the topic was deleted and recreated")
    return log


class Retirement:
    """Retires decisions and removes staged files of a root.

    Args:
        pending: Its unretired decisions.
        ledgers: Its ledgers.
        area: Its staged files.
        marks: The recovery points of the root.
        find_topic_id: Returns the topic id of a partition, None if there is no such partition.
        open_logs: Opens partitions for writing; raises `UnknownTopicError` if one no longer exists.
        mirror: The copies of the commit files on other roots; None: there are none.
    """

    def __init__(
        self,
        pending: PendingDecisions,
        ledgers: Ledgers,
        area: StagingArea,
        *,
        marks: RootMarks,
        find_topic_id: Callable[[TopicPartition], str | None],
        open_logs: OpenLogs,
        mirror: Mirror | None = None,
    ) -> None:
        self._pending, self._ledgers, self._area = pending, ledgers, area
        self._mirror = mirror
        self._marks, self._open_logs = marks, open_logs
        self._find_topic_id = find_topic_id

    def settle(self, app: str) -> Settled:
        """Apply and sync all unretired decisions of an app; no lock is held.

        Raises:
            CorruptCheckpointError: A decision or the ledger is damaged.
        """
        found = (self._pending.load(name) for name in self._pending.of_app(app))
        decisions = [each for each in found if each]
        partitions = frozenset(part.topic_partition for d in decisions for part in d.parts)
        decisions = [each for each in decisions if not self._ledgers.has_retired(each)]
        dropped, failed = self._settle_partitions(decisions)
        return Settled(
            names=frozenset(decision.name for decision in decisions),
            dropped=tuple(dropped),
            failed=failed,
            partitions=partitions,
        )

    def retire(self, history: History, settled: Settled, term: Term | None = None) -> Retired:
        """Retire settled decisions, oldest first; `clear` removes their files.

        Args:
            history: The app's history; its lock is held, no partition's lock is.
            settled: The result of `settle`; later decisions wait for the next retirement.
            term: Copies the ledger to other roots; None: there are none.

        Raises:
            StreamLogError: The ledger cannot be written, or an orphan cannot be removed.
        """
        decisions = history.decisions()
        done = list(_up_to_first(decisions, settled))
        standing = done[-1].standing if done else history.ledger.standing
        is_anonymous = bool(done) and done[-1].identity.is_anonymous
        if done and not is_anonymous:
            gone = {part.topic_partition for part in settled.dropped}
            gone |= self._of_deleted_topics(standing)
            self._ledgers.store(history.ledger.with_decisions(done, gone))
        elif history.stale:
            self._ledgers.sync()  # the process that stored it may have died before its sync
        if term is not None and not is_anonymous:
            term.copy_ledger(history.app)
        names = (*history.stale, *(decision.name for decision in done))
        # Remove orphans under the app's lock: a commit of their version may be in flight.
        orphans = self._orphans(history.app, standing, decisions) if names else []
        self._area.remove(history.app, orphans)
        if term is not None and orphans:
            term.remove_staged(history.app, orphans)
        return Retired(
            app=history.app,
            is_anonymous=is_anonymous,
            decisions=names,
            files=tuple(file.name for decision in done for file in decision.files),
            report=RetireReport(
                retired=len(done), dropped=settled.dropped, removed_files=len(orphans)
            ),
            error=next(iter(settled.failed.values()), None),
        )

    def clear(self, retired: Retired, term: Term | None = None) -> RetireReport:
        """Remove the files of retired decisions; no lock is needed.

        Args:
            retired: The result of `retire`.
            term: Removes them from other roots first; None: there are none.

        Raises:
            StreamLogError: A partition could not be applied or synced, so its decisions and later
                ones stay; or a file cannot be removed.
        """
        if term is not None:
            term.clear(retired.app, retired.decisions, retired.files)
        for name in retired.decisions:
            self._pending.remove(name)
        self._area.remove(retired.app, retired.files)
        if retired.is_anonymous:
            self._area.remove_directory(self._area.directory(retired.app))
        if retired.error is not None:
            raise retired.error
        removed = retired.report.removed_files + len(retired.files)
        return replace(retired.report, removed_files=removed)

    def clean(self, now_ms: int) -> int:
        """Remove staged files older than 7 days that no decision names.

        All files of an app stay while one of its decisions is damaged. An app's empty directory is
        removed as well: at once if the app has no ledger, otherwise after 7 days without use.

        Returns:
            The number of removed files.
        """
        names = self._pending.names()
        named, unreadable = self._named_files(names)
        known = {decision_key(name) for name in names}
        removed = 0
        for key, name in self._area.older_than(now_ms - STAGED_FILE_AGE_MS):
            if name not in named and key not in unreadable:
                self._area.remove_file(key, name)
                removed += 1
        for key in self._area.app_keys():
            if key not in known:
                # If the app commits again, it would have to create and sync the directory again.
                may_go_on = self._ledgers.exists(key)
                unused_since_ms = now_ms - STAGED_FILE_AGE_MS if may_go_on else None
                path = f"{self._area.path}/{key}"
                self._area.remove_directory(path, unused_since_ms=unused_since_ms)
        return removed

    def _named_files(self, names: Iterable[str]) -> tuple[set[str], set[str]]:
        """Return staged files that decisions name, and keys of apps with damaged decisions."""
        files: set[str] = set()
        unreadable: set[str] = set()
        for name in names:
            try:
                decision = self._pending.load(name)
            except CorruptCheckpointError as error:
                _logger.warning("decision is damaged, so its app's files stay: %s", error)
                unreadable.add(decision_key(name))
                continue
            if decision is not None:
                files.update(file.name for file in decision.files)
        return files, unreadable

    def _settle_partitions(
        self, decisions: Iterable[Decision]
    ) -> tuple[list[DroppedPart], dict[_Part, StreamLogError]]:
        """Apply and sync the parts of all decisions; return dropped and failed partitions."""
        ends: dict[_Part, int] = {}
        for decision in decisions:
            for part in decision.parts:
                key = part.topic_partition, part.topic_id
                ends[key] = max(part.last_offset + 1, ends.get(key, 0))
        dropped: list[DroppedPart] = []
        failed: dict[_Part, StreamLogError] = {}
        synced: list[Log] = []
        for (partition, topic_id), end in sorted(ends.items()):
            try:
                log = find_target(self._open_logs, partition, topic_id)
                if isinstance(log, DroppedPart):
                    _logger.warning("[%s] dropped a decided commit: %s", partition, log.reason)
                    dropped.append(log)
                else:
                    self._settle(log, end)
                    synced.append(log)
            except StreamLogError as error:
                _logger.warning("[%s] cannot retire decided commits: %s", partition, error)
                failed[partition, topic_id] = error
        # Without recovery points, damage to synced records would look like a torn tail.
        unwritten = write_recovery_points(synced, self._marks)
        failed |= {part: unwritten[part[0]] for part in ends if part[0] in unwritten}
        return dropped, failed

    def _settle(self, log: Log, end: int) -> None:
        with log.writing():
            if log.log_end_offset < end:
                log.apply_decided()
            if log.recovery_point < end:
                log.sync()
            if self._mirror is not None and log.is_replicated:
                self._mirror.replicas.secure(log)

    def _of_deleted_topics(self, standing: Standing) -> set[TopicPartition]:
        """Return the partitions of deleted topics, which can never be written again.

        If the ledger kept them, each decision of an app that writes a new topic every day would
        name all of them forever.
        """
        is_gone: dict[tuple[str, str], bool] = {}
        gone = set()
        for partition, at in standing.partitions.items():
            topic = partition.topic, at.topic_id
            if topic not in is_gone:
                try:
                    is_gone[topic] = self._find_topic_id(partition) != at.topic_id
                except CorruptDataError:
                    is_gone[topic] = False  # the topic id is damaged, so keep the partition
            if is_gone[topic]:
                gone.add(partition)
        return gone

    def _orphans(self, app: str, standing: Standing, decisions: Iterable[Decision]) -> list[str]:
        """Return the staged files of committed versions that no decision names."""
        named = {file.name for decision in decisions for file in decision.files}
        return [
            name
            for name in self._area.names(app)
            if name not in named and (staged_version(name) or 0) <= standing.last_version
        ]


def _up_to_first(decisions: Iterable[Decision], settled: Settled) -> Iterable[Decision]:
    for decision in decisions:
        parts = ((part.topic_partition, part.topic_id) for part in decision.parts)
        if decision.name not in settled.names or any(part in settled.failed for part in parts):
            return
        yield decision


# ---- in the caller's thread or in the background ---------------------------------------------
def at_once(chore: Callable[[], None]) -> None:
    """Run the chore now; its errors reach the caller."""
    chore()


class BackgroundChores:
    """Runs one chore at a time in a thread; a normal process exit waits for it.

    A chore that arrives while another one is running is dropped, so it must become due again later.
    Errors are logged.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def __call__(self, chore: Callable[[], None]) -> None:
        """Start a chore, unless one is running."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=_do, args=(chore,), name="streamlog-chores")
            self._thread.start()

    def wait(self) -> None:
        """Wait until no chore is running."""
        if self._thread is not None:
            self._thread.join()


def _do(chore: Callable[[], None]) -> None:
    try:
        chore()
    except StreamLogError as error:
        _logger.warning("chore failed and will be retried when due again: %s", error)
