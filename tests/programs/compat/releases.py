"""Disks of brokers of every minor release since 0.11, verified and read.

    . .ci/environment && python -m tests.programs.compat.releases [VERSION…]

Each release runs as a real broker, with ZooKeeper up to 3.9 and as a KRaft node from 4.0 on.
librdkafka sends it all codecs mixed in one topic, timestamps out of order, log append time, and
transactions of which some abort; releases that still write message formats v0 and v1 also get
topics of those. A consumer reports the content of each partition. Then the broker stops, and its
disk must verify without findings and read the same. Needs Java and Maven, which fetches each
release once. Exits with 1 if anything differs.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog import read_arrow
from tests.programs.compat import librdkafka
from tests.programs.compat.broker import Broker, format_log_dir
from tests.programs.compat.kafka import number_of
from tests.programs.compat.zookeeper import broker_with_zookeeper
from tests.support.cli import streamlog
from tests.support.fingerprints import NOTHING, fingerprints_of

__all__ = ["VERSIONS", "Look", "look_at"]

VERSIONS = (
    "0.11.0.3", "1.0.2", "1.1.1", "2.0.1", "2.1.1", "2.2.2", "2.3.1", "2.4.1", "2.5.1", "2.6.3",
    "2.7.2", "2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2",
    "3.8.1", "3.9.1", "4.0.1", "4.1.1", "4.2.0", "4.3.0",
)  # fmt: skip
PATIENCE_S = 120
TURNS = 8
RECORDS = 150
HOUR_MS = 3_600_000


class Look(NamedTuple):
    """The result for one release.

    Attributes:
        records: The number of records that a consumer got.
        findings: The output of `verify --deep`.
        differing: Partitions whose content differs from the consumer's.
        seconds: The duration.
    """

    version: str
    records: int
    findings: list[str]
    differing: list[str]
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether the disk is sound and reads the same."""
        return self.records > 0 and not self.findings and not self.differing


def look_at(version: str) -> Look:
    """Fill a broker of a release, stop it, and compare its disk with what a consumer got."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        log_dir = Path(scratch) / "log.dir"
        with _broker(version, log_dir, Path(scratch)) as bootstrap:
            topics = _create_topics(version, bootstrap)
            for turn in range(TURNS):
                _send_turn(version, bootstrap, topics, turn)
            consumed = librdkafka.consumed(bootstrap, topics)
        verified = streamlog("verify", log_dir, "--deep", "--format", "ndjson")
        found = fingerprints_of(
            batch
            for topic in topics
            for batch in read_arrow(log_dir, topic=topic, include_headers=True)
        )
    names = consumed.keys() | found.keys()
    return Look(
        version,
        sum(each.count for each in consumed.values()),
        [line for line in verified.out.decode().splitlines() if line]
        or [verified.error] * bool(verified.code),
        sorted(n for n in names if consumed.get(n, NOTHING) != found.get(n, NOTHING)),
        time.monotonic() - start,
    )


@contextlib.contextmanager
def _broker(version: str, log_dir: Path, scratch: Path) -> Iterator[str]:
    if number_of(version) < (4,):
        with broker_with_zookeeper(version, log_dir, scratch) as bootstrap:
            yield bootstrap
    else:
        format_log_dir(log_dir, scratch, version=version)
        with Broker.start(log_dir, scratch / "broker", version=version) as broker:
            yield broker.bootstrap


def _create_topics(version: str, bootstrap: str) -> list[str]:
    number = number_of(version)
    small = {"segment.bytes": "20000"}
    if number >= (4,):  # does not accept this size; 4.2 has it under another name
        small = {"segment.bytes": str(1 << 20), "segment.ms": "1000"}
    if number >= (4, 2):
        small = {"internal.segment.bytes": "20000"}
    common = {**small, "index.interval.bytes": "500", "retention.ms": "-1"}
    topics: dict[str, dict[str, str]] = {
        "mixed": {},
        "plain": {},
        "stamped": {"message.timestamp.type": "LogAppendTime"},
        "recompressed": {"compression.type": "gzip"},
        "transactions": {},
    }
    if number < (3,):  # later releases write v2 whatever the topic's settings
        topics |= {"v1": {"message.format.version": "0.10.2"}}
        topics |= {"v0": {"message.format.version": "0.9.0"}}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + PATIENCE_S
    # The broker listens before it knows the controller.
    while admin.list_topics(timeout=PATIENCE_S).controller_id < 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    wanted = [NewTopic(topic, 2, 1, config={**common, **each}) for topic, each in topics.items()]
    for future in admin.create_topics(wanted, operation_timeout=PATIENCE_S).values():
        future.result(PATIENCE_S)
    return list(topics)


def _send_turn(version: str, bootstrap: str, topics: list[str], turn: int) -> None:
    codecs = ["none", "gzip", "snappy", "lz4"] + ["zstd"] * (number_of(version) >= (2, 1))
    codec = codecs[turn % len(codecs)]
    for topic in topics:
        if topic == "transactions":
            librdkafka.send(
                bootstrap,
                topic,
                partitions=2,
                codec=codec,
                count=RECORDS,
                seed=turn,
                transaction="one",
                is_aborted=turn % 3 == 1,
            )
        else:
            idempotent = topic not in ("plain", "v0", "v1")
            legacy = topic in ("v0", "v1")
            some = codec if not (legacy and codec == "zstd") else "none"
            _send(
                bootstrap, topic, codec=some, seed=turn, idempotent=idempotent, headers=not legacy
            )


def _send(
    bootstrap: str, topic: str, *, codec: str, seed: int, idempotent: bool, headers: bool
) -> None:
    """Send records whose timestamps are out of order."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": 10,
            "batch.num.messages": 7,
        }
    )
    random, failed = Random(seed), list[KafkaError]()
    now = time.time_ns() // 1_000_000 - 48 * HOUR_MS
    for number in range(RECORDS):
        producer.produce(
            topic,
            key=b"key-%d" % (number % 20),
            value=random.randbytes(40) + b"v" * random.randrange(60),
            partition=number % 2,
            timestamp=now + random.randrange(-HOUR_MS, HOUR_MS) + seed * HOUR_MS,
            headers=[("h", b"%d" % number)] if headers else None,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    left = producer.flush(PATIENCE_S)
    assert not failed and not left, failed or left


def main() -> int:
    """Check the releases given on the command line, or all; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("versions", nargs="*", choices=[[], *VERSIONS], metavar="VERSION")
    bad = 0
    for version in parser.parse_args().versions or VERSIONS:
        look = look_at(version)
        verdict = "good" if look.is_good else "DIFFERS"
        print(
            f"{version:<9} {verdict:<8} {look.records:>6} records {look.seconds:6.1f} s", flush=True
        )
        for line in [*look.findings, *(f"{each} reads differently" for each in look.differing)]:
            print(f"    {line}", flush=True)
        bad += not look.is_good
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
