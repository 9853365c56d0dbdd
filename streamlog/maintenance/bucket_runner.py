"""Maintenance of a root in an object store: building, retention, compaction, collecting.

    maintenance = BucketMaintenance(root)
    report = maintenance.run()                        # everything, now
    report = maintenance.run_due(budget_ms=200)       # between triggers: due work, for 200 ms

Any number of processes may maintain a root at once: every change is an entry of the journal,
decided on the state that it follows. A process that is overtaken deletes what it has uploaded.
`run_due` makes no request as long as nothing is due by the state that the root knows.
"""

import contextlib
import os
import random as random_module
from collections.abc import Callable, Sequence
from typing import Final

from streamlog.bucket.actions import Action
from streamlog.bucket.building import BucketBuilds, DueBuild, find_builds, is_being_built
from streamlog.bucket.collecting import BucketCollector
from streamlog.bucket.places import is_bucket, shared_store
from streamlog.bucket.readers import BucketReaders, oldest_entry
from streamlog.bucket.root import BucketRoot
from streamlog.bucket.state import RootState
from streamlog.cleaner.choosing import Cleanable
from streamlog.config.server_config import ServerConfig
from streamlog.errors import CorruptDataError, InvalidRecordError, StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import remove_tree
from streamlog.fs.local import LocalFileSystem
from streamlog.maintenance.bucket_compaction import BucketCompaction
from streamlog.maintenance.bucket_retention import RetentionPlan, find_dirty, plan_retention
from streamlog.maintenance.compaction import COMPACTION_REASONS
from streamlog.maintenance.retention import retention_deeds
from streamlog.maintenance.runner import Maintenance, MaintenanceReport
from streamlog.root.deeds import Deed
from streamlog.root.readers import Holds, held_from
from streamlog.topic import TopicPartition

__all__ = ["BucketMaintenance", "maintenance_of"]

_TEMPORARY: Final = "/tmp"


def maintenance_of(path: str | os.PathLike[str]) -> "Maintenance | BucketMaintenance":
    """Return the maintenance of a root, wherever it is.

    Args:
        path: A directory, or the URL of an object store.

    Raises:
        UnknownTopicError: There is no root.
        InvalidRequestError: The root was not made by streamlog, or the URL is invalid.
        StorageError: The store cannot be reached.
    """
    place = os.fspath(path)
    if not is_bucket(place):
        return Maintenance(place)
    root = BucketRoot(shared_store(place))
    root.refresh()
    return BucketMaintenance(root)


