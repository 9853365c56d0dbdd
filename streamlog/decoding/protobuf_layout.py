"""The tables that describe Protobuf messages to a kernel, and the errors it reports.

TABLES is int64[t, TABLE_WIDTH], one row for each place of a message in the columns, the value's
first. FIELDS is int64[f, FIELD_WIDTH], sorted by number within a table. BEGINS is
int64[b, BEGIN_WIDTH]: the cells that an instance begins with, those of absent fields. MEMBERS is
int64[m]: the columns of the members of each oneof.
"""

from typing import Final

# A row of TABLES.
FIRST_FIELD: Final = 0
FIELDS_END: Final = 1
FIRST_BEGIN: Final = 2
BEGINS_END: Final = 3
CHECK: Final = 4  # one of the checks below
CHECKED_NODE: Final = 5  # the column of seconds; that of nanoseconds is the next one
TABLE_WIDTH: Final = 6

NO_CHECK: Final = 0
TIMESTAMP: Final = 1
DURATION: Final = 2

# A row of FIELDS.
NUMBER: Final = 0
KIND: Final = 1
NODE: Final = 2  # the column of the value, of an element of a repeated field
LIST_NODE: Final = 3  # the column of a repeated field, or -1
TABLE: Final = 4  # of a message
FIRST_MEMBER: Final = 5  # of a oneof
MEMBERS_END: Final = 6
FIELD_WIDTH: Final = 7

# Kinds of fields. The order groups them by wire type.
INT64: Final = 0
INT32: Final = 1  # enums, too
UINT32: Final = 2
SINT64: Final = 3
SINT32: Final = 4
BOOL: Final = 5
LAST_VARINT: Final = BOOL
FIXED64: Final = 6  # any 8 bytes: their bits
LAST_8_BYTES: Final = FIXED64
FIXED32: Final = 7  # unsigned; the bits of a float
SFIXED32: Final = 8
LAST_4_BYTES: Final = SFIXED32
STRING: Final = 9
RAW_BYTES: Final = 10
MESSAGE: Final = 11
GROUP: Final = 12  # a message between two tags, instead of after its size
RAW_GROUP: Final = 13  # the bytes of one

# A row of BEGINS.
BEGIN_NODE: Final = 0
BEGIN_MODE: Final = 1
BEGIN_VALUE: Final = 2  # a word, or a position in the pool
BEGIN_SIZE: Final = 3
BEGIN_WIDTH: Final = 4

PUT_NULL: Final = 0
PUT_WORD: Final = 1
PUT_BYTES: Final = 2
PUT_LIST: Final = 3  # BEGIN_VALUE: its child

# Wire types.
VARINT: Final = 0
EIGHT_BYTES: Final = 1
LENGTH: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FOUR_BYTES: Final = 5

# What a kernel returns instead of a position, beside `ROOM`.
TRUNCATED: Final = -2
LONG_NUMBER: Final = -3
BAD_TAG: Final = -4
BAD_GROUP: Final = -5
BAD_TEXT: Final = -6
BAD_ONEOF: Final = -7
BAD_TIME: Final = -8
BAD_INDEXES: Final = -9
TOO_DEEP: Final = -10

MAX_DEPTH: Final = 100  # of messages and groups; google.protobuf's limit

# What the stack keeps of each message around the one that is read: its table, where it ends, and
# the number of the field if it is a group, or 0. Above them, the numbers of groups being skipped.
FRAME_WIDTH: Final = 3
LAST_TAG: Final = FRAME_WIDTH * MAX_DEPTH  # where the last tag of a skipped group is
FULL_NODE: Final = LAST_TAG + 1  # the column that is full
STACK_SIZE: Final = FULL_NODE + 1

MAX_INDEXES: Final = 32  # in a header
MAX_FIELD_NUMBER: Final = (1 << 29) - 1
MAX_SECONDS: Final = 253_402_300_799  # timestamp.proto: 9999-12-31T23:59:59Z
MIN_SECONDS: Final = -62_135_596_800  # timestamp.proto: 0001-01-01T00:00:00Z
MAX_DURATION_SECONDS: Final = 315_576_000_000  # duration.proto
NANOS_PER_SECOND: Final = 1_000_000_000
