"""Creates a real broker's log.dir of a given size, and reads it in four ways that must agree.

    . .ci/environment
    python -m tests.programs.compat.make_broker_directory DIRECTORY [--megabytes 1024]

Real Java and librdkafka producers fill topics of every codec with compressible and incompressible
values: plain, idempotent and in transactions, of which some abort and two stay open. Then a real
Java consumer, librdkafka's, and Spark on the files of the running and of the killed broker compute
for each partition the number of records and a checksum over offset, timestamp, key, value and
headers. Exits with 1 if they differ. The log.dir is kept.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from streamlog.spark.spark_session import register
from tests.programs.compat import librdkafka
from tests.programs.compat.broker import Broker, format_log_dir
from tests.programs.compat.kafka import Kafka
from tests.support.fingerprints import NOTHING, Fingerprint, fingerprints
from tests.support.spark_session import open_session

__all__ = ["Comparison", "Look", "make", "table"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ISOLATIONS = ("read_committed", "read_uncommitted")
PARTITIONS = 2
BY_LIBRDKAFKA = "librdkafka"
TRANSACTIONS = "transactions"
TOPICS = (*(f"codec-{codec}" for codec in CODECS), TRANSACTIONS, BY_LIBRDKAFKA)
VALUE_SIZE = 1000

Found = dict[str, Fingerprint]


class Look(NamedTuple):
    """What one reader found in all partitions.

    Attributes:
        reader: The name of the reader.
        isolation: The isolation level.
        found: The fingerprint of each partition; those without records may be missing.
        seconds: The duration.
    """

    reader: str
    isolation: str
    found: Found
    seconds: float

    @property
    def total(self) -> Fingerprint:
        """The fingerprint of everything."""
        total = NOTHING
        for each in self.found.values():
            total = total.plus(each)
        return total


class Comparison(NamedTuple):
    """The results of the readers.

    Attributes:
        size: Bytes of the partitions' directories.
        looks: The result of each reader; the first of each isolation level is the Java consumer's.
    """

    size: int
    looks: list[Look]

    def agrees(self, look: Look) -> bool:
        """Return whether a look agrees with the Java consumer's on every partition."""
        told = next(each for each in self.looks if each.isolation == look.isolation)
        names = told.found.keys() | look.found.keys()
        return all(told.found.get(n, NOTHING) == look.found.get(n, NOTHING) for n in names)


def make(directory: Path, megabytes: int, *, kafka: Kafka, spark: SparkSession) -> Comparison:
    """Create a log.dir of about `megabytes`, and run all readers.

    Args:
        directory: Its path; the result is kept.
        megabytes: The target size.
        kafka: The oracle that runs the Java clients.
        spark: The session that reads the files.
    """
    log_dir = directory / "log.dir"
    format_log_dir(log_dir, directory)
    with Broker.start(log_dir, directory / "broker") as broker:
        fill(kafka, broker.bootstrap, log_dir, megabytes << 20)
        looks = _looks("Java consumer", lambda level: _java(kafka, broker, level))
        looks += _looks(
            "librdkafka consumer",
            lambda level: librdkafka.consumed(broker.bootstrap, TOPICS, level),
        )
        size = size_of(log_dir)
        looks += _looks("Spark, broker running", lambda level: _spark(spark, log_dir, level))
        broker.kill()
        kafka.ask("forget")
    looks += _looks("Spark, broker killed", lambda level: _spark(spark, log_dir, level))
    return Comparison(size, looks)


