"""The geometry of the diagrams: plain numbers that the templates draw as SVG."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from streamlog.overview.model import (
    PartitionOverview,
    RateWindow,
    RootOverview,
    SegmentOverview,
    TopicOverview,
)
from streamlog.words import age_text, counted, human_size, number_text, time_text

__all__ = ["RateBar", "SegmentBar", "SegmentRow", "rate_bars", "segment_rows", "total_rate"]

WIDTH: Final = 1000.0  # of all diagrams; the browser stretches them
RATE_HEIGHT: Final = 100.0
_THINNEST: Final = 2.0
_THINNEST_SEGMENT: Final = 6.0  # one that was written within a moment is seen, too
_GAP: Final = 0.8
_DRAWN: Final = 400  # segments of a partition at most: the oldest and the newest ones
_DRAWN_IN_ALL: Final = 20_000  # about; keeps the page of a huge root at a few megabytes


class RateBar(NamedTuple):
    """A step of a rate."""

    x: float
    y: float
    width: float
    height: float
    title: str


def rate_bars(rate: Sequence[int], window: RateWindow) -> list[RateBar]:
    """Return the bars of a rate; steps without records have none."""
    peak = max(rate, default=0)
    if not peak:
        return []
    width = WIDTH / window.count
    bars = []
    for at, count in enumerate(rate):
        if count:
            height = max(_THINNEST, count * RATE_HEIGHT / peak)
            start_ms = window.start_ms + at * window.step_ms
            title = f"{time_text(start_ms)} UTC: {counted(count, 'record')}"
            x, y = round(at * width + _GAP, 2), round(RATE_HEIGHT - height, 2)
            bars.append(RateBar(x, y, round(width - 2 * _GAP, 2), round(height, 2), title))
    return bars


def total_rate(root: RootOverview) -> tuple[int, ...]:
    """Return the rate of all topics together, without those that Kafka writes for itself."""
    rates = [each.rate for each in root.topics if each.rate and not each.is_internal]
    return tuple(map(sum, zip(*rates, strict=True)))


class SegmentBar(NamedTuple):
    """A segment on the time line; `state` is `due`, `held`, `active` or `kept`."""

    x: float
    width: float
    state: str
    title: str


class SegmentRow(NamedTuple):
    """The segments of a partition on the time line.

    Attributes:
        partition: The partition.
        bars: Its segments.
        left_out: How many segments in the middle are not drawn.
    """

    partition: PartitionOverview
    bars: list[SegmentBar]
    left_out: int


def segment_rows(topic: TopicOverview, root: RootOverview) -> list[SegmentRow]:
    """Return the time line of a topic: from its oldest record to its newest.

    Segments without timestamps are not on it.
    """
    partitions = sum(len(each.partitions) for each in root.topics)
    most = max(8, min(_DRAWN, _DRAWN_IN_ALL // max(1, partitions)))
    oldest, newest = topic.oldest_ms, topic.newest_ms
    if oldest is None or newest is None:
        return []
    scale = WIDTH / max(1, newest - oldest)
    now_ms = root.taken_ms
    return [_row(each, oldest, scale, now_ms, most) for each in topic.partitions if each.segments]


def _row(
    partition: PartitionOverview, oldest: int, scale: float, now_ms: int, most: int
) -> SegmentRow:
    dated = [each for each in partition.segments if each.last_ms is not None]
    half = most // 2
    drawn = dated if len(dated) <= most else dated[:half] + dated[-half:]
    return SegmentRow(
        partition,
        [_bar(each, oldest, scale, now_ms) for each in drawn],
        len(dated) - len(drawn),
    )


def _bar(segment: SegmentOverview, oldest: int, scale: float, now_ms: int) -> SegmentBar:
    last = segment.last_ms or oldest
    first = min(last, oldest if segment.first_ms is None else segment.first_ms)
    width = max(_THINNEST_SEGMENT, (last - first) * scale - _GAP)
    x = min(max(0.0, (first - oldest) * scale), WIDTH - width)
    return SegmentBar(round(x, 2), round(width, 2), segment_state(segment), _title(segment, now_ms))


def segment_state(segment: SegmentOverview) -> str:
    """Return what decides over a segment next."""
    if segment.is_due:
        return "due"
    if segment.held_by:
        return "held"
    return "active" if segment.is_active else "kept"


def _title(segment: SegmentOverview, now_ms: int) -> str:
    offsets = f"offsets {number_text(segment.base_offset)} to {number_text(segment.end_offset - 1)}"
    times = f"{time_text(segment.first_ms)} to {time_text(segment.last_ms)}"
    fate = fate_of(segment, now_ms)
    return f"{offsets}, {human_size(segment.size_bytes)}, {times}; {fate}"


def fate_of(segment: SegmentOverview, now_ms: int) -> str:
    """Return in words when a segment leaves, and what keeps it."""
    words = []
    if segment.is_due:
        words.append("leaves with the next maintenance")
    elif segment.leaves_ms is not None and segment.leaves_ms <= now_ms:
        words.append(f"past its time since {time_text(segment.leaves_ms)}")
    elif segment.leaves_ms is not None:
        words.append(f"leaves on {time_text(segment.leaves_ms)}")
        words[-1] += f" ({age_text(segment.leaves_ms, now_ms)})"
    if segment.leaves_after_bytes is not None and not segment.is_due:
        words.append(f"leaves after {human_size(segment.leaves_after_bytes)} more")
    if segment.held_by:
        words.append(f"held by {', '.join(segment.held_by)}")
    if segment.is_active:
        words.append("active")
    return "; ".join(words) or "stays"
