"""Partitions to measure the engine with, and a JVM with Kafka's own log as the peer.

Where neither waits for the disk, CPU times are compared, not elapsed times: CPU time depends little
on other load of the machine.
"""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamlog.config.log_config import LogConfig
from streamlog.records.builder import InputColumns, encode_columns
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from tests.programs.compat.kafka import Kafka, KafkaUnavailableError

KEY_SIZE = 10
VALUE_SIZE = 100
RECORD_SIZE = 122  # at most, in a batch
TIMESTAMP = 1_700_000_000_000
EVER = 2**63 - 1
WARM = ("-XX:+UseSerialGC", "-Xmx1g")


@contextmanager
def beside_kafka() -> Iterator[tuple["KafkaLog", Path] | None]:
    """Yield Kafka's log and a directory for both; without Java, print a line and yield None."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory:
        try:
            kafka = Kafka.start(*WARM)
        except KafkaUnavailableError as error:
            print(f"skipped, Kafka is not available: {error}", file=sys.stderr)
            yield None
            return
        with kafka:
            yield KafkaLog(kafka), Path(directory)


class KafkaLog:
    """Kafka's UnifiedLog, measured."""

    def __init__(self, kafka: Kafka) -> None:
        self.jvm = kafka

    def measure(
        self,
        what: str,
        path: Path,
        *,
        waits: bool = False,
        config: Mapping[str, str] | None = None,
        **how: Any,
    ) -> tuple[float, int]:
        """Return the CPU seconds and the amount of work done in them.

        Args:
            what: `open`, `append`, `lookup` or `read`.
            waits: Whether it waits for the disk; then the result is elapsed seconds.
            path: The partition's directory, opened in place.
            config: The topic's settings.
            how: `clean`, `recoveryPoint`; `file` of a batch and `count`.
        """
        path.mkdir(parents=True, exist_ok=True)
        answer = self.jvm.ask(
            "measure", what=what, directory=str(path), config=dict(config or {}), **how
        )
        if "error" in answer:
            raise RuntimeError(f"{what}: {answer}")
        return answer["seconds" if waits else "cpuSeconds"], answer["done"]


def batch_of(size: int) -> bytes:
    """Return one uncompressed batch of nearly `size` bytes."""
    records = [
        Record(b"%0*d" % (KEY_SIZE, number), b"%0*d" % (VALUE_SIZE, number), (), TIMESTAMP)
        for number in range((size - 100) // RECORD_SIZE)
    ]
    encoded = encode_columns(InputColumns.from_records(records, now_ms=TIMESTAMP), batch_size=size)
    assert len(encoded.table) == 1, "more than one batch"
    return encoded.buffer.tobytes()


def fill(path: Path, batch: bytes, count: int, *, segment_bytes: int = 1 << 30) -> None:
    """Write a closed partition that holds `batch` `count` times."""
    config = LogConfig(internal_segment_bytes=segment_bytes)
    with PartitionLog.open(path, config=config) as log:
        for _ in range(count):
            log.append_as_leader(batch)
