"""The text of Kafka's checkpoint files: version, number of rows, rows.

    0                    version
    2                    number of rows that follow
    orders 0 141         words parted by white space; which ones depends on the file
    orders 1 77

An empty file, or one with only the version, has no rows.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from streamlog.errors import CorruptCheckpointError

__all__ = ["MAX_CHECKPOINT_SIZE", "format_checkpoint", "parse_checkpoint", "parse_number"]

CHECKPOINT_VERSION: Final = 0  # OffsetCheckpointFile, LeaderEpochCheckpointFile: CURRENT_VERSION
MAX_CHECKPOINT_SIZE: Final = 64 << 20  # 200,000 partitions with the longest names

_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_MAX_INT64: Final = 2**63 - 1


def parse_checkpoint(data: bytes, path: str, *, columns: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the rows of a checkpoint file.

    Args:
        data: The whole file.
        path: Where it comes from, for errors.
        columns: How many words a row has.

    Yields:
        The number of the line, from 1, and its words.

    Raises:
        CorruptCheckpointError: Another version, another number of rows than announced, or a
            row of another shape.

    Source: org.apache.kafka.server.common.CheckpointFile.read.
    """
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if not lines:
        return
    version = parse_number(lines[0], path, 1)
    if version != CHECKPOINT_VERSION:
        raise CorruptCheckpointError(
            "checkpoint file has another version", path=path, got=version, expected="0"
        )
    rows = lines[2:]
    announced = parse_number(lines[1], path, 2) if len(lines) > 1 else 0
    if announced != len(rows):
        raise CorruptCheckpointError(
            "checkpoint file has another number of rows than it says",
            path=path,
            got=len(rows),
            expected=announced,
        )
    for number, row in enumerate(rows, start=3):
        words = row.split()
        if len(words) != columns:
            raise CorruptCheckpointError(
                "malformed row in a checkpoint file",
                path=path,
                got=f"{len(words)} words in line {number}",
                expected=columns,
            )
        yield number, words


def parse_number(word: bytes, path: str, line: int, *, limit: int = _MAX_INT64) -> int:
    """Return the number that `word` writes in canonical decimal.

    Raises:
        CorruptCheckpointError: Anything else than 0 to `limit`.
    """
    if not _NUMBER.fullmatch(word) or int(word) > limit:
        shown = word[:40].decode("ascii", "backslashreplace")
        raise CorruptCheckpointError(
            "not a number in a checkpoint file",
            path=path,
            got=f"{shown!r} in line {line}",
            expected=f"0 to {limit}",
        )
    return int(word)


def format_checkpoint(rows: Iterable[str]) -> bytes:
    """Return the bytes of a checkpoint file with these rows.

    Source: org.apache.kafka.server.common.CheckpointFile.write.
    """
    listed = list(rows)
    lines = [str(CHECKPOINT_VERSION), str(len(listed)), *listed]
    return "".join(f"{line}\n" for line in lines).encode("ascii")
