"""The instructions of a program that decodes Avro, and the errors it reports.

An instruction is four int64: what to do and three operands, A, B and C. NODE is the index of a
column, PLACE the position of an instruction in the program.

Numbers follow groups: those that put a word, those that put bytes, those that skip, those that put
what the value does not contain, those that steer.
"""

from typing import Final

WIDTH: Final = 4  # of an instruction
A: Final = 1
B: Final = 2
C: Final = 3

# Put a word into NODE.
BOOLEAN: Final = 0  # NODE
INT: Final = 1  # NODE, factor
LONG: Final = 2  # NODE, factor
FLOAT: Final = 3  # NODE: its bits
DOUBLE: Final = 4  # NODE: its bits
INT_TO_FLOAT: Final = 5  # NODE: the bits of a float32
LONG_TO_FLOAT: Final = 6
INT_TO_DOUBLE: Final = 7  # NODE: the bits of a float64
LONG_TO_DOUBLE: Final = 8
FLOAT_TO_DOUBLE: Final = 9
ENUM: Final = 10  # NODE, position of a table in the pool of numbers, its length
LAST_WORD: Final = ENUM

# Put bytes into NODE.
TEXT: Final = 11  # NODE
BINARY: Final = 12  # NODE
FIXED_BYTES: Final = 13  # NODE, size, 1 if it must be UTF-8
DECIMAL: Final = 14  # NODE, position of 10 ** precision in the pool of bytes
FIXED_DECIMAL: Final = 15  # NODE, position of 10 ** precision, size
LAST_BYTES: Final = FIXED_DECIMAL

# Skip.
SKIP_VARINT: Final = 16
SKIP_SIZE: Final = 17  # size
SKIP_BYTES: Final = 18
LAST_SKIP: Final = SKIP_BYTES

# Put what the value does not contain.
VALID: Final = 19  # NODE: a struct
NULL: Final = 20  # NODE
WORD_OF: Final = 21  # NODE, word
BYTES_OF: Final = 22  # NODE, position in the pool of bytes, size
END_LIST: Final = 23  # NODE, its child
LAST_CONSTANT: Final = END_LIST

# Steer.
END: Final = 24
JUMP: Final = 25  # PLACE
UNION: Final = 26  # how many branches; as many instructions to jump follow
OPEN_BLOCKS: Final = 27
NEXT_ITEM: Final = 28  # PLACE after the last item, least bytes of an item
CALL: Final = 29  # PLACE
RETURN: Final = 30
FAIL: Final = 31  # index of a message

# What a kernel returns instead of a position, beside `ROOM`.
TRUNCATED: Final = -2
LONG_NUMBER: Final = -3  # more bytes than an int or a long has
INT_RANGE: Final = -4
NEGATIVE_SIZE: Final = -5
TOO_MANY: Final = -6  # items of a block that the value cannot contain
BAD_SYMBOL: Final = -7
BAD_BRANCH: Final = -8
BAD_BOOLEAN: Final = -9
BAD_TEXT: Final = -10
BAD_DECIMAL: Final = -11
TOO_DEEP: Final = -12
FAILED: Final = -13  # the message of FAIL
LEFT_OVER: Final = -14  # bytes after the value
SCALED_RANGE: Final = -15
NO_HEADER: Final = -16

STACK_SIZE: Final = 256  # blocks and calls within one another
FREE_EMPTY_ITEMS: Final = 1024  # items of no bytes that a value may have, beside one per byte
