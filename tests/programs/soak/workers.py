"""The plain processes of the soak: producers, maintainers, and a reader that delays no deletion.

Each works until it is killed, or until a file `stop` appears and it has finished its work. A
producer records its acknowledged appends in a file, one line per append, each by one `write`.
"""

import json
import time
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from streamlog.maintenance.runner import Maintenance
from streamlog.partition.reader import LogReader
from streamlog.root.manager import LogManager
from tests.programs.soak.records import EVENTS, PARTITIONS, STATE, Name, records_of

PAUSE_S: Final = 0.04  # of a producer, between two appends, on average


class Acknowledged(NamedTuple):
    """An append that was acknowledged to its producer."""

    topic: str
    partition: int
    base_offset: int
    name: Name


def root_of(directory: Path) -> Path:
    return directory / "root"


def must_stop(directory: Path) -> bool:
    """Return whether the run is over."""
    return (directory / "stop").exists()


# ---- producers -----------------------------------------------------------------------------------
def produce(directory: Path, producer: int, life: int, seed: int) -> None:
    """Append to both topics until killed."""
    random = Random(f"{seed} {producer} {life}")
    with (directory / f"acknowledged-{producer}").open("ab", buffering=0) as acknowledged:
        manager = LogManager.open(root_of(directory), random=random)
        for number in range(1 << 30):
            name, topic = Name(producer, life, number), random.choice((EVENTS, STATE))
            partition = random.randrange(PARTITIONS)
            codec = random.choice(("none", "none", "lz4", "zstd"))
            info = manager.log(topic, partition).append(records_of(topic, name), compression=codec)
            acknowledged.write(f"{topic} {partition} {info.base_offset} {name}\n".encode())
            time.sleep(random.expovariate(1 / PAUSE_S))


def acknowledged_by(directory: Path, producer: int) -> list[Acknowledged]:
    """Return what a producer acknowledged in all its lives."""
    path = directory / f"acknowledged-{producer}"
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for line in lines:
        topic, partition, base_offset, name = line.split()
        found.append(Acknowledged(topic, int(partition), int(base_offset), Name.parse(name)))
    return found


# ---- maintainers ---------------------------------------------------------------------------------
def maintain(directory: Path, maintainer: int, life: int, seed: int) -> None:
    """Run due work with budgets that interrupt it, until killed; record errors."""
    random = Random(f"{seed} maintainer {maintainer} {life}")
    with (directory / f"errors-{maintainer}").open("ab", buffering=0) as errors:
        runner = Maintenance(root_of(directory), random=random)
        while True:
            report = runner.run_due(budget_ms=random.choice((1, 10, 100, 1000)))
            for error in report.errors:
                errors.write(f"{type(error).__name__}: {error}".replace("\n", " ").encode() + b"\n")
            time.sleep(random.uniform(0.01, 0.1))


# ---- a reader that no one waits for --------------------------------------------------------------
def tail(directory: Path) -> None:
    """Read the compacted topic while it grows and shrinks; write out each key's last value."""
    logs = [LogReader.open(root_of(directory) / f"{STATE}-{each}") for each in range(PARTITIONS)]
    at = [log.log_start_offset for log in logs]
    last: list[dict[str, str | None]] = [{} for _ in logs]
    is_last = False
    while not is_last:
        is_last = must_stop(directory)
        for partition, log in enumerate(logs):
            log.refresh()
            while at[partition] < log.log_end_offset:
                at[partition] = _take(log, at[partition], last[partition])
        time.sleep(0.01)
    (directory / "tail.part").write_text(json.dumps(last))
    (directory / "tail.part").rename(directory / "tail.json")


def _take(log: LogReader, offset: int, last: dict[str, str | None]) -> int:
    """Apply one read; return the offset of the next one."""
    info = log.read(offset)
    for record in info.records():
        if record.offset < offset:
            raise AssertionError(f"{log.path}: offset {record.offset} after {offset}")
        offset = record.offset + 1
        last[_text(record.key) or ""] = _text(record.value)
    return info.next_offset


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
