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
from streamlog.commits.pending import PendingDecisions, decision_key
from streamlog.commits.staging import StagingArea, staged_version
from streamlog.errors import (
    CorruptCheckpointError,
    CorruptDataError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.partition.log import Log, write_recovery_points
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

RETIRE_SIZE: Final = 64 << 20  # unretired bytes of one partition: what a power cut may cost
RETIRE_AFTER_MS: Final = 60_000
RETIRE_COUNT: Final = 64  # decisions: keeps the directory small
STAGED_FILE_AGE_MS: Final = 7 * 24 * 3600 * 1000

_logger = logging.getLogger(__name__)

OpenLogs = Callable[[Sequence[TopicPartition]], Sequence[Log]]
Chores = Callable[[Callable[[], None]], None]
_Part = tuple[TopicPartition, str]  # with the id of its topic


class DroppedPart(NamedTuple):
    """What a decision wanted to do to a partition that is no more."""

    topic_partition: TopicPartition
    topic_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireReport:
    """What a retirement did.

    Attributes:
        retired: How many decisions are done with.
        dropped: Their parts for partitions that are no more.
        removed_files: How many staged files went.
    """

    retired: int = 0
    dropped: tuple[DroppedPart, ...] = ()
    removed_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of the partitions of some decisions.

    Attributes:
        names: The decisions.
        dropped: Their parts for partitions that are no more.
        failed: Why partitions could not be applied or synced.
    """

    names: frozenset[str]
    dropped: tuple[DroppedPart, ...]
    failed: Mapping[_Part, StreamLogError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """What is retired and not cleared yet.

    Attributes:
        app: The app.
        is_anonymous: Whether it commits once: no ledger says then what is retired.
        decisions: Names of the decisions that go.
        files: Names of the staged files that go.
        report: What was done so far.
        error: Why decisions behind these are not retired, None where all are.
    """

    app: str
    is_anonymous: bool
    decisions: tuple[str, ...]
    files: tuple[str, ...]
    report: RetireReport
    error: StreamLogError | None


def is_due(standing: Standing, now_ms: int) -> bool:
    """Tell whether an app has so much unretired that it should retire now.

    Args:
        standing: Where the app stands.
        now_ms: The time; a clock that went back counts as long ago.
    """
    if standing.unretired == 0:
        return False
    return (
        standing.unretired >= RETIRE_COUNT
        or not 0 <= now_ms - standing.unretired_since_ms < RETIRE_AFTER_MS
        or any(at.unretired_size >= RETIRE_SIZE for at in standing.partitions.values())
    )


def find_target(open_logs: OpenLogs, partition: TopicPartition, topic_id: str) -> Log | DroppedPart:
    """Return the partition a decision means, or why there is none.

    Raises:
        StreamLogError: It is there and cannot be opened.
    """
    try:
        log = open_logs([partition])[0]
    except UnknownTopicError:
        return DroppedPart(partition, topic_id, "the topic was deleted")
    if log.topic_id != topic_id:
        return DroppedPart(partition, topic_id, "the topic was deleted and made again")
    return log


class Retirement:
    """Retires decisions and cleans up staged files of a root.

    Args:
        pending: Its decisions.
        ledgers: Its ledgers.
        area: Its staged files.
        marks: The recovery points of the root.
        find_topic_id: Returns the id of a partition's topic, None where there is no such partition.
        open_logs: Opens partitions for writing; raises `UnknownTopicError` where one is no more.
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
    ) -> None:
        self._pending, self._ledgers, self._area = pending, ledgers, area
        self._marks, self._open_logs = marks, open_logs
        self._find_topic_id = find_topic_id

    def settle(self, app: str) -> Settled:
        """Apply and sync all that an app decided and has not retired; no lock is held.

        Raises:
            CorruptCheckpointError: A decision or the ledger cannot be read.
            StorageError: The recovery points cannot be written.
        """
        found = (self._pending.load(name) for name in self._pending.of_app(app))
        decisions = [each for each in found if each and not self._ledgers.has_retired(each)]
        dropped, failed = self._settle_partitions(decisions)
        return Settled(
            names=frozenset(decision.name for decision in decisions),
            dropped=tuple(dropped),
            failed=failed,
        )

    def retire(self, history: History, settled: Settled) -> Retired:
        """Retire what is settled, from the oldest decision on; `clear` removes the files.

        Args:
            history: The app's past; its lock is held, no partition's lock is.
            settled: What `settle` returned; decisions made since then wait for the next time.

        Raises:
            StreamLogError: The ledger cannot be written, or an orphan not be removed.
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
            self._ledgers.sync()  # who stored it may have died, or failed, at it
        names = (*history.stale, *(decision.name for decision in done))
        # An orphan goes under the app's lock: a commit of its version may be on its way.
        orphans = self._orphans(history.app, standing, decisions) if names else []
        self._area.remove(history.app, orphans)
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

    def clear(self, retired: Retired) -> RetireReport:
        """Remove the files of retired decisions; no lock needs to be held.

        Raises:
            StreamLogError: A partition could not be applied or synced, so its decisions and those
                behind them stay; or a file cannot be removed.
        """
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
        """Remove staged files that are older than 7 days and that no decision names.

        The empty directory of an app goes as well: at once where the app has no ledger, else when
        it has not been used for 7 days.

        Returns:
            How many went.

        An app's files stay, all of them, while one of its decisions cannot be read.

        Raises:
            StorageError: The disk refuses.
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
                # The next commit of an app that goes on would have to sync it again.
                may_go_on = self._ledgers.exists(key)
                unused_since_ms = now_ms - STAGED_FILE_AGE_MS if may_go_on else None
                path = f"{self._area.path}/{key}"
                self._area.remove_directory(path, unused_since_ms=unused_since_ms)
        return removed

    def _named_files(self, names: Iterable[str]) -> tuple[set[str], set[str]]:
        """Return the staged files that decisions name, and the keys of apps with damaged ones."""
        files: set[str] = set()
        unreadable: set[str] = set()
        for name in names:
            try:
                decision = self._pending.load(name)
            except CorruptCheckpointError as error:
                _logger.warning("a decision cannot be read, so its app's files stay: %s", error)
                unreadable.add(decision_key(name))
                continue
            if decision is not None:
                files.update(file.name for file in decision.files)
        return files, unreadable

    def _settle_partitions(
        self, decisions: Iterable[Decision]
    ) -> tuple[list[DroppedPart], dict[_Part, StreamLogError]]:
        """Apply and sync all that decisions did; return what is no more, and what failed."""
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
        # Without them damage below what was promised would pass for what a power cut tore.
        unwritten = write_recovery_points(synced, self._marks)
        failed |= {part: unwritten[part[0]] for part in ends if part[0] in unwritten}
        return dropped, failed

    def _settle(self, log: Log, end: int) -> None:
        with log.writing():
            if log.log_end_offset < end:
                log.apply_decided()
            if log.recovery_point < end:
                log.sync()

    def _of_deleted_topics(self, standing: Standing) -> set[TopicPartition]:
        """Return the partitions of topics that are no more: nothing can be written there again.

        Otherwise each decision of an app that writes a topic a day would name all of them for ever.
        """
        is_gone: dict[tuple[str, str], bool] = {}
        gone = set()
        for partition, at in standing.partitions.items():
            topic = partition.topic, at.topic_id
            if topic not in is_gone:
                try:
                    is_gone[topic] = self._find_topic_id(partition) != at.topic_id
                except CorruptDataError:
                    is_gone[topic] = False  # nobody knows
            if is_gone[topic]:
                gone.add(partition)
        return gone

    def _orphans(self, app: str, standing: Standing, decisions: Iterable[Decision]) -> list[str]:
        """Return the staged files of versions that are committed, which no decision names."""
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
    """Do it now; what goes wrong is the caller's."""
    chore()


class BackgroundChores:
    """Does one chore at a time in a thread; a process that ends in order waits for it.

    What comes while one is being done is dropped: a chore has to be something that is due again
    at the next occasion. What goes wrong is logged.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def __call__(self, chore: Callable[[], None]) -> None:
        """Begin with a chore, unless one is being done."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=_do, args=(chore,), name="streamlog-chores")
            self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being done."""
        if self._thread is not None:
            self._thread.join()


def _do(chore: Callable[[], None]) -> None:
    try:
        chore()
    except StreamLogError as error:
        _logger.warning("put off until it is due again: %s", error)
