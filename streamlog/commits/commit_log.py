"""Commits: make staged files part of many partitions atomically and exactly once.

`COMMITS.md` specifies the rules, with a table of all states.

    lock the app → judge by its history → check → lock the partitions → assign offsets → sync the
    log ends → decide (the commit point) → apply → unlock → retire if due

With replicas in other roots, the staged files are copied there before the check, and the decision
is prepared there before it is made (`mirror.py`).

One committer at a time holds an app's lock, `.streamlog/locks/apps/<app>`; apps do not wait for
each other. The lock file exists only while the lock is held. The holder removes it before the
release, and a process that locked an unlinked file locks the name again. Apps that commit once
therefore leave no files; the next commit or `clean` removes files left by a crash.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from streamlog.commits.admission import (
    HeldPartitions,
    StagedCommit,
    gather,
    held_when_checked,
    make_ground_sure,
    place_part,
    sync_paths,
)
from streamlog.commits.apply import apply_part
from streamlog.commits.decisions import DecidedPart, Decision, Standing
from streamlog.commits.extents import ExtentReader
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.history import CommittedRange, History, Ledgers, PastCommit, ranges_of
from streamlog.commits.identity import CommitIdentity, app_key, check_identity
from streamlog.commits.inheritance import Inheritance, inheritance_of, past_of
from streamlog.commits.mirror import Mirror
from streamlog.commits.pending import PendingDecisions
from streamlog.commits.replay import OnMismatch, ReplayRule, Verdict, judge_commit
from streamlog.commits.retirement import (
    RETIRE_AFTER_MS,
    Chores,
    DroppedPart,
    OpenLogs,
    Retirement,
    RetireReport,
    at_once,
    find_target,
    is_due,
)
from streamlog.commits.staging import StagedFile, StagingArea
from streamlog.commits.term import Term, leading
from streamlog.errors import (
    FileExistsAlreadyError,
    FileMissingError,
    InvalidRequestError,
    LockTimeoutError,
    NotEnoughReplicasAfterAppendError,
    StorageError,
    StreamLogError,
    UnknownOutcomeError,
)
from streamlog.fs.api import FileLock, FileSystem
from streamlog.fs.files import write_lock_holder
from streamlog.fs.log_root import LogRoot
from streamlog.partition.locks import DEFAULT_LOCK_TIMEOUT_MS, Patience, wait_for_lock
from streamlog.partition.log import Log
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.partition.root_marks import RootMarks
from streamlog.query.checkpoint import BatchSource
from streamlog.query.checkpoint_note import CheckpointNote
from streamlog.records.acks import Acks
from streamlog.topic import TopicPartition

__all__ = [
    "CommitLog",
    "CommitOutcome",
    "locked_app",
    "remove_unused_app_locks",
]

_ATTEMPTS: Final = 3
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """The outcome of a commit.

    Attributes:
        identity: The commit's identity.
        verdict: COMMIT, REPLAY, SKIP or APPEND.
        revision: The committed revision of the version: 0, or higher if a mismatch was appended.
        parts: The offsets by partition. Empty for a replay of a retired commit that was not the
            last.
        dropped: Parts that were lost because their topic was deleted after the decision.
        rows: Number of committed rows.
    """

    identity: CommitIdentity
    verdict: Verdict
    revision: int
    parts: tuple[CommittedRange, ...]
    dropped: tuple[DroppedPart, ...] = ()
    rows: int

    @property
    def is_replay(self) -> bool:
        """Whether the version was committed before and nothing was written."""
        return self.verdict in (Verdict.REPLAY, Verdict.SKIP)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The arguments of one call of `commit`."""

    identity: CommitIdentity
    staged: Sequence[StagedFile]
    commit: StagedCommit
    fingerprint: Fingerprint
    rule: ReplayRule
    on_mismatch: OnMismatch
    sync_paths: Sequence[str]
    flush_messages: int | None
    flush_ms: int | None
    acks: Acks
    inheritance: Inheritance | None
    note: CheckpointNote | None


