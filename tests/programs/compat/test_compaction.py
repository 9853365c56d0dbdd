"""Random logs, compacted by Kafka's own `Cleaner` and by ours, give the same segments.

The logs have rewritten and deleted keys, records without a key, all codecs, idempotent producers,
and committed, aborted and open transactions. Each gets several rounds, with memory for all keys or
for few.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.fs.local import LocalFileSystem
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import CompressionType, Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog
from tests.programs.compat.kafka import Kafka
from tests.support.batches import message_set
from tests.support.cleaning import clean, plain

pytestmark = pytest.mark.compat

NOW = 1_700_000_000_000
CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "900",
    "index.interval.bytes": "200",
    "delete.retention.ms": "2000",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
ROUNDS = 3
IDEMPOTENT, TRANSACTIONAL = (5, 6), (10, 11, 12)


class Writer:
    """Appends anything that a partition may contain, as a follower, so that nothing is refused."""

    def __init__(self, log: PartitionLog, random: Random) -> None:
        self._log, self._random = log, random
        self._sequences = dict.fromkeys((*IDEMPOTENT, *TRANSACTIONAL), 0)
        self._open: set[int] = set()

    def append(self, count: int) -> None:
        for _ in range(count):
            draw = self._random.random()
            if self._open and draw < 0.2:
                self._end(self._random.choice(sorted(self._open)))
            else:
                self._data(-1 if draw < 0.6 else self._random.choice(list(self._sequences)))

    def _end(self, producer: int) -> None:
        self._open.remove(producer)
        kind = self._random.choice((ControlRecordType.ABORT, ControlRecordType.COMMIT))
        marker = build_marker(
            EndTransactionMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=NOW,
            base_offset=self._log.log_end_offset, partition_leader_epoch=self._log.leader_epoch,
        )  # fmt: skip
        self._log.append_as_follower(marker)

    def _data(self, producer: int) -> None:
        count = self._random.randint(1, 4)
        builder = BatchBuilder(
            base_offset=self._log.log_end_offset,
            compression=self._random.choice([CompressionType.NONE] * 4 + list(CompressionType)),
            log_append_time=NOW if self._random.random() < 0.1 else None,
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=-1 if producer < 0 else self._sequences[producer],
            is_transactional=producer in TRANSACTIONAL,
            partition_leader_epoch=self._log.leader_epoch,
        )
        for _ in range(count):
            key = None if self._random.random() < 0.1 else b"k%d" % self._random.randrange(12)
            value = None if self._random.random() < 0.2 else self._random.randbytes(20)
            builder.append(Record(key, value, (), NOW + self._random.randrange(1000)))
        if producer >= 0:
            self._sequences[producer] += count
        if producer in TRANSACTIONAL:
            self._open.add(producer)
        self._log.append_as_follower(builder.build())


def segments(directory: Path) -> dict[str, object]:
    """Return the segments in a form that is independent of compression libraries."""
    found: dict[str, object] = {}
    for path in sorted(directory.iterdir()):
        if path.suffix == ".log":
            found[path.name] = plain(path.read_bytes())
        elif path.suffix == ".txnindex":
            found[path.name] = path.read_bytes()
    return found


def legacy_messages(random: Random) -> bytes:
    """Return message sets of v0 or v1, compressed or not, with consecutive offsets from 0."""
    data, offset = b"", 0
    codecs = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY]
    magic = random.choice((0, 1))
    for _ in range(12):
        records = [
            Record(
                None if random.random() < 0.1 else b"k%d" % random.randrange(12),
                None if random.random() < 0.2 else random.randbytes(20),
                (),
                NOW + random.randrange(1000),
            )
            for _ in range(random.randint(1, 4))
        ]
        codec = random.choice(codecs)
        data += message_set(magic, records, base_offset=offset, compression=codec)
        offset += len(records)
    return data


@pytest.mark.parametrize("seed", range(8))
def test_messages_of_v0_and_v1_are_cleaned_as_kafka_cleans_them(
    kafka: Kafka, tmp_path: Path, copy_of: Callable[[Path], Path], seed: int
) -> None:
    path, random = tmp_path / "root" / "orders-0", Random(seed)
    path.mkdir(parents=True)
    (path / "00000000000000000000.log").write_bytes(legacy_messages(random))
    compare_rounds(kafka, path, copy_of, random, memory=24 * 6 if seed % 3 == 0 else 1 << 20)


@pytest.mark.parametrize("seed", range(12))
def test_random_logs_are_cleaned_as_kafka_cleans_them(
    kafka: Kafka, tmp_path: Path, copy_of: Callable[[Path], Path], seed: int
) -> None:
    path, memory = tmp_path / "root" / "orders-0", 24 * 6 if seed % 3 == 0 else 1 << 20
    compare_rounds(kafka, path, copy_of, Random(seed), memory=memory)


def compare_rounds(
    kafka: Kafka, path: Path, copy_of: Callable[[Path], Path], random: Random, *, memory: int
) -> None:
    """Append to a partition and clean it on both sides, for some rounds."""
    clock, fs, checkpoint = ManualClock(NOW), LocalFileSystem(), 0
    config = LogConfig.from_properties(CONFIG)
    with PartitionLog.open(path, config=config, fs=fs, clock=clock, random=random) as log:
        writer = Writer(log, random)
        for _ in range(ROUNDS):
            writer.append(40)
            log.roll()
            log.flush()
            copy = copy_of(path)
            answer = kafka.ask(
                "clean", directory=str(copy), config=CONFIG, clean=True, now=clock.now_ms(),
                recoveryPoint=log.log_end_offset, checkpoint=checkpoint, memory=memory,
            )  # fmt: skip
            assert "error" not in answer, answer
            report = clean(fs, clock, log, checkpoint=checkpoint, memory=memory)
            assert report.records_written == answer["recordsWritten"]
            if report.records_read:
                assert report.end_offset == answer["checkpoint"]
            assert segments(path) == segments(copy)
            checkpoint = report.end_offset
            clock.advance(1500)
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("log_start_offset", [0, 2])
def test_only_kafka_confuses_two_transactions_of_a_producer(
    kafka: Kafka, tmp_path: Path, copy_of: Callable[[Path], Path], log_start_offset: int
) -> None:
    """Kafka searches aborted transactions from the log start on, wherever it begins to read.

    With a log start of 2, it treats offset 0 as committed. If a round begins after offset 2, it
    treats the records there as aborted and omits their keys from the map, so both stay.
    """
    path, clock, fs = tmp_path / "root" / "orders-0", ManualClock(NOW), LocalFileSystem()
    config = CONFIG | {"cleanup.policy": "compact,delete", "index.interval.bytes": "0"}
    settings = LogConfig.from_properties(config)
    with PartitionLog.open(path, config=settings, fs=fs, clock=clock) as log:
        transact(log, ControlRecordType.ABORT, [b"a"], base_sequence=0)
        log.append([Record(b"x", b"value", (), NOW)])
        transact(log, ControlRecordType.COMMIT, [b"b", b"b"], base_sequence=1)
        log.roll()
        log.delete_records(log_start_offset)
        answer = kafka.ask(
            "clean", directory=str(copy_of(path)), config=config, clean=True, now=NOW,
            recoveryPoint=6, checkpoint=3, logStartOffset=log_start_offset,
        )  # fmt: skip
        ours = clean(fs, clock, log, checkpoint=3)
    assert answer["recordsWritten"] == 5
    assert ours.records_written == 4


def transact(
    log: PartitionLog, kind: ControlRecordType, keys: list[bytes], *, base_sequence: int
) -> None:
    """Append a transaction of one batch and its end, always of the same producer."""
    builder = BatchBuilder(
        producer_id=10, producer_epoch=0, base_sequence=base_sequence, is_transactional=True
    )
    for key in keys:
        builder.append(Record(key, b"value", (), NOW))
    log.append_as_leader(builder.build())
    end = EndTransactionMarker(kind, 0)
    marker = build_marker(end, producer_id=10, producer_epoch=0, timestamp=NOW)
    log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)
