"""Names of the files in a partition's directory.

    00000000000000368769.log                     a segment; the number is its base offset
    00000000000000368769.index                   offset index of that segment
    00000000000000368769.timeindex               time index
    00000000000000368769.txnindex                aborted transactions
    00000000000000368769.snapshot                producer state just before that offset
    00000000000000368769.log.deleted             to be removed
    00000000000000368769.log.cleaned             compaction's output, unfinished
    00000000000000368769.log.swap                compaction's output, complete
    00000000000000368769.log.torn-1              torn tail that recovery truncated (ours)
    00000000000000368769.log.corrupt-1           the file before repair removed damage (ours)

Kafka would also read `5.log` as a segment, but never writes such a name; here it is a foreign file,
and foreign files are left alone.
"""

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "KEPT_ASIDE",
    "MAX_OFFSET",
    "FileSuffix",
    "SegmentFileName",
    "SegmentSuffix",
    "base_offsets",
    "log_file_name",
    "parse_log_file_name",
    "parse_segment_file_name",
    "segment_file_name",
    "torn_file_name",
]

MAX_OFFSET: Final = 2**63 - 1
_DIGITS: Final = 20  # LogFileUtils.filenamePrefixFromOffset: "%020d"


class FileSuffix(Enum):
    """Content of a segment's file.

    Source: org.apache.kafka.storage.internals.log.LogFileUtils.
    """

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"


class SegmentSuffix(Enum):
    """State of a file; follows its `FileSuffix`."""

    NONE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"


class SegmentFileName(NamedTuple):
    """A parsed file name."""

    base_offset: int
    kind: FileSuffix
    suffix: SegmentSuffix


KEPT_ASIDE: Final = re.compile(r"\.(torn|corrupt)-[0-9]+$", re.ASCII)
_NAME: Final = re.compile(
    r"(?P<offset>[0-9]{20})(?P<kind>\.[a-z]+)(?P<suffix>\.deleted|\.cleaned|\.swap|)", re.ASCII
)
_KINDS: Final = {kind.value: kind for kind in FileSuffix}


def segment_file_name(
    base_offset: int, kind: FileSuffix, suffix: SegmentSuffix = SegmentSuffix.NONE
) -> str:
    """Return the name of a segment's file.

    Args:
        base_offset: The segment's first offset, 0 to 2**63 - 1.
        kind: Its content.
        suffix: Its state.
    """
    return f"{base_offset:0{_DIGITS}d}{kind.value}{suffix.value}"


def log_file_name(base_offset: int) -> str:
    """Return the name of the log file that starts at `base_offset`."""
    return segment_file_name(base_offset, FileSuffix.LOG)


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """Parse a name; None for a file that belongs to no segment."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kind = _KINDS.get(match["kind"])
    base_offset = int(match["offset"])
    if kind is None or base_offset > MAX_OFFSET:
        return None
    return SegmentFileName(base_offset, kind, SegmentSuffix(match["suffix"]))


def parse_log_file_name(name: str) -> int | None:
    """Return the base offset in the name of a live segment's log; None for any other file."""
    parsed = parse_segment_file_name(name)
    if parsed is None or parsed.kind is not FileSuffix.LOG:
        return None
    return parsed.base_offset if parsed.suffix is SegmentSuffix.NONE else None


def base_offsets(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the live segments among the names of a directory, ascending."""
    parsed = map(parse_log_file_name, names)
    return sorted(base for base in parsed if base is not None)


def torn_file_name(name: str, number: int) -> str:
    """Return the name of the file for the `number`-th tail truncated from the file `name`."""
    return f"{name}.torn-{number}"
