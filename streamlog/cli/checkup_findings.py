"""A line of what `doctor` prints."""

from typing import Final, NamedTuple

__all__ = ["FAIL", "OK", "WARN", "Finding"]

OK: Final = "ok"
WARN: Final = "warning"
FAIL: Final = "failure"


class Finding(NamedTuple):
    """What a check found, and the line that cures it."""

    check: str
    status: str
    found: str
    cure: str | None = None
