"""What a record is made of: all of it follows from its id, so that any record says whose it is.

Five keys take turns, every seventh record is a tombstone, and timestamps run forwards and
backwards by some milliseconds, no two alike.
"""

from typing import Final

from streamlog.records.record import Record

NOW: Final = 1_700_000_000_000
_SHUFFLE: Final = 6  # of timestamps: ids that differ in these bits change places


def key_of(number: int) -> bytes:
    """Return the key of a record."""
    return b"k%d" % (number % 5)


def value_of(number: int) -> bytes | None:
    """Return the value: the id and a filler of 0 to 60 bytes; None for a tombstone."""
    if number % 7 == 3:
        return None
    return b"%d:" % number + bytes((number * 31 + n) & 0xFF for n in range(number * 37 % 61))


def timestamp_of(number: int) -> int:
    """Return the timestamp."""
    return NOW + (number ^ _SHUFFLE)


def record_of(number: int) -> Record:
    """Return the whole record."""
    return Record(key_of(number), value_of(number), (), timestamp_of(number))


def identify(timestamp: int, key: bytes | None, value: bytes | None) -> int | None:
    """Return the id that all of this follows from, None where it follows from none."""
    number = (timestamp - NOW) ^ _SHUFFLE
    if number < 0 or key != key_of(number) or value != value_of(number):
        return None
    return number
