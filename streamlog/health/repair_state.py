"""Repairs the files below `.streamlog`: without loss, and the rest only with `--skip-damage`.

Without loss, a decision or a ledger with one intact copy is written again, and malformed lines are
removed from the maintenance log. All other damage loses something. Each file that is given up is
kept in `.streamlog/damaged`.

    settings     readable settings stay. Unreadable retention is switched off, as records that the
                 lost lines kept might be deleted otherwise. Those of consumer groups are forgotten
    decision     its rows that were not applied are lost. Its version is forgotten: a rerun writes
                 it again, and rows that were applied are there twice
    staged rows  those of that partition are lost. The decision stays valid for its other partitions
    ledger       commits before the oldest existing decision are forgotten: a rerun writes them
                 twice
    reader       nothing is kept for it until it records itself again

Decided offsets whose records are lost are not assigned to other records: an empty batch takes them,
like those that compaction leaves (DefaultRecordBatch.writeEmptyHeader). So later commits keep their
offsets.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from streamlog.binary.crc import crc32c
from streamlog.binary.sealed import MAX_SEALED_SIZE, mended
from streamlog.commits.apply import apply_part
from streamlog.commits.decisions import DecidedPart, Decision, format_decision
from streamlog.commits.extents import ExtentReader
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.history import Ledger, Ledgers
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.pending import PendingDecisions
from streamlog.commits.staging import StagingArea
from streamlog.config.log_config import LogConfig
from streamlog.config.properties import format_properties, parse_properties
from streamlog.config.server_config import ServerConfig
from streamlog.errors import CorruptDataError, InvalidConfigError
from streamlog.fs.files import make_directories, read_file, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import STATE_KINDS, Finding, FindingKind, Severity
from streamlog.health.verify import verify_state
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.records.batch import scan_batches
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    BATCH_HEADER,
    CURRENT_MAGIC,
    MAX_INT32,
    MIN_BATCH_LENGTH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from streamlog.records.record import NO_TIMESTAMP
from streamlog.root.deeds import mend_book
from streamlog.root.partition_log import PartitionLog
from streamlog.root.topics import is_partition

__all__ = ["StateRepair"]

_LONGEST_GAP: Final = 10_000  # in an app's numbers; more decisions than can be pending
_SETTINGS_SIZE: Final = 1 << 20
_RETENTION: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_SERVER_RETENTION: Final = {"log.retention.ms": "-1", "log.retention.bytes": "-1"}


class StateRepair:
    """Repairs the files below `.streamlog` of a root that no process has open for writing.

    Args:
        root: The log root, made by streamlog.
    """

    def __init__(self, root: LogRoot) -> None:
        self._root, self._fs, self._clock = root, root.fs, root.clock

    def look(self) -> list[Finding]:
        """Return the findings that need a repair, staged rows included.

        Raises:
            StorageError: A directory cannot be read.
        """
        found: list[Finding] = []
        verify_state(self._root, found.append, is_deep=True)
        return [
            each
            for each in found
            if each.severity is not Severity.NOTE and each.kind in STATE_KINDS
        ]

    def mend(self) -> None:
        """Repair what can be repaired without loss.

        Raises:
            StreamLogError: A file cannot be written.
        """
        for finding in self.look():
            if finding.severity is not Severity.REPAIRABLE:
                continue
            if finding.kind is FindingKind.BOOK:
                mend_book(self._root)
                continue
            content = mended(read_file(self._fs, finding.path, max_size=MAX_SEALED_SIZE))
            if content is not None:
                write_file_atomically(self._fs, finding.path, content)

    def skip_damage(self) -> None:
        """Give up damaged files; the module's table shows what is lost.

        Raises:
            StreamLogError: A file cannot be written, or a partition's log is damaged as well.
        """
        wrong = self.look()
        for finding in wrong:
            if finding.path == self._root.group_configs:
                self._keep(finding.path)
            elif finding.kind is FindingKind.SETTINGS:
                self._salvage_settings(finding.path)
            elif finding.kind is FindingKind.READER:
                self._keep(finding.path)
        kinds = {finding.kind for finding in wrong}
        if kinds & {FindingKind.LEDGER, FindingKind.DECISION, FindingKind.STAGED}:
            for finding in wrong:
                if finding.kind is FindingKind.LEDGER:
                    self._keep(finding.path)
            self._replace_decisions()
            self._fill_ledgers()
            self._apply_all()

    # ---- settings ----------------------------------------------------------------------------
    def _salvage_settings(self, path: str) -> None:
        data = read_file(self._fs, path, max_size=_SETTINGS_SIZE)
        is_server = path == self._root.server_properties
        check: Callable[[dict[str, str]], object] = (
            ServerConfig.from_properties if is_server else LogConfig.from_properties
        )
        kept: dict[str, str] = {}
        for line in data.decode("utf-8", "replace").splitlines():
            with contextlib.suppress(InvalidConfigError):
                one = parse_properties(line)
                check(one)
                check({**kept, **one})
                kept.update(one)
        forever = _SERVER_RETENTION if is_server else _RETENTION
        # Retention in hours or minutes would be overridden by the settings in ms.
        is_known = any(key.startswith("log.retention.") for key in kept) if is_server else False
        settings = kept if is_known else {**forever, **kept}
        self._keep(path)
        write_file_atomically(self._fs, path, format_properties(settings).encode("ascii"))

    # ---- decisions and ledgers ---------------------------------------------------------------
    def _replace_decisions(self) -> None:
        """Replace each lost decision by an empty one; lost ones at the end need none."""
        pending = PendingDecisions(self._root)
        ledgers = Ledgers(self._root)
        of_app: dict[str, list[Decision]] = {}
        for name in pending.names():
            decision = self._load(pending, name)
            if decision is None:
                self._keep(f"{pending.path}/{name}")
            else:
                of_app.setdefault(decision.identity.app, []).append(decision)
        for app, decisions in of_app.items():
            ledger = ledgers.load(app)
            numbers = {each.number for each in decisions}
            first = min(numbers) if ledger is None else ledger.standing.number + 1
            for number in range(max(first, max(numbers) - _LONGEST_GAP), max(numbers)):
                if number not in numbers:
                    empty = self._empty_decision(app, number, decisions, ledger)
                    path = f"{pending.path}/{empty.name}"
                    write_file_atomically(self._fs, path, format_decision(empty))

    def _load(self, pending: PendingDecisions, name: str) -> Decision | None:
        with contextlib.suppress(CorruptDataError):
            return pending.load(name)
        return None

    def _empty_decision(
        self, app: str, number: int, decisions: list[Decision], ledger: Ledger | None
    ) -> Decision:
        """Return a decision without rows that fills a gap in an app's numbers."""
        earlier = [each for each in decisions if each.number < number]
        before = max(earlier, key=_number, default=None)
        retired = (ledger or Ledger.empty(app)).standing
        standing = retired if before is None else before.standing
        version = max(0, standing.last_version)
        return Decision(
            identity=CommitIdentity(app, version),
            revision=MAX_INT32,  # a revision that no query uses
            fingerprint=Fingerprint(None, 0, None),
            decided_ms=self._clock.now_ms(),
            files=(),
            parts=(),
            standing=replace(
                standing, number=number, last_version=version, unretired=standing.unretired + 1
            ),
        )

    def _fill_ledgers(self) -> None:
        """Write a ledger for each app whose oldest decision is not its first and has no ledger."""
        pending = PendingDecisions(self._root)
        ledgers = Ledgers(self._root)
        oldest: dict[str, Decision] = {}
        for name in pending.names():
            decision = pending.load(name)
            if decision is not None:
                oldest.setdefault(decision.identity.app, decision)
        for app, first in oldest.items():
            if first.number > 1 and ledgers.load(app) is None:
                partitions = {
                    partition: at._replace(unretired_size=0)
                    for partition, at in first.standing.partitions.items()
                }
                standing = replace(
                    first.standing,
                    number=first.number - 1,
                    last_version=max(0, first.identity.version - 1),
                    unretired=0,
                    partitions=partitions,
                )
                ledgers.store(Ledger(app=app, entries=(), last_parts=(), standing=standing))

    # ---- applying what is there --------------------------------------------------------------
    def _apply_all(self) -> None:
        """Apply all pending decisions; offsets whose records are lost get an empty batch."""
        pending = PendingDecisions(self._root)
        ledgers = Ledgers(self._root)
        named = {
            part.topic_partition
            for name in pending.names()
            for decision in [pending.load(name)]
            if decision is not None and not ledgers.has_retired(decision)
            for part in decision.parts
        }
        for partition in sorted(named):
            path = f"{self._root.path}/{partition}"
            if not is_partition(self._fs, path, is_registered=False):
                continue  # the topic was deleted
            topic_id = read_topic_id(self._fs, path)
            waiting = [
                (decision, part)
                for decision, part in pending.naming(partition)
                if part.topic_id == topic_id and not ledgers.has_retired(decision)
            ]
            self._apply_to(path, waiting)

    def _apply_to(self, path: str, waiting: list[tuple[Decision, DecidedPart]]) -> None:
        """Apply what waits for a partition, where it is opened: before its leader epoch goes up."""

        def apply(log: PartitionLog) -> None:
            for decision, part in waiting:
                self._apply(log, decision, part)

        class Waiting(PartitionLog):
            def apply_decided(self) -> None:
                apply(self)

        with Waiting.open(path, fs=self._fs, clock=self._clock) as log, log.writing():
            apply(log)  # where nothing said that something waits
            log.flush()

    def _apply(self, log: PartitionLog, decision: Decision, part: DecidedPart) -> None:
        _fill(log, part.base_offset, part.leader_epoch)
        area = StagingArea(self._root)
        reader = ExtentReader(area, decision.identity.app, decision.files)
        try:
            apply_part(log, decision, part, reader)
        except CorruptDataError:
            for file in decision.files:
                self._keep_copy(area.file_path(decision.identity.app, file.name))
            _fill(log, part.last_offset + 1, part.leader_epoch)

    # ---- keeping what is given up ------------------------------------------------------------
    def _keep(self, path: str) -> None:
        """Move a file to `.streamlog/damaged`, durably; does nothing if it does not exist."""
        if self._fs.stat(path) is None:
            return
        target = self._free_name(path)
        self._fs.rename(path, target)
        self._fs.sync_directory(os.path.dirname(target))
        self._fs.sync_directory(os.path.dirname(path))

    def _keep_copy(self, path: str) -> None:
        """Give a file a second name in `.streamlog/damaged`: retirement removes the first one."""
        if self._fs.stat(path) is not None:
            target = self._free_name(path)
            self._fs.link(path, target)
            self._fs.sync_directory(os.path.dirname(target))

    def _free_name(self, path: str) -> str:
        directory = self._root.damaged
        make_directories(self._fs, directory)
        taken = {*self._fs.list(directory)}
        name = os.path.basename(path)
        return next(
            f"{directory}/{each}"
            for each in (f"{number}-{name}" for number in range(len(taken) + 1))
            if each not in taken
        )


def _number(decision: Decision) -> int:
    return decision.number


def _fill(log: PartitionLog, offset: int, leader_epoch: int) -> None:
    """Append empty batches up to an offset, if the log ends before it."""
    for first, last in _spans(log.log_end_offset, offset):
        buffer = np.frombuffer(_empty_batch(first, last, leader_epoch), np.uint8).copy()
        log.append_decided(buffer, scan_batches(buffer).table)


def _spans(start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        last = min(end - 1, start + MAX_INT32)
        yield start, last
        start = last + 1


def _empty_batch(base_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """Return a batch that has offsets but no record.

    Source: DefaultRecordBatch.writeEmptyHeader.
    """
    head = (base_offset, MIN_BATCH_LENGTH, leader_epoch, CURRENT_MAGIC)
    rest = (
        *(0, last_offset - base_offset, NO_TIMESTAMP, NO_TIMESTAMP),
        *(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 0),
    )
    crc = crc32c(BATCH_HEADER.pack(*head, 0, *rest)[ATTRIBUTES_OFFSET:])
    return BATCH_HEADER.pack(*head, crc, *rest)
