"""The same damaged directory, opened by both: what must survive on our side.

    both open      our logs hold the batches that Kafka's hold, byte for byte, or more; if they
                   hold the same, all other facts are the same, too
    we refuse      the error names the damaged file and the position, and no log was changed:
                   everything is still there
    Kafka refuses  our result is not checked

`streamlog/SKIPPED.md` states where ours may differ.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptDataError, CorruptRecordError
from streamlog.partition.reader import LogReader
from streamlog.records.batch import check_crc, scan_batches
from streamlog.root.partition_log import PartitionLog
from tests.programs.compat.answers import state_told
from tests.programs.compat.differential.comparison import (
    differences,
    indexes,
    logs,
    without_empty_epochs,
)
from tests.programs.compat.differential.damage import damage
from tests.programs.compat.kafka import Kafka

__all__ = ["DamagedCase", "Verdict", "write_checkpoint"]

NAME = "orders-0"
EPOCHS = "leader-epoch-checkpoint"


class Verdict(NamedTuple):
    """The result of opening a damaged directory.

    Attributes:
        differences: Unexpected differences.
        kept_more: Whether we kept data that Kafka discards.
    """

    differences: list[str]
    kept_more: bool = False


class Opening(NamedTuple):
    """How to open a directory.

    Attributes:
        is_clean: Whether Kafka is told that the log was closed in order.
        recovery_point: The value in the checkpoint; None: no entry.
        log_start_offset: The value in that checkpoint.
    """

    is_clean: bool
    recovery_point: int | None
    log_start_offset: int

    @classmethod
    def draw(cls, random: Random, log_end_offset: int) -> "Opening":
        """Return a random one for a log with this end."""
        start = random.randint(0, log_end_offset) if random.random() < 0.2 else 0
        if random.random() < 0.2:
            return cls(True, log_end_offset, start)
        points = (None, 0, random.randint(0, log_end_offset))
        return cls(False, random.choice(points), start)


class DamagedCase:
    """A damaged directory, to be opened by both.

    Args:
        source: A partition's directory; it is copied.
        scratch: The directory of the copies.
        random: Draws damage and opening.
        log_end_offset: The log end.
        has_past: Whether records were deleted that snapshots may still cover.

    Attributes:
        name: The damage, and how the directory is opened.
    """

    def __init__(
        self, source: Path, scratch: Path, random: Random, *, log_end_offset: int, has_past: bool
    ) -> None:
        broken = scratch / "broken" / NAME
        shutil.copytree(
            source,
            broken,
            ignore=shutil.ignore_patterns("*.deleted"),
            copy_function=shutil.copyfile,
        )
        self._touched = damage(broken, random)
        # A `.cleaned` file does not count until it is swapped in, nor does a `.swap` with a higher
        # offset: both sides remove them.
        self._before = _log_contents(broken, "*.log")
        cleaned = min((path.name.split(".")[0] for path in broken.glob("*.cleaned")), default="~")
        for path in broken.glob("*.log.swap"):
            if path.name.split(".")[0] < cleaned:
                self._before.add(path.read_bytes())
        self._log_end_offset, self._has_past = log_end_offset, has_past
        self._is_crash = "crash" in source.parent.name
        logs_left = sorted(path.name for path in broken.glob("*.log"))
        touched_logs = {name for name in self._touched if ".log" in name}
        self._is_log_lost = not touched_logs <= {*logs_left}
        self._has_hole = not touched_logs <= {*logs_left[-1:]}
        self._theirs, self._ours = (scratch / who / NAME for who in ("theirs", "ours"))
        self._lacks_epochs = _lacks_epochs(broken)
        self._looks_ahead = _lacks_index(broken) or any("index" in name for name in self._touched)
        for copy in (self._theirs, self._ours):
            shutil.copytree(broken, copy, copy_function=shutil.copyfile)
        self._opening = Opening.draw(random, log_end_offset)
        touched = ", ".join(sorted(self._touched)) or "nothing"
        self.name = f"{source.parent.name} with damage to {touched}, {self._opening}"

    def compare(self, kafka: Kafka, config: LogConfig, now: int) -> Verdict:
        """Let both open their copies; return the result."""
        theirs = self._opened_by_kafka(kafka, config, now)
        try:
            ours = self._opened_by_us(config, now)
        except CorruptDataError as error:
            return Verdict(list(self._objections(error)), kept_more="error" not in theirs)
        if not self._is_all_kept():
            return Verdict(["we opened it, but bytes of a log are missing"])
        if "error" in theirs:
            return Verdict([], kept_more=True)
        return self._both_opened(theirs, ours)

    # ---- opening -------------------------------------------------------------------------------
    def _opened_by_kafka(self, kafka: Kafka, config: LogConfig, now: int) -> dict[str, Any]:
        answer = kafka.ask(
            "open",
            directory=str(self._theirs),
            now=now,
            config=config.to_properties(),
            clean=self._opening.is_clean,
            recoveryPoint=self._opening.recovery_point or 0,
            logStartOffset=self._opening.log_start_offset,
            batches=False,
        )
        return answer if "error" in answer else without_empty_epochs(answer)

    def _opened_by_us(self, config: LogConfig, now: int) -> dict[str, Any]:
        write_checkpoint(self._ours, "recovery-point", self._opening.recovery_point)
        write_checkpoint(self._ours, "log-start", self._opening.log_start_offset or None)
        PartitionLog.open(self._ours, config=config, clock=ManualClock(now)).close()
        with LogReader.open(self._ours) as reader:
            told = state_told(reader, now=now)
        return without_empty_epochs(told)

    # ---- judging -------------------------------------------------------------------------------
    def _objections(self, error: CorruptDataError) -> list[str]:
        """Return what is wrong with a refusal."""
        found = []
        if not self._is_all_kept():
            found.append(f"we refused, but a log is lost: {error}")
        if error.path is None or not Path(error.path).is_relative_to(self._ours):
            found.append(f"we refused without a path: {error}")
        elif not (self._is_log_lost or self._is_touched(Path(error.path).name)):
            found.append(f"we refused {Path(error.path).name}, which is undamaged: {error}")
        has_place = error.position is not None or not any(self._ours.glob("*.log"))
        if isinstance(error, CorruptRecordError) and not has_place:
            found.append(f"we refused a log without a position: {error}")
        return found

    def _is_all_kept(self) -> bool:
        """Return whether all content of the logs still exists, if only set aside."""
        after = _log_contents(self._ours, "*.log*")
        return all(_is_kept(data, after) for data in self._before)

    def _is_touched(self, name: str) -> bool:
        """Return whether a file was damaged, under this name or its name before a swap.

        A raised offset or epoch in an earlier log shows up in a later one.
        """
        logs = {each.removesuffix(".swap") for each in self._touched if ".log" in each}
        return name in self._touched | logs or (
            name.endswith(".log") and name > min(logs, default=name)
        )

    def _both_opened(self, theirs: dict[str, Any], ours: dict[str, Any]) -> Verdict:
        """Compare both answers; ours may have more aborted transactions if an index is damaged.

        If the time index of a segment below the recovery point is bad, we read the whole segment
        again.
        """
        kept, kept_by_kafka = _batches(self._ours), _batches(self._theirs)
        if kept != kept_by_kafka:
            rest = iter(kept)  # in the same order; a duplicated batch is kept once
            lost = [each for each in dict.fromkeys(kept_by_kafka) if each not in rest]
            if lost:
                return Verdict([f"we lost {len(lost)} batches that Kafka kept"])
            return Verdict([], kept_more=True)
        found = []
        is_raised = ours["logEndOffset"] > self._log_end_offset
        if any(name.endswith(".txnindex") for name in self._touched):
            ours["aborted"] = [each for each in ours["aborted"] if each in theirs["aborted"]]
        for name in self._comparable(ours["logStartOffset"], is_raised=is_raised):
            found += differences(name, theirs[name], ours[name])
        if not self._opening.is_clean and not self._opening.recovery_point:
            start = ours["logStartOffset"]
            pair = (indexes(self._theirs, start), indexes(self._ours, start))
            found += differences("rebuilt indexes", *pair)
        return Verdict(found)

    def _comparable(self, log_start_offset: int, *, is_raised: bool) -> Iterator[str]:
        """Yield the facts that must be equal if the same batches are left.

        Kafka forgets producers below the log start or in missing batches, and those of a missing
        snapshot if it takes the log for cleanly closed; we read the log. The same holds for epochs
        whose file is missing, or empty after a truncation below the log start, or that are in a
        batch Kafka does not read; it reads segments without a sound index first, and then accepts
        no earlier epoch. If records before the end are lost, or an offset was raised, a snapshot
        still has their facts. In a log closed in order, Kafka uses only an index to find the end.
        """
        trusts, touched = self._opening.is_clean, self._touched
        yield "logStartOffset"
        if not (trusts and (self._looks_ahead or is_raised)):
            yield "logEndOffset"
        skips = self._opening.recovery_point or self._looks_ahead
        looks_at_all = not (trusts or (skips and EPOCHS in touched))
        if looks_at_all or not (touched or self._lacks_epochs):
            yield "leaderEpochs"
        is_trustworthy = not (self._touched or self._is_crash)
        is_known = not (log_start_offset or self._has_past or self._has_hole or is_raised)
        if is_known and (not trusts or is_trustworthy):
            yield from ("producers", "aborted", "lastStableOffset")


def _lacks_index(directory: Path) -> bool:
    return any(
        not path.with_suffix(suffix).exists()
        for path in directory.glob("*.log")
        for suffix in (".index", ".timeindex")
    )


def _lacks_epochs(directory: Path) -> bool:
    path = directory / EPOCHS
    return not path.exists() or path.read_text().split()[1:] == ["0"]


def write_checkpoint(partition: Path, kind: str, offset: int | None) -> None:
    """Write an offset of a partition to a checkpoint of its root; None writes nothing."""
    if offset is not None:
        topic, _, number = partition.name.rpartition("-")
        path = partition.parent / f"{kind}-offset-checkpoint"
        path.write_text(f"0\n1\n{topic} {number} {offset}\n")


def _log_contents(directory: Path, pattern: str) -> set[bytes]:
    """Return the content of log files by their current names."""
    return {path.read_bytes() for path in directory.glob(pattern)}


def _is_kept(data: bytes, contents: set[bytes]) -> bool:
    """Return whether the content of a log still exists: unchanged, or truncated and set aside.

    Zeros at the end carry no data and are not kept.
    """
    rests = {b"", *(each.rstrip(b"\0") for each in contents)}
    return any(
        data.startswith(head) and data[len(head) :].rstrip(b"\0") in rests for head in contents
    )


def _batches(directory: Path) -> list[bytes]:
    """Return the sound batches of all logs, each log up to the first damaged batch."""
    found = []
    for _, data in sorted(logs(directory).items()):
        scan = scan_batches(data)
        good = check_crc(data, scan.table)
        for position, size in zip(scan.table.position[:good], scan.table.size[:good], strict=True):
            found.append(data[position : position + size])
    return found
