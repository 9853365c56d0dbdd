"""Repeats checks of `verify` whose findings a running writer may have caused.

`verify` takes no lock: while it reads, files are appended to, rolled, replaced and removed, and two
files that are read one after the other need not fit each other. So in a root that may be open for
writing, a check with findings is repeated up to four times, and only findings that every pass has
at the same place of the same file are reported. A finding that disappears was work in progress. If
no process has the root open, one pass is enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from streamlog.errors import FileMissingError, StorageError
from streamlog.fs.files import stat_directory
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import Finding, FindingKind, Report, Severity
from streamlog.partition.locks import is_being_maintained
from streamlog.root.open_writers import may_be_open
from streamlog.segment.filenames import SegmentSuffix
from streamlog.topic import parse_partition_directory

__all__ = ["Repeated"]

_PAUSES_MS: Final = (10, 40, 150, 400)
_ENOUGH_MS: Final = 2_000  # a finding that persists for this long is no work in progress
_OF_A_COMPACTION: Final = (SegmentSuffix.CLEANED.value, SegmentSuffix.SWAP.value)

Look = Callable[[], Sequence[Finding]]


class Repeated:
    """Reports findings in one log root once they are confirmed.

    Args:
        root: The log root; its clock measures the time between passes.
        report: Called with each confirmed finding.
    """

    def __init__(self, root: LogRoot, report: Report) -> None:
        self._root, self._fs, self._clock, self._report = root, root.fs, root.clock, report

    def report(self, look: Look, path: str) -> None:
        """Run a check, repeat it if a writer may have caused its findings, and report.

        Args:
            look: The check; returns its findings.
            path: The file or directory it checks; if it is deleted meanwhile, nothing is reported.

        Raises:
            StorageError: A file cannot be read.
        """
        found = self._look(look)
        if (found is None or _wrong(found)) and self._is_live():
            found = self._confirmed(look, found, path)
        elif found is None:
            found = look()  # without writers, a missing file is an error: raise it
        for finding in found:
            self._report(self._or_in_progress(finding))

    def _look(self, look: Look) -> Sequence[Finding] | None:
        """Return the findings, None if a file was deleted during the check."""
        try:
            return look()
        except FileMissingError:
            return None

    def _is_live(self) -> bool:
        """Return whether a process may have the root open for writing."""
        is_brokers = self._fs.broker_lock_is_held(self._root.broker_lock)
        return is_brokers or may_be_open(self._root)

    def _confirmed(
        self, look: Look, found: Sequence[Finding] | None, path: str
    ) -> Sequence[Finding]:
        started_ms = self._clock.monotonic_ms()
        passing = 0 if found is None else len(_wrong(found))
        for pause_ms in _PAUSES_MS:
            if found is not None and not _wrong(found):
                break
            self._clock.sleep_ms(pause_ms)
            if stat_directory(self._fs, path) is None:
                return ()  # deleted meanwhile
            later = self._look(look)
            if later is None:
                continue
            passing = max(passing, len(_wrong(later)))
            known = None if found is None else {*map(_place, found)}
            found = [
                each
                for each in later
                if known is None or each.severity is Severity.NOTE or _place(each) in known
            ]
            if self._clock.monotonic_ms() - started_ms >= _ENOUGH_MS:
                break
        if found is None:
            return look()
        passing -= len(_wrong(found))
        return [*found, _in_progress(path, passing)] if passing > 0 else found

    def _or_in_progress(self, finding: Finding) -> Finding:
        """Return a finding, as a note if a running compaction has created the file."""
        if finding.kind is not FindingKind.LEFTOVER or not finding.path.endswith(_OF_A_COMPACTION):
            return finding
        partition = parse_partition_directory(finding.path.split("/")[-2])
        try:
            is_at_work = partition is not None and is_being_maintained(self._root, partition)
        except StorageError:
            is_at_work = False  # a read-only root
        if not is_at_work:
            return finding
        return replace(finding, what="a running compaction uses this file", is_note=True)


def _wrong(found: Sequence[Finding]) -> list[Finding]:
    return [each for each in found if each.severity is not Severity.NOTE]


def _place(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.path, finding.what, finding.position, finding.offset


def _in_progress(path: str, count: int) -> Finding:
    return Finding(
        kind=FindingKind.IN_PROGRESS,
        path=path,
        what="changed during the check and is sound",
        got=f"{count} findings that did not persist",
        count=count,
        is_note=True,
    )
