"""The lag in time: which records it compares, and how much is read for it."""

from pathlib import Path
from typing import Any

import pytest

from streamlog.arrow.views import open_read_roots
from streamlog.query.offsets import parse_source_offset
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.readers import Reader
from streamlog.topic import TopicPartition
from streamlog.watch.lag import LagMeter

P0 = TopicPartition("orders", 0)


def reader(offset: int | None, number: int = 0) -> Reader:
    offsets: dict[str, Any] = {"orders": {str(number): offset}}
    return Reader(name="r", position=parse_source_offset(offsets), committed_ms=7)


@pytest.fixture
def manager(tmp_path: Path) -> Any:
    with LogManager.open(tmp_path / "root", create=True) as opened:
        opened.create_topic("orders", 2)
        yield opened


def append(manager: Any, *timestamps: int, number: int = 0, **how: Any) -> None:
    records = [Record(value=b"x" * 100, timestamp=each) for each in timestamps]
    manager.log("orders", number).append(records, **how)


def measured(manager: Any, offset: int) -> tuple[int, int | None]:
    with LagMeter(open_read_roots([manager.root])) as meter:
        row = meter.measure([reader(offset)])[0]
    assert (row.current_offset, row.committed_ms) == (offset, 7)
    return row.lag, row.lag_ms


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        *((0, (5, 9_000)), (1, (4, 9_000))),  # before the first record; after it
        *((2, (3, 8_000)), (4, (1, 4_000)), (5, (0, 0))),  # inside a batch; at the end
        (9, (0, 0)),  # beyond it
    ],
)
def test_lag_in_time_is_from_the_last_finished_record_to_the_last_one(
    manager: Any, compression: str, offset: int, expected: tuple[int, int]
) -> None:
    append(manager, 1_000, 2_000, compression=compression)
    append(manager, 3_000, 6_000, 10_000, compression=compression)
    assert measured(manager, offset) == expected


def test_a_deleted_record_is_replaced_by_the_next(manager: Any) -> None:
    append(manager, 1_000, 2_000, 4_000, 9_000)
    manager.log("orders", 0).delete_records(2)
    assert measured(manager, 1) == (2, 5_000)  # of 9 s and 4 s, the first one that exists


def test_disorder_is_no_negative_lag_and_a_missing_timestamp_no_lag_in_time(manager: Any) -> None:
    append(manager, 9_000, 4_000)
    assert measured(manager, 1) == (1, 0)
    append(manager, -1)
    assert measured(manager, 1) == (2, None)


def test_a_meter_follows_the_log_and_reads_only_what_is_new(
    manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(manager, 1_000, 2_000)
    with LagMeter(open_read_roots([manager.root])) as meter:
        assert [(row.lag, row.lag_ms) for row in meter.measure([reader(1)])] == [(1, 1_000), (0, 0)]
        reads: list[int] = []
        log = meter._logs[P0][1]
        read = log.read
        monkeypatch.setattr(
            log, "read", lambda offset, *a, **k: reads.append(offset) or read(offset, *a, **k)
        )
        meter.refresh()
        assert meter.measure([reader(1)])[0].lag_ms == 1_000
        assert reads == []
        append(manager, 5_000)
        append(manager, 5_000, number=1)
        meter.refresh()
        rows = meter.measure([reader(1)])
        assert [(row.lag, row.lag_ms) for row in rows] == [(2, 4_000), (1, 0)]
        assert reads == [2]
        assert [tuple(each) for each in meter.partitions()] == [
            (P0, 0, 3),
            (TopicPartition("orders", 1), 0, 1),
        ]


def test_a_meter_drops_a_topic_that_was_created_again(manager: Any) -> None:
    append(manager, 1_000, 2_000)
    with LagMeter(open_read_roots([manager.root])) as meter:
        assert meter.measure([reader(0)])[0].lag == 2
        manager.delete_topic("orders")
        meter.refresh()
        assert meter.measure([reader(0)]) == []
        manager.create_topic("orders", 1)
        append(manager, 3_000)
        meter.refresh()
        assert meter.measure([reader(0)])[0].lag == 1


def test_a_batch_is_found_by_the_index_and_read_once(manager: Any) -> None:
    for first in range(200):
        append(manager, *(first * 1_000 + each for each in range(20)))
    with LagMeter(open_read_roots([manager.root])) as meter:
        log = meter._log(P0)
        assert log is not None
        sizes: list[int] = []
        read = log.read

        def counted(*arguments: Any, **options: Any) -> Any:
            info = read(*arguments, **options)
            sizes.append(len(info.buffer))
            return info

        log.read = counted  # type: ignore[method-assign, union-attr]
        assert meter.measure([reader(2_001)])[0].lag_ms == 99_019
        assert len(sizes) == 2
        assert max(sizes) < 4_000  # a batch of twenty records, of a log of 450 kB
