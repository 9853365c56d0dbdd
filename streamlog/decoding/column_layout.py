"""Numbers that kernels and plain code share: see `streamlog.decoding.columns`."""

from typing import Final

__all__ = [
    "BASE",
    "BYTES",
    "CAPACITY",
    "COUNT",
    "DATA_BASE",
    "DATA_SIZE",
    "FIXED",
    "GOOD",
    "KIND",
    "LIST",
    "NODE_WIDTH",
    "OTHER",
    "ROOM",
    "SIZE",
    "STRUCT",
    "WORD",
]

# How the cells of a node are stored.
WORD: Final = 0  # a word
BYTES: Final = 1  # any number of bytes; the word is their end
LIST: Final = 2  # any number of cells of the child; the word is their end
STRUCT: Final = 3  # nothing but validity
FIXED: Final = 4  # the same number of bytes each

# A row of NODES.
KIND: Final = 0
BASE: Final = 1
CAPACITY: Final = 2
COUNT: Final = 3
DATA_BASE: Final = 4
DATA_SIZE: Final = 5
SIZE: Final = 6
OTHER: Final = 7
NODE_WIDTH: Final = 8

# What decoding a row comes to; other numbers are those of its format.
GOOD: Final = 0
ROOM: Final = -1  # a column is full
