"""Three real file systems, each with one log root, that can be lost in the ways of real disks.

Each is an ext4 image, mounted over a loop device. One that must refuse writes lies on a device of
its own kind (`tests.programs.reliability.block_device`).
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.programs.reliability import scratch
from tests.programs.reliability.block_device import BLOCK_SIZE, BlockDevice, block_device
from tests.programs.reliability.kinds.disks import JOURNAL_FLUSHED, Disk, holds_records

__all__ = ["ReplicaDisk", "replica_disks"]

IMAGE_MIB: Final = 64
COUNT: Final = 3


class ReplicaDisk(Disk):
    """The disk of one log root, which is its mount point.

    Args:
        place: Its own directory.
        device: The device to put the image on; None: an image in memory.
    """

    def __init__(self, place: Path, device: BlockDevice | None = None) -> None:
        super().__init__(place, place / "image" if device is None else device.path)
        self.root = str(self.mount_point)
        self.device = device
        self._place, self._copy = place, place / "copy"
        self._number = 0
        self._is_full = False
        self._ballast = self.mount_point / "ballast"

    def make(self) -> None:
        """Put an empty file system on the image and mount it."""
        if self.device is None:
            with self.image.open("wb") as file:
                file.truncate(IMAGE_MIB << 20)
        self.mount_point.mkdir(exist_ok=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True, capture_output=True)
        self.mount()

    # ---- losing it ---------------------------------------------------------------------------
    def detach(self) -> None:
        """Unmount it lazily: open files stay usable, the mount point is an empty directory."""
        subprocess.run(["umount", "-l", str(self.mount_point)], check=True, capture_output=True)

    def lose_power(self, flag: int = JOURNAL_FLUSHED) -> None:
        """Drop all that is not synced; every later call on the file system fails."""
        self.cut_power(flag)

    def fill(self) -> None:
        """Leave no free block."""
        with self._ballast.open("wb") as file:
            size = IMAGE_MIB << 20
            while size >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
                except OSError:
                    size //= 2
        self._is_full = True

    def refuse(self, refuses: bool) -> None:
        """Start or stop refusing to write records: the next fsync fails with EIO."""
        assert self.device is not None
        self.device.refuse(refuses)

    # ---- what comes back ---------------------------------------------------------------------
    def copy(self) -> None:
        """Copy the log root, to be restored later."""
        shutil.rmtree(self._copy, ignore_errors=True)
        subprocess.run(["cp", "-a", str(self.mount_point), str(self._copy)], check=True)

    def come_back(self) -> None:
        """Return as it was: mounted, its journal replayed, with free blocks, taking writes."""
        if self.device is not None:
            self.device.refuse(False)
        elif self._is_full:
            self._ballast.unlink()
            self._is_full = False
        else:
            # A process may still hold files of the lost mount, which keeps the old loop device
            # alive. Only a copy of the image gets a new one; it lacks what was not written back.
            self._leave(keeps=True)
            self.mount()

    def be_replaced(self) -> None:
        """Put an empty disk in its place."""
        self._leave(keeps=False)
        self.make()

    def _leave(self, *, keeps: bool) -> None:
        if os.path.ismount(self.mount_point):
            self.detach()
        self._is_full = False
        old, device, self.device = self.image, self.device, None
        self._number += 1
        self.image = self._place / f"image-{self._number}"
        if keeps:
            subprocess.run(["cp", "--sparse=always", str(old), str(self.image)], check=True)
        if device is None:
            old.unlink()

    def be_restored(self) -> None:
        """Put a disk with the earlier copy in its place."""
        self.be_replaced()
        subprocess.run(["cp", "-aT", str(self._copy), str(self.mount_point)], check=True)


@contextmanager
def replica_disks(*, refusing: int | None = None) -> Iterator[list[ReplicaDisk]]:
    """Mount the disks of a replica set.

    Args:
        refusing: The number of the disk that can refuse writes.
    """
    with ExitStack() as stack:
        place = stack.enter_context(scratch.place())
        disks = []
        for number in range(COUNT):
            own = place / f"disk-{number}"
            own.mkdir()
            device = None
            if number == refusing:
                (own / "device").mkdir()
                holds_records(memoryview(bytes(BLOCK_SIZE)))  # compiled before the kernel waits
                device = stack.enter_context(
                    block_device(own / "device", IMAGE_MIB << 20, holds_records)
                )
            disk = ReplicaDisk(own, device)
            disk.make()
            stack.callback(_detach_quietly, disk)
            disks.append(disk)
        yield disks


def _detach_quietly(disk: ReplicaDisk) -> None:
    subprocess.run(["umount", "-l", str(disk.mount_point)], check=False, capture_output=True)
