"""The file `leader-epoch-checkpoint` beside the epochs that the batches carry."""

from typing import NamedTuple

import numpy as np

from streamlog.health.findings import Finding, FindingKind, Grouped, Report
from streamlog.health.log_file import Run
from streamlog.partition.epochs import LeaderEpochCache

__all__ = ["EpochsCheck"]


class _Stretch(NamedTuple):
    """Batches of one epoch, one behind the other."""

    epoch: int
    first_offset: int
    last_offset: int


class EpochsCheck:
    """The epochs of one partition, over all of its segments."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[_Stretch] = []

    @property
    def has_epochs(self) -> bool:
        """Whether any batch carries one."""
        return bool(self._stretches)

    def feed(self, run: Run) -> None:
        """Take in a run of sound batches."""
        table = run.table.select(run.table.leader_epoch >= 0)
        if not len(table):
            return
        turns = np.flatnonzero(np.diff(table.leader_epoch))
        first = np.concatenate(([0], turns + 1))
        last = np.concatenate((turns, [len(table) - 1]))
        found = zip(
            table.leader_epoch[first].tolist(),
            table.base_offset[first].tolist(),
            table.last_offset[last].tolist(),
            strict=True,
        )
        for epoch, start, end in found:
            if self._stretches and self._stretches[-1].epoch == epoch:
                start = self._stretches.pop().first_offset
            self._stretches.append(_Stretch(epoch, start, end))

    def finish(
        self,
        path: str,
        epochs: LeaderEpochCache,
        report: Report,
        *,
        log_start_offset: int | None,
        next_offset: int | None,
    ) -> None:
        """Compare what was taken in with the file.

        Args:
            path: The file.
            epochs: What it says.
            report: Takes what is found.
            log_start_offset: Below it the file has forgotten what it knew. None: unknown, so it
                may be where the file begins.
            next_offset: The log end. None: unknown, for the log grows.
        """
        grouped = Grouped(report)
        if log_start_offset is None:
            log_start_offset = epochs.entries[0].start_offset if epochs.entries else 0
        for epoch, first_offset, last_offset in self._stretches:
            if last_offset < log_start_offset:
                continue
            for offset in (max(first_offset, log_start_offset), last_offset):
                known = epochs.epoch_for_offset(offset)
                if known != epoch:
                    what = "leader epochs: the file has another epoch than the batch"
                    got = "none" if known is None else f"epoch {known}"
                    grouped.add(_finding(path, what, offset, got, f"epoch {epoch}"))
                    break
        for epoch, start in epochs.entries:
            if next_offset is not None and start > next_offset:
                what = "leader epochs: an epoch starts behind the log end"
                expected = f"at most offset {next_offset}"
                grouped.add(_finding(path, what, start, f"epoch {epoch}", expected))
        grouped.flush()


def _finding(path: str, what: str, offset: int, got: str, expected: str) -> Finding:
    return Finding(
        kind=FindingKind.EPOCHS, path=path, what=what, offset=offset, got=got, expected=expected
    )
