"""The disks fail and come back as real ones do."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs.reliability.kinds.disks import JOURNAL_LOST, missing, missing_below
from tests.programs.replicas.disks import ReplicaDisk, replica_disks

pytestmark = pytest.mark.skipif(missing("ext4") is not None, reason=str(missing("ext4")))


@pytest.fixture
def disk() -> Iterator[ReplicaDisk]:
    """A disk with a synced file `kept` and a file `lost` that is only in the page cache."""
    with replica_disks() as disks:
        write(disks[0], "kept", is_synced=True)
        write(disks[0], "lost", is_synced=False)
        yield disks[0]


def write(disk: ReplicaDisk, name: str, *, is_synced: bool) -> None:
    with (Path(disk.root) / name).open("wb") as file:
        file.write(b"x" * 10_000)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())


def names(disk: ReplicaDisk) -> set[str]:
    return {*os.listdir(disk.root)} - {"lost+found"}


@contextmanager
def fails_with(number: int) -> Iterator[None]:
    with pytest.raises(OSError) as raised:
        yield
    assert raised.value.errno == number


def test_a_detached_disk_leaves_an_empty_directory_and_comes_back(disk: ReplicaDisk) -> None:
    with (Path(disk.root) / "held").open("wb"):  # keeps the old mount alive
        disk.detach()
        assert not os.path.ismount(disk.root)
        assert names(disk) == set()
        disk.come_back()
    assert os.path.ismount(disk.root)
    assert "kept" in names(disk)


def test_a_power_cut_takes_what_is_not_synced(disk: ReplicaDisk) -> None:
    disk.cut_power(JOURNAL_LOST)
    with fails_with(errno.EIO):
        write(disk, "more", is_synced=False)
    disk.come_back()
    assert names(disk) == {"kept"}


def test_a_full_disk_refuses_more_until_it_is_back(disk: ReplicaDisk) -> None:
    disk.fill()
    with fails_with(errno.ENOSPC):
        write(disk, "more", is_synced=True)
    disk.come_back()
    write(disk, "more", is_synced=True)
    assert "ballast" not in names(disk)


def test_a_disk_is_replaced_by_an_empty_one_or_by_an_older_copy(disk: ReplicaDisk) -> None:
    disk.copy()
    write(disk, "later", is_synced=True)
    disk.be_replaced()
    assert names(disk) == set()
    disk.be_restored()
    assert names(disk) == {"kept", "lost"}


@pytest.mark.skipif(missing_below("ext4") is not None, reason=str(missing_below("ext4")))
def test_a_disk_may_refuse_records_and_be_replaced() -> None:
    with replica_disks(refusing=0) as disks:
        write(disks[0], "kept", is_synced=True)
        disks[0].be_replaced()
        assert names(disks[0]) == set()
