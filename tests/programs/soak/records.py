"""The records that the soak's producers write: a function of the append's name.

events   name 3.17.204 (producer, life, number), row 2 of 7   →   value "3.17.204 2/7 ....."
state    the same name                                       →   keys of producer 3, some null
"""

from random import Random
from typing import Final, NamedTuple

from streamlog.records.record import Record

EVENTS: Final = "events"  # deleted by size, read by the copying query
# Written by the copying query, deleted by size, read by the collecting one.
COPIES: Final = "copies"
STATE: Final = "state"  # compacted, read by the collecting query
PARTITIONS: Final = 2
KEYS: Final = 200  # of a producer in a partition
MAX_ROWS: Final = 20
VALUE_SIZE: Final = 100
TOMBSTONES: Final = 0.1  # share of the records of `state`


class Name(NamedTuple):
    """The name of one append."""

    producer: int
    life: int
    number: int

    def __str__(self) -> str:
        return f"{self.producer}.{self.life}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> "Name":
        """Parse a name that `str` has made."""
        return cls(*map(int, text.split(".")))


def records_of(topic: str, name: Name) -> list[Record]:
    """Return the records of an append; deterministic."""
    random = Random(f"{topic} {name}")
    count = random.randrange(1, MAX_ROWS + 1)
    values = [f"{name} {row}/{count} ".ljust(VALUE_SIZE, ".").encode() for row in range(count)]
    if topic == EVENTS:
        return [Record(None, value) for value in values]
    return [
        Record(
            f"{name.producer}-{random.randrange(KEYS):03d}".encode(),
            None if random.random() < TOMBSTONES else value,
        )
        for value in values
    ]
