"""Repairs partitions and the state of a root without loss; a dry run reports the changes.

A repair renames wrong files, then opens the partition for writing and closes it: opening rebuilds
the files from the log, truncates a torn tail and keeps its bytes beside the log, and refuses
damage to acknowledged records. All of it runs first on an overlay that keeps changes in memory
(`streamlog.fs.overlay`): a repair that is refused there is not begun, and the changes there are the
reported steps, in a dry run or not.

`--skip-damage` leaves damaged batches out of the log and lowers the recovery point to the remaining
log end; the original files stay beside the log.
"""

import contextlib
import os
import random as random_module
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptRecordError,
    InvalidRequestError,
    LockTimeoutError,
    StreamLogError,
)
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.files import stat_directory
from streamlog.fs.log_root import LogRoot
from streamlog.fs.overlay import Change, OverlayFileSystem
from streamlog.health.findings import LOG_DAMAGE, LOSSES, Finding, FindingKind, Severity
from streamlog.health.repair_state import StateRepair
from streamlog.health.verify import verify
from streamlog.partition import checkpoints, locks
from streamlog.partition.epochs import LEADER_EPOCH_CHECKPOINT
from streamlog.partition.local_log import LocalLog
from streamlog.partition.lock_states import AFTER, LockEvent, StateFlag
from streamlog.partition.locks import SharedState
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.topic_config import read_server_config
from streamlog.root.partition_log import PartitionLog
from streamlog.root.roots import is_our_root, refuse_live_broker, refuse_planted
from streamlog.root.topics import find_partitions
from streamlog.segment.copies import skip_damage
from streamlog.segment.file_records import FileRecords
from streamlog.segment.filenames import (
    FileSuffix,
    SegmentSuffix,
    base_offsets,
    log_file_name,
    parse_log_file_name,
    parse_segment_file_name,
)
from streamlog.segment.recovery import nothing_known
from streamlog.segment.walk import how_to_go_on
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = ["Repair", "RepairStep", "how_to_repair", "repair"]

