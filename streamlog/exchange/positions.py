"""How far an export is, by partition, and the names of its files.

    orders-0-00000000000000000000-00000000000000004999-e2.parquet

holds the records with offsets 0 to 4999 of partition 0, and its last record has leader epoch 2. The
next file of the partition begins at 5000. So the names alone say where to go on, and a record that
has a file is never written to another one.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from streamlog.errors import InvalidRequestError, InvalidTopicError
from streamlog.fs.names import NAME_SIZE_MAX
from streamlog.topic import TopicPartition

__all__ = ["NOTE", "UNFINISHED", "ExportedFile", "ExportPosition", "file_front", "positions_in"]

_NAME: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})"
    r"-(?P<first>[0-9]{20})-(?P<last>[0-9]{20})(?:-e(?P<epoch>[0-9]{1,10}))?"
    r"\.(?P<extension>ndjson|csv|parquet)",
    re.ASCII,
)
NOTE: Final = "_streamlog.json"  # describes an export, beside its files
UNFINISHED: Final = re.compile(
    rf"[a-zA-Z0-9._-]{{1,249}}-[0-9]{{1,10}}-[0-9]{{20}}|{re.escape(NOTE)}", re.ASCII
)
_MAX_NUMBER: Final = 2**63 - 1


class ExportPosition(NamedTuple):
    """Where an export of a partition goes on.

    Attributes:
        offset: The offset after the last one that was exported.
        epoch: Leader epoch of the record before `offset`; -1 if unknown.
    """

    offset: int
    epoch: int = -1


class ExportedFile(NamedTuple):
    """The records of one file; both offsets are inclusive."""

    topic: str
    partition: int
    first: int
    last: int
    epoch: int
    extension: str

    @classmethod
    def parse(cls, name: str) -> "ExportedFile | None":
        """Return what a name says; None if an export does not give such names."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        numbers = [int(found[each] or -1) for each in ("partition", "first", "last", "epoch")]
        if max(numbers) > _MAX_NUMBER or numbers[1] > numbers[2]:
            return None
        partition, first, last, epoch = numbers
        return cls(found["topic"], partition, first, last, epoch, found["extension"])

    @property
    def name(self) -> str:
        """The name of the file."""
        epoch = f"-e{self.epoch}" if self.epoch >= 0 else ""
        front = file_front(TopicPartition(self.topic, self.partition), self.first)
        return f"{front}-{self.last:020d}{epoch}.{self.extension}"


def file_front(partition: TopicPartition, first: int) -> str:
    """Return the part of a file's name that is known when the file is begun.

    Raises:
        InvalidTopicError: The topic's name is too long for the name of a file with two offsets.
    """
    front = f"{partition}-{first:020d}"
    room = NAME_SIZE_MAX - len("-00000000000000000000-e2147483647.parquet")
    if len(front) > room:
        raise InvalidTopicError(
            "the topic's name is too long for names of exported files",
            got=f"{len(partition.topic)} characters: {partition.topic[:60]}…",
            expected=f"at most {len(partition.topic) - len(front) + room}",
            hint="export it into a table: --format delta",
        )
    return front


def positions_in(
    files: Iterable[ExportedFile], *, where: str
) -> Mapping[TopicPartition, ExportPosition]:
    """Return where the files of an export end.

    Args:
        files: All files.
        where: Their directory, for errors.

    Raises:
        InvalidRequestError: Between two files of a partition one is missing, or they overlap.
    """
    found: dict[TopicPartition, ExportedFile] = {}
    for each in sorted(files, key=lambda file: (file.topic, file.partition, file.first)):
        partition = TopicPartition(each.topic, each.partition)
        before = found.get(partition)
        if before is not None and each.first != before.last + 1:
            overlap = each.first <= before.last
            raise InvalidRequestError(
                "two exported files hold the same offsets"
                if overlap
                else "a file is missing between two exported ones",
                path=f"{where}/{each.name}",
                got=f"first offset {each.first}",
                expected=f"{before.last + 1}, after {before.name}",
                hint="two exports ran at once: remove one of the files"
                if overlap
                else "put it back, or export into another directory",
            )
        found[partition] = each
    return {
        partition: ExportPosition(each.last + 1, each.epoch) for partition, each in found.items()
    }
