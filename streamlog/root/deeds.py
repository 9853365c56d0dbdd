"""The maintenance log of a root: `.streamlog/maintenance.jsonl`, one line per deed, newest last.

    {"ms":1700000000000,"topic":"orders","partition":0,"action":"retention",
     "reason":"retention.ms","segments":3,"bytes":3145728,"logStartOffset":5120}

The file is for people; nothing depends on it, so it is not synced. Beyond 1 MiB the older half is
discarded. Writers hold the maintenance lock of the root.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from streamlog.errors import FileMissingError
from streamlog.fs.api import OpenMode
from streamlog.fs.files import write_file_atomically
from streamlog.fs.log_root import LogRoot

__all__ = ["Deed", "mend_book", "read_deeds", "unreadable_lines", "write_deeds"]

MAX_BOOK_SIZE: Final = 1 << 20
_NAMES: Final = {"log_start_offset": "logStartOffset"}
_FIELDS: Final = {"logStartOffset": "log_start_offset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One change that maintenance made to a partition.

    Attributes:
        ms: Its time, in milliseconds since 1970.
        topic: The topic.
        partition: The partition.
        action: `retention` or `compaction`.
        reason: Kafka's key that caused it, such as `retention.ms`.
        segments: Number of removed segments.
        bytes: Number of removed bytes.
        log_start_offset: The log start offset afterwards.
    """

    ms: int
    topic: str
    partition: int
    action: str
    reason: str
    segments: int
    bytes: int
    log_start_offset: int

    def to_json(self) -> dict[str, Any]:
        """Return the fields of its line."""
        return {_NAMES.get(name, name): value for name, value in asdict(self).items()}


def write_deeds(root: LogRoot, deeds: Sequence[Deed]) -> None:
    """Append deeds; only under the maintenance lock of the root."""
    lines = b"".join(_line(each) for each in deeds)
    with root.fs.open(root.maintenance_book, OpenMode.CREATE_OR_WRITE) as file:
        size = file.stat().size
        if size + len(lines) <= MAX_BOOK_SIZE:
            file.pwrite(lines, size)
            return
        kept = file.pread(MAX_BOOK_SIZE // 2, max(0, size - MAX_BOOK_SIZE // 2))
    write_file_atomically(root.fs, root.maintenance_book, kept[kept.find(b"\n") + 1 :] + lines)


def read_deeds(root: LogRoot, *, topic: str | None = None) -> list[Deed]:
    """Return the recorded deeds, oldest first; malformed lines are skipped."""
    try:
        with root.fs.open(root.maintenance_book, OpenMode.READ) as file:
            data = file.pread(2 * MAX_BOOK_SIZE, 0)
    except FileMissingError:
        return []
    deeds = [_deed(line) for line in data.splitlines()]
    return [each for each in deeds if each is not None and topic in (None, each.topic)]


def unreadable_lines(root: LogRoot) -> int:
    """Return the number of complete lines that are malformed."""
    return sum(_deed(line) is None for line in _whole_lines(root))


def mend_book(root: LogRoot) -> None:
    """Remove malformed lines; only under the maintenance lock of the root."""
    lines = [line for line in _whole_lines(root) if _deed(line) is not None]
    write_file_atomically(root.fs, root.maintenance_book, b"".join(line + b"\n" for line in lines))


def _whole_lines(root: LogRoot) -> list[bytes]:
    try:
        with root.fs.open(root.maintenance_book, OpenMode.READ) as file:
            data = file.pread(2 * MAX_BOOK_SIZE, 0)
    except FileMissingError:
        return []
    return data.split(b"\n")[:-1]  # a write may be in progress after the last newline


def _line(deed: Deed) -> bytes:
    return json.dumps(deed.to_json(), separators=(",", ":")).encode("ascii") + b"\n"


def _deed(line: bytes) -> Deed | None:
    try:
        fields = json.loads(line)
        return Deed(**{_FIELDS.get(name, name): value for name, value in fields.items()})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