_SET_ASIDE: Final = ".deleted"  # removed by a starting broker, and by maintenance after a delay
_CORRUPT: Final = ".corrupt"  # the suffix under which a root's corrupt checkpoints are kept
_INDEX_KINDS: Final = frozenset(
    {
        FindingKind.OFFSET_INDEX,
        FindingKind.TIME_INDEX,
        FindingKind.TXN_INDEX,
        FindingKind.MISSING_FILE,
    }
)
_INDEXES: Final = (FileSuffix.OFFSET_INDEX, FileSuffix.TIME_INDEX, FileSuffix.TXN_INDEX)
_LOCK_TIMEOUT_MS: Final = 1000
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """One change to a file.

    Attributes:
        change: The change.
        why: What is wrong with the file; None if the change follows from another step.
    """

    change: Change
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The repair of one partition, or of a root's state, done or planned.

    Attributes:
        partition: The partition; None for the files below `.streamlog`.
        steps: The changes, by file; none if it is sound.
        left: The findings that remain.
        error: Why nothing was changed, if so.
    """

    partition: TopicPartition | None
    steps: Sequence[RepairStep] = ()
    left: Sequence[Finding] = ()
    error: StreamLogError | None = None


def repair(
    fs: FileSystem,
    clock: Clock,
    random: random_module.Random,
    path: str,
    *,
    is_dry_run: bool,
    skips_damage: bool = False,
) -> Iterator[Repair]:
    """Repair the partitions of a path, one after another.

    Args:
        fs: The file system of the path.
        clock: The clock.
        random: For ids and jitter.
        path: A log root, or a partition's directory.
        is_dry_run: Whether to change nothing.
        skips_damage: Whether to leave damaged batches out, in roots made by streamlog.

    Yields:
        The repair of the root's state, if streamlog made the root and its state needs one, then of
        each partition; a refused repair does not stop the others.

    Raises:
        UnknownTopicError: The path does not exist.
        InvalidRequestError: The path is a file.
        UnavailableError: A running broker owns the root.
        LockTimeoutError: Another process has the root open for writing.
        StorageError: The path cannot be read.
    """
    path = os.path.abspath(path)
    found = stat_directory(fs, path)
    if found is not None and found.kind is not FileKind.DIRECTORY:
        raise InvalidRequestError(
            "only whole partitions are repaired",
            path=path,
            got="a file",
            expected="a partition's directory, or a log root",
            hint=f"streamlog repair {os.path.dirname(path)} --dry-run",
        )
    root = LogRoot(path, fs, clock, random)
    if is_our_root(root):
        refuse_live_broker(root)
        _refuse_open_writers(root)
        state = _repair_state(root, is_dry_run=is_dry_run, skips_damage=skips_damage)
        if state != Repair(partition=None):
            yield state
    for topic, numbers in find_partitions(fs, path).items():
        for number, directory in numbers.items():
            root = replace(root, path=os.path.dirname(directory))
            refuse_live_broker(root)
            refuse_planted(root, os.path.basename(directory))
            _refuse_open_writers(root)
            partition = TopicPartition(topic, number)
            found_partition = _Partition(partition, directory, skips_damage=skips_damage)
            yield found_partition.repair(root, is_dry_run=is_dry_run)


def _repair_state(root: LogRoot, *, is_dry_run: bool, skips_damage: bool) -> Repair:
    """Repair the files below `.streamlog` on an overlay; then, unless it is a dry run, for real."""
    wrong = StateRepair(root).look()
    if not wrong:
        return Repair(partition=None)
    trial = OverlayFileSystem(root.fs)

    def put_right(root: LogRoot) -> list[Finding]:
        state = StateRepair(root)
        state.mend()
        if skips_damage:
            state.skip_damage()
        return state.look()

    try:
        left = put_right(replace(root, fs=trial))
        steps = steps_of(trial, f"{root.path}/", wrong)
        if steps and not is_dry_run:
            left = put_right(root)
    except StreamLogError as error:
        return Repair(partition=None, error=error)
    return Repair(partition=None, steps=steps, left=left)


def steps_of(trial: OverlayFileSystem, inside: str, wrong: Sequence[Finding]) -> list[RepairStep]:
    """Return the changes below a directory, each with the finding that explains it.

    Args:
        trial: The overlay that has the changes.
        inside: The directory, with a trailing slash.
        wrong: The findings before the changes.
    """
    why: dict[str, str] = {}
    for finding in wrong:
        loss = LOSSES.get(finding.kind) if finding.severity is Severity.DAMAGE else None
        why.setdefault(finding.path, f"{finding.what}: {loss}" if loss else finding.what)
    return [
        RepairStep(change=change, why=why.get(change.path))
        for change in trial.changes()
        if change.path.startswith(inside)
    ]


def _refuse_open_writers(root: LogRoot) -> None:
    """Refuse a root that a process has open for writing; does not create the lock file."""
    if root.fs.stat(root.writers_lock) is None:
        return
    lock = root.fs.try_lock(root.writers_lock, shared=False)
    if lock is None:
        raise LockTimeoutError(
            "log root is open for writing; nothing was changed",
            path=root.path,
            hint="stop the processes that write to it, then try again",
        )
    lock.release()


class _Partition:
    """The repair of one partition."""

    def __init__(self, partition: TopicPartition, directory: str, *, skips_damage: bool) -> None:
        self._partition, self._directory = partition, directory
        self._skips_damage = skips_damage

    def repair(self, root: LogRoot, *, is_dry_run: bool) -> Repair:
        """Repair on an overlay; then, unless it is a dry run, for real."""
        wrong = self._look(root)
        if not wrong:
            return Repair(partition=self._partition)
        trial = OverlayFileSystem(root.fs)
        try:
            left = self._put_right(replace(root, fs=trial), wrong)
            _refuse_damage(left)
            steps = steps_of(trial, f"{self._directory}/", wrong)
            if steps and not is_dry_run:
                self._put_right(root, wrong)
        except StreamLogError as error:
            if isinstance(error, CorruptRecordError) and error.path is not None:
                error.hint = how_to_repair(root.fs, error.path)
            return Repair(partition=self._partition, error=error)
        return Repair(partition=self._partition, steps=steps, left=left)

    def _look(self, root: LogRoot) -> list[Finding]:
        """Return the findings of the partition, without notes."""
        findings: list[Finding] = []
        verify(root.fs, self._directory, findings.append)
        return [each for each in findings if each.severity is not Severity.NOTE]

    def _put_right(self, root: LogRoot, wrong: list[Finding]) -> list[Finding]:
        """Repair, and skip damage if wanted; return the remaining findings."""
        if not self._skips_damage:
            return self._repair_again(root, wrong)
        with contextlib.suppress(CorruptRecordError):  # raised after all lossless repairs are done
            left = self._repair_again(root, wrong)
            if not any(finding.kind in LOG_DAMAGE for finding in left):
                return left
        self._skip_damage(root)
        return self._repair_again(root, self._look(root))

    def _repair_again(self, root: LogRoot, wrong: list[Finding]) -> list[Finding]:
        """Repair, repeatedly if that uncovers findings; return those that remain."""
        for _ in range(_ROUNDS):
            self._apply(root, wrong)
            before, wrong = wrong, self._look(root)
            if not wrong or wrong == before:
                break
        return wrong

    def _apply(self, root: LogRoot, wrong: Sequence[Finding]) -> None:
        for finding in wrong:
            self._set_aside(root, finding)
        if is_our_root(root):
            self._open_for_writing(root)
        else:
            self._recover(root)

    # ---- renaming wrong files ----------------------------------------------------------------
    def _set_aside(self, root: LogRoot, finding: Finding) -> None:
        """Rename a wrong file so that recovery rebuilds it."""
        name = os.path.basename(finding.path)
        parsed = parse_segment_file_name(name)
        if finding.kind is FindingKind.EPOCHS or name == LEADER_EPOCH_CHECKPOINT:
            _rename(root.fs, finding.path, _CORRUPT)
            for each in root.fs.list(self._directory):
                # Without their offset indexes recovery reads all segments, and so all epochs.
                if each.endswith(FileSuffix.OFFSET_INDEX.value):
                    _rename(root.fs, f"{self._directory}/{each}", _SET_ASIDE)
        elif finding.kind is FindingKind.SNAPSHOT or _is_index_alone(finding):
            _rename(root.fs, finding.path, _SET_ASIDE)
        elif finding.kind in _INDEX_KINDS and parsed is not None and parsed.kind in _INDEXES:
            stem = finding.path.removesuffix(parsed.kind.value)
            for kind in (FileSuffix.OFFSET_INDEX, FileSuffix.TIME_INDEX):
                _rename(root.fs, f"{stem}{kind.value}", _SET_ASIDE)

    # ---- skipping damage -----------------------------------------------------------------------
    def _skip_damage(self, root: LogRoot) -> None:
        """Leave damaged batches out; lower the recovery point so that recovery accepts that."""
        if not is_our_root(root):
            raise InvalidRequestError(
                "damage is skipped only in log roots made by streamlog",
                path=self._directory,
                hint="a broker truncates its log there when it starts; keep a copy",
            )
        lock = locks.take_partition_lock(root, self._partition, timeout_ms=_LOCK_TIMEOUT_MS)
        try:
            durable = checkpoints.read_recovery_points(root).get(self._partition, 0)
            # First discard the last writer's state: if this process is killed, an open handle must
            # not trust it and append to a file that was replaced.
            lock.file.truncate(0)
            end = self._leave_out_damage(root, durable)
            if end < durable:
                lower = {self._partition: end}
                checkpoints.write_recovery_points(root, lower)
        finally:
            lock.release()

    def _leave_out_damage(self, root: LogRoot, durable_offset: int) -> int:
        """Rewrite damaged segments; return the log end.

        Without any segment the log end stays, so that no offset is assigned twice.
        """
        bases = base_offsets(root.fs.list(self._directory))
        if not bases:
            path = f"{self._directory}/{log_file_name(durable_offset)}"
            root.fs.open(path, OpenMode.CREATE).close()
            root.fs.sync_directory(self._directory)
            return durable_offset
        for base in bases:
            path = f"{self._directory}/{log_file_name(base)}"
            records = FileRecords(root.fs, path, writable=True)
            try:
                copy = skip_damage(root.fs, records, base)
            finally:
                records.close()
            if copy.skipped_size:
                for kind in (FileSuffix.OFFSET_INDEX, FileSuffix.TIME_INDEX):
                    index = path.removesuffix(FileSuffix.LOG.value) + kind.value
                    _rename(root.fs, index, _SET_ASIDE)
        return copy.next_offset

    # ---- opening -----------------------------------------------------------------------------
    def _open_for_writing(self, root: LogRoot) -> None:
        self._distrust_state(root)
        PartitionLog.open(
            self._directory,
            fs=root.fs,
            clock=root.clock,
            random=root.random,
            lock_timeout_ms=_LOCK_TIMEOUT_MS,
            local=True,
        ).close()

    def _distrust_state(self, root: LogRoot) -> None:
        """Mark the last writer's state dirty, so that the next opening reads the files."""
        path = root.partition_lock(self._partition)
        if root.fs.stat(path) is None:
            return
        lock = locks.take_partition_lock(root, self._partition, timeout_ms=_LOCK_TIMEOUT_MS)
        try:
            state = locks.decode_state(locks.read_state(lock))
            if state is not None:
                dirty = state._replace(flags=AFTER[LockEvent.FILES_DOUBTED][state.flags])
                locks.write_state(lock, locks.encode_state(dirty))
        finally:
            lock.release()

    def _recover(self, root: LogRoot) -> None:
        """Recover a partition of a foreign root; the root's own files are not changed."""
        log = LocalLog(
            root,
            self._directory,
            self._partition,
            config=LogConfig(),
            producer_expiration_ms=read_server_config(root).producer_id_expiration_ms,
        )
        now_ms = root.clock.now_ms()
        starts = checkpoints.read_log_start_offsets(root)
        durable = checkpoints.read_recovery_points(root)
        try:
            log.load(
                self._state_of_a_crash(root, now_ms),
                log_start_offset=starts.get(self._partition, 0),
                durable_offset=durable.get(self._partition),
                checkpointed_high_watermark=lambda: None,  # nothing of it is read here
                restore=nothing_known,
                sync_log_starts=lambda: root.fs.sync_directory(root.path),
                now_ms=now_ms,
            )
            log.truncate_epochs()
            log.seal(now_ms)
        finally:
            log.close()
        root.fs.sync_directory(self._directory)

    def _state_of_a_crash(self, root: LogRoot, now_ms: int) -> SharedState:
        """Return the state of a writer that crashed, so that loading checks the last segment."""
        bases = [parse_log_file_name(name) for name in root.fs.list(self._directory)]
        last_base = max((base for base in bases if base is not None), default=0)
        return SharedState(
            boot_id=root.fs.boot_id(),
            generation=0,
            offsets=LogOffsets.of_one_replica(0, last_base, last_base),
            active_base_offset=last_base,
            active_size=0,
            last_flush_ms=now_ms,
            flags=StateFlag.DIRTY,
        )


