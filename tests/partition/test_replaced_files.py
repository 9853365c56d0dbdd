"""Files that somebody replaces or removes under an open handle: nothing goes into them unseen."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import PoisonedError, StreamLogError, UnknownTopicError
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog

NOW = 1_700_000_000_000
LOG = "00000000000000000000.log"


def opened(path: Path, clock: ManualClock) -> PartitionLog:
    return PartitionLog.open(path, clock=clock, random=Random(1))


def append(log: PartitionLog, key: bytes) -> None:
    log.append([Record(key, b"v", (), NOW)])


def copy_of_the_log(partition: Path) -> None:
    shutil.copyfile(partition / LOG, partition / "copy")
    os.replace(partition / "copy", partition / LOG)


def no_log(partition: Path) -> None:
    (partition / LOG).unlink()


def copy_of_the_directory(partition: Path) -> None:
    shutil.copytree(partition, partition.with_name("copy"))
    shutil.move(partition, partition.with_name("kept"))
    shutil.move(partition.with_name("copy"), partition)


def no_directory(partition: Path) -> None:
    shutil.move(partition, partition.with_name("kept"))


ALL = (copy_of_the_log, no_log, copy_of_the_directory, no_directory)


@pytest.mark.parametrize("replace", ALL, ids=lambda replace: replace.__name__)
def test_an_append_notices_a_millisecond_later_that_its_file_was_replaced(
    replace: Callable[[Path], None], tmp_path: Path
) -> None:
    partition, clock = tmp_path / "root" / "orders-0", ManualClock(NOW)
    log = opened(partition, clock)
    append(log, b"0")
    replace(partition)
    clock.advance(2)
    is_gone = replace is no_directory
    with pytest.raises(UnknownTopicError if is_gone else PoisonedError, match=r"deleted|replaced"):
        append(log, b"1")
    with pytest.raises(StreamLogError):
        append(log, b"1")
    if replace in (copy_of_the_log, copy_of_the_directory):
        with opened(partition, clock) as again:
            append(again, b"2")
            assert [each.key for each in again.read(0).records()] == [b"0", b"2"]


@pytest.mark.parametrize("replace", ALL, ids=lambda replace: replace.__name__)
@pytest.mark.parametrize("call", ["flush", "roll", "close"])
def test_nothing_is_called_durable_in_a_file_that_was_replaced(
    replace: Callable[[Path], None], call: str, tmp_path: Path
) -> None:
    partition, clock = tmp_path / "root" / "orders-0", ManualClock(NOW)
    log = opened(partition, clock)
    append(log, b"0")
    replace(partition)  # and the clock stands still: no append would look yet
    append(log, b"1")
    with pytest.raises(PoisonedError, match="replaced"):
        getattr(log, call)()
