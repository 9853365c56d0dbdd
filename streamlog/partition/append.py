"""The result of an append, and the checks of batches that carry their own offsets."""

from dataclasses import dataclass

import numpy as np

from streamlog.binary.arrays import Buffer
from streamlog.errors import CorruptRecordError, InvalidRecordError, UnexpectedAppendOffsetError
from streamlog.partition.producer_state import BatchMetadata
from streamlog.records.batch import BatchTable, ScanStop, check_crc, scan_batches
from streamlog.records.layout import NO_PARTITION_LEADER_EPOCH
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.table import BASE_OFFSET, LEADER_EPOCH, BatchOutline

__all__ = ["AppendInfo", "check_follows", "whole_batches"]


@dataclass(slots=True, kw_only=True)  # frozen, it would take three times as long to make
class AppendInfo:
    """The result of an append.

    Attributes:
        base_offset: Offset of its first record.
        last_offset: Offset of its last record.
        max_timestamp: The largest timestamp of its records, in ms, -1 for none.
        offset_of_max_timestamp: Last offset of the batch that holds it.
        log_append_time: The time stamped on the records by a LogAppendTime topic, else -1.
        leader_epoch: The epoch the batches carry.
        duplicate: Whether an idempotent producer repeated a batch; nothing was written.

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
        """The number of offsets that the append took."""
        return self.last_offset - self.base_offset + 1

    @classmethod
    def of(cls, appended: BatchOutline, *, log_append_time: int = NO_TIMESTAMP) -> "AppendInfo":
        """Return the result for batches that were written."""
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
        """Return the result for a batch that an idempotent producer repeats."""
        return cls(
            base_offset=batch.first_offset,
            last_offset=batch.last_offset,
            max_timestamp=batch.timestamp,
            offset_of_max_timestamp=batch.last_offset,
            leader_epoch=leader_epoch,
            duplicate=True,
        )


def whole_batches(batches: Buffer) -> BatchTable:
    """Return the headers of a buffer, which must hold whole, valid batches and nothing else.

    Raises:
        InvalidRecordError: It holds no batch, or other bytes.
        CorruptRecordError: A batch has an invalid checksum.
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


def check_follows(table: BatchTable, *, path: str, log_end_offset: int, epoch: int) -> None:
    """Raise if batches with their own offsets and epochs do not continue the log.

    Args:
        table: The batches' headers.
        path: The partition's directory.
        log_end_offset: The log end.
        epoch: The leader epoch there.

    Raises:
        UnexpectedAppendOffsetError: They start below it, or go back.
        InvalidRecordError: A leader epoch goes back. Kafka accepts such a batch and removes the
            epochs above its own; a recovery would then truncate the log before it.
    """
    if len(table) == 0:
        return
    if len(table) == 1:  # the usual append, in a third of the time
        first: list[int] = table.fields[0].tolist()
        if first[BASE_OFFSET] >= log_end_offset and first[LEADER_EPOCH] >= epoch:
            return
    if int(table.base_offset[0]) < log_end_offset:
        raise UnexpectedAppendOffsetError(
            "append starts below the log end",
            path=path,
            got=f"offsets {int(table.base_offset[0])} to {int(table.last_offset[-1])}",
            expected=f"first offset {log_end_offset} or above",
        )
    goes_back = table.base_offset[1:] <= table.last_offset[:-1]
    if goes_back.any():
        at = int(goes_back.argmax())
        raise UnexpectedAppendOffsetError(
            "offsets of an append go back",
            path=path,
            offset=int(table.base_offset[at + 1]),
            expected=f"offset {int(table.last_offset[at]) + 1} or above",
        )
    # An epoch that starts above the end belongs to records that were lost; decided commits
    # restore them as they were.
    latest = np.maximum.accumulate(np.concatenate(([epoch], table.leader_epoch)))
    is_older = (table.leader_epoch < latest[:-1]) & (
        table.leader_epoch != NO_PARTITION_LEADER_EPOCH
    )
    if is_older.any():
        at = int(is_older.argmax())
        raise InvalidRecordError(
            "leader epochs of an append go back",
            path=path,
            offset=int(table.base_offset[at]),
            got=f"epoch {int(table.leader_epoch[at])}",
            expected=f"epoch {int(latest[at])} or above",
        )
