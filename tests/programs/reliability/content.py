"""The content of a record: a function of its id, so that any record reveals which one it is.

There are five keys, every seventh record is a tombstone, and timestamps are unique but run forwards
and backwards by a few milliseconds.
"""

from typing import Final

from streamlog.records.record import Record

NOW: Final = 1_700_000_000_000
_SHUFFLE: Final = 6  # ids that differ in these bits swap timestamps


def key_of(number: int) -> bytes:
    return b"k%d" % (number % 5)


def value_of(number: int) -> bytes | None:
    """Return the id and a filler of 0 to 60 bytes; None for a tombstone."""
    if number % 7 == 3:
        return None
    return b"%d:" % number + bytes((number * 31 + n) & 0xFF for n in range(number * 37 % 61))


def timestamp_of(number: int) -> int:
    return NOW + (number ^ _SHUFFLE)


def record_of(number: int) -> Record:
    return Record(key_of(number), value_of(number), (), timestamp_of(number))


def identify(timestamp: int, key: bytes | None, value: bytes | None) -> int | None:
    """Return the id of a record, or None if its fields belong to no id or to different ones."""
    number = (timestamp - NOW) ^ _SHUFFLE
    if number < 0 or key != key_of(number) or value != value_of(number):
        return None
    return number
