"""Places in a partition as people name them: `--offset` of `cat`, and times.

beginning, end, N, -N, s@MS, 2026-11-01T10:00, -1h, A..B, e@TIME
"""

import re
from datetime import datetime, timezone
from typing import Final, NamedTuple

from streamlog.clock import epoch_ms
from streamlog.errors import InvalidOptionError

__all__ = ["OffsetSpec", "Span", "parse_moment", "parse_offsets", "parse_place"]

_WORDS: Final = {"beginning": "beginning", "earliest": "beginning", "end": "end", "latest": "end"}
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_AGO: Final = re.compile(r"-([0-9]{1,9})(ms|s|m|h|d)", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9]{2}:?[0-9]{2})?)?")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EXPECTED: Final = (
    "beginning, end, N, -N, a time (s@MS, 2026-11-01T10:00, -1h), a range A..B, or e@TIME as end"
)


class OffsetSpec(NamedTuple):
    """A position in a partition.

    Attributes:
        kind: `beginning`, `end`, `offset`, `tail` (the last `value` records) or `time`.
        value: An offset, a number of records, or ms since 1970.
    """

    kind: str
    value: int = 0


class Span(NamedTuple):
    """The range that `--offset` selects; the end is exclusive."""

    start: OffsetSpec = OffsetSpec("beginning")
    end: OffsetSpec = OffsetSpec("end")


def parse_moment(text: str, now_ms: int) -> int | None:
    """Return a point in time as ms since 1970, or None if `text` is not one.

    Args:
        text: Milliseconds since 1970, a date or time of ISO 8601 (UTC unless it has an offset), or
            a time before now: `-90s`, `-30m`, `-1h`, `-7d`.
        now_ms: The current time.
    """
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _UNITS_MS[ago[2]])
    if _DATE.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return epoch_ms(moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc))


def parse_offsets(texts: tuple[str, ...], now_ms: int) -> Span:
    """Return the span of the `--offset` options: a start, an end (`e@…`) or both (`A..B`).

    Raises:
        InvalidOptionError: Not an offset, or more than one start or end.
    """
    starts: list[OffsetSpec | None] = []
    ends: list[OffsetSpec | None] = []
    for text in texts:
        if ".." in text:
            start, _, end = text.partition("..")
            starts.append(parse_place(start or "beginning", now_ms))
            found = parse_place(end or "end", now_ms)
            # `-N` counts from the end of the log: it can start a range, but not end one.
            ends.append(None if found is not None and found.kind == "tail" else found)
        elif text.startswith("e@"):
            ends.append(parse_place(text, now_ms))
        else:
            starts.append(parse_place(text, now_ms))
    if len(starts) > 1 or len(ends) > 1 or None in starts or None in ends:
        raise InvalidOptionError(
            "invalid value for --offset",
            got=" ".join(texts),
            expected=_EXPECTED,
            hint="streamlog cat TOPIC --offset 2026-11-01T10:00..2026-11-01T10:05",
        )
    span = Span()
    if starts and starts[0] is not None:
        span = span._replace(start=starts[0])
    if ends and ends[0] is not None:
        span = span._replace(end=ends[0])
    return span


def parse_place(text: str, now_ms: int) -> OffsetSpec | None:
    """Return one place, such as `100`, `-10`, `end`, `s@1700000000000` or `-1h`.

    Args:
        text: The place.
        now_ms: The current time.

    Returns:
        The place; None if the text names none.
    """
    if text in _WORDS:
        return OffsetSpec(_WORDS[text])
    if text[:2] in ("s@", "e@"):
        moment = parse_moment(text[2:], now_ms)
        return None if moment is None else OffsetSpec("time", moment)
    if _NUMBER.fullmatch(text) is not None:
        return OffsetSpec("tail" if text.startswith("-") else "offset", abs(int(text)))
    moment = parse_moment(text, now_ms)
    return None if moment is None else OffsetSpec("time", moment)
