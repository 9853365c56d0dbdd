"""Message formats v0 and v1: Kafka reads ours, and its leader converts messages as we do."""

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamlog.config.log_config import LogConfig
from streamlog.errors import InvalidRecordError, InvalidTimestampError
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import CompressionType, Record
from tests.programs.compat.answers import told_by_reader
from tests.programs.compat.kafka import Kafka
from tests.programs.compat.scenarios import CONFIG, NOW, open_log, rows
from tests.support.batches import message_set
from tests.support.golden import GOLDEN

pytestmark = pytest.mark.compat

CODECS = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
WANTED = ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
NAME = "00000000000000000000.log"


def plain_rows(first: int, count: int) -> list[Record]:
    return [record._replace(headers=()) for record in rows(first, count)]


def test_kafka_reads_all_messages_that_we_build(kafka: Kafka, tmp_path: Path) -> None:
    messages, base = b"", 0
    for magic, stamp in ((0, None), (1, None), (1, NOW - 5)):
        for codec in CODECS:
            messages += message_set(
                magic,
                plain_rows(base, 30),
                base_offset=base,
                compression=codec,
                log_append_time=stamp,
            )
            base += 40  # ten offsets are missing each time
    path = tmp_path / "old-0"
    path.mkdir()
    (path / NAME).write_bytes(messages)
    times = [0, NOW - 100_000, NOW - 97_000, NOW - 50_000, NOW - 5, NOW]
    ours = told_by_reader(path, now=NOW, timestamps=times)
    question = {"directory": str(path), "now": NOW, "timestamps": times}
    theirs = kafka.ask("open", **question, config=CONFIG.to_properties())
    assert "error" not in theirs, theirs
    assert theirs["batches"] == ours["batches"]
    assert theirs["offsetsForTimes"] == ours["offsetsForTimes"]
    assert theirs["logEndOffset"] == ours["logEndOffset"] == base - 10
    assert len(ours["batches"]) == 3 * (30 + 3)


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
def test_appended_messages_become_the_same_as_with_kafkas_leader(
    kafka: Kafka, tmp_path: Path, wanted: str, stamp: str
) -> None:
    sent = [
        message_set(magic, plain_rows(turn, 20), base_offset=turn, compression=codec)
        for turn, codec in enumerate(CODECS)
        for magic in (0, 1)
    ]
    config = CONFIG.with_overrides({"compression.type": wanted, "message.timestamp.type": stamp})
    theirs = appended_by_kafka(kafka, tmp_path / "theirs-0", sent, config)
    assert "error" not in theirs, theirs
    with open_log(tmp_path / "ours-0", config) as log:
        for each in sent:
            log.append_as_leader(each)
    ours = told_by_reader(tmp_path / "ours-0", now=NOW, timestamps=[])
    assert list(map(_comparable, ours["batches"])) == list(map(_comparable, theirs["batches"]))


def appended_by_kafka(
    kafka: Kafka, path: Path, sent: list[bytes], config: LogConfig
) -> dict[str, Any]:
    """Let Kafka's leader append bytes to a new partition; return its answer."""
    path.mkdir()
    append = [{"bytes": base64.b64encode(each).decode()} for each in sent]
    settings = config.to_properties()
    return kafka.ask("open", directory=str(path), now=NOW, config=settings, append=append)


def _comparable(batch: dict[str, Any]) -> dict[str, Any]:
    """Omit the size if it depends on a compression library."""
    is_plain = batch["compressionType"] == "none"
    return {key: value for key, value in batch.items() if key != "size" or is_plain}


def test_a_claimed_append_time_is_treated_as_by_kafkas_leader(kafka: Kafka, tmp_path: Path) -> None:
    builder = BatchBuilder(log_append_time=NOW - 5)
    for record in rows(0, 9):
        builder.append(record)
    sent = [builder.build()]
    for codec in CODECS:
        sent.append(message_set(1, plain_rows(0, 9), compression=codec, log_append_time=NOW - 5))
    theirs = appended_by_kafka(kafka, tmp_path / "theirs-0", sent, CONFIG)
    with open_log(tmp_path / "ours-0") as log:
        for each in sent:
            log.append_as_leader(each)
    ours = told_by_reader(tmp_path / "ours-0", now=NOW, timestamps=[])
    assert list(map(_comparable, ours["batches"])) == list(map(_comparable, theirs["batches"]))


STAMPED = CONFIG.with_overrides({"message.timestamp.type": "LogAppendTime"})
REFUSED = {
    "formats mixed": (
        message_set(0, plain_rows(0, 1)) + message_set(1, plain_rows(0, 1)),
        CONFIG,
        InvalidRecordError,
    ),
    "two wrappers": (
        message_set(1, plain_rows(0, 2), compression=CODECS[1]) * 2,
        CONFIG,
        InvalidRecordError,
    ),
    "a claimed append time of none": (
        message_set(1, plain_rows(0, 2), log_append_time=-1),
        CONFIG,
        InvalidTimestampError,
    ),
    "a claimed append time when the leader stamps": (
        message_set(1, plain_rows(0, 2), compression=CODECS[3], log_append_time=NOW),
        STAMPED,
        InvalidTimestampError,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_kafkas_leader_refuses_we_refuse(kafka: Kafka, tmp_path: Path, name: str) -> None:
    sent, config, error = REFUSED[name]
    answer = appended_by_kafka(kafka, tmp_path / "theirs-0", [sent], config)
    kind = error.__name__.replace("Error", "Exception")
    assert kind in f"{answer['error']} {answer['message']}"
    with open_log(tmp_path / "ours-0", config) as log, pytest.raises(error):
        log.append_as_leader(sent)


OLD = sorted((GOLDEN / "B-legacy").glob("*-log-dir*/old*"))


@pytest.mark.parametrize("directory", OLD, ids=lambda path: path.name)
def test_rebuilt_indexes_are_the_ones_that_kafka_builds(
    kafka: Kafka, tmp_path: Path, directory: Path
) -> None:
    theirs_path, ours_path = (tmp_path / who / directory.name for who in ("theirs", "ours"))
    for path in (theirs_path, ours_path):
        shutil.copytree(directory, path, ignore=shutil.ignore_patterns("*index"))
    settings = CONFIG.to_properties()
    theirs = kafka.ask("open", directory=str(theirs_path), now=NOW, config=settings)
    assert "error" not in theirs, theirs
    with open_log(ours_path):
        pass
    names = sorted(path.name for path in theirs_path.glob("*index"))
    assert len(names) >= 4
    for name in names:
        assert (ours_path / name).read_bytes() == (theirs_path / name).read_bytes(), name
    ours = told_by_reader(ours_path, now=NOW, timestamps=[])
    assert ours["batches"] == theirs["batches"]
