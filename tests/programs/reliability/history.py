"""The history of a root: every operation and every fault, in order.

Every record carries an id, its payload is a function of the id, and each writer draws ids in
ascending order. A write appears twice: as `Outcome.UNKNOWN` before the attempt, and again with its
answer. Without the second event, the writer died during the write.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """The answer that the writer got."""

    # No answer, or an ambiguous one: the write is there completely or not at all.
    UNKNOWN = "unknown"
    DONE = "done"
    REFUSED = "refused"  # nothing was written


class Wrote(NamedTuple):
    """An append or a commit: `ids` by partition, one tuple for each atomic batch."""

    writer: str
    number: int
    ids: Mapping[int, tuple[tuple[int, ...], ...]]
    outcome: Outcome = Outcome.UNKNOWN
    base_offset: Mapping[int, int] = {}  # by partition, once it is known
    is_durable: bool = False


class Flushed(NamedTuple):
    """All records of a partition below `end_offset` must survive a power cut."""

    partition: int
    end_offset: int


class Truncated(NamedTuple):
    """A partition was truncated to `offset`."""

    partition: int
    offset: int
    outcome: Outcome = Outcome.UNKNOWN


class Began(NamedTuple):
    """The records of a partition below `offset` were deleted."""

    partition: int
    offset: int
    outcome: Outcome = Outcome.UNKNOWN


class Retained(NamedTuple):
    """Retention at `now_ms` deleted segments whose records were all too old."""

    partition: int
    now_ms: int


class Cleaned(NamedTuple):
    """A partition was compacted below `end_offset`, the start of its active segment."""

    partition: int
    end_offset: int
    now_ms: int


class Waited(NamedTuple):
    """The clock advanced to `now_ms`."""

    now_ms: int


class Crashed(NamedTuple):
    """All processes died, with or without a power cut."""

    lost_power: bool


class UnderWay(NamedTuple):
    """From now on requests that failed may still take effect, or no longer."""

    is_possible: bool


class Raised(NamedTuple):
    """An operation failed with an error."""

    operation: str
    error: str
    is_typed: bool


class Batch(NamedTuple):
    """One batch as the independent parser found it on disk."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    is_sound: bool  # its checksum, its count and its lengths


class View(NamedTuple):
    """What a fresh reader found in one partition; an id is None if the payload matches none."""

    start: int
    end: int
    recovery_point: int
    rows: tuple[tuple[int, int | None], ...]  # offset, id
    rows_again: tuple[tuple[int, int | None], ...]  # according to the independent parser
    batches: tuple[Batch, ...]
    epochs: tuple[tuple[int, int], ...] = ()  # leader epoch, its start offset
    by_time: tuple[tuple[int, int | None], ...] = ()  # timestamp, offset found for it
    torn_size: int = 0  # bytes after the last batch of a file


class Seen(NamedTuple):
    """All partitions, read while there were no writes."""

    views: Mapping[int, View]


Event = (
    Wrote
    | Flushed
    | Truncated
    | Began
    | Retained
    | Cleaned
    | Waited
    | Crashed
    | UnderWay
    | Raised
    | Seen
)
History = list[Event]
