"""What an append answers, and what a search by time finds."""

from dataclasses import dataclass
from typing import NamedTuple

from streamlog.binary.arrays import Buffer
from streamlog.errors import CorruptRecordError, InvalidRecordError
from streamlog.log.producer_state import BatchMetadata
from streamlog.records.batch import BatchTable, ScanStop, check_crc, scan_batches
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.table import BatchOutline

__all__ = ["AppendInfo", "OffsetAndTimestamp", "whole_batches"]


class OffsetAndTimestamp(NamedTuple):
    """A record found by time.

    Source: org.apache.kafka.clients.consumer.OffsetAndTimestamp.
    """

    offset: int
    timestamp: int


@dataclass(slots=True, kw_only=True)  # frozen, it would take three times as long to make
class AppendInfo:
    """What became of an append.

    Attributes:
        base_offset: Offset of its first record.
        last_offset: Offset of its last record.
        max_timestamp: The largest timestamp of its records, in ms, -1 for none.
        offset_of_max_timestamp: Last offset of the batch that holds it.
        log_append_time: The time stamped on the records by a LogAppendTime topic, else -1.
        leader_epoch: The epoch the batches carry.
        duplicate: Whether an idempotent producer had appended this before; nothing was written.

    Source: org.apache.kafka.storage.internals.log.LogAppendInfo.
    """

    base_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    log_append_time: int = NO_TIMESTAMP
    leader_epoch: int = 0
    duplicate: bool = False

    @property
    def count(self) -> int:
        """How many offsets the append took."""
        return self.last_offset - self.base_offset + 1

    @classmethod
    def of(cls, appended: BatchOutline, *, log_append_time: int = NO_TIMESTAMP) -> "AppendInfo":
        """Return the answer for batches as they were written."""
        return cls(
            base_offset=appended.base_offset,
            last_offset=appended.last_offset,
            max_timestamp=appended.max_timestamp,
            offset_of_max_timestamp=appended.offset_of_max_timestamp,
            log_append_time=log_append_time,
            leader_epoch=appended.last_epoch,
        )

    @classmethod
    def of_repeated(cls, batch: BatchMetadata, *, leader_epoch: int) -> "AppendInfo":
        """Return the answer for a batch that an idempotent producer sends again."""
        return cls(
            base_offset=batch.first_offset,
            last_offset=batch.last_offset,
            max_timestamp=batch.timestamp,
            offset_of_max_timestamp=batch.last_offset,
            leader_epoch=leader_epoch,
            duplicate=True,
        )


def whole_batches(batches: Buffer) -> BatchTable:
    """Return the headers of a buffer that holds whole, checked batches and nothing else.

    Raises:
        InvalidRecordError: It holds no batch, or something else than batches.
        CorruptRecordError: A batch's checksum is wrong.
    """
    scan = scan_batches(batches)
    if scan.stop is not ScanStop.END or len(scan.table) == 0:
        raise InvalidRecordError(
            "not whole record batches",
            position=scan.consumed,
            got=scan.stop.name.lower(),
            expected="one or more batches up to the end of the bytes",
        )
    good = check_crc(batches, scan.table)
    if good < len(scan.table):
        raise CorruptRecordError(
            "record batch fails its checksum",
            position=int(scan.table.position[good]),
            offset=int(scan.table.base_offset[good]),
            got="another checksum over its bytes",
            expected=f"{int(scan.table.crc[good]):#010x}",
        )
    return scan.table
