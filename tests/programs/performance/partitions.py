"""Partitions to measure the engine with, and Kafka's own log beside it in one JVM.

Where nothing waits for the disk, the CPU time of both is compared, not the time that passed: a
busy machine, on which either may stand in a queue, then changes the ratio little.
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
    """Yield Kafka's log and a directory for both; None, and a line that says why, without Java."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory:
        try:
            kafka = Kafka.start(*WARM)
        except KafkaUnavailableError as error:
            print(f"left out, Kafka cannot be asked: {error}", file=sys.stderr)
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
        """Return CPU seconds and how much was done in them.

        Args:
            what: `open`, `append`, `lookup` or `read`.
            waits: Whether it waits for the disk; then the seconds are those that passed.
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
    assert len(encoded.table) == 1, "one batch was wanted"
    return encoded.buffer.tobytes()


def fill(path: Path, batch: bytes, count: int, *, segment_bytes: int = 1 << 30) -> None:
    """Write a closed partition that holds `batch` so many times."""
    config = LogConfig(internal_segment_bytes=segment_bytes)
    with PartitionLog.open(path, config=config) as log:
        for _ in range(count):
            log.append_as_leader(batch)