def fill(kafka: Kafka, bootstrap: str, log_dir: Path, size: int) -> None:
    """Run the producers, round by round, until the directory has `size` bytes."""
    settings = {"segment.bytes": 64 << 20}
    for topic in TOPICS:
        _ask(kafka, "create", bootstrap, topic=topic, partitions=PARTITIONS, configs=settings)
    count = max(100, min(20_000, size // (len(TOPICS) * 3 * VALUE_SIZE)))
    turn = 0
    while turn < len(CODECS) or size_of(log_dir) < size:
        for codec in CODECS:
            _send(kafka, bootstrap, f"codec-{codec}", codec, count, turn, is_random=turn % 2 == 1)
        codec, end = CODECS[turn % len(CODECS)], ("commit", "abort", "commit")[turn % 3]
        _send(kafka, bootstrap, TRANSACTIONS, codec, count // 2, turn, id="a", end=end)
        _send(kafka, bootstrap, TRANSACTIONS, codec, count // 4, turn)
        for transaction in (None, "r"):
            librdkafka.send(
                bootstrap,
                BY_LIBRDKAFKA,
                partitions=PARTITIONS,
                codec=codec,
                count=count // 4,
                size=VALUE_SIZE,
                seed=turn,
                transaction=transaction,
                is_aborted=turn % 2 == 1,
            )
        turn += 1
    for topic in (TRANSACTIONS, f"codec-{CODECS[0]}"):
        _send(kafka, bootstrap, topic, "zstd", 50, turn, id=f"open-{topic}", end="leave")
        _send(kafka, bootstrap, topic, "zstd", 50, turn)


def _send(
    kafka: Kafka,
    bootstrap: str,
    topic: str,
    codec: str,
    count: int,
    seed: int,
    *,
    is_random: bool = False,
    **more: str,
) -> None:
    fields: dict[str, Any] = {"random": is_random, "idempotent": seed % 2 == 0, **more}
    _ask(
        kafka,
        "send",
        bootstrap,
        topic=topic,
        codec=codec,
        count=count,
        seed=seed,
        size=VALUE_SIZE,
        partitions=PARTITIONS,
        **fields,
    )


def _ask(kafka: Kafka, ask: str, bootstrap: str, **fields: Any) -> dict[str, Any]:
    answer = kafka.ask(ask, bootstrap=bootstrap, **fields)
    if "error" in answer:
        raise RuntimeError(f"{ask}: {answer['error']}: {answer['message']}")
    return answer


def size_of(log_dir: Path) -> int:
    """Return the bytes of the batches in a log.dir."""
    return sum(path.stat().st_size for topic in TOPICS for path in log_dir.glob(f"{topic}-*/*.log"))


# ---- who reads ------------------------------------------------------------------------------
def _looks(reader: str, read: Callable[[str], Found]) -> list[Look]:
    """Run one reader with every isolation level, and measure each."""
    looks = []
    for isolation in ISOLATIONS:
        start = time.monotonic()
        found = read(isolation)
        looks.append(Look(reader, isolation, found, time.monotonic() - start))
    return looks


def _java(kafka: Kafka, broker: Broker, isolation: str) -> Found:
    found: Found = {}
    for topic in TOPICS:
        told = _ask(kafka, "fingerprint", broker.bootstrap, topic=topic, isolation=isolation)
        for number, each in told["partitions"].items():
            found[f"{topic}-{number}"] = Fingerprint(each["count"], int(each["sum"]))
    return found


def _spark(spark: SparkSession, log_dir: Path, isolation: str) -> Found:
    frame = (
        spark.read.format("streamlog")
        .option("path", str(log_dir))
        .option("subscribe", ",".join(TOPICS))
        .option("kafka.isolation.level", isolation)
        .option("includeHeaders", "true")
    )
    return fingerprints(frame.load())


# ---- what is printed ------------------------------------------------------------------------
def table(comparison: Comparison) -> Iterable[str]:
    """Yield the lines of a readable table."""
    megabytes = comparison.size / 1e6
    yield f"{megabytes:.0f} MB in {len(TOPICS) * PARTITIONS} partitions"
    yield f"{'reader':<22} {'isolation':<17} {'records':>9} {'seconds':>8} {'MB/s':>6}  checksum"
    for look in comparison.looks:
        verdict = "" if comparison.agrees(look) else "  DIFFERS"
        yield (
            f"{look.reader:<22} {look.isolation:<17} {look.total.count:>9} {look.seconds:>8.1f}"
            f" {megabytes / look.seconds:>6.0f}  {look.total.sum:016x}{verdict}"
        )


def main() -> int:
    """Create the directory and compare; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="directory to create; must not exist")
    parser.add_argument("--megabytes", type=int, default=1024, help="target size (default: 1024)")
    arguments = parser.parse_args()
    directory: Path = arguments.directory.resolve()
    directory.mkdir()
    with tempfile.TemporaryDirectory() as scratch, Kafka.start("-Xmx1g") as kafka:
        spark = open_session(Path(scratch))
        register(spark)
        start = time.monotonic()
        comparison = make(directory, arguments.megabytes, kafka=kafka, spark=spark)
        spark.stop()
    print("\n".join(table(comparison)))
    print(f"created and compared in {time.monotonic() - start:.0f} s: {directory / 'log.dir'}")
    return 0 if all(map(comparison.agrees, comparison.looks)) else 1


if __name__ == "__main__":
    sys.exit(main())
