"""A log root: check one, make one.

`streamlog.fs.log_root` lists the files of a root. A root without `.streamlog` is a foreign one,
such as a broker's log.dir: its directories are its topics, and reading it changes nothing there.

A missing or empty directory can become a root. A directory with other contents needs `adopt`,
unless it holds only logs and the caller has named one of them. Directories of the operating system
are refused.
"""

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from streamlog.config.properties import format_properties
from streamlog.config.server_config import server_template
from streamlog.errors import (
    InvalidRequestError,
    StorageError,
    StreamLogError,
    UnavailableError,
    UnknownTopicError,
    command_at,
)
from streamlog.fs.api import FileKind, FileStat, FileSystem
from streamlog.fs.files import (
    locked,
    make_directories,
    stat_directory,
    write_file_atomically,
)
from streamlog.fs.log_root import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    STATE_DIRECTORY,
    LogRoot,
)
from streamlog.fs.names import remove_stale_temporaries
from streamlog.partition.meta_properties import MetaProperties, write_meta_properties
from streamlog.root.directories import Holding, holding_of
from streamlog.topic import TopicPartition, parse_partition_directory
from streamlog.words import listed

__all__ = [
    "ONE_OF_A_SET",
    "check_root",
    "is_log_dir",
    "is_our_root",
    "make_root",
    "no_replica_set_error",
    "refuse_live_broker",
    "refuse_planted",
    "registry_locked",
    "remove_leftovers",
    "write_topic_properties",
]

# For the hint of an error about a root that is missing or empty, as a lost disk leaves it.
ONE_OF_A_SET: Final = "; if it is one root of a replica set, pass all roots, separated by commas"
CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'
_LOST_AND_FOUND: Final = "lost+found"  # at the top of every ext4 file system
# Files next to the partitions in a copied log.dir.
_OF_A_LOG_DIR: Final = re.compile(
    r"[a-z-]+-offset-checkpoint|\.lock|\.kafka_cleanshutdown", re.ASCII
)
_NAMED_MAX: Final = 5  # names quoted in an error
_OF_THE_SYSTEM: Final = frozenset(
    (
        *("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32"),
        *(
            "/proc",
            "/run",
            "/sbin",
            "/sys",
            "/tmp",
            "/usr",
            "/var",
            "/var/lib",
            "/var/log",
            "/var/tmp",
        ),
    )
)
_OF_THE_KERNEL: Final = ("/proc/", "/sys/")
_OPEN_TO_ALL: Final = stat.S_IWOTH | stat.S_ISVTX
_SUPERUSER: Final = 0
_OF_A_ROOT: Final = (
    STATE_DIRECTORY,
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    *CHECKPOINTS,
)

_logger = logging.getLogger(__name__)


def is_our_root(root: LogRoot) -> bool:
    """Return whether streamlog made this root, and finished making it."""
    found = root.fs.stat(root.server_properties)
    return found is not None and found.kind is FileKind.FILE


def is_log_dir(fs: FileSystem, path: str) -> bool:
    """Return whether a directory is a log root or a log.dir, judged by files next to partitions."""
    names = fs.list(path)
    known = (META_PROPERTIES, STATE_DIRECTORY)
    return any(name in known or _OF_A_LOG_DIR.fullmatch(name) for name in names)


# ---- checks --------------------------------------------------------------------------------
def check_root(root: LogRoot) -> None:
    """Check that a root is a readable directory.

    Raises:
        UnknownTopicError: The path does not exist.
        InvalidRequestError: It is not a directory.
        StorageError: It is not readable.
    """
    found = stat_directory(root.fs, root.path)
    if found is None:
        raise UnknownTopicError(
            "there is no log root",
            path=root.path,
            hint=f"create it with its first topic: {command_at(root.path, 'topics create NAME')}"
            + ONE_OF_A_SET,
        )
    _check_is_directory(root.path, found)
    try:
        root.fs.list(root.path)
    except StorageError as error:
        error.hint = f"check its permissions: ls -ld {root.path}"
        raise


def no_replica_set_error(root: LogRoot) -> StreamLogError:
    """Return the error for a root that must belong to a replica set."""
    try:
        check_root(root)
    except StreamLogError as error:
        return error
    hint = f"add a second log root: {command_at(root.path, 'replicas add ROOT')}"
    return InvalidRequestError(
        "log root belongs to no replica set",
        path=root.path,
        hint=hint if is_our_root(root) else hint + ONE_OF_A_SET,
    )


