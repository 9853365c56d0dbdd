"""The writer under faults, a process of its own: appends with acks=all and keeps a diary.

    python -m tests.programs.replicas.writer ROOTS DIARY LIFE

A line of the diary is a word, the number of a batch, and the offset of its first record or -1:

    tried     before the append
    acked     the append returned
    refused   the append raised an error that says that nothing was appended
    unknown   the append raised an error that leaves it open

The values of a batch's records are `LIFE:NUMBER:INDEX`. The writer never repeats a batch.
"""

import os
import sys
import time
from pathlib import Path
from typing import Final

from streamlog.errors import StreamLogError, UnknownOutcomeError
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.root.replica_set import ReplicaSet
from streamlog.topic import TopicPartition

__all__ = ["PARTITION", "RECORDS", "values_of"]

PARTITION: Final = TopicPartition("orders", 0)
RECORDS: Final = 5  # a batch
PAUSE_S: Final = 0.02  # after an error


def values_of(life: str, number: int) -> list[bytes]:
    """Return the values of a batch, which no other batch has."""
    return [f"{life}:{number}:{index}".encode() for index in range(RECORDS)]


class Diary:
    """Lines that survive the death of the process."""

    def __init__(self, path: Path, life: str) -> None:
        self._life = life
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, word: str, number: int, offset: int = -1) -> None:
        """Append a line."""
        os.write(self._descriptor, f"{word} {self._life} {number} {offset}\n".encode())


def main(roots: str, diary: Diary, life: str) -> None:
    """Append until killed; after an error, open the replica set again."""
    number = 0
    while True:
        try:
            with ReplicaSet.open(roots) as replica_set:
                log = replica_set.log(*PARTITION)
                while True:
                    number += 1
                    _append(log, diary, life, number)
        except StreamLogError as error:
            print(f"{life} {number}: {error}", file=sys.stderr, flush=True)
            time.sleep(PAUSE_S)


def _append(log: PartitionLog, diary: Diary, life: str, number: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = [Record(value[:8], value, (), now_ms) for value in values_of(life, number)]
    diary.note("tried", number)
    try:
        appended = log.append(records)
    except UnknownOutcomeError:
        diary.note("unknown", number)
        raise
    except StreamLogError:
        diary.note("refused", number)
        raise
    diary.note("acked", number, appended.base_offset)


if __name__ == "__main__":
    main(sys.argv[1], Diary(Path(sys.argv[2]), sys.argv[3]), sys.argv[3])