def _refuse_damage(left: Sequence[Finding]) -> None:
    """Refuse a damaged log, which cannot be repaired.

    Raises:
        CorruptRecordError: The log is damaged.
    """
    for finding in left:
        if finding.kind in LOG_DAMAGE:
            raise CorruptRecordError(
                f"{finding.what}, so nothing was changed",
                path=finding.path,
                position=finding.position,
                offset=finding.offset,
                got=finding.got,
                expected=finding.expected,
                hint=how_to_go_on(finding.path),
            )


def how_to_repair(fs: FileSystem, path: str) -> str:
    """Return the hint for a damaged log file: refill the replica, or see `how_to_go_on`."""
    directory = os.path.dirname(path)
    partition = parse_partition_directory(os.path.basename(directory))
    root = LogRoot.at(os.path.dirname(directory), fs=fs)
    if partition is None or fs.stat(root.partition_register(partition)) is None:
        return how_to_go_on(path)
    quoted = shlex.quote(directory)
    return f"refill it from another replica: streamlog repair {quoted} --from-replica --dry-run"


def _is_index_alone(finding: Finding) -> bool:
    """Return whether a finding is an index without a log file."""
    parsed = parse_segment_file_name(os.path.basename(finding.path))
    return (
        finding.kind is FindingKind.LEFTOVER
        and parsed is not None
        and parsed.suffix is SegmentSuffix.NONE
    )


def _rename(fs: FileSystem, path: str, suffix: str) -> None:
    if fs.stat(path) is not None:
        fs.rename(path, f"{path}{suffix}")