def refuse_live_broker(root: LogRoot) -> None:
    """Raise if a running broker owns the directory.

    Raises:
        UnavailableError: The broker's `.lock` is held.
    """
    if root.fs.broker_lock_is_held(root.broker_lock):
        raise UnavailableError(
            "a running Kafka broker owns this log directory; nothing was written",
            path=root.path,
            got="its .lock is held",
            expected="a stopped broker",
            hint="stop the broker, or read here and write to a root of your own",
        )


# ---- making a root --------------------------------------------------------------------------
def make_root(
    root: LogRoot,
    *,
    adopt: bool = False,
    named: TopicPartition | None = None,
    meta: MetaProperties | None = None,
) -> None:
    """Make a log root, or finish one after a crash; durable.

    Existing partitions become topics of the root; other files stay as they are.

    Args:
        root: The directory; missing parents are created too.
        adopt: Accept a directory with other contents.
        named: A partition that the caller has named: a directory of only logs is accepted too.
        meta: The ids of the new root; fresh ones by default.

    Raises:
        InvalidRequestError: The path is not a directory, not empty, world-writable, part of the
            operating system, or a broker's log.dir; or another user owns a part of the root.
        UnavailableError: A running broker owns the directory.
        StorageError: The disk failed; the next call continues.
    """
    refuse_planted(root)
    if is_our_root(root):
        return
    _refuse_system_directory(root)
    found = stat_directory(root.fs, root.path)
    if found is not None:
        _check_is_directory(root.path, found)
        refuse_live_broker(root)
        _refuse_formatted_log_dir(root)
        _refuse_world_writable(root.path, found)
        if not adopt:
            _refuse_filled(root, named)
    make_directories(root.fs, root.path)
    make_directories(root.fs, root.state)
    refuse_planted(root)  # again: another user may have created it first
    for directory in (root.locks, root.topics, root.staging, root.commits, root.readers):
        root.fs.make_directory(directory)
    root.fs.sync_directory(root.state)
    with registry_locked(root):
        if not is_our_root(root):
            _fill_root(root, meta)
            _logger.info("made log root %s", root.path)


@contextlib.contextmanager
def registry_locked(root: LogRoot) -> Iterator[None]:
    """Hold the lock of the list of topics.

    Lock order: this one, then locks of partitions, then the checkpoint lock.

    Raises:
        LockTimeoutError: Another process held it.
    """
    what = f"the list of topics of {root.path}"
    with locked(root.fs, root.clock, root.topics_lock, what=what):
        yield


def _fill_root(root: LogRoot, meta: MetaProperties | None) -> None:
    found = _logs_in(root)
    topics = {each.topic for each in found}
    for topic in sorted(topics):
        if root.fs.stat(root.topic_properties(topic)) is None:  # keep settings from an earlier try
            write_topic_properties(root, topic, {})
    if not root.fs.stat(root.meta_properties):
        write_meta_properties(root.fs, root.path, meta or MetaProperties.fresh(root.random))
    root.fs.sync_directory(root.path)  # an earlier process may have died right after the rename
    if not topics:  # nothing is known about how the writers of adopted logs ended
        write_file_atomically(root.fs, root.clean_shutdown, CLEAN_SHUTDOWN_CONTENT)
    # Last: `is_our_root` takes this file as the sign of a finished root.
    write_file_atomically(root.fs, root.server_properties, _server_template().encode("utf-8"))


def write_topic_properties(root: LogRoot, topic: str, properties: Mapping[str, str]) -> None:
    """Write a topic's own settings, durably; the first write creates the topic."""
    path = root.topic_properties(topic)
    make_directories(root.fs, os.path.dirname(path))
    write_file_atomically(root.fs, path, format_properties(properties).encode("ascii"))


def remove_leftovers(root: LogRoot, *, now_ms: int) -> int:
    """Remove temporary files of dead processes outside of partitions; return their number.

    Args:
        root: A log root made by `make_root`.
        now_ms: The present time, in milliseconds since 1970; files younger than an hour stay.
    """
    split = [f"{root.topics}/{name}" for name in root.fs.list(root.topics) if name.endswith("~")]
    directories = (
        root.path,
        root.state,
        root.topics,
        *split,
        root.readers,
        root.pending_decisions,
        root.ledgers,
        root.replication,
    )
    return sum(remove_stale_temporaries(root.fs, each, now_ms=now_ms) for each in directories)


def _check_is_directory(root: str, found: FileStat) -> None:
    if found.kind is not FileKind.DIRECTORY:
        raise InvalidRequestError(
            "a log root must be a directory",
            path=root,
            got=f"a {found.kind.value}",
            hint="pass the parent of the partition directories",
        )


