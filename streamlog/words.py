"""Numbers and lists as people read them: sizes, counts, times, durations, names."""

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

__all__ = [
    "age_text",
    "counted",
    "duration_text",
    "human_duration",
    "human_size",
    "listed",
    "number_text",
    "time_text",
]

_UNITS: Final = (("y", 31_536_000), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_ZERO: Final = re.compile(r" 0[a-z]$|\.0(?= s$)")
_LATEST_MS: Final = 253_402_300_799_999  # the last millisecond of the year 9999


def human_size(size: int) -> str:
    """Return a size in bytes in readable form, such as `12.3 MiB`."""
    if size < 1024:
        return f"{size} B"
    value, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"


def counted(count: int, one: str) -> str:
    """Return a number and its noun: `1 partition`, `3 partitions`."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, such as `a, b, …`."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def number_text(number: int) -> str:
    """Return a number with separators, such as `1,234,567`."""
    return f"{number:,}"


def time_text(ms: int | None) -> str:
    """Return a time in UTC, such as `2026-11-01 10:00:05`, `-` for None.

    Args:
        ms: Milliseconds since 1970.
    """
    if ms is None:
        return "-"
    if not 0 <= ms <= _LATEST_MS:
        return f"{ms} ms"  # no date that people use
    return f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"


def human_duration(duration_ms: int) -> str:
    """Return a duration in ms in readable form, such as `2m 5s`, by its two largest units."""
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.1f} s"
    seconds = duration_ms // 1000
    parts: list[str] = []
    for unit, size in _UNITS:
        if seconds >= size or parts:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return " ".join(parts[:2])


def duration_text(ms: int | None) -> str:
    """Return a duration as `human_duration`, without a second unit that is 0; `-` for None."""
    return "-" if ms is None else _ZERO.sub("", human_duration(ms))


def age_text(ms: int | None, now_ms: int) -> str:
    """Return how long ago a time was, such as `3 h ago`, or how far ahead; `-` for None."""
    if ms is None:
        return "-"
    whole_ms = abs(now_ms - ms) // 1000 * 1000
    if ms > now_ms:
        return f"in {duration_text(whole_ms)}"
    return f"{duration_text(whole_ms)} ago" if whole_ms else "now"
