"""The log.dir of a real broker, with the answers of its real consumers and Admin."""

import base64
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.golden import unpack

__all__ = ["Disk", "Partition", "comparable"]

LONGEST_SHOWN = 400  # in bytes; of longer fields the answers hold size and digest
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}

Row = tuple[Any, ...]


class Partition(NamedTuple):
    """One partition of the disk.

    Attributes:
        path: Its directory.
        answers: Admin's answers.
        records: The records of a read_uncommitted consumer, in comparable form.
    """

    path: Path
    answers: dict[str, Any]
    records: list[Row]

    def seen(self, isolation: str) -> list[Row]:
        """Return the records of a consumer of `isolation`."""
        if isolation == "read_uncommitted":
            return self.records
        ranges = self.answers["committedOffsetRanges"]
        offsets = {offset for first, last in ranges for offset in range(first, last + 1)}
        return [row for row in self.records if row[2] in offsets]


class Disk:
    """A log.dir and the answers about it.

    Attributes:
        path: The log.dir.
        partitions: By the name of their directory.
    """

    def __init__(self, path: Path, answers: Path) -> None:
        self.path = path
        self.partitions = {
            file.stem: _partition(path / file.stem, file)
            for file in sorted(answers.glob("*-[0-9].json"))
        }

    @classmethod
    def unpack(cls, how: str, target: Path) -> "Disk":
        """Unpack a golden one below `target`; `how` is `clean` or `killed`."""
        unpack(f"C-broker/{how}-log.dir.tar.gz", target)
        unpack("C-broker/answers.tar.xz", target / "answers", f"{how}/")
        return cls(target / f"{how}-log.dir", target / "answers" / how)

    def seen(self, isolation: str) -> list[Row]:
        """Return the records that consumers got of all topics but the internal ones, sorted."""
        return sorted(
            row
            for name, partition in self.partitions.items()
            if not name.startswith("__")
            for row in partition.seen(isolation)
        )


def _partition(path: Path, file: Path) -> Partition:
    answers = json.loads(file.read_text())
    lines = file.with_name(f"{file.stem}.consumer.jsonl").read_text().splitlines()
    place = (answers["topic"], answers["partition"])
    return Partition(path, answers, [(*place, *_consumed(json.loads(line))) for line in lines])


def _consumed(line: dict[str, Any]) -> Row:
    return (
        line["offset"],
        line["timestamp"],
        TIMESTAMP_TYPES[line["timestampType"]],
        _shown(line["key"]),
        _shown(line["value"]),
        tuple((key, _shown(value)) for key, value in line["headers"]),
    )


def _shown(field: str | dict[str, Any] | None) -> Any:
    return (field["size"], field["sha256"]) if isinstance(field, dict) else field


def comparable(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> Row:
    """Return a record, timestamp in milliseconds, in the shape of `Partition.records`."""
    kept = tuple((name, _encoded(content)) for name, content in headers)
    return (
        topic,
        partition,
        offset,
        timestamp,
        timestamp_type,
        _encoded(key),
        _encoded(value),
        kept,
    )


def _encoded(data: bytes | None) -> Any:
    if data is None:
        return None
    if len(data) > LONGEST_SHOWN:
        return len(data), hashlib.sha256(data).hexdigest()
    return base64.b64encode(data).decode()