class CommitLog:
    """The commits of a log root.

    Args:
        root: The log root.
        open_logs: Opens partitions for writing; raises `UnknownTopicError` if one no longer exists.
            Without it, only `pending`, `last_version` and `abort` work.
        marks: The recovery points of the root, shared with the opened partitions.
        decisions: The unretired decisions of the root, shared with them as well.
        lock_timeout_ms: How long to wait for another committer of the same app.
        chores: Runs the retirement that a commit leaves due.
        mirror: The copies of the commit files on other roots; None: there are none.
        is_own: Returns whether a decision in the root is its own to retire; all are by default.
    """

    def __init__(
        self,
        root: LogRoot,
        *,
        open_logs: OpenLogs | None = None,
        marks: RootMarks | None = None,
        decisions: PendingDecisions | None = None,
        lock_timeout_ms: float | Patience | None = None,
        chores: Chores = at_once,
        mirror: Mirror | None = None,
        is_own: Callable[[Decision], bool] | None = None,
    ) -> None:
        self._root, self._clock, self._is_own = root, root.clock, is_own
        self._open_logs = open_logs or _cannot_open
        self._patience = Patience.of(lock_timeout_ms, default_ms=DEFAULT_LOCK_TIMEOUT_MS)
        self._chores, self._mirror = chores, mirror
        self._turn = threading.Lock()
        self._pending = decisions or PendingDecisions(root)
        self._ledgers = Ledgers(root)
        self._area = StagingArea(root)
        self._retirement = Retirement(
            self._pending,
            self._ledgers,
            self._area,
            marks=marks or RootMarks(root),
            find_topic_id=lambda partition: read_topic_id(root.fs, root.partition(partition)),
            open_logs=self._open_logs,
            mirror=mirror,
        )

    # ---- commit ------------------------------------------------------------------------------
    def commit(
        self,
        identity: CommitIdentity,
        staged: Sequence[StagedFile],
        *,
        source: BatchSource | None = None,
        note: CheckpointNote | None = None,
        replay_rule: ReplayRule = ReplayRule.NEXT,
        on_mismatch: str | OnMismatch = OnMismatch.FAIL,
        sync_paths: Sequence[str] = (),
        flush_messages: int | None = None,
        flush_ms: int | None = None,
        acks: Acks = Acks.ALL,
    ) -> CommitOutcome:
        """Commit staged files atomically and exactly once. Durable on return.

        Args:
            identity: The commit's identity; committing it again is a replay.
            staged: The reports of each task's winning attempt, in any order.
            source: The input of the commit apart from its rows, if known.
            note: The checkpoint's note of the app's last version.
            replay_rule: Which versions may follow the last one.
            on_mismatch: What to do with a known version that has another fingerprint.
            sync_paths: Files and directories that must be durable before the commit: Spark's
                checkpoint.
            flush_messages: Like the topic's `flush.messages`, for this committer.
            flush_ms: Like the topic's `flush.ms`, for this committer.
            acks: Whether to wait until all replicas in sync hold the rows. With any value, the
                commit itself is durable on all roots in sync before it is decided.

        Returns:
            The offsets of the rows.

        Raises:
            InvalidRequestError: The commit can never succeed (subclasses say why); nothing was
                decided.
            CorruptRecordError: A staged file is damaged; nothing was decided.
            InconsistentTopicIdError: A topic was recreated in between; nothing was decided.
            CommitMismatchError: The version is known with another fingerprint, does not follow the
                last one, is forgotten, or the log lacks versions that `note` contains.
            LockTimeoutError: Another committer or writer held a lock; nothing was decided.
            NotLeaderError: Another root leads the commits or a partition; commit there.
            NotEnoughReplicasError: Too few replicas are in sync; nothing was decided.
            UnknownOutcomeError: The commit may or may not be decided: commit again to find out.
            StreamLogError: The commit is decided but not fully applied. It is logged, and the next
                writer of the partition applies the rest.
        """
        check_identity(identity)
        commit = gather(identity, staged)
        request = _Request(
            identity=identity,
            staged=staged,
            commit=commit,
            fingerprint=Fingerprint.of(source or BatchSource(None), commit.rows, commit.checksum),
            rule=replay_rule,
            on_mismatch=OnMismatch.parse(on_mismatch),
            sync_paths=sync_paths,
            flush_messages=flush_messages,
            flush_ms=flush_ms,
            acks=acks,
            inheritance=inheritance_of(identity, self._pending, self._ledgers, self._app_lock),
            note=note,
        )
        partitions = [part.topic_partition for part in commit.parts]
        with self._app_lock(identity.app), self._leading(identity.app, partitions) as term:
            outcome, standing = self._commit(request, term)
        if self._must_retire(request, standing):
            # An anonymous app never commits again, so nothing would retry a dropped chore.
            chores = at_once if identity.is_anonymous else self._chores
            chores(lambda: self._retire_all_due(identity.app))
        return outcome

    def abort(self, identity: CommitIdentity, staged: Sequence[StagedFile]) -> None:
        """Remove staged files, except those that a decision names.

        Args:
            identity: The identity of the aborted commit.
            staged: Its known files; Spark also aborts after a commit that raised.

        Raises:
            CorruptCheckpointError: The app's history is damaged; nothing was removed.
        """
        with self._app_lock(identity.app):
            partitions = {extent.topic_partition for file in staged for extent in file.extents}
            with self._leading(identity.app, partitions) as term:
                history = History.load(identity.app, self._pending, self._ledgers)
                self._drop_files(history, staged, term)

    def _commit(self, request: _Request, term: Term | None) -> tuple[CommitOutcome, Standing]:
        """Judge and commit; again if another committer was faster despite the lock."""
        for attempt in range(1, _ATTEMPTS + 1):
            history = History.load(request.identity.app, self._pending, self._ledgers)
            if term is not None and attempt == 1 and not request.identity.is_anonymous:
                term.check_history(history.app, history.standing.number)
            past, last_version = past_of(history, request.inheritance, request.identity.version)
            verdict, index = judge_commit(
                request.identity,
                request.fingerprint,
                [old.fingerprint for old in past],
                last_version=last_version,
                note=request.note,
                rule=request.rule,
                on_mismatch=request.on_mismatch,
            )
            if verdict in (Verdict.REPLAY, Verdict.SKIP):
                return self._settle(request, history, past[index], verdict, term), history.standing
            revision = past[-1].revision + 1 if past else 0
            try:
                return self._decide_and_apply(request, history, revision, verdict, term)
            except FileExistsAlreadyError:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _settle(
        self,
        request: _Request,
        history: History,
        past: PastCommit,
        verdict: Verdict,
        term: Term | None,
    ) -> CommitOutcome:
        """Make an earlier commit durable and applied, and remove the new files."""
        log = _logger.warning if verdict is Verdict.SKIP else _logger.info
        log("%s is already committed: %s", request.identity, verdict.value)
        dropped: list[DroppedPart] = []
        if past.decision is not None:
            self._pending.sync()  # the process that decided may have died before its sync
            if term is not None:
                term.lead([part.topic_partition for part in past.decision.parts])
            for part in past.decision.parts:
                target = find_target(self._open_logs, part.topic_partition, part.topic_id)
                if isinstance(target, DroppedPart):
                    dropped.append(target)
                    _logger.warning("[%s] dropped part of a commit: %s", *target[::2])
                    continue
                with target.writing():
                    if target.log_end_offset <= part.last_offset:
                        target.apply_decided()
                    if term is not None and target.high_watermark <= part.last_offset:
                        term.secure(target)
                if term is not None:
                    term.check_committed(target, part.last_offset, request.acks)
        self._drop_files(history, request.staged, term)
        gone = {part.topic_partition for part in dropped}
        return CommitOutcome(
            identity=request.identity,
            verdict=verdict,
            revision=past.revision,
            parts=tuple(part for part in past.parts if part.topic_partition not in gone),
            dropped=tuple(dropped),
            rows=past.fingerprint.rows,
        )

    def _drop_files(
        self, history: History, staged: Sequence[StagedFile], term: Term | None
    ) -> None:
        named = history.named_files()
        names = [file.name for file in staged if file.name and file.name not in named]
        self._area.remove(history.app, names)
        if term is not None and names:
            term.remove_staged(history.app, names)

    # ---- decide and apply --------------------------------------------------------------------
    def _decide_and_apply(
        self,
        request: _Request,
        history: History,
        revision: int,
        verdict: Verdict,
        term: Term | None,
    ) -> tuple[CommitOutcome, Standing]:
        identity, commit = request.identity, request.commit
        partitions = [part.topic_partition for part in commit.parts]
        if term is not None:
            term.lead(partitions)
        logs = self._open_logs(partitions)
        reader = ExtentReader(self._area, identity.app, commit.files)
        self._make_sources_durable(request, term)
        with held_when_checked(logs, commit.parts, reader, self._clock) as held:
            now_ms = self._clock.now_ms()
            parts = [
                place_part(log, part, history.standing, now_ms)
                for log, part in zip(logs, commit.parts, strict=True)
            ]
            decision = Decision(
                identity=identity,
                revision=revision,
                fingerprint=request.fingerprint,
                decided_ms=now_ms,
                files=commit.files,
                parts=tuple(parts),
                standing=history.standing.after(
                    identity.version, ((part.topic_partition, part.step) for part in parts), now_ms
                ),
            )
            for log in logs:
                if term is not None:
                    term.admit(log, request.acks)
                if make_ground_sure(log, history.standing, self._pending) and term is not None:
                    term.secure(log)
            self._decide(decision, logs, term)
            self._apply(decision, logs, reader, request, held)
        outcome = CommitOutcome(
            identity=identity,
            verdict=verdict,
            revision=revision,
            parts=ranges_of(decision),
            rows=commit.rows,
        )
        return outcome, decision.standing

    def _make_sources_durable(self, request: _Request, term: Term | None) -> None:
        """Make everything durable, on all roots in sync, that the decision will rely on."""
        app, commit = request.identity.app, request.commit
        if term is not None:
            term.collect(app, commit.files)
        if commit.files:  # the decision will name them, so their names must be durable first
            self._area.sync(app)
            if term is not None:
                term.copy_staged(app, commit.files)
        sync_paths(self._root.fs, request.sync_paths)

    def _decide(self, decision: Decision, logs: Sequence[Log], term: Term | None) -> None:
        for log in logs:  # before the decision: the next holder of the lock must look for it
            log.set_pending(True)
        try:
            if term is not None:
                term.prepare(decision)
            self._pending.create(decision)
        except FileExistsAlreadyError:
            raise
        except StreamLogError as error:
            if not self._pending.stands(decision):  # nothing was decided: undo the flags
                if term is not None:
                    term.withdraw(decision)  # if that fails, the flags make the next holder do it
                for log in logs:
                    log.set_pending(False)
                raise
            raise UnknownOutcomeError(
                f"{decision.identity} is decided, but may not be durable",
                path=self._pending.path,
                got=str(error),
                hint="repair the disk, then commit the same version again",
            ) from error

    def _apply(
        self,
        decision: Decision,
        logs: Sequence[Log],
        reader: ExtentReader,
        request: _Request,
        held: HeldPartitions,
    ) -> None:
        """Apply a decision to all its partitions; one that fails does not stop the others."""
        first_error: StreamLogError | None = None
        for log, part in zip(logs, decision.parts, strict=True):
            try:
                unheld = _apply_whole(log, decision, part, reader, request.acks)
                first_error = first_error or unheld
                log.set_pending(False)
                unflushed = log.log_end_offset - log.recovery_point
                if request.flush_messages is not None and unflushed >= request.flush_messages:
                    log.flush()
            except StreamLogError as error:
                _logger.error(
                    "[%s] %s is decided but not applied yet: %s",
                    log.topic_partition,
                    decision.identity,
                    error,
                )
                first_error = first_error or error
            # Other writers of this partition need not wait for the remaining ones.
            held.let_go(log)
        if first_error is not None:
            raise first_error

    # ---- retire, clean up --------------------------------------------------------------------
    def retire(self) -> RetireReport:
        """Retire all decisions: sync the logs, then remove files that are no longer needed.

        An app whose newest decision is damaged is skipped with a warning.

        Raises:
            StreamLogError: A partition or an app's history is damaged or unavailable; the apps
                before it are done.
        """
        reports = [self._retire_app(decision.identity.app) for decision in self._newest()]
        return RetireReport(
            retired=sum(report.retired for report in reports),
            dropped=tuple(part for report in reports for part in report.dropped),
            removed_files=sum(report.removed_files for report in reports),
        )

    def clean(self) -> int:
        """Remove staged files older than 7 days that no decision names; return their number."""
        remove_unused_app_locks(self._root)
        return self._retirement.clean(self._clock.now_ms())

    def _must_retire(self, request: _Request, standing: Standing) -> bool:
        """Return whether the app's decisions are due to be retired."""
        now_ms = self._clock.now_ms()
        age_ms = now_ms - standing.unretired_since_ms
        is_late = request.flush_ms is not None and age_ms >= request.flush_ms
        return standing.unretired > 0 and (
            request.identity.is_anonymous or is_late or is_due(standing, now_ms)
        )

    def _retire_all_due(self, app: str) -> None:
        """Retire the app's decisions and those of idle apps; no lock is held."""
        self._retire_app(app)
        self.retire_idle()

    def retire_idle(self) -> None:
        """Retire the decisions of apps that have not committed for a minute.

        Failures are logged and retried the next time. An app that is committing right now is
        skipped without waiting for its lock.

        Raises:
            CorruptCheckpointError: A decision is damaged.
        """
        now_ms = self._clock.now_ms()
        for decision in self._newest():
            app = decision.identity.app
            if now_ms - decision.decided_ms < RETIRE_AFTER_MS:
                continue
            try:
                self._retire_app(app, timeout_ms=0)
            except LockTimeoutError:
                continue  # it is committing right now
            except StreamLogError as error:
                _logger.warning("cannot retire the decisions of %s: %s", app, error)

    def _newest(self) -> list[Decision]:
        is_own = self._is_own
        return [each for each in self._pending.newest() if is_own is None or is_own(each)]

    def _retire_app(self, app: str, *, timeout_ms: float | None = None) -> RetireReport:
        settled = self._retirement.settle(app)
        with contextlib.ExitStack() as held:
            with self._app_lock(app, timeout_ms=timeout_ms):
                history = History.load(app, self._pending, self._ledgers)
                term = held.enter_context(self._leading(app, settled.partitions))
                retired = self._retirement.retire(history, settled, term)
            return self._retirement.clear(retired, term)

    # ---- decisions and versions ------------------------------------------------------------------
    def pending(self, partition: TopicPartition | None = None) -> list[Decision]:
        """Return the unretired decisions, all or those that name a partition.

        Raises:
            CorruptCheckpointError: A decision is damaged.
        """
        self._take_over()
        if partition is not None:
            return [decision for decision, _ in self._pending.naming(partition)]
        decisions = (self._pending.load(name) for name in self._pending.names())
        return [decision for decision in decisions if decision is not None]

    def last_version(self, app: str) -> int | None:
        """Return the highest version that an app committed, None if there is none.

        Raises:
            CorruptCheckpointError: The app's history is damaged.
        """
        self._take_over()
        with self._app_lock(app):
            standing = History.load(app, self._pending, self._ledgers).standing
        return None if standing.number == 0 else standing.last_version

    def _take_over(self) -> None:
        """Learn what another root decided before this one was elected to lead the commits."""
        if self._mirror is not None:
            self._mirror.take_over(self._open_logs)

    @contextlib.contextmanager
    def _leading(self, app: str, partitions: Iterable[TopicPartition]) -> Iterator[Term | None]:
        """Lead the commits of the replica set if a commit concerns more than this root."""
        if self._mirror is None or not self._mirror.concerns(app, partitions):
            yield None
        else:
            self._take_over()
            with leading(self._mirror) as term:
                yield term

    @contextlib.contextmanager
    def _app_lock(self, app: str, *, timeout_ms: float | None = None) -> Iterator[None]:
        """Hold an app's lock; a query and its own chores take turns without a timeout."""
        timeout_ms = self._patience.timeout_ms if timeout_ms is None else timeout_ms
        lock = locked_app(self._root, app, timeout_ms=timeout_ms)
        with self._turn, lock:
            yield


