"""We read batches that Kafka's own builders and its leader wrote."""

from pathlib import Path
from typing import Any

import pytest

from streamlog.partition.reader import LogReader
from streamlog.records.record import CompressionType, IsolationLevel
from tests.programs.compat.answers import encoded, told_by_reader
from tests.programs.compat.kafka import Kafka
from tests.programs.compat.scenarios import CONFIG, NOW, rows

pytestmark = pytest.mark.compat

CODECS = [codec.name.lower() for codec in CompressionType]


def written_by_kafka(
    kafka: Kafka, path: Path, batches: list[dict[str, Any]], **config: str
) -> dict[str, Any]:
    """Let Kafka append batches to a new partition and close it."""
    path.mkdir(parents=True)
    settings = CONFIG.with_overrides(config).to_properties()
    answer = kafka.ask("open", directory=str(path), now=NOW, config=settings, append=batches)
    assert "error" not in answer, answer
    return answer


def batch(first: int, count: int, **fields: Any) -> dict[str, Any]:
    return {"records": [encoded(record) for record in rows(first, count)], **fields}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
def test_every_codec_of_kafka_is_read_as_kafka_reads_it(
    kafka: Kafka, tmp_path: Path, codec: str, stamp: str
) -> None:
    path = tmp_path / "orders-0"
    batches = [batch(turn * 40, 40, compression=codec) for turn in range(3)]
    theirs = written_by_kafka(kafka, path, batches, **{"message.timestamp.type": stamp})
    ours = told_by_reader(path, now=NOW, timestamps=[])
    assert theirs["batches"] == ours["batches"]
    assert {each["compressionType"] for each in ours["batches"]} == {codec}
    assert {each["timestampType"] for each in ours["batches"]} == {stamp}
    with LogReader.open(path) as reader:
        first = list(reader.read(0).records())[:40]
    assert [each[:3] for each in first] == [each[:3] for each in rows(0, 40)]


def test_blocks_larger_than_any_codec_buffers_are_read(kafka: Kafka, tmp_path: Path) -> None:
    record = rows(0, 1)[0]._replace(value=bytes(range(256)) * 1500)
    batches = [{"records": [encoded(record)] * 2, "compression": codec} for codec in CODECS]
    path = tmp_path / "orders-0"
    written_by_kafka(kafka, path, batches, **{"internal.segment.bytes": "4000000"})
    with LogReader.open(path) as reader:
        found = list(reader.read(0, 1 << 23).records())
    assert [each.value for each in found] == [record.value] * 10


def test_kafkas_transactions_are_read_as_a_consumer_reads_them(
    kafka: Kafka, tmp_path: Path
) -> None:
    path = tmp_path / "orders-0"
    sent, expected, sequence = [], [], {7: 0, 8: 0}
    for turn in range(8):
        for producer_id in (7, 8):
            producer = {"producerId": producer_id, "producerEpoch": 3}
            marker = ("COMMIT", "ABORT")[(turn + producer_id) % 2]
            data = {"baseSequence": sequence[producer_id], "isTransactional": True}
            sent.append(batch(turn * 10, 5, **producer, **data))
            sequence[producer_id] += 5
            sent.append({"marker": marker, "timestamp": NOW, "coordinatorEpoch": turn, **producer})
            if marker == "COMMIT":
                expected += [each.value for each in rows(turn * 10, 5)]
    open_transaction = {"producerId": 9, "producerEpoch": 0, "baseSequence": 0}
    sent.append(batch(0, 2, isTransactional=True, **open_transaction))
    sent.append(batch(90, 3))
    theirs = written_by_kafka(kafka, path, sent)
    del theirs["appended"], theirs["printed"], theirs["recoveryPoint"]
    ours = told_by_reader(path, now=NOW, timestamps=[])
    assert ours == theirs
    assert len(ours["aborted"]) == 8
    found = []
    with LogReader.open(path) as reader:
        at = 0
        while at < reader.last_stable_offset:
            info = reader.read(at, 900, isolation=IsolationLevel.READ_COMMITTED)
            found += [each.value for each in info.records()]
            at = info.next_offset
    assert found == expected
