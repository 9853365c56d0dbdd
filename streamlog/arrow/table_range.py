"""From where to where `read_table` and `read_arrow` read each partition.

The words are those of Spark's options, in snake case: `starting_offsets` is `startingOffsets`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from streamlog.arrow.log_view import EARLIEST, LATEST, OffsetRange, PartitionBounds
from streamlog.arrow.subscription import Subscription
from streamlog.clock import epoch_ms
from streamlog.errors import InvalidOptionError, OffsetOutOfRangeError
from streamlog.topic import TopicPartition

__all__ = ["Offsets", "TableRange"]

Offsets: TypeAlias = str | int | Mapping[str, Mapping[int, int]]
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class _Border:
    """One end of what is read: a number for all partitions, or one for each.

    Attributes:
        name: The argument that said it, for errors.
        everywhere: For all partitions; None where `partitions` says it.
        partitions: By partition.
        is_time: Whether the numbers are ms since 1970, and no offsets.
    """

    name: str
    everywhere: int | None
    partitions: Mapping[TopicPartition, int]
    is_time: bool

    @classmethod
    def of(cls, side: str, offsets: Offsets | None, time: int | datetime | None) -> "_Border":
        """Return what the arguments of one side say."""
        name = f"{side}_offsets"
        default = EARLIEST if side == "starting" else LATEST
        if time is not None:
            if offsets is not None:
                raise InvalidOptionError(
                    f"both {name} and {side}_timestamp are given", expected="one of them"
                )
            return cls(f"{side}_timestamp", epoch_ms(time), {}, is_time=True)
        if isinstance(offsets, Mapping):
            return cls(name, None, dict(_by_partition(name, offsets)), is_time=False)
        number = default if offsets is None else _WORDS.get(str(offsets), offsets)
        if isinstance(number, bool) or not isinstance(number, int):
            raise _impossible(name, offsets)
        return cls(name, number, {}, is_time=False)

    def in_partition(
        self, view: Subscription, partition: TopicPartition, bounds: PartitionBounds
    ) -> int:
        """Return the offset that is meant in a partition."""
        number = self.partitions.get(partition) if self.everywhere is None else self.everywhere
        if number is None:
            raise InvalidOptionError(
                f"{self.name} must name all partitions that are read",
                got=", ".join(map(str, sorted(self.partitions))) or "none",
                expected=f"{partition} as well; -1 is its latest, -2 its earliest offset",
                hint="partitions= reads some partitions only",
            )
        if self.is_time:
            found = view.offset_for_timestamp(partition, number)
            return bounds.end_offset if found is None else min(found, bounds.end_offset)
        if number == LATEST:
            return bounds.end_offset
        if number == EARLIEST:
            return bounds.log_start_offset
        if not bounds.log_start_offset <= number <= bounds.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.name}: {partition} has no such offset",
                got=number,
                expected=f"{bounds.log_start_offset} to {bounds.log_end_offset}",
            )
        return min(number, bounds.end_offset)


@dataclass(frozen=True, slots=True)
class TableRange:
    """What is read of each partition."""

    start: _Border
    end: _Border

    @classmethod
    def of(
        cls,
        starting_offsets: Offsets | None = None,
        ending_offsets: Offsets | None = None,
        starting_timestamp: int | datetime | None = None,
        ending_timestamp: int | datetime | None = None,
    ) -> "TableRange":
        """Return what the arguments of `read_arrow` say.

        Raises:
            InvalidOptionError: They say it twice, or nothing that could be.
        """
        return cls(
            _Border.of("starting", starting_offsets, starting_timestamp),
            _Border.of("ending", ending_offsets, ending_timestamp),
        )

    def check_names(self, view: Subscription) -> None:
        """Raise where a partition is named that is not read.

        Raises:
            InvalidOptionError: One is.
        """
        for border in (self.start, self.end):
            strange = sorted(border.partitions.keys() - view.bounds.keys())
            if strange:
                raise InvalidOptionError(
                    f"{border.name} names a partition that is not read",
                    got=str(strange[0]),
                    expected=", ".join(map(str, sorted(view.bounds))) or "none",
                )

    def ranges(self, view: Subscription) -> list[OffsetRange]:
        """Return the range of each partition of a view; some may be empty.

        Raises:
            InvalidOptionError: A partition is not named.
            OffsetOutOfRangeError: An offset that a partition does not have.
        """
        return [
            OffsetRange(
                *partition,
                self.start.in_partition(view, partition, bounds),
                self.end.in_partition(view, partition, bounds),
            )
            for partition, bounds in sorted(view.bounds.items())
        ]


def _by_partition(
    name: str, offsets: Mapping[str, Mapping[int, int]]
) -> list[tuple[TopicPartition, int]]:
    found = []
    for topic, numbers in offsets.items():
        if not isinstance(numbers, Mapping):
            raise _impossible(name, offsets)
        for partition, offset in numbers.items():
            if type(partition) is not int or type(offset) is not int:
                raise _impossible(name, offsets)
            found.append((TopicPartition(topic, partition), offset))
    return found


def _impossible(name: str, got: object) -> InvalidOptionError:
    return InvalidOptionError(
        f"invalid value for {name}",
        got=repr(got),
        expected="'earliest', 'latest', an offset, or offsets by topic and partition:"
        " {'orders': {0: 5, 1: 7}}",
    )
