"""The recorded readers of a root: how far behind each is, and what is kept for it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from streamlog.errors import StreamLogError
from streamlog.overview.health import remark_of_error, remarks_of_reader
from streamlog.overview.model import HealthRemark, ReaderOverview, ReaderPosition
from streamlog.root.readers import Held, Reader
from streamlog.topic import TopicPartition
from streamlog.watch.lag import LagMeter, PartitionLag

if TYPE_CHECKING:
    from streamlog.arrow.views import AnyReadRoots

__all__ = ["HeldBytes", "reader_overviews"]


class HeldBytes:
    """The bytes that are kept for each reader in each partition."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[str, TopicPartition], int] = {}

    def add(self, held: Iterable[Held]) -> None:
        """Take in what a partition keeps."""
        self._bytes.update({(each.reader, each.partition): each.bytes for each in held})

    def of(self, row: PartitionLag) -> int:
        """Return the bytes kept for a reader in a partition."""
        return self._bytes.get((row.reader, row.partition), 0)


def reader_overviews(
    roots: "AnyReadRoots",
    readers: Sequence[Reader],
    held: HeldBytes,
    *,
    now_ms: int,
    retention_minutes: int,
    remarks: list[HealthRemark],
) -> tuple[ReaderOverview, ...]:
    """Return the overviews of readers; reads two batches for each partition that one lags in.

    Args:
        roots: The root.
        readers: Its recorded readers.
        held: What the partitions keep for them.
        now_ms: The time.
        retention_minutes: How long a reader may be silent.
        remarks: Gets what is wrong with them.
    """
    rows: Mapping[str, Sequence[PartitionLag]] = {}
    if readers:
        with LagMeter(roots) as meter:
            rows = {each.name: _measured(meter, each, remarks) for each in readers}
    found = []
    for reader in readers:
        is_silent = reader.is_silent(now_ms, retention_minutes)
        remarks += remarks_of_reader(reader, is_silent=is_silent)
        found.append(
            ReaderOverview(
                name=reader.name,
                checkpoint=reader.checkpoint,
                committed_ms=reader.committed_ms,
                is_silent=is_silent,
                problem=reader.problem,
                positions=tuple(_position(row, held) for row in rows[reader.name]),
            )
        )
    return tuple(found)


def _measured(
    meter: LagMeter, reader: Reader, remarks: list[HealthRemark]
) -> Sequence[PartitionLag]:
    try:
        return meter.measure([reader])
    except StreamLogError as error:
        remarks.append(remark_of_error(error, f"reader {reader.name}"))
        return ()


def _position(row: PartitionLag, held: HeldBytes) -> ReaderPosition:
    return ReaderPosition(
        topic=row.partition.topic,
        partition=row.partition.partition,
        offset=row.current_offset,
        end_offset=row.log_end_offset,
        lag=row.lag,
        behind_ms=row.lag_ms,
        held_bytes=held.of(row),
    )
