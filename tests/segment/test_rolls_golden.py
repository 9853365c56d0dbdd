"""Kafka's roll decisions and index entries, append by append (tests/golden/E-decisions).

The appends are replayed with synthetic batches of the same size, offsets and timestamps, because a
segment ignores bodies. An append that Kafka refused as larger than a segment is skipped.
"""

from typing import Any

import pytest

from streamlog.config.log_config import LogConfig
from streamlog.fs.memory import MemoryFileSystem
from streamlog.segment.segment import Segment
from tests.support.golden import json_lines
from tests.support.segments import DIRECTORY, BatchPlan, make_batch, memory_fs, table_of

CASES = json_lines("E-decisions/rolls.jsonl.gz")


class Replay:
    """A log of segments that rolls by `Segment.roll_reason`, as the partition does."""

    def __init__(self, fs: MemoryFileSystem, config: LogConfig, case: dict[str, Any]) -> None:
        self.fs, self.config = fs, config
        is_leader = case["api"] == "appendAsLeader"
        self.stamps = is_leader and config.message_timestamp_type == "LogAppendTime"
        self.segments = [Segment.create(fs, DIRECTORY, 0, config=config, now_ms=case["start"])]
        self.log_end = 0

    def append(self, step: dict[str, Any]) -> None:
        base = step.get("baseOffset", self.log_end)
        timestamp = step["now"] if self.stamps else step["maxTimestamp"]
        plan = BatchPlan(base, count=step["records"], size=step["size"], max_timestamp=timestamp)
        batch = make_batch(plan)
        table = table_of(batch)
        reason = self.segments[-1].roll_reason(
            table.outline()._replace(max_timestamp=timestamp),
            now_ms=step["now"],
            max_wait_ms=self.config.effective_segment_ms,
        )
        if reason is not None:
            self._roll(max(base, self.log_end), step["now"])
        self.segments[-1].append(batch, table)
        self.log_end = int(table.last_offset[-1]) + 1

    def _roll(self, base_offset: int, now_ms: int) -> None:
        active = self.segments[-1]
        if active.is_empty and active.base_offset == base_offset:
            self.segments.pop()
        else:
            active.seal()
        self.segments.append(
            Segment.create(self.fs, DIRECTORY, base_offset, config=self.config, now_ms=now_ms)
        )


def offset_entries(segment: Segment) -> list[list[int]]:
    index = segment.offset_index
    return [list(index[at]) for at in range(len(index))]


def time_entries(segment: Segment) -> list[list[int]]:
    index = segment.time_index
    return [list(index[at]) for at in range(len(index))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['case']:03d}")
def test_rolls_and_indexes_are_kafkas(case: dict[str, Any]) -> None:
    fs = memory_fs()
    log = Replay(fs, LogConfig.from_properties(case["config"]), case)
    for step in case["appends"]:
        if "error" in step:
            assert step["size"] > log.config.effective_segment_bytes
            continue
        log.append(step)
        active = log.segments[-1]
        assert (active.base_offset, active.size) == (step["activeBase"], step["activeSize"])
    log.segments[-1].seal()
    found = [{"baseOffset": each.base_offset, "size": each.size} for each in log.segments]
    assert found == case["segments"]
    for segment in log.segments:
        name = f"{segment.base_offset:020d}"
        assert offset_entries(segment) == case["offsetIndex"][f"{name}.index"]
        assert time_entries(segment) == case["timeIndex"][f"{name}.timeindex"]
        again = Segment.open(fs, DIRECTORY, segment.base_offset, config=log.config, writable=False)
        assert offset_entries(again) == offset_entries(segment)
        assert time_entries(again) == time_entries(segment)


def test_the_golden_cases_roll_for_every_reason_but_the_offset_range() -> None:
    """These cases prove something only if they contain every reason."""
    settings = [case["config"] for case in CASES]
    assert len(CASES) == 40
    assert any("segment.ms" in each and int(each["segment.ms"]) < 10_000 for each in settings)
    assert any(int(each["segment.index.bytes"]) < 100 for each in settings)
    assert sum("error" in step for case in CASES for step in case["appends"]) == 37
