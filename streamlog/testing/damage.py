"""Damage to the files of a topic: torn appends and flipped bits."""

from contextlib import suppress
from typing import Final

from streamlog.errors import InvalidRequestError
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment, SimulatedCrash
from streamlog.fs.files import read_file
from streamlog.fs.local import LocalFileSystem
from streamlog.records.batch import scan_batches
from streamlog.records.layout import RECORDS_OFFSET
from streamlog.segment.filenames import FileSuffix, base_offsets, log_file_name
from streamlog.testing.frames import hides_helper
from streamlog.testing.rows import to_record
from streamlog.testing.topic import Topic

__all__ = ["flip_bit", "tear_append"]
__tracebackhide__ = hides_helper

_SEGMENT_SIZE_MAX: Final = 1 << 31


def tear_append(topic: Topic, row: object, *, portion: float = 0.5) -> None:
    """Crash in the middle of an append: part of its bytes are written, and it is not acknowledged.

        tear_append(orders, "never acknowledged")
        assert "never acknowledged" not in orders.values()

    Args:
        topic: The topic.
        row: The row to append; see `Topic.append`.
        portion: The written fraction, from 0 to 1.
    """
    suffix = FileSuffix.LOG.value
    torn = Fault(operation="pwrite", path_suffix=suffix, moment=Moment.TORN, portion=portion)
    with suppress(SimulatedCrash):
        topic.append_over(FaultyFileSystem(LocalFileSystem(), torn), [to_record(row)])


def flip_bit(topic: Topic, offset: int, *, partition: int = 0, bit: int = 0) -> None:
    """Flip a bit of a record's batch; reading the batch then fails.

        flip_bit(orders, offset=2)
        with pytest.raises(CorruptDataError):
            orders.values()

    Args:
        topic: The topic.
        offset: The offset of the record.
        partition: The partition.
        bit: The bit, counted from the end of the batch.

    Raises:
        InvalidRequestError: No batch contains the offset, or it has fewer bits.
    """
    fs = LocalFileSystem()
    directory = f"{topic.root}/{topic.name}-{partition}"
    older = [base for base in base_offsets(fs.list(directory)) if base <= offset]
    if older:
        path = f"{directory}/{log_file_name(older[-1])}"
        content = bytearray(read_file(fs, path, max_size=_SEGMENT_SIZE_MAX))
        table = scan_batches(content).table
        number = int((table.last_offset < offset).sum())
        if number < len(table) and bit < 8 * int(table.size[number] - RECORDS_OFFSET):
            damaged = int(table.position[number] + table.size[number]) - 1 - bit // 8
            content[damaged] ^= 1 << bit % 8
            with fs.open(path, OpenMode.WRITE) as file:
                file.pwrite(content[damaged : damaged + 1], damaged)
            return
    raise InvalidRequestError(
        "no batch of the partition contains this bit of this record", path=directory, offset=offset
    )
