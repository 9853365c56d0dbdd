"""Partitions written by us, each with a different part of the format.

A scenario appends to an open log with small segments, so most have several. All timestamps are near
`NOW`, which the reader's clock must show.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import CompressionType, Header, Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog

__all__ = ["CONFIG", "NOW", "SCENARIOS", "open_log", "rows", "written"]

NOW = 1_700_000_000_000
CONFIG = LogConfig(internal_segment_bytes=3000, index_interval_bytes=200)
STAMPED = CONFIG.with_overrides({"message.timestamp.type": "LogAppendTime"})
MAX_SEQUENCE = 2**31 - 1
HEADERS = (Header("who", b"ann"), Header("who", None), Header("", b""), Header("ключ", b"\x00\xff"))


def open_log(path: Path, config: LogConfig = CONFIG, now: int = NOW) -> PartitionLog:
    return PartitionLog.open(path, config=config, clock=ManualClock(now), random=Random(7))


def rows(first: int, count: int) -> list[Record]:
    """Return records that use all fields; timestamps are not ascending."""
    return [
        Record(
            key=(None, b"", b"key-%d" % number)[number % 3],
            value=(b"value-%d " % number * 9, None, b"")[number % 5 % 3],
            headers=HEADERS[: number % 5],
            timestamp=NOW - 100_000 + 100 * number - 700 * (number % 7),
        )
        for number in range(first, first + count)
    ]


def produced(
    producer_id: int, epoch: int, sequence: int, records: list[Record], *, transaction: bool = False
) -> bytes:
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transaction,
    )
    for record in records:
        builder.append(record)
    return builder.build()


# ---- what is written --------------------------------------------------------------------------
def every_codec(log: PartitionLog) -> None:
    for turn in range(6):
        for codec in CompressionType:
            log.append(rows(turn * 50 + codec * 10, 8), compression=codec)


def idempotent_producers(log: PartitionLog) -> None:
    """Two producers alternate; one's sequences wrap around, the other restarts with a new epoch."""
    first = MAX_SEQUENCE - 20
    for turn in range(12):
        sequence = (first + 5 * turn) % (MAX_SEQUENCE + 1)
        log.append_as_leader(produced(1000, 0, sequence, rows(turn * 10, 5)))
        epoch, turn_in_epoch = divmod(turn, 7)
        log.append_as_leader(produced(2000, epoch, turn_in_epoch * 2, rows(turn * 10, 2)))
        log.append(rows(turn * 10 + 5, 1))
    repeated = log.append_as_leader(produced(2000, 1, 8, rows(110, 2)))
    assert repeated.duplicate


def transactions(log: PartitionLog) -> None:
    """Interleaved transactions of three producers, the last of which is open."""
    sequences = dict.fromkeys((1, 2, 3), 0)

    def send(producer_id: int, count: int) -> None:
        sequence = sequences[producer_id]
        sequences[producer_id] += count
        data = produced(producer_id, 0, sequence, rows(sequence, count), transaction=True)
        log.append_as_leader(data)

    def end(producer_id: int, kind: ControlRecordType, coordinator_epoch: int) -> None:
        marker = build_marker(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=NOW - 500,
        )
        log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)

    for turn in range(8):
        send(1, 3)
        send(2, 2)
        log.append(rows(turn, 2))
        send(1, 2)
        end(1, (ControlRecordType.COMMIT, ControlRecordType.ABORT)[turn % 2], turn)
        end(2, (ControlRecordType.ABORT, ControlRecordType.COMMIT)[turn // 2 % 2], turn)
    send(3, 4)
    log.append(rows(90, 3))
    send(1, 1)
    end(1, ControlRecordType.ABORT, 9)


def as_follower(log: PartitionLog) -> None:
    """Batches with a remote leader's offsets and epochs; some offsets are missing."""
    offset = 0
    for turn in range(30):
        epoch = (0, 2, 2, 5, 9)[turn // 6]
        builder = BatchBuilder(
            base_offset=offset,
            last_offset=offset + 6,
            compression=CompressionType(turn % 5),
            partition_leader_epoch=epoch,
        )
        for record in rows(turn * 10, 4):
            builder.append(record._replace(offset=offset))
            offset += 2
        log.append_as_follower(builder.build())
        offset += turn % 4


def cut_and_written_on(log: PartitionLog) -> None:
    for turn in range(20):
        log.append(rows(turn * 10, 7))
    log.truncate_to(71)
    for turn in range(5):
        log.append(rows(turn * 10, 3), compression="lz4")
    log.roll()


def nothing(log: PartitionLog) -> None:
    """Leave the partition empty."""


SCENARIOS: dict[str, tuple[Callable[[PartitionLog], None], LogConfig]] = {
    "every codec": (every_codec, CONFIG),
    "append time": (every_codec, STAMPED),
    "idempotent producers": (idempotent_producers, CONFIG),
    "transactions": (transactions, CONFIG),
    "as follower": (as_follower, CONFIG),
    "truncated and continued": (cut_and_written_on, CONFIG),
    "nothing": (nothing, CONFIG),
}


def written(root: Path, name: str) -> Path:
    """Write a scenario below `root`, close it, return the partition's directory."""
    write, config = SCENARIOS[name]
    path = root / "orders-0"
    with open_log(path, config) as log:
        write(log)
    return path
