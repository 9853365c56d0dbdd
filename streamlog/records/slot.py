"""A slot: the positions of one record's fields, as numbers. Constants of the kernels.

A slot is a row of int64[n, 9]. Sizes are -1 for null; positions are relative to the array that
holds the bytes: the batches themselves, the arena they were decompressed into, or a column's data.

     0  offset                         4  position of the value    6  position of the headers
     1  timestamp in ms                5  size of the value        7  size of all of them
     2  position of the key                                        8  number of headers
     3  size of the key
"""

from typing import Final

SLOT_OFFSET: Final = 0
SLOT_TIMESTAMP: Final = 1
SLOT_KEY: Final = 2
SLOT_KEY_SIZE: Final = 3
SLOT_VALUE: Final = 4
SLOT_VALUE_SIZE: Final = 5
SLOT_HEADERS: Final = 6  # after their count
SLOT_HEADERS_SIZE: Final = 7
SLOT_HEADER_COUNT: Final = 8
SLOT_WIDTH: Final = 9

# ---- what the kernels that read records count: int64[9] ------------------------------------------
TOTAL_ROWS: Final = 0
TOTAL_BYTES: Final = 1  # of whole records
TOTAL_KEY_BYTES: Final = 2
TOTAL_KEY_NULLS: Final = 3
TOTAL_VALUE_BYTES: Final = 4
TOTAL_VALUE_NULLS: Final = 5
ALL_ATTRIBUTES: Final = 6  # of the chosen batches, or-ed
ERROR_BATCH: Final = 7  # place of a negative status
ERROR_RECORD: Final = 8  # in that batch
TOTALS_WIDTH: Final = 9

# ---- limits and columns of the kernels that read records -----------------------------------------
# What `choose_batches` wants: int64[3].
LIMIT_START: Final = 0  # first offset wanted
LIMIT_END: Final = 1  # first offset no longer wanted
LIMIT_DROP: Final = 2  # attribute bits of the batches to leave out

# Output of `decode_records` per record besides keys and values: rows of int64[3, n] …
LONGS_OFFSET: Final = 0
LONGS_TIMESTAMP: Final = 1
LONGS_HEADERS: Final = 2  # start of its headers
LONGS_WIDTH: Final = 3
# … and of int32[4, n + 1], the first three Arrow's offsets of a column.
INTS_KEY: Final = 0  # also the row of the validity bits, like the next
INTS_VALUE: Final = 1
INTS_HEADERS: Final = 2
INTS_TYPE: Final = 3  # the timestamp's; n are filled
INTS_WIDTH: Final = 4

# ---- what the kernels that look at an append note ------------------------------------------------
# Per batch: int64[n, 3], all 0 for one without records.
FOUND_ROWS: Final = 0
FOUND_GAPS: Final = 1  # whether its offsets are not consecutive from first to last
FOUND_MAX_TIMESTAMP: Final = 2
FOUND_WIDTH: Final = 3

# Of all batches: int64[16], starting with the totals above.
SEEN_BATCHES: Final = 9  # whose headers and checksums are sound
SEEN_END: Final = 10  # bytes that these take
SEEN_LARGEST: Final = 11  # bytes of the largest
SEEN_GAPS: Final = 12  # batches with gaps
SEEN_KEYLESS: Final = 13  # records without a key
SEEN_UNTIMELY: Final = 14  # records whose timestamp lies outside the bounds
SEEN_WRONG_MAX: Final = 15  # batches whose header states another largest timestamp
SEEN_WIDTH: Final = 16

# ---- status of a kernel --------------------------------------------------------------------------
OK: Final = 0
BAD_COUNT: Final = -1
BAD_RECORD_LENGTH: Final = -2
BAD_NUMBER: Final = -3
BAD_FIELD_LENGTH: Final = -4
BAD_HEADER_COUNT: Final = -5
BAD_HEADER_KEY: Final = -6
BAD_RECORD_END: Final = -7
SURPLUS_BYTES: Final = -8
OUT_OF_ROOM: Final = -9
RECORD_TOO_LARGE: Final = -10
BAD_ROW: Final = -11
BAD_CHECKSUM: Final = 5  # after the values of `streamlog.records.table.ScanStop`
