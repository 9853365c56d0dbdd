"""Findings of `verify`: what is wrong, where, and whether it can be repaired.

A finding is *repairable* if nothing is lost: opening the partition for writing, or
`streamlog repair`, rebuilds the file from the log, or truncates an unacknowledged tail. All else is
*damage*: records, or facts that are stored nowhere else, are lost or wrong. A replicated partition
is *degraded* if it has fewer copies than it should. A *note* is none of these: a running or killed
broker leaves such things, and its next start handles them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from streamlog.errors import CorruptDataError, StreamLogError
from streamlog.fs.log_root import STATE_DIRECTORY

__all__ = [
    "LOG_DAMAGE",
    "LOSSES",
    "STATE_KINDS",
    "Finding",
    "FindingKind",
    "Grouped",
    "Report",
    "Severity",
    "as_error",
    "finding_of",
]


class FindingKind(Enum):
    """What is wrong; the value is the name in the output."""

    BAD_CHECKSUM = "bad-checksum"
    BAD_BATCH = "bad-batch"
    BAD_RECORD = "bad-record"
    LOST_RECORDS = "lost-records"
    OFFSET_ORDER = "offset-order"
    EPOCH_ORDER = "epoch-order"
    OVERLAP = "overlap"
    WRONG_SEGMENT = "wrong-segment"
    UNREADABLE = "unreadable"
    TORN_TAIL = "torn-tail"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TXN_INDEX = "txn-index"
    SNAPSHOT = "snapshot"
    EPOCHS = "leader-epochs"
    CHECKPOINT = "checkpoint"
    METADATA = "metadata"
    MISSING_FILE = "missing-file"
    LEFTOVER = "leftover"
    FOREIGN_FILE = "foreign-file"
    SETTINGS = "settings"
    DECISION = "decision"
    STAGED = "staged-rows"
    LEDGER = "ledger"
    READER = "reader"
    BOOK = "maintenance-book"
    LOCK_STATE = "lock-state"
    IN_PROGRESS = "in-progress"
    REPLICA_DIVERGED = "replica-diverged"
    ABANDONED_RECORDS = "abandoned-records"
    REGISTER_BEHIND = "register-behind"
    NO_QUORUM = "no-quorum"
    ISR_BEHIND = "isr-behind"
    OFFLINE_REPLICA = "offline-replica"
    OFFLINE_PARTITION = "offline-partition"
    UNDER_REPLICATED = "under-replicated"
    AT_MIN_ISR = "at-min-isr"
    UNDER_MIN_ISR = "under-min-isr"


STATE_KINDS: Final = frozenset(
    {
        FindingKind.SETTINGS,
        FindingKind.DECISION,
        FindingKind.STAGED,
        FindingKind.LEDGER,
        FindingKind.READER,
        FindingKind.BOOK,
    }
)
LOG_DAMAGE: Final = frozenset(
    {
        FindingKind.BAD_CHECKSUM,
        FindingKind.BAD_BATCH,
        FindingKind.BAD_RECORD,
        FindingKind.LOST_RECORDS,
        FindingKind.OFFSET_ORDER,
        FindingKind.EPOCH_ORDER,
        FindingKind.OVERLAP,
        FindingKind.WRONG_SEGMENT,
        FindingKind.UNREADABLE,
    }
)
_REPAIRABLE: Final = frozenset(
    {
        FindingKind.TORN_TAIL,
        FindingKind.OFFSET_INDEX,
        FindingKind.TIME_INDEX,
        FindingKind.TXN_INDEX,
        FindingKind.SNAPSHOT,
        FindingKind.EPOCHS,
        FindingKind.MISSING_FILE,
        FindingKind.LEFTOVER,
        FindingKind.BOOK,
    }
)


_DEGRADED: Final = frozenset(
    {
        FindingKind.ABANDONED_RECORDS,
        FindingKind.REGISTER_BEHIND,
        FindingKind.NO_QUORUM,
        FindingKind.ISR_BEHIND,
        FindingKind.OFFLINE_REPLICA,
        FindingKind.OFFLINE_PARTITION,
        FindingKind.UNDER_REPLICATED,
        FindingKind.AT_MIN_ISR,
        FindingKind.UNDER_MIN_ISR,
    }
)


class Severity(Enum):
    """How severe a finding is; the value is the name in the output."""

    NOTE = "note"
    DEGRADED = "degraded"
    REPAIRABLE = "repairable"
    DAMAGE = "damage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or worth knowing.

    Attributes:
        kind: What is wrong.
        path: The file or directory.
        what: A description, as a clause without a full stop.
        position: Byte position in the file.
        offset: First record offset concerned.
        last_offset: Last record offset concerned, if it is a range.
        got: The value that was found.
        expected: The value that would be right.
        count: How many times it was found; position and offset are those of the first time.
        is_note: Whether nothing is wrong.
        is_repairable: Whether it is repairable although most of its kind are not.
    """

    kind: FindingKind
    path: str
    what: str
    position: int | None = None
    offset: int | None = None
    last_offset: int | None = None
    got: object = None
    expected: object = None
    count: int = 1
    is_note: bool = False
    is_repairable: bool = False

    @property
    def severity(self) -> Severity:
        """How severe it is."""
        if self.is_note:
            return Severity.NOTE
        if self.kind in _DEGRADED:
            return Severity.DEGRADED
        is_repairable = self.is_repairable or self.kind in _REPAIRABLE
        return Severity.REPAIRABLE if is_repairable else Severity.DAMAGE


