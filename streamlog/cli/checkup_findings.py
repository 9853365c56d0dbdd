"""A line of what `doctor` prints."""

from typing import Final, NamedTuple

__all__ = ["FAIL", "OK", "WARN", "CheckupFinding"]

OK: Final = "ok"
WARN: Final = "warning"
FAIL: Final = "failure"


class CheckupFinding(NamedTuple):
    """What a check found, and the line that cures it."""

    check: str
    status: str
    found: str
    cure: str | None = None
