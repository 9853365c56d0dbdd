"""Maintenance of a root: retention, compaction, and removal of leftover files.

    maintenance = Maintenance(root)
    report = maintenance.run()                        # everything, now
    report = maintenance.run_due(budget_ms=200)       # between triggers: due work, for 200 ms

One process at a time maintains a root: a second one finds `.streamlog/locks/maintenance` taken and
returns at once. A run that reaches its budget stops, and the next run continues there.

A partition is opened only if its oldest segment is to be deleted. That is decided from outside,
without a lock: as long as the directory has not changed, the facts of its oldest segment and the
total size are known from the last look, and two `stat` calls show that it has not changed.

Deletions and compactions are logged in `.streamlog/maintenance.jsonl`, see `streamlog.root.deeds`.

Source: org.apache.kafka.storage.internals.log.LogManager.cleanupLogs, LogCleaner.
"""

import contextlib
import logging
import os
import random as random_module
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

from streamlog.cleaner.cleaner import LogCleaner
from streamlog.clock import Clock, SystemClock
from streamlog.commits.pending import PendingDecisions
from streamlog.config.log_config import LogConfig
from streamlog.config.server_config import ServerConfig
from streamlog.errors import (
    FileMissingError,
    InvalidRequestError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.files import stat_directory, write_lock_holder
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot, refuse_url
from streamlog.maintenance.compaction import CompactedPartition, Due, NotDue, clean_due, find_due
from streamlog.maintenance.partition_watch import PartitionWatch
from streamlog.maintenance.retention import (
    delete_old_segments,
    plan_deletions,
    retention_deeds,
)
from streamlog.partition.checkpoints import read_log_start_offsets
from streamlog.partition.reader import LogReader
from streamlog.partition.topic_config import ConfigFiles, ServerSettings
from streamlog.root import topics
from streamlog.root.deeds import Deed, write_deeds
from streamlog.root.manager import LogManager
from streamlog.root.readers import Held, Holds, held_from
from streamlog.root.roots import (
    check_root,
    is_our_root,
    refuse_live_broker,
    refuse_planted,
    remove_leftovers,
)
from streamlog.topic import TopicPartition

__all__ = ["Maintenance", "MaintenanceReport"]

_FOR_EVER: Final = float("inf")

_logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class MaintenanceReport:
    """The result of a run.

    Attributes:
        deeds: Deletions and compactions, in order; in a dry run, the planned ones.
        held: Records that recorded readers keep in the partitions of this run.
        errors: Errors; each concerns one partition and does not stop the run.
        is_finished: Whether all due work is done; if not, the next run continues.
        is_elsewhere: Whether another process is maintaining this root, so that nothing was done.
    """

    deeds: list[Deed] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    errors: list[StreamLogError] = field(default_factory=list)
    is_finished: bool = True
    is_elsewhere: bool = False


class Maintenance:
    """Maintains the partitions of one root; see the module.

    Not thread-safe. Close it, or use it as a context manager.

    Args:
        root: The log root, made by streamlog.
        fs: The file system; local by default.
        clock: The clock; the system's by default.
        random: For ids and jitter when partitions are opened.

    Raises:
        UnknownTopicError: The root does not exist.
        InvalidRequestError: The root was not made by streamlog.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        random: random_module.Random | None = None,
    ) -> None:
        refuse_url(root)
        self.root = os.path.abspath(os.fspath(root))
        self._fs, self._clock = fs or LocalFileSystem(), clock or SystemClock()
        self._random = random or random_module.Random()
        self._log_root = LogRoot(self.root, self._fs, self._clock, self._random)
        check_root(self._log_root)
        if not is_our_root(self._log_root):
            raise InvalidRequestError(
                "log root was not made by streamlog and is read-only here",
                path=self.root,
                hint="its broker does the maintenance",
            )
        self._manager: LogManager | None = None
        self._configs = _Configs(self._log_root)
        self._watches: dict[str, PartitionWatch] = {}
        self._known: list[tuple[TopicPartition, str]] = []
        self._stamp: list[int | None] = []
        self._left: deque[tuple[TopicPartition, str]] = deque()
        self._next_check_ms = self._next_compaction_ms = self._clock.monotonic_ms()
        self._must_tidy = False
        self._not_due: dict[TopicPartition, NotDue] = {}
        self._cleaner: LogCleaner | None = None
        self._uncleanable: set[TopicPartition] = set()  # damaged; not cleaned by this object again

    # ---- running -----------------------------------------------------------------------------
    def run(self) -> MaintenanceReport:
        """Do all work now, due or not.

        Raises:
            UnavailableError: A running broker owns the root, or the root cannot be read.
        """
        report = MaintenanceReport()
        with self._locked(report):
            if not report.is_elsewhere:
                self._left = deque(self._partitions())
                self._not_due.clear()
                self._go_on(report, self._books(), deadline_ms=_FOR_EVER, is_thorough=True)
                self._tidy_commits(report)
                self._compact(report, self._books(), deadline_ms=_FOR_EVER)
        return report

    def run_due(self, *, budget_ms: float) -> MaintenanceReport:
        """Do due work, within a time budget.

        Retention is due every `log.retention.check.interval.ms`, compaction every
        `log.cleaner.backoff.ms`.

        Args:
            budget_ms: After this time no further partition is begun and compaction pauses; the
                next call continues there.

        Raises:
            UnavailableError: A running broker owns the root, or the root cannot be read.
        """
        report = MaintenanceReport()
        now_ms = self._clock.monotonic_ms()
        if not self._left and now_ms < min(self._next_check_ms, self._next_compaction_ms):
            return report
        with self._locked(report):
            if report.is_elsewhere:
                return report
            books, deadline_ms = self._books(), now_ms + budget_ms
            is_whole = not self._left and now_ms >= self._next_check_ms
            if is_whole:
                self._next_check_ms = now_ms + books.server.log_retention_check_interval_ms
                self._left = deque(self._partitions(is_thorough=False))
                self._must_tidy = True
            self._go_on(report, books, deadline_ms=deadline_ms)
            if self._must_tidy and self._clock.monotonic_ms() < deadline_ms:
                self._tidy_commits(report)
            if report.is_finished and now_ms >= self._next_compaction_ms:
                self._compact(report, books, deadline_ms=deadline_ms, is_looked_at=is_whole)
                if report.is_finished:
                    self._next_compaction_ms = now_ms + books.server.log_cleaner_backoff_ms
        return report

    def plan(self) -> MaintenanceReport:
        """Return the work that `run` would do now; nothing is locked or changed.

        Raises:
            StorageError: The root cannot be read.
        """
        report, books = MaintenanceReport(), self._books()
        for partition, path in self._partitions():
            try:
                config, watch = books.config(partition.topic), self._watch(path)
                watch.look(is_thorough=True)
                held = books.holds.of(partition, path, watch.bases, watch.sizes)
                report.held += held
                with LogReader.open(path, fs=self._fs) as log:
                    gone = plan_deletions(
                        tuple(log.segments),
                        config=config,
                        now_ms=books.now_ms,
                        log_start_offset=log.log_start_offset,
                        log_end_offset=log.log_end_offset,
                        high_watermark=log.high_watermark,
                        held_from=held_from(held),
                    )
                report.deeds += retention_deeds(partition, gone, books.now_ms)
            except StreamLogError as error:
                report.errors.append(error)
        report.deeds += [each.deed for each in self._find_due(books, report)]
        return report

    @contextlib.contextmanager
    def _locked(self, report: MaintenanceReport) -> Iterator[None]:
        """Hold the root's maintenance lock; log the deeds at the end."""
        refuse_live_broker(self._log_root)
        refuse_planted(self._log_root)
        lock = self._fs.try_lock(self._log_root.maintainer_lock, shared=False)
        if lock is None:
            report.is_elsewhere, report.is_finished = True, False
            yield
            return
        try:
            write_lock_holder(lock, now_ms=self._clock.now_ms(), what="maintenance")
            yield
            if report.deeds:
                write_deeds(self._log_root, report.deeds)
        finally:
            lock.release()

    def _go_on(
        self,
        report: MaintenanceReport,
        books: "_Books",
        *,
        deadline_ms: float,
        is_thorough: bool = False,
    ) -> None:
        """Apply retention to the queued partitions until the deadline."""
        while self._left:
            partition, path = self._left.popleft()
            try:
                watch = self._watch(path)
                watch.look(is_thorough=is_thorough)
                self._retain(partition, path, watch, books, report)
            except StreamLogError as error:
                self._failed(report)(partition, error)
                self.close()  # the manager may be what failed: the next partition gets a new one
            if self._clock.monotonic_ms() >= deadline_ms:
                break
        report.is_finished = not self._left

    # ---- one partition -----------------------------------------------------------------------
    def _retain(
        self,
        partition: TopicPartition,
        path: str,
        watch: PartitionWatch,
        books: "_Books",
        report: MaintenanceReport,
    ) -> None:
        config = books.config(partition.topic)
        held = books.holds.of(partition, path, watch.bases, watch.sizes)
        report.held += held
        reason = watch.reason_to_delete(
            config=config,
            now_ms=books.now_ms,
            log_start_offset=books.log_starts.get(partition, 0),
            held_from=held_from(held),
        )
        if reason is not None:
            gone = delete_old_segments(
                self._open().local_log(*partition), self._clock, held_from=held_from(held)
            )
            report.deeds += retention_deeds(partition, gone, books.now_ms)
            watch.look(is_thorough=True)
        watch.remove_deleted(books.now_ms, config.file_delete_delay_ms)

    # ---- commits -----------------------------------------------------------------------------
    def _tidy_commits(self, report: MaintenanceReport) -> None:
        """Retire decisions of idle queries; remove unused staged and temporary files.

        A running query retires its own decisions; a query that has ended leaves its last ones.
        """
        self._must_tidy = False
        try:
            remove_leftovers(self._log_root, now_ms=self._clock.now_ms())
            if self._has_names(self._log_root.pending_decisions) or self._has_names(
                self._log_root.staging
            ):
                commits = self._open().commits
                commits.retire_idle()
                commits.clean()
                report.errors += PendingDecisions(self._log_root).unreadable()
        except StreamLogError as error:
            _logger.warning("maintenance skips commits in this run: %s", error)
            report.errors.append(error)

    def _has_names(self, path: str) -> bool:
        try:
            return bool(self._fs.list(path))
        except FileMissingError:
            return False

    # ---- compaction --------------------------------------------------------------------------
    def _compact(
        self,
        report: MaintenanceReport,
        books: "_Books",
        *,
        deadline_ms: float,
        is_looked_at: bool = False,
    ) -> None:
        """Clean due partitions, dirtiest first, until the deadline.

        Args:
            report: Takes deeds and errors.
            books: The facts this run has read.
            deadline_ms: The deadline, on the monotonic clock.
            is_looked_at: Whether this run has just looked at each partition's files.
        """
        due = self._find_due(books, report, is_looked_at=is_looked_at)
        errors = len(report.errors)
        if not due:
            return
        if self._cleaner is None:
            self._cleaner = LogCleaner(self._open(), random=self._random)
        report.is_finished = clean_due(
            self._cleaner,
            due,
            clock=self._clock,
            deadline_ms=deadline_ms,
            done=report.deeds.append,
            failed=self._failed(report),
        )
        if len(report.errors) > errors:
            self._uncleanable.update(self._cleaner.uncleanable)
            self.close()

    def _find_due(
        self, books: "_Books", report: MaintenanceReport, *, is_looked_at: bool = False
    ) -> list[Due]:
        failed, candidates = self._failed(report), []
        if not books.server.log_cleaner_enable:
            return []
        for partition, path in self._partitions(is_thorough=False):
            try:
                config = books.config(partition.topic)
                if "compact" not in config.cleanup_policy or partition in self._uncleanable:
                    continue
                watch = self._watch(path)
                if not is_looked_at:
                    watch.look()
                if len(watch.bases) > 1:  # the active segment is never cleaned
                    held = books.holds.of(partition, path, watch.bases, watch.sizes)
                    state = books.log_starts.get(partition, 0), *watch.files
                    candidates.append(
                        CompactedPartition(partition, path, config, held_from(held), state)
                    )
            except StreamLogError as error:
                failed(partition, error)
        return find_due(
            candidates,
            root=self._log_root,
            now_ms=books.now_ms,
            not_due=self._not_due,
            failed=failed,
        )

    def _failed(
        self, report: MaintenanceReport
    ) -> Callable[[TopicPartition, StreamLogError], None]:
        def note(partition: TopicPartition, error: StreamLogError) -> None:
            # Both mean that the topic was deleted during this run.
            if not isinstance(error, UnknownTopicError | FileMissingError):
                _logger.warning("[%s] maintenance skips the partition: %s", partition, error)
                report.errors.append(error)

        return note

    def _watch(self, path: str) -> PartitionWatch:
        found = self._watches.get(path)
        if found is None:
            found = self._watches[path] = PartitionWatch(self._fs, path)
        return found

    # ---- the root ----------------------------------------------------------------------------
    def _partitions(self, *, is_thorough: bool = True) -> list[tuple[TopicPartition, str]]:
        """Return all partitions; lists them again if the root's directories have changed."""
        names = (self.root, self._log_root.topics)
        stats = [stat_directory(self._fs, path) for path in names]
        stamp = [each and each.mtime_ns for each in stats]
        if is_thorough or stamp != self._stamp:
            self._known = [
                (TopicPartition(topic, number), path)
                for topic, numbers in topics.find_partitions(self._fs, self.root).items()
                for number, path in numbers.items()
            ]
            there = {path for _, path in self._known}
            self._watches = {path: watch for path, watch in self._watches.items() if path in there}
            self._stamp = stamp
        return self._known

    def _books(self) -> "_Books":
        return _Books(
            self._clock.now_ms(),
            read_log_start_offsets(self._log_root),
            Holds.read(self._log_root),
            cache(self._configs.of),
            self._configs.server.load(),
        )

    def _open(self) -> LogManager:
        if self._manager is None:
            self._manager = LogManager.open(
                self.root, fs=self._fs, clock=self._clock, random=self._random
            )
        return self._manager

    def close(self) -> None:
        """Close all open partitions; a later run opens them again."""
        cleaner, self._cleaner = self._cleaner, None
        if cleaner is not None:
            cleaner.close()
        manager, self._manager = self._manager, None
        if manager is not None:
            # All work is durable already; closing only leaves hints for the next opening.
            with contextlib.suppress(StreamLogError):
                manager.close()

    def __enter__(self) -> "Maintenance":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Books(NamedTuple):
    """Facts that a run reads once."""

    now_ms: int
    log_starts: Mapping[TopicPartition, int]
    holds: Holds
    config: Callable[[str], LogConfig]
    server: ServerConfig


class _Configs:
    """The settings of the topics, read again when a file has changed."""

    def __init__(self, root: LogRoot) -> None:
        self._root = root
        self.server = ServerSettings(root)
        self._known: dict[str, tuple[ConfigFiles, LogConfig]] = {}

    def of(self, topic: str) -> LogConfig:
        """Return the effective settings of a topic."""
        files, config = self._known.get(topic, (None, None))
        if files is None or config is None or files.has_changed():
            files = ConfigFiles(self._root, topic, self.server)
            config = files.load()
            self._known[topic] = files, config
        return config
