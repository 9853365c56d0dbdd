"""Records that a replica gave up because another history was chosen: counted, and kept aside.

A follower truncates what its leader does not have. Usually these records were never acknowledged
with `acks=all`. After an unclean election they may have been: then the bytes are kept as well.

    .streamlog/abandoned/orders-0.jsonl          a line for each truncation, newest last
    .streamlog/abandoned/orders-0.100-250.log    the batches of one that lost committed records

    {"ms":1700000000000,"leaderEpoch":7,"startOffset":100,"endOffset":250,"highWatermark":240}
"""

import json
from dataclasses import dataclass
from typing import Final

from streamlog.errors import FileMissingError
from streamlog.fs.api import OpenMode
from streamlog.fs.files import make_directories, temporary_copy, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.partition.log import Log
from streamlog.partition.read import fetch
from streamlog.topic import TopicPartition

__all__ = ["Abandoned", "note_abandoned", "read_abandoned"]

_BOOK_SIZE_MAX: Final = 1 << 20
_PIECE_SIZE: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """Records that one replica truncated to follow its leader.

    Attributes:
        ms: When, in milliseconds since 1970.
        leader_epoch: The epoch of the leader that was followed.
        start_offset: The first offset that was truncated.
        end_offset: The log end before.
        high_watermark: The replica's high watermark before.
    """

    ms: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    high_watermark: int

    @property
    def lost(self) -> int:
        """The number of offsets that this replica knew to be committed."""
        return max(0, self.high_watermark - self.start_offset)

    def to_json(self) -> dict[str, int]:
        """Return the fields of its line."""
        return {
            "ms": self.ms,
            "leaderEpoch": self.leader_epoch,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "highWatermark": self.high_watermark,
        }


def note_abandoned(root: LogRoot, log: Log, offset: int, *, leader_epoch: int) -> None:
    """Note that a log is about to be truncated to `offset`, durably; within `locked`.

    Raises:
        StorageError: The note or the copy cannot be written; nothing must be truncated.
        CorruptRecordError: The records to be kept are damaged.
    """
    noted = Abandoned(
        ms=root.clock.now_ms(),
        leader_epoch=leader_epoch,
        start_offset=offset,
        end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
    )
    make_directories(root.fs, root.abandoned)
    if noted.lost:
        _keep(root, log, noted)
    line = json.dumps(noted.to_json(), separators=(",", ":")).encode("ascii") + b"\n"
    path = root.abandoned_book(log.topic_partition)
    known = _content(root, path)[-_BOOK_SIZE_MAX // 2 :]
    write_file_atomically(root.fs, path, known[known.find(b"{") :] + line if known else line)


def _keep(root: LogRoot, log: Log, noted: Abandoned) -> None:
    """Copy the batches that hold the abandoned records into a file of their own, durably."""
    name = f"{noted.start_offset}-{noted.end_offset}"
    path = root.abandoned_records(log.topic_partition, name)
    if root.fs.stat(path) is not None:
        return
    with temporary_copy(root.fs, path) as copy:
        offset, size = max(noted.start_offset, log.log_start_offset), 0
        while offset < noted.end_offset:
            found = fetch(
                log.segments,
                offset,
                offsets=log.offsets,
                last_stable_offset=noted.end_offset,
                upper=noted.end_offset,
                max_bytes=_PIECE_SIZE,
            )
            copy.pwrite(found.buffer, size)
            size += len(found.buffer)
            offset = found.next_offset
    root.fs.rename(copy.path, path)
    root.fs.sync_directory(root.abandoned)


def read_abandoned(root: LogRoot, partition: TopicPartition) -> list[Abandoned]:
    """Return what a replica has abandoned, oldest first; malformed lines are skipped.

    Raises:
        StorageError: The file cannot be read.
    """
    lines = _content(root, root.abandoned_book(partition)).splitlines()
    found = [_parsed(line) for line in lines]
    return [each for each in found if each is not None]


def _content(root: LogRoot, path: str) -> bytes:
    try:
        with root.fs.open(path, OpenMode.READ) as file:
            return file.pread(2 * _BOOK_SIZE_MAX, 0)
    except FileMissingError:
        return b""


def _parsed(line: bytes) -> Abandoned | None:
    try:
        fields = json.loads(line)
        return Abandoned(
            ms=int(fields["ms"]),
            leader_epoch=int(fields["leaderEpoch"]),
            start_offset=int(fields["startOffset"]),
            end_offset=int(fields["endOffset"]),
            high_watermark=int(fields["highWatermark"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