class BucketMaintenance:
    """Maintains one root; not for use by two threads at once. Close it, or use it as a context.

    Args:
        root: The root.
        scratch: A directory for this process alone, on a disk that has room for the largest
            compacted partition; by default below `TMPDIR`, or `/tmp`.
        fs: Its file system; local by default.
        random: Makes names; `SystemRandom` by default.
    """

    def __init__(
        self,
        root: BucketRoot,
        *,
        scratch: str | None = None,
        fs: FileSystem | None = None,
        random: random_module.Random | None = None,
    ) -> None:
        self._root, self._clock = root, root.clock
        random = random or random_module.SystemRandom()
        fs = fs or LocalFileSystem()
        temporary = os.environ.get("TMPDIR") or _TEMPORARY
        directory = f"{temporary}/streamlog-{random.getrandbits(64):016x}"
        self._builds = BucketBuilds(
            root.store,
            root.journal,
            self._clock,
            random=random,
            fs=fs,
            scratch=scratch or directory,
        )
        self._readers = BucketReaders(root.store, self._clock, fs=fs)
        self._collector = BucketCollector(root.store, root.journal, self._clock)
        self._compaction: BucketCompaction | None = None
        self._uncleanable: set[TopicPartition] = set()
        self._next_check_ms = self._clock.monotonic_ms()

    # ---- running -----------------------------------------------------------------------------
    def run(self) -> MaintenanceReport:
        """Do all work now.

        Raises:
            StorageError: The journal cannot be read or written; the next run continues.
        """
        self._root.refresh()
        report = MaintenanceReport()
        self._work(report, lambda: False, is_whole=True)
        return report

    def run_due(self, *, budget_ms: float) -> MaintenanceReport:
        """Do due work, within a time budget.

        Builds are due by the known state; everything else every `log.retention.check.interval.ms`.

        Args:
            budget_ms: After this time no further partition is begun, and a build or a compaction
                pauses after its step; the next call continues there.

        Raises:
            StorageError: The journal cannot be read or written; the next call continues.
        """
        report = MaintenanceReport()
        now_ms = self._clock.monotonic_ms()
        deadline_ms = now_ms + budget_ms
        is_whole = now_ms >= self._next_check_ms
        if is_whole:
            self._root.refresh()
            interval_ms = self._server().log_retention_check_interval_ms
            self._next_check_ms = now_ms + interval_ms
        self._work(report, lambda: self._clock.monotonic_ms() >= deadline_ms, is_whole=is_whole)
        return report

    def plan(self) -> MaintenanceReport:
        """Return the work that `run` would do now; nothing is changed.

        Raises:
            StorageError: The root cannot be read.
        """
        state, now_ms = self._root.refresh(), self._clock.now_ms()
        report = MaintenanceReport()
        holds = self._readers.holds(state, self._readers.active(state))
        report.deeds += [_built(each, 0, now_ms, state) for each in find_builds(state, now_ms)]
        for plan in self._plans(state, holds):
            report.held += plan.held
            report.deeds += retention_deeds(plan.topic_partition, plan.gone, now_ms)
        for cleanable in self._dirty(state, holds):
            report.deeds.append(_cleaned(cleanable, now_ms, state))
        return report

    def _work(
        self, report: MaintenanceReport, is_late: Callable[[], bool], *, is_whole: bool
    ) -> None:
        self._build(report, is_late)
        if is_whole and not is_late():
            holds, seen = self._retain(report)
            if self._compaction is None:
                self._compact(report, holds, is_late)
            self._collector.collect(seen=seen)
        if self._compaction is not None:
            self._go_on(report, is_late)

    def _build(self, report: MaintenanceReport, is_late: Callable[[], bool]) -> None:
        deeds = report.deeds

        def done(due: DueBuild, segments: int) -> None:
            deeds.append(_built(due, segments, self._clock.now_ms(), self._root.state))

        while True:
            due = find_builds(self._root.state, self._clock.now_ms())
            if not due and not self._builds.is_paused:
                return
            before = len(deeds)
            report.is_finished &= self._builds.build(
                due, done=done, failed=self._failed(report), is_late=is_late
            )
            if len(deeds) == before or is_late():
                return

    # ---- retention ---------------------------------------------------------------------------
    def _retain(self, report: MaintenanceReport) -> tuple[Holds, int | None]:
        """Apply retention; return what readers keep, and the oldest entry they may use."""
        readers = self._readers.active(self._root.state)
        holds = self._readers.holds(self._root.state, readers)

        def decide(state: RootState) -> tuple[Sequence[Action], list[RetentionPlan]]:
            plans = self._plans(state, holds)
            return [plan.action(state) for plan in plans if plan.gone], plans

        plans = self._root.journal.change(decide)
        for plan in plans:
            report.held += plan.held
            now_ms = self._clock.now_ms()
            report.deeds += retention_deeds(plan.topic_partition, plan.gone, now_ms)
        return holds, oldest_entry(readers)

    def _plans(self, state: RootState, holds: Holds) -> list[RetentionPlan]:
        now_ms = self._clock.now_ms()
        return [plan_retention(state, each, now_ms, holds) for each in state.partitions]

    # ---- compaction --------------------------------------------------------------------------
    def _dirty(self, state: RootState, holds: Holds) -> list[Cleanable]:
        """Return the partitions to compact, dirtiest first."""
        if not self._server().log_cleaner_enable:
            return []
        now_ms = self._clock.now_ms()
        found = [
            cleanable
            for each in state.partitions
            if each not in self._uncleanable
            and not is_being_built(state, each, now_ms)
            and (cleanable := find_dirty(state, each, now_ms, holds)) is not None
            and cleanable.is_due
        ]
        return sorted(found, key=lambda each: -each.ratio)

    def _compact(
        self, report: MaintenanceReport, holds: Holds, is_late: Callable[[], bool]
    ) -> None:
        for cleanable in self._dirty(self._root.state, holds):
            partition, state = cleanable.topic_partition, self._root.state
            if is_late():
                report.is_finished = False
                return
            held = plan_retention(state, partition, self._clock.now_ms(), holds).held
            self._compaction = BucketCompaction(
                self._root.store,
                self._builds,
                self._clock,
                state=state,
                cleanable=cleanable,
                held_from=held_from(held),
                done=report.deeds.append,
            )
            if not self._go_on(report, is_late):
                return

    def _go_on(self, report: MaintenanceReport, is_late: Callable[[], bool]) -> bool:
        """Continue the compaction that has begun; return whether it is done or given up."""
        assert self._compaction is not None
        try:
            is_done = self._compaction.go_on(is_late)
        except StreamLogError as error:
            if isinstance(error, CorruptDataError | InvalidRecordError):
                self._uncleanable.add(self._compaction.topic_partition)
            self._failed(report)(self._compaction.topic_partition, error)
            is_done = True
        report.is_finished &= is_done
        if is_done:
            self._compaction = None
        return is_done

    # ---- the rest ----------------------------------------------------------------------------
    def _failed(
        self, report: MaintenanceReport
    ) -> Callable[[TopicPartition, StreamLogError], None]:
        return lambda partition, error: report.errors.append(error)

    def _server(self) -> ServerConfig:
        return ServerConfig.from_properties(self._root.state.config)

    def close(self) -> None:
        """Give up what has begun, and remove the scratch directory."""
        with contextlib.suppress(StreamLogError):  # the build is given up by and by
            self._builds.close()
        compaction, self._compaction = self._compaction, None
        if compaction is not None:
            with contextlib.suppress(StreamLogError):  # the build is given up by and by
                compaction.close()
        remove_tree(self._builds.fs, self._builds.scratch)

    def __enter__(self) -> "BucketMaintenance":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _built(due: DueBuild, segments: int, now_ms: int, state: RootState) -> Deed:
    partition = due.replacement.topic_partition
    return Deed(
        ms=now_ms,
        topic=partition.topic,
        partition=partition.partition,
        action="build",
        reason=due.reason,
        segments=segments,
        bytes=due.replacement.size,
        log_start_offset=state.partitions[partition].log_start_offset,
    )


def _cleaned(cleanable: Cleanable, now_ms: int, state: RootState) -> Deed:
    partition = cleanable.topic_partition
    return Deed(
        ms=now_ms,
        topic=partition.topic,
        partition=partition.partition,
        action="compaction",
        reason=COMPACTION_REASONS[cleanable.reason],
        segments=0,
        bytes=cleanable.cleanable_bytes,
        log_start_offset=state.partitions[partition].log_start_offset,
    )
