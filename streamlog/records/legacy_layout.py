"""Positions of the fields of a message in formats v0 and v1, Kafka's before 0.11.

                                       v0   v1
    offset                    int64     0    0
    length of the rest        int32     8    8
    CRC-32 of the rest        uint32   12   12
    magic                     int8     16   16
    attributes                int8     17   17
    timestamp                 int64     -   18
    size of the key, key               18   26
    size of the value, value           22 + … , 30 + …

All integers are big-endian two's complement; a size of -1 is null. Sources name the Java class
and constant of Apache Kafka 4.2.
"""

import struct
from typing import Final

from streamlog.records.layout import (
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MIN_LEGACY_LENGTH,
    TIMESTAMP_TYPE_MASK,
)

MAGIC_V0: Final = 0  # RecordBatch.MAGIC_VALUE_V0
MAGIC_V1: Final = 1  # RecordBatch.MAGIC_VALUE_V1

# ---- places --------------------------------------------------------------------------------------
MESSAGE_CRC_OFFSET: Final = LOG_OVERHEAD  # LegacyRecord.CRC_OFFSET, as all below
MESSAGE_ATTRIBUTES_OFFSET: Final = MAGIC_OFFSET + 1
MESSAGE_TIMESTAMP_OFFSET: Final = MESSAGE_ATTRIBUTES_OFFSET + 1
KEY_SIZE_OFFSET_V0: Final = MESSAGE_ATTRIBUTES_OFFSET + 1
KEY_SIZE_OFFSET_V1: Final = MESSAGE_TIMESTAMP_OFFSET + 8
MESSAGE_HEADER: Final = struct.Struct(">qiIBB")  # offset, length, CRC-32, magic, attributes
FIELD_SIZE: Final = 4  # LegacyRecord.KEY_SIZE_LENGTH, VALUE_SIZE_LENGTH

# ---- what `length` is at least -------------------------------------------------------------------
MIN_LENGTH_V0: Final = MIN_LEGACY_LENGTH
MIN_LENGTH_V1: Final = MIN_LENGTH_V0 + 8  # LegacyRecord.RECORD_OVERHEAD_V1
MIN_MESSAGE_SIZE: Final = LOG_OVERHEAD + MIN_LENGTH_V0

# ---- attribute bits that mean something ----------------------------------------------------------
ATTRIBUTES_V0: Final = COMPRESSION_MASK  # LegacyRecord.COMPRESSION_CODEC_MASK
ATTRIBUTES_V1: Final = COMPRESSION_MASK | TIMESTAMP_TYPE_MASK  # LegacyRecord.TIMESTAMP_TYPE_MASK

# ---- what is wrong with a message: statuses of the kernels ---------------------------------------
BAD_MESSAGE_LENGTH: Final = -21
BAD_MESSAGE_MAGIC: Final = -22
BAD_MESSAGE_FIELD: Final = -23
NESTED: Final = -24
NO_MESSAGES: Final = -25
BAD_WRAPPER_CODEC: Final = -26
NULL_WRAPPER: Final = -27
BAD_WRAPPER_OFFSET: Final = -28
BAD_MESSAGE_ORDER: Final = -29