def _refuse_system_directory(root: LogRoot) -> None:
    resolved = root.fs.resolve(root.path)
    if resolved in _OF_THE_SYSTEM or resolved.startswith(_OF_THE_KERNEL):
        raise InvalidRequestError(
            "a directory of the operating system cannot be a log root",
            path=root.path,
            expected="a directory of its own",
            hint=f"use a subdirectory: {os.path.join(root.path, 'streamlog')}",
        )


def _refuse_filled(root: LogRoot, named: TopicPartition | None) -> None:
    """Raise for a directory with other contents; an unfinished root is accepted."""
    names = [name for name in root.fs.list(root.path) if name != _LOST_AND_FOUND]
    if not names or STATE_DIRECTORY in names:
        return
    logs = _logs_in(root)
    if named is not None and holding_of(root.fs, root.partition(named)) is Holding.EMPTY:
        logs.add(named)
    others = [
        name
        for name in names
        if parse_partition_directory(name) not in logs and not _OF_A_LOG_DIR.fullmatch(name)
    ]
    if named is not None and not others:
        return
    raise InvalidRequestError(
        "a directory that is not empty cannot become a log root",
        path=root.path,
        got=listed(others or names, _NAMED_MAX),
        expected="a missing or an empty directory",
        hint="use a directory of its own; to keep logs and other files together, create the root "
        "with " + command_at(root.path, "topics create NAME --adopt"),
    )


def _logs_in(root: LogRoot) -> set[TopicPartition]:
    """Return the partitions in a directory: names of partitions that hold a log."""
    named = (parse_partition_directory(name) for name in root.fs.list(root.path))
    return {
        each
        for each in named
        if each is not None and holding_of(root.fs, root.partition(each)) is Holding.LOG
    }


def _refuse_world_writable(root: str, found: FileStat) -> None:
    if found.mode & stat.S_IWOTH and not found.mode & stat.S_ISVTX:
        raise InvalidRequestError(
            "a world-writable directory cannot be a log root",
            path=root,
            got=f"mode {stat.S_IMODE(found.mode):04o}",
            expected="no write permission for others",
            hint=f"chmod o-w {root}",
        )


def _refuse_formatted_log_dir(root: LogRoot) -> None:
    """Raise for a broker's own log.dir: the broker would not start with `.streamlog` in it."""
    if root.fs.stat(root.meta_properties) and not root.fs.stat(root.state):
        hint = "to write, copy the partition directories to a directory of their own"
        if root.fs.stat(root.moved_state) is not None:  # after a handover
            hint = f"stop the broker, then: {command_at(root.path, 'handover --from-kafka')}"
        raise InvalidRequestError(
            "the log.dir of a Kafka broker is read-only here",
            path=root.path,
            got=META_PROPERTIES,
            expected="a root made by streamlog, or an empty directory",
            hint=hint,
        )


def _server_template() -> str:
    """Return `conf/server.properties`: installed with the package, or in the checkout."""
    packaged = resources.files("streamlog").joinpath("server.properties")
    if packaged.is_file():
        return packaged.read_text("utf-8")
    checkout = Path(os.path.abspath(__file__)).parents[2] / "conf" / "server.properties"
    # A package that Spark ships to its workers as a zip has neither.
    return checkout.read_text("utf-8") if checkout.is_file() else server_template()


# ---- files of other users ---------------------------------------------------------------------


def refuse_planted(root: LogRoot, *names: str) -> None:
    """Raise if another user owns a part of a root in a sticky, world-writable directory.

    In such a directory, as `/tmp`, any user can create `.streamlog` or `orders-0` first and own
    what others write there. A part is accepted if its owner is this process's user, root, or the
    owner of the directory. Members of a group that shares a directory (`chmod 2770`) trust each
    other. Only writers check this: readers verify every byte, whoever wrote it.

    Args:
        root: The log root; it may be missing.
        names: Directories of partitions that will be written, besides the files of every root.

    Raises:
        InvalidRequestError: There is such a part; nothing was written.
    """
    shared = stat_directory(root.fs, root.path)
    if shared is None or shared.mode & _OPEN_TO_ALL != _OPEN_TO_ALL:
        return
    trusted = {root.fs.user_id(), _SUPERUSER, shared.owner}
    for name in (*_OF_A_ROOT, *names):
        path = f"{root.path}/{name}"
        found = root.fs.stat(path)
        if found is not None and found.owner not in trusted:
            raise InvalidRequestError(
                "another user owns this part of a root in a world-writable directory",
                path=path,
                got=f"owner {found.owner} in a directory of mode {stat.S_IMODE(shared.mode):04o}",
                expected=f"owner {root.fs.user_id()}, root, or the directory owner {shared.owner}",
                hint=f"use a directory of your own or of a group: chmod o-w {root.path}",
            )
