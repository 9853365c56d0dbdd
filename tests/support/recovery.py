"""A segment of twelve batches, ways to damage it, and its recovery."""

from collections.abc import Callable

import pytest

from streamlog.errors import CorruptRecordError
from streamlog.fs.memory import MemoryFileSystem
from streamlog.segment.recovery import RecoveryReport, Restore, nothing_known
from tests.support.segments import (
    DIRECTORY,
    NOW_MS,
    BatchPlan,
    file_names,
    make_batches,
    memory_fs,
    open_segment,
    read_bytes,
    write_bytes,
)

BASE = 100
LOG = f"{DIRECTORY}/{BASE:020d}.log"
SETTINGS = {"index_interval_bytes": 300}
PLANS = [BatchPlan(BASE + 3 * at, 3, 90 + at, NOW_MS + at, leader_epoch=4) for at in range(12)]
NEXT = BASE + 36


def log_with(data: bytes) -> MemoryFileSystem:
    fs = memory_fs()
    write_bytes(fs, LOG, data)
    return fs


def recover(
    fs: MemoryFileSystem,
    *,
    durable: int | None = None,
    is_last: bool = True,
    previous_epoch: int = -1,
    lost_power: bool = False,
    restore: Restore = nothing_known,
) -> RecoveryReport:
    segment = open_segment(fs, BASE, **SETTINGS)
    report = segment.recover(
        durable_offset=durable,
        is_last=is_last,
        previous_epoch=previous_epoch,
        lost_power=lost_power,
        restore=restore,
    )
    assert (segment.size, segment.next_offset()) == (report.size, report.next_offset)
    assert fs.stat(LOG).size == report.size
    return report


def refused(fs: MemoryFileSystem, **facts: object) -> str:
    """Check that recovery refuses and changes nothing; return its case number."""
    before = {name: read_bytes(fs, f"{DIRECTORY}/{name}") for name in file_names(fs)}
    with pytest.raises(CorruptRecordError) as caught:
        recover(fs, **facts)
    assert caught.value.path == LOG
    assert caught.value.position is not None and caught.value.offset is not None
    assert caught.value.hint is not None and "--skip-damage" in caught.value.hint
    after = {name: read_bytes(fs, f"{DIRECTORY}/{name}") for name in file_names(fs)}
    assert after == before
    return caught.value.what.rpartition("(case ")[2][:2]


def kept(fs: MemoryFileSystem, report: RecoveryReport) -> bytes:
    return b"" if report.kept_path is None else read_bytes(fs, report.kept_path)


WHOLE = make_batches(PLANS)

STARTS = [sum(plan.size for plan in PLANS[:at]) for at in range(len(PLANS) + 1)]


def changed(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


def flip(batch: int, byte: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        at = STARTS[batch] + byte
        return changed(data, at, bytes([data[at] ^ 0x40]))

    return change
