"""What happened to a root, in the order in which it happened, whoever did it and whatever broke.

Every record carries an id, its payload is a function of it, and writers draw ids in rising order.
A write stands in the history twice: as `Outcome.UNKNOWN` before it is tried, and again once it
was answered. A history that ends in between is that of a writer that died in the act.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """What the writer was told."""

    UNKNOWN = "unknown"  # nothing, or that nobody knows: there in one piece, or not at all
    DONE = "done"
    REFUSED = "refused"  # nothing was written


class Wrote(NamedTuple):
    """An append or a commit: `ids` by partition, one tuple for each batch that stands or falls."""

    writer: str
    number: int
    ids: Mapping[int, tuple[tuple[int, ...], ...]]
    outcome: Outcome = Outcome.UNKNOWN
    base_offset: Mapping[int, int] = {}  # by partition, once it is known
    is_durable: bool = False


class Flushed(NamedTuple):
    """Everything of a partition below `end_offset` was promised to survive a power cut."""

    partition: int
    end_offset: int


class Truncated(NamedTuple):
    """A partition was told to forget everything from `offset` on."""

    partition: int
    offset: int
    outcome: Outcome = Outcome.UNKNOWN


class Began(NamedTuple):
    """A partition was told to begin at `offset`: its records below it were deleted."""

    partition: int
    offset: int
    outcome: Outcome = Outcome.UNKNOWN


class Retained(NamedTuple):
    """Whole segments were deleted of whose records none was young enough at `now_ms`."""

    partition: int
    now_ms: int


class Cleaned(NamedTuple):
    """A partition was compacted below `end_offset`, where its active segment began."""

    partition: int
    end_offset: int
    now_ms: int


class Waited(NamedTuple):
    """The clock went on to `now_ms`."""

    now_ms: int


class Crashed(NamedTuple):
    """All processes ended; with the power, or only by themselves."""

    lost_power: bool


class Raised(NamedTuple):
    """An operation failed with an error."""

    operation: str
    error: str
    is_typed: bool


class Batch(NamedTuple):
    """One batch as an independent parser found it on the disk."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    is_sound: bool  # its checksum, its count and its lengths


class View(NamedTuple):
    """What a fresh reader found in one partition; an id is None where the payload is not its."""

    start: int
    end: int
    recovery_point: int
    rows: tuple[tuple[int, int | None], ...]  # offset, id
    rows_again: tuple[tuple[int, int | None], ...]  # as the independent parser finds them
    batches: tuple[Batch, ...]
    epochs: tuple[tuple[int, int], ...] = ()  # leader epoch, where it starts
    by_time: tuple[tuple[int, int | None], ...] = ()  # timestamp, offset found for it
    torn_size: int = 0  # bytes behind the last batch of a file


class Seen(NamedTuple):
    """All partitions, read while nobody wrote."""

    views: Mapping[int, View]


Event = Wrote | Flushed | Truncated | Began | Retained | Cleaned | Waited | Crashed | Raised | Seen
History = list[Event]
