"""Retention deletes the same segments as Kafka's, for seeded random logs and settings."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.maintenance.retention import delete_old_segments, plan_deletions
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from tests.programs.compat.kafka import Kafka

pytestmark = pytest.mark.compat

NOW = 1_700_000_000_000
SMALL = LogConfig(internal_segment_bytes=400, index_interval_bytes=100)
LOGS, VARIANTS = 6, 40
ON_FILES = 4  # one of this many cases is also executed


def written(root: Path, random: Random) -> Path:
    """Write a log of some segments; in some, no record has a timestamp."""
    path = root / "orders-0"
    with PartitionLog.open(path, config=SMALL, clock=ManualClock(NOW), random=Random(1)) as log:
        for _ in range(random.randrange(2, 9)):
            is_timeless = random.random() < 0.2
            for _ in range(random.randrange(1, 5)):
                timestamp = -1 if is_timeless else NOW + random.randrange(-5000, 5000)
                log.append([Record(None, b"v" * random.randrange(120), (), timestamp)])
            log.roll()
        if random.random() < 0.7:
            log.append([Record(None, b"last", (), NOW)])
    return path


def settings(random: Random, log: LogReader) -> dict[str, Any]:
    """Return a question about a log: settings, the time, high watermark and log start."""
    end = log.log_end_offset
    sizes = [-1, 0, log.size // 3, log.size // 2, log.segments[0].size, log.size, log.size + 1]
    return {
        "config": {
            "cleanup.policy": random.choice(["delete", "delete", "compact", "compact,delete", ""]),
            "retention.bytes": str(random.choice([*sizes, random.randrange(log.size)])),
            "retention.ms": str(random.choice([-1, 0, 1000, 5000, 10_000, 604_800_000])),
            "internal.segment.bytes": "400",
        },
        "now": NOW + random.randrange(-6000, 12_000),
        "highWatermark": random.choice([end, end, end, random.randrange(end + 1)]),
        "logStartOffset": random.choice([0, 0, random.randrange(end + 1), end]),
    }


def decided(path: Path, question: dict[str, Any]) -> tuple[int, int]:
    """Return how many segments we would delete, and the resulting log start."""
    start = question["logStartOffset"]
    with LogReader.open(path) as log:
        gone = plan_deletions(
            tuple(log.segments),
            config=LogConfig.from_properties(question["config"]),
            now_ms=question["now"],
            log_start_offset=start,
            log_end_offset=log.log_end_offset,
            high_watermark=max(question["highWatermark"], start),
        )
    return len(gone), max([start, *(each.end_offset for each in gone)])


def done(path: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Execute it, and return the remaining segments in the oracle's notation."""
    clock = ManualClock(question["now"])
    config = LogConfig.from_properties({**question["config"], "cleanup.policy": "delete"})
    with PartitionLog.open(path, config=config, clock=clock, random=Random(1)) as log:
        log.delete_records(question["logStartOffset"])
    config = LogConfig.from_properties(question["config"])
    with PartitionLog.open(path, config=config, clock=clock, random=Random(1)) as log:
        gone = delete_old_segments(log, clock)
        return {
            "deleted": len(gone),
            "logStartOffset": log.log_start_offset,
            "logEndOffset": log.log_end_offset,
            "segments": [[each.base_offset, each.size] for each in log.segments],
            "leaderEpochs": [
                [epoch, start, log.leader_epochs.end_offset_for(epoch, log.log_end_offset)[1]]
                for epoch, start in log.leader_epochs.entries
            ],
        }


def set_aside(path: Path) -> set[str]:
    return {each.name for each in path.glob("*.deleted") if ".snapshot" not in each.name}


@pytest.mark.parametrize("seed", range(LOGS))
def test_the_same_segments_are_deleted(
    kafka: Kafka, tmp_path: Path, copy_of: Callable[[Path], Path], seed: int
) -> None:
    random = Random(seed)
    original = written(tmp_path / "root", random)
    compared = deleted = 0
    for variant in range(VARIANTS):
        for each in original.glob("*.log"):
            seconds = (NOW + random.randrange(-8000, 4000)) // 1000
            os.utime(each, (seconds, seconds))
        with LogReader.open(original) as log:
            question = settings(random, log)
            is_done = variant % ON_FILES == 0
            if is_done:  # with one replica, all records are committed
                question["highWatermark"] = log.log_end_offset
        theirs_at = copy_of(original)
        ours_at = copy_of(original) if is_done else theirs_at
        theirs = kafka.ask("retain", directory=str(theirs_at), clean=True, **question)
        assert "error" not in theirs, theirs
        expected = (theirs["deleted"], theirs["logStartOffset"])
        assert decided(original, question) == expected, question
        compared, deleted = compared + 1, deleted + expected[0]
        if is_done:
            ours = done(ours_at, question)
            assert {key: theirs[key] for key in ours} == ours, question
            assert set_aside(ours_at) == set_aside(theirs_at)
        for each in {theirs_at, ours_at}:
            shutil.rmtree(each.parent)
    assert compared == VARIANTS
    assert deleted > 10