def _apply_whole(
    log: Log, decision: Decision, part: DecidedPart, reader: ExtentReader, acks: Acks
) -> StreamLogError | None:
    """Apply a part; return the error if too few replicas hold it, which leaves nothing to apply."""
    try:
        apply_part(log, decision, part, reader, acks=acks)
    except NotEnoughReplicasAfterAppendError as error:
        return error
    return None


def _cannot_open(partitions: Sequence[TopicPartition]) -> Sequence[Log]:
    raise InvalidRequestError(
        "commit log was created without open_logs and cannot open partitions",
        got=", ".join(map(str, partitions)),
        hint="use LogManager.commits",
    )


# ---- the lock of an app ---------------------------------------------------------------------
@contextlib.contextmanager
def locked_app(root: LogRoot, app: str, *, timeout_ms: float) -> Iterator[None]:
    """Hold an app's lock. Take it before partition locks, and never two at once.

    Args:
        root: The log root.
        app: The app.
        timeout_ms: How long to wait for another committer.

    Raises:
        LockTimeoutError: Another process held it.
    """
    lock = _taken(root, app, timeout_ms)
    try:
        write_lock_holder(lock, now_ms=root.clock.now_ms(), what="commit")
        yield
    finally:
        _give_up(root.fs, lock)


def remove_unused_app_locks(root: LogRoot) -> int:
    """Remove the lock files left by crashes; return their number."""
    try:
        names = root.fs.list(root.app_locks)
    except FileMissingError:
        return 0
    removed = 0
    for name in names:
        lock = root.fs.try_lock(root.app_lock(name), shared=False)
        if lock is not None:
            _give_up(root.fs, lock)
            removed += 1
    return removed


def _taken(root: LogRoot, app: str, timeout_ms: float) -> FileLock:
    path, what = root.app_lock(app_key(app)), f"the commits of {app}"
    try:
        return wait_for_lock(root.fs, root.clock, path, timeout_ms=timeout_ms, what=what)
    except FileMissingError:  # the first commit to this root
        root.fs.make_directory(root.app_locks)
    return wait_for_lock(root.fs, root.clock, path, timeout_ms=timeout_ms, what=what)


def _give_up(fs: FileSystem, lock: FileLock) -> None:
    try:
        if lock.is_mine():  # a forked child must not remove its parent's lock file
            with contextlib.suppress(StorageError):  # the next holder removes it
                fs.remove(lock.path)
    finally:
        lock.release()
