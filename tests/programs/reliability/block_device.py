"""A block device that refuses writes on demand: the only file of a FUSE file system, as a loop.

Many kernels lack their own faulty devices (dm-flakey, dm-error, NBD); `/dev/fuse` and loop devices
are available nearly everywhere. A file system on this device gets a genuine EIO of a write, with
all consequences for its page cache: the first fsync fails, the second succeeds, and reads return
the unwritten data until the page is dropped.

The server implements the kernel's protocol (`linux/fuse.h`) as far as one file needs it. It keeps
the bytes in memory and runs in a separate process, because a process that waits for its own disk
would deadlock.
"""

import ctypes
import errno
import mmap
import os
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from tests.programs.reliability import scratch

DEVICE: Final = "/dev/fuse"
NAME: Final = b"disk"
ROOT_NODE, FILE_NODE = 1, 2
MAX_WRITE: Final = 128 << 10
BLOCK_SIZE: Final = 4096

_IN: Final = struct.Struct("<IIQQIIIHH")  # length, opcode, unique, node; uid, gid and pid
_OUT: Final = struct.Struct("<IiQ")  # length, error, unique
_ATTRIBUTES: Final = struct.Struct("<QQQQQQIIIIIIIIII")
_TRANSFER: Final = struct.Struct("<QQIIQII")  # handle, offset, size, flags
_INIT: Final = struct.Struct("<IIIIHHIIHHIIIIIIII")
_FOREVER: Final = 1 << 30  # seconds that the kernel may cache a name or a size
_DIRECT_IO: Final = 1  # do not cache the device, as the file system on it has its own cache

Refuses = Callable[[memoryview], bool]


class Opcode(IntEnum):
    """The opcodes that are answered: `FUSE_…` of `linux/fuse.h`."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    BATCH_FORGET = 42


_WITHOUT_ANSWER: Final = {Opcode.FORGET, Opcode.BATCH_FORGET}


class BlockDevice:
    """A disk whose writes fail on demand.

    Attributes:
        path: The file to format and to loop-mount.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._shared = mmap.mmap(-1, 16)  # shared with the server: refusing?, count of refusals

    def refuse(self, refuses: bool) -> None:
        """Start or stop refusing writes."""
        self._shared[0] = refuses

    @property
    def is_refusing(self) -> bool:
        """Whether writes are refused now."""
        return bool(self._shared[0])

    @property
    def refused(self) -> int:
        """The number of writes that have failed."""
        return int.from_bytes(self._shared[8:16], "little")

    def count_refusal(self) -> None:
        self._shared[8:16] = (self.refused + 1).to_bytes(8, "little")


@contextmanager
def block_device(directory: Path, size: int, refuses: Refuses) -> Iterator[BlockDevice]:
    """Serve a disk.

    Args:
        directory: An empty directory, where its file appears.
        size: In bytes.
        refuses: Returns whether the disk may refuse a given block of `BLOCK_SIZE` bytes.

    Raises:
        OSError: FUSE is missing, or mounting is not permitted.
    """
    device = BlockDevice(directory / NAME.decode())
    kernel = os.open(DEVICE, os.O_RDWR)
    server = 0
    try:
        _mount(kernel, directory)
        parent, server = os.getpid(), os.fork()
        if server == 0:
            try:
                scratch.die_with(parent)
                _serve(kernel, _Disk(bytearray(size), device, refuses))
            finally:
                os._exit(0)
        yield device
    finally:
        os.close(kernel)
        subprocess.run(["umount", "-l", str(directory)], check=False, capture_output=True)
        if server:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)


def _mount(kernel: int, directory: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % kernel
    if libc.mount(b"disk", os.fsencode(directory), b"fuse", 0, options):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(directory))


# ---- the server --------------------------------------------------------------------------------
def _serve(kernel: int, disk: "_Disk") -> None:
    """Answer the kernel until the file system is unmounted."""
    while True:
        try:
            request = os.read(kernel, MAX_WRITE + BLOCK_SIZE)
        except InterruptedError:
            continue
        except OSError:
            return  # ENODEV: unmounted
        _, opcode, unique, node, *_ = _IN.unpack_from(request)
        if opcode in _WITHOUT_ANSWER:
            continue
        try:
            body = memoryview(request)[_IN.size :]
            answer, error = _answer(opcode, node, body, disk), 0
        except OSError as failure:
            answer, error = b"", failure.errno or errno.EIO
        os.write(kernel, _OUT.pack(_OUT.size + len(answer), -error, unique) + answer)


class _Disk(NamedTuple):
    data: bytearray
    device: BlockDevice
    refuses: Refuses

    def write(self, source: memoryview, offset: int) -> None:
        blocks = (source[at : at + BLOCK_SIZE] for at in range(0, len(source), BLOCK_SIZE))
        if self.device.is_refusing and any(map(self.refuses, blocks)):
            self.device.count_refusal()
            raise OSError(errno.EIO, "refused")
        self.data[offset : offset + len(source)] = source


def _answer(opcode: int, node: int, body: memoryview, disk: _Disk) -> bytes:
    match opcode:
        case Opcode.INIT:
            major, _, read_ahead = struct.unpack_from("<III", body)
            return _INIT.pack(
                *(major, 31, read_ahead, 0, 16, 12, MAX_WRITE, 1, MAX_WRITE // BLOCK_SIZE, 0),
                *(0,) * 8,
            )
        case Opcode.LOOKUP if bytes(body) == NAME + b"\0":
            times = struct.pack("<QQQQII", FILE_NODE, 0, _FOREVER, _FOREVER, 0, 0)
            return times + _attributes(FILE_NODE, len(disk.data))
        case Opcode.LOOKUP:
            raise OSError(errno.ENOENT, "no such name")
        case Opcode.GETATTR | Opcode.SETATTR:
            return struct.pack("<QII", _FOREVER, 0, 0) + _attributes(node, len(disk.data))
        case Opcode.OPEN:
            return struct.pack("<QII", 1, _DIRECT_IO, 0)
        case Opcode.READ:
            _, offset, size, *_ = _TRANSFER.unpack_from(body)
            return bytes(disk.data[offset : offset + size])
        case Opcode.WRITE:
            _, offset, size, *_ = _TRANSFER.unpack_from(body)
            disk.write(body[_TRANSFER.size :][:size], offset)
            return struct.pack("<II", size, 0)
        case Opcode.STATFS:
            return bytes(80)
        case Opcode.RELEASE | Opcode.FSYNC | Opcode.FLUSH:
            return b""
    raise OSError(errno.ENOSYS, "not served")


def _attributes(node: int, size: int) -> bytes:
    mode = 0o40755 if node == ROOT_NODE else 0o100600
    times = (0,) * 6
    return _ATTRIBUTES.pack(node, size, size // 512, *times, mode, 1, 0, 0, 0, BLOCK_SIZE, 0)
