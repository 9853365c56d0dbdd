"""The lock of one partition, and what its holders leave for each other in the lock file.

`<root>/.streamlog/locks/<topic>-<partition>` is held (`flock`) by whoever appends. Its bytes say
two things. The first 256 are one line about the holder (`streamlog.fs.files.LockHolder`), for
those who wait. Behind it stands the *shared state*, 104 bytes, big-endian:

    | off | size | field          |                                                            |
    |-----|------|----------------|------------------------------------------------------------|
    |   0 |    4 | flags          | 1 dirty, 2 pending, 4 distrusted, 8 epoch due              |
    |   4 |    4 | mark           | `SLS2`                                                     |
    |   8 |    4 | crc            | CRC-32C over the bytes from 12 on                          |
    |  12 |   36 | boot id        | of the machine that wrote it                               |
    |  48 |    8 | generation     | goes up by one with every change                           |
    |  56 |    8 | log start      | log start offset                                           |
    |  64 |    8 | log end        | log end offset                                             |
    |  72 |    8 | active base    | base offset of the active segment                          |
    |  80 |    8 | active size    | its bytes of whole batches                                 |
    |  88 |    8 | recovery point | everything below it is synced                              |
    |  96 |    8 | last flush     | when, in milliseconds since 1970                           |

It is never synced and never believed after a reboot (the boot id tells): it spares the next
writer of the same boot a scan, nothing else. *Dirty* stands while a holder changes the log: who
finds it set knows that the holder died in the act and looks at everything behind `active size`.
*Pending* says that a commit's decision may name this partition. *Distrusted* stands while records
are synced, and stays where that failed or nobody knows how it ended: above the recovery point the
cache may differ from the disk. It is set before, for a disk that refuses a sync may refuse the
note of it as well. *Epoch due* says that offsets
may be lost and the leader epoch must go up, after pending decisions have filled what they can.
The flags stand in front and outside the checksum, so that one small write says both who begins to
change the log and that it is dirty.
"""

import struct
from typing import Final, NamedTuple

from streamlog.binary.crc import crc32c
from streamlog.clock import Clock
from streamlog.errors import UnavailableError
from streamlog.fs.api import FileLock, FileSystem
from streamlog.fs.names import fitting_name
from streamlog.partition.lock_states import KNOWN_FLAGS
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.waiting import wait_for_lock
from streamlog.topic import TopicPartition

__all__ = [
    "SharedState",
    "broker_lock_path",
    "decode_state",
    "encode_state",
    "lock_path",
    "locks_directory",
    "read_state",
    "refuse_live_broker",
    "take_partition_lock",
    "write_flags",
    "write_holder_and_flags",
    "write_state",
]

_STATE_OFFSET: Final = 256
_MARK: Final = b"SLS2"
_FLAGS: Final = struct.Struct(">I")
_PREFIX: Final = struct.Struct(">I4sI")
_BODY: Final = struct.Struct(">36sqqqqqqq")
_STATE_SIZE: Final = _PREFIX.size + _BODY.size
assert _STATE_SIZE == 104


class SharedState(NamedTuple):
    """What the last holder of the lock knew when it let go."""

    boot_id: str
    generation: int
    offsets: LogOffsets
    active_base_offset: int
    active_size: int
    last_flush_ms: int
    flags: int


def locks_directory(root: str) -> str:
    """Return the directory of a root's lock files."""
    return f"{root}/.streamlog/locks"


def lock_path(root: str, partition: TopicPartition) -> str:
    """Return the path of a partition's lock file."""
    return f"{locks_directory(root)}/{fitting_name(str(partition))}"


def broker_lock_path(root: str) -> str:
    """Return the path of the lock file a live broker holds on its log.dir."""
    return f"{root}/.lock"


def refuse_live_broker(fs: FileSystem, root: str) -> None:
    """Raise where a running broker owns `root`.

    Raises:
        UnavailableError: The broker's `.lock` is held.
    """
    if fs.broker_lock_is_held(broker_lock_path(root)):
        raise UnavailableError(
            "a running Kafka broker owns this log directory; nothing was written",
            path=root,
            got="its .lock is held",
            expected="a stopped broker",
            hint="stop the broker, or read here and write to a root of your own",
        )


def take_partition_lock(
    fs: FileSystem, clock: Clock, root: str, partition: TopicPartition, *, timeout_ms: float
) -> FileLock:
    """Take the exclusive lock of a partition, waiting at most `timeout_ms`.

    Raises:
        LockTimeoutError: Somebody else held it all the time; names holder and age.
        StorageError: The lock file cannot be opened.
    """
    path = lock_path(root, partition)
    return wait_for_lock(fs, clock, path, timeout_ms=timeout_ms, what=f"partition {partition}")


def read_state(lock: FileLock) -> bytes:
    """Return the bytes that the last holder left; see `decode_state`."""
    return lock.file.pread(_STATE_SIZE, _STATE_OFFSET)


def decode_state(data: bytes) -> SharedState | None:
    """Return the state in `data`, None where it is nothing whole."""
    if len(data) != _STATE_SIZE:
        return None
    flags, mark, crc = _PREFIX.unpack_from(data)
    if mark != _MARK or crc != crc32c(data[_PREFIX.size :]):
        return None
    boot_id, generation, start, end, base, size, recovery_point, last_flush_ms = _BODY.unpack_from(
        data, _PREFIX.size
    )
    return SharedState(
        boot_id.decode("latin-1").rstrip("\0"),
        generation,
        LogOffsets.of_one_replica(start, end, recovery_point),
        base,
        size,
        last_flush_ms,
        flags & KNOWN_FLAGS,
    )


def encode_state(state: SharedState) -> bytes:
    """Return `state` as the lock file holds it."""
    boot_id, generation, offsets, base, size, last_flush_ms, _ = state
    start, _, end, recovery_point = offsets
    body = _BODY.pack(
        boot_id.encode("latin-1")[:36],
        generation,
        start,
        end,
        base,
        size,
        recovery_point,
        last_flush_ms,
    )
    return _PREFIX.pack(state.flags, _MARK, crc32c(body)) + body


def write_state(lock: FileLock, state: bytes) -> None:
    """Leave an encoded state for the next holder; one small write, not synced."""
    lock.file.pwrite(state, _STATE_OFFSET)


def write_holder_and_flags(lock: FileLock, flags: int, *, pid: int, now_ms: int) -> None:
    """Leave flags, and the line about the holder; one small write, the rest of the state stands.

    Args:
        lock: The lock, held by this process.
        flags: The flags to leave.
        pid: This process.
        now_ms: The time.
    """
    line = b"%d %d append\n" % (pid, now_ms)
    lock.file.pwrite(line.ljust(_STATE_OFFSET) + _FLAGS.pack(flags), 0)


def write_flags(lock: FileLock, flags: int) -> None:
    """Leave flags; the rest of the state stands."""
    lock.file.pwrite(_FLAGS.pack(flags), _STATE_OFFSET)
