"""`expected_departures` says when `plan_deletions` will delete."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from streamlog.config.log_config import LogConfig
from streamlog.maintenance.retention import expected_departures, plan_deletions

START = 1_700_000_000_000


class Facts(NamedTuple):
    base_offset: int
    size: int
    largest_timestamp: int


@st.composite
def logs(draw: st.DrawFn) -> list[Facts]:
    count = draw(st.integers(1, 6))
    return [
        Facts(at * 10, draw(st.integers(1, 500)), START + draw(st.integers(-1000, 1000)))
        for at in range(count)
    ]


def gone(segments: list[Facts], config: LogConfig, now_ms: int) -> set[int]:
    end = len(segments) * 10
    plan = plan_deletions(
        segments,
        config=config,
        now_ms=now_ms,
        log_start_offset=0,
        log_end_offset=end,
        high_watermark=end,
    )
    return {each.base_offset for each in plan}


@given(logs(), st.integers(0, 2000))
def test_time_deletes_each_segment_when_it_was_said_to(segments: list[Facts], keep: int) -> None:
    config = LogConfig(retention_ms=keep)
    for each in expected_departures(segments, config=config):
        assert each.at_ms is not None
        assert each.base_offset in gone(segments, config, each.at_ms)
        assert each.base_offset not in gone(segments, config, each.at_ms - 1)


@given(logs(), st.integers(0, 2000))
def test_size_deletes_each_segment_after_so_many_bytes(segments: list[Facts], keep: int) -> None:
    config = LogConfig(retention_ms=-1, retention_bytes=keep)
    for each in expected_departures(segments, config=config):
        assert each.after_bytes is not None
        grown = [*segments, Facts(len(segments) * 10, each.after_bytes, START)]
        assert each.base_offset in gone(grown, config, START)
        if each.after_bytes:
            grown[-1] = grown[-1]._replace(size=each.after_bytes - 1)
            assert each.base_offset not in gone(grown, config, START)


def test_what_is_not_deleted_never_leaves() -> None:
    segments = [Facts(0, 10, START)]
    for config in (
        LogConfig(retention_ms=-1),
        LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=1),
    ):
        (only,) = expected_departures(segments, config=config)
        assert (only.at_ms, only.after_bytes) == (None, None)
