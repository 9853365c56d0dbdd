"""A root goes to S3 and back, and to a real broker; then the dead broker's disk goes to S3.

Everything happens once, because a broker takes ten seconds to start.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamlog import read_table
from streamlog.transfer.places import open_source
from tests.programs.compat.broker import Broker
from tests.programs.compat.kafka import Kafka, run_tool
from tests.programs.compat.test_handover import COMMITTED_ONLY, SENT, SMALL, read_all, write
from tests.support.cli import ok
from tests.support.s3 import S3Server

pytestmark = pytest.mark.compat

Rows = list[dict[str, Any]]


@dataclass
class Copied:
    """Our reading of the source, what Kafka's consumers read of the copy, and its archive."""

    source: Path
    before: dict[str, Rows]
    consumed: dict[str, Rows]
    printed: list[str]
    described: dict[str, Any]
    log_dir: Path
    archive: str


@pytest.fixture(scope="module")
def copied(kafka: Kafka, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Copied:
    scratch = tmp_path_factory.mktemp("copy")
    source, log_dir = scratch / "source", scratch / "log-dir"
    url, archive = s3.new_bucket(), s3.new_bucket()
    write(source)
    ok("copy", source, url)
    ok("verify", url)
    ok("copy", url, log_dir, "--topic", "orders")
    ok("verify", log_dir)
    ok("--path", log_dir, "handover", "--to-kafka")
    with Broker.start(log_dir, scratch / "broker") as broker:
        asked = {"bootstrap": broker.bootstrap, "topic": "orders"}
        consumed = kafka.ask("consume", **asked)["records"]
        place = ("--bootstrap-server", broker.bootstrap, "--topic", "orders")
        printed = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *place,
            "--from-beginning",
            "--max-messages",
            str(sum(map(len, consumed.values()))),
            "--timeout-ms",
            "60000",
            "--isolation-level",
            "read_committed",
            "--formatter-property",
            "print.offset=true",
            "--formatter-property",
            "print.value=false",
            "--formatter-property",
            "print.partition=true",
        )
        described = kafka.ask("describe", partition=1, **asked)
        kafka.ask("produce", partition=1, count=SENT, **asked)
        broker.kill()
    ok("copy", log_dir, archive)
    return Copied(
        source, read_all(source), consumed, printed.split("\n"), described, log_dir, archive
    )


def test_kafkas_consumers_read_the_records_of_the_source(copied: Copied) -> None:
    assert copied.consumed == copied.before
    wanted = Counter(
        f"Partition:{number}\tOffset:{row['offset']}"
        for number, rows in copied.before.items()
        for row in rows
    )
    assert sum(wanted.values()) > 300
    assert Counter(line for line in copied.printed if line) == wanted


def test_the_broker_finds_id_settings_and_producers(copied: Copied) -> None:
    topic = open_source(str(copied.source)).topics()["orders"]
    assert copied.described["topicId"] == topic.topic_id
    assert copied.described["configs"] == SMALL
    assert copied.described["producers"]["2000"] == [1, 9]


def test_the_disk_of_the_dead_broker_is_archived_with_its_settings(copied: Copied) -> None:
    topic = open_source(copied.archive).topics()["orders"]
    assert topic.configs == SMALL
    assert topic.topic_id == open_source(str(copied.source)).topics()["orders"].topic_id
    ours = read_table(copied.archive, topic="orders")
    assert ours == read_table(str(copied.log_dir), topic="orders")
    by_partition = Counter(ours["partition"].to_pylist())
    for number, rows in copied.before.items():
        more = SENT if number == "1" else 0
        assert by_partition[int(number)] == len(rows) + more
    assert by_partition[COMMITTED_ONLY] > 0
