"""Positions of the fields of a batch. Every position is the sum of the sizes before it.

All integers are big-endian two's complement. Sources name the Java class and constant of
Apache Kafka 4.2.
"""

import struct
from typing import Final

# ---- the prefix every entry of a log shares, whatever its magic --------------------------------
BASE_OFFSET_OFFSET: Final = 0  # Records.OFFSET_OFFSET
LENGTH_OFFSET: Final = BASE_OFFSET_OFFSET + 8  # Records.SIZE_OFFSET
LOG_OVERHEAD: Final = LENGTH_OFFSET + 4  # Records.LOG_OVERHEAD
MAGIC_OFFSET: Final = LOG_OVERHEAD + 4  # Records.MAGIC_OFFSET
HEADER_SIZE_UP_TO_MAGIC: Final = MAGIC_OFFSET + 1  # Records.HEADER_SIZE_UP_TO_MAGIC
MIN_LEGACY_LENGTH: Final = 14  # LegacyRecord.RECORD_OVERHEAD_V0: the shortest length of any magic

# ---- magic 2 -----------------------------------------------------------------------------------
PARTITION_LEADER_EPOCH_OFFSET: Final = LOG_OVERHEAD  # DefaultRecordBatch, as all below
CRC_OFFSET: Final = MAGIC_OFFSET + 1
ATTRIBUTES_OFFSET: Final = CRC_OFFSET + 4
LAST_OFFSET_DELTA_OFFSET: Final = ATTRIBUTES_OFFSET + 2
BASE_TIMESTAMP_OFFSET: Final = LAST_OFFSET_DELTA_OFFSET + 4
MAX_TIMESTAMP_OFFSET: Final = BASE_TIMESTAMP_OFFSET + 8
PRODUCER_ID_OFFSET: Final = MAX_TIMESTAMP_OFFSET + 8
PRODUCER_EPOCH_OFFSET: Final = PRODUCER_ID_OFFSET + 8
BASE_SEQUENCE_OFFSET: Final = PRODUCER_EPOCH_OFFSET + 2
RECORDS_COUNT_OFFSET: Final = BASE_SEQUENCE_OFFSET + 4
RECORDS_OFFSET: Final = RECORDS_COUNT_OFFSET + 4
RECORD_BATCH_OVERHEAD: Final = RECORDS_OFFSET
MIN_BATCH_LENGTH: Final = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD  # lower bound of `batchLength`

# offset, length, epoch, magic, crc, attributes, last offset delta, base and max timestamp,
# producer id, producer epoch, base sequence, record count
BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
assert BATCH_HEADER.size == RECORD_BATCH_OVERHEAD == 61

CURRENT_MAGIC: Final = 2  # RecordBatch.CURRENT_MAGIC_VALUE

# ---- attribute bits of magic 2 -----------------------------------------------------------------
COMPRESSION_MASK: Final = 0x07  # DefaultRecordBatch.COMPRESSION_CODEC_MASK
TIMESTAMP_TYPE_MASK: Final = 0x08  # DefaultRecordBatch.TIMESTAMP_TYPE_MASK
TRANSACTIONAL_MASK: Final = 0x10  # DefaultRecordBatch.TRANSACTIONAL_FLAG_MASK
CONTROL_MASK: Final = 0x20  # DefaultRecordBatch.CONTROL_FLAG_MASK
DELETE_HORIZON_MASK: Final = 0x40  # DefaultRecordBatch.DELETE_HORIZON_FLAG_MASK

# ---- values that mean "none" ------------------------------------------------------------------
NO_PRODUCER_ID: Final = -1  # RecordBatch.NO_PRODUCER_ID
NO_PRODUCER_EPOCH: Final = -1  # RecordBatch.NO_PRODUCER_EPOCH
NO_SEQUENCE: Final = -1  # RecordBatch.NO_SEQUENCE
NO_PARTITION_LEADER_EPOCH: Final = -1  # RecordBatch.NO_PARTITION_LEADER_EPOCH

# ---- limits ----------------------------------------------------------------------------------
MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -MAX_INT64 - 1  # Long.MIN_VALUE
MAX_VARINT_SIZE: Final = 5  # ByteUtils.readVarint
MAX_VARLONG_SIZE: Final = 10  # ByteUtils.readVarlong
MIN_RECORD_SIZE: Final = 7  # length, attributes, two deltas, two lengths, header count: 1 byte each
MAX_RECORD_OVERHEAD: Final = 21  # DefaultRecord.MAX_RECORD_OVERHEAD
