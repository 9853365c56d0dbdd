"""Executes a script on our log: the same steps in the same order as the oracle."""

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from streamlog.clock import ManualClock
from streamlog.errors import StreamLogError
from streamlog.fs.local import LocalFileSystem
from streamlog.maintenance.retention import delete_old_segments
from streamlog.records.batch import read_batches
from streamlog.records.builder import BatchBuilder, InputColumns, encode_columns
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import NO_TIMESTAMP, CompressionType, Header, Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog
from tests.programs.compat.differential.script import NOW, Script, StandingOfLog, Step
from tests.support.cleaning import clean

__all__ = ["Life"]


class Life:
    """A partition of ours from its creation to its end; a context manager.

    Attributes:
        steps: The executed steps.
        outcomes: The outcome of each step: an offset, or the name of an error.
        may_roll_elsewhere: Whether Kafka's segments may begin elsewhere: it rolls before it refuses
            an append or recognises a retry, a truncation leaves it with an empty segment, and it
            restarts the age of a segment without timestamps when it opens the log.
    """

    def __init__(self, script: Script, path: Path) -> None:
        self._script, self._path = script, path
        self._clock = ManualClock(NOW)
        self._log = self._open()
        self.steps: list[Step] = []
        self.outcomes: list[int | str] = []
        self.may_roll_elsewhere = False
        self._is_reopened = False
        self._checkpoint = 0  # the end of the last round of cleaning

    def _open(self) -> PartitionLog:
        return PartitionLog.open(
            self._path, config=self._script.config, clock=self._clock, random=Random(1)
        )

    def live(self, steps: int, copy: Path) -> None:
        """Execute some steps, then copy the directory before the log is closed."""
        while len(self.steps) < steps or not self._standing().ends_with_a_batch:
            before = self._standing()
            step = self._script.step(before)
            if step["do"] == "clean":
                step["checkpoint"] = self._checkpoint = self._first_dirty_offset()
            self._clock.set(step["now"])
            outcome = self._outcome(step)
            self._script.learn(step, outcome)
            self.steps.append(step)
            self.outcomes.append(outcome)
            is_append = step["do"] in ("append", "follow")
            is_idle = is_append and self._log.log_end_offset == before.end_offset
            may_roll_elsewhere = step["do"] == "truncate" or is_idle
            self.may_roll_elsewhere |= may_roll_elsewhere
            self._script.is_roll_due = self._script.is_compacted and may_roll_elsewhere
            is_dateless = self._log.segments.active.first_batch_timestamp == NO_TIMESTAMP
            self.may_roll_elsewhere |= self._is_reopened and is_dateless
        shutil.copytree(self._path, copy, copy_function=shutil.copyfile)

    def _first_dirty_offset(self) -> int:
        """Return the start of a round, seldom below the end of the last one.

        If the segment has an aborted transaction that ended below the start, Kafka also treats
        later records of its producer as aborted and ignores their keys; not if it starts at the
        segment's base.
        """
        segment = self._log.segments.starting_at(self._checkpoint)[0]
        ended = segment.aborted_transactions(0, self._checkpoint).aborted
        is_misled = any(each.last_offset < self._checkpoint for each in ended)
        return segment.base_offset if is_misled else self._checkpoint

    def _standing(self) -> StandingOfLog:
        end = self._log.log_end_offset
        is_tight = self._log.segments.active.next_offset() == end
        batches = (
            batch
            for segment in self._log.segments
            for batch in read_batches(segment.read(0, segment.size))
        )
        ends = tuple(batch.next_offset for batch in batches)
        return StandingOfLog(end, self._log.leader_epoch, is_tight, ends)

    def _outcome(self, step: Step) -> int | str:
        if step["do"] == "reopen":
            self._reopen(is_clean=step["clean"])
        try:
            return self._take(step)
        except StreamLogError as error:
            return type(error).__name__

    def _take(self, step: Step) -> int:
        match step["do"]:
            case "append":
                return self._append(step)
            case "follow":
                return self._log.append_as_follower(base64.b64decode(step["bytes"])).base_offset
            case "roll":
                return self._log.roll()
            case "truncate":
                self._log.truncate_to(step["offset"])
                self._checkpoint = min(self._checkpoint, step["offset"])
            case "delete":
                self._log.delete_records(step["offset"])
                delete_old_segments(self._log, self._clock)
                return self._log.log_start_offset
            case "clean":
                return self._clean(step)
        return self._log.log_end_offset

    def _append(self, step: Step) -> int:
        if "marker" in step:
            kind = ControlRecordType[step["marker"]]
            data = build_marker(
                EndTransactionMarker(kind, step["coordinatorEpoch"]),
                producer_id=step["producerId"],
                producer_epoch=step["producerEpoch"],
                timestamp=step["timestamp"],
            )
            return self._log.append_as_leader(data, origin=AppendOrigin.COORDINATOR).base_offset
        if "bytes" in step:
            return self._log.append_as_leader(base64.b64decode(step["bytes"])).base_offset
        records = list(_decoded(step["records"]))
        codec = CompressionType.of(step["compression"])
        if "producerId" not in step:
            columns = InputColumns.from_records(records, now_ms=step["now"])
            batches = encode_columns(columns, compression=codec, batch_size=1 << 20)
            return self._log.append_as_leader(batches.buffer).base_offset
        builder = BatchBuilder(
            compression=codec,
            producer_id=step["producerId"],
            producer_epoch=step["producerEpoch"],
            base_sequence=step["baseSequence"],
            is_transactional=step["isTransactional"],
        )
        for record in records:
            builder.append(record)
        return self._log.append_as_leader(builder.build()).base_offset

    def _clean(self, step: Step) -> int:
        done = clean(
            LocalFileSystem(),
            self._clock,
            self._log,
            checkpoint=self._checkpoint,
            memory=step["memory"],
        )
        self._checkpoint = done.end_offset
        return done.records_written

    def _reopen(self, *, is_clean: bool) -> None:
        self._log.close()
        if not is_clean:  # as after a crash
            (self._path.parent / ".streamlog" / "locks" / self._path.name).unlink()
            (self._path.parent / "recovery-point-offset-checkpoint").unlink()
        self._log = self._open()
        self._is_reopened = True

    def __enter__(self) -> "Life":
        return self

    def __exit__(self, *error: object) -> None:
        self._log.close()


def _decoded(records: list[dict[str, Any]]) -> Iterator[Record]:
    """Yield records in the oracle's notation."""
    for each in records:
        yield Record(
            key=_bytes(each["key"]),
            value=_bytes(each["value"]),
            headers=tuple(Header(key, _bytes(value)) for key, value in each["headers"]),
            timestamp=each["timestamp"],
        )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