_CURES: Final = {
    Severity.NOTE: "nothing",
    Severity.DEGRADED: "streamlog replicas status",
    Severity.REPAIRABLE: "streamlog repair DIRECTORY --dry-run",
    Severity.DAMAGE: "restore the file from a copy",
}

# What `repair --skip-damage` loses with a file of a root's state that cannot be read.
LOSSES: Final = {
    FindingKind.SETTINGS: "its settings are lost, and retention is off until it is set again",
    FindingKind.DECISION: "rows it had not applied are lost; a rerun may write rows twice",
    FindingKind.STAGED: "these rows are lost",
    FindingKind.LEDGER: "older commits are forgotten; a rerun writes them twice",
    FindingKind.READER: "nothing is kept for this reader until it records itself again",
}

Report = Callable[[Finding], None]


def finding_of(error: StreamLogError, kind: FindingKind, path: str) -> Finding:
    """Return an error of a parser as a finding."""
    return Finding(
        kind=kind,
        path=error.path or path,
        what=error.what,
        position=error.position,
        offset=error.offset,
        got=error.got,
        expected=error.expected,
    )


def as_error(finding: Finding) -> CorruptDataError:
    """Return a finding as an error to raise."""
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    loss = LOSSES.get(finding.kind) if finding.severity is Severity.DAMAGE else None
    root = finding.path.partition(f"/{STATE_DIRECTORY}/")[0]
    go_on = f"restore it from a copy; to skip it ({loss}): streamlog repair {root} --skip-damage"
    return CorruptDataError(
        f"{finding.what}{times}",
        path=finding.path,
        position=finding.position,
        offset=finding.offset,
        got=finding.got,
        expected=finding.expected,
        hint=_CURES[finding.severity] if loss is None else go_on,
    )


class Grouped:
    """Groups findings of which one file may have thousands: each is reported once, with a count.

    Args:
        report: Called with each group at `flush`.
    """

    __slots__ = ("_first", "_report")

    def __init__(self, report: Report) -> None:
        self._report = report
        self._first: dict[tuple[FindingKind, str], Finding] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding to its group, that of its kind and description."""
        key = finding.kind, finding.what
        known = self._first.get(key)
        self._first[key] = finding if known is None else replace(known, count=known.count + 1)

    def add_all(self, finding: Finding, count: int) -> None:
        """Add `count` findings, of which `finding` is the first; none if `count` is 0."""
        key = finding.kind, finding.what
        known = self._first.get(key)
        if known is not None:
            finding, count = known, known.count + count
        if count:
            self._first[key] = replace(finding, count=count)

    def flush(self) -> None:
        """Report the groups."""
        for finding in self._first.values():
            self._report(finding)
        self._first.clear()
