"""A log root: a directory of partitions, and `.streamlog` with what Kafka has no file for.

    ROOT/
      orders-0/ orders-1/ …              partitions, as a broker's log.dir has them
      *-offset-checkpoint                checkpoints
      meta.properties                    cluster and node
      .kafka_cleanshutdown               everybody who wrote here has left in order
      .streamlog/
        server.properties                the root's settings; written last when a root is made
        topics/orders.properties         a topic's settings; written last when a topic is made
        locks/                           lock files: partitions, `root`, `topics`, `open`
        staging/ commits/                of transactional writers
        readers/                         positions of readers

A root without `.streamlog` is a foreign one, such as a broker's: its directories are its topics,
and reading it changes nothing there.

A root is made of a missing or an empty directory. One that holds anything needs the explicit word
`adopt`, except where all it holds are logs and a caller has named one of them. A directory of the
operating system is never made a root.
"""

import contextlib
import logging
import os
import random as random_module
import re
import stat
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from streamlog.clock import Clock
from streamlog.config.properties import format_properties
from streamlog.config.server_config import server_template
from streamlog.errors import (
    InvalidRequestError,
    StorageError,
    UnknownTopicError,
    command_at,
)
from streamlog.fs.api import FileKind, FileStat, FileSystem
from streamlog.fs.files import (
    acquire_lock,
    make_directories,
    stat_directory,
    write_file_atomically,
)
from streamlog.fs.names import remove_stale_temporaries
from streamlog.partition.locks import refuse_live_broker
from streamlog.partition.root_marks import sync_names
from streamlog.partition.topic_config import (
    STATE_DIRECTORY,
    read_properties,
    read_server_config,
    server_properties_path,
    state_path,
    topic_of_properties,
    topic_properties_path,
)
from streamlog.root.directories import Holding, holding_of
from streamlog.root.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    write_meta_properties,
)
from streamlog.root.planted import refuse_planted
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = [
    "CLEAN_SHUTDOWN",
    "STATE_DIRECTORY",
    "check_root",
    "is_log_dir",
    "is_our_root",
    "make_root",
    "read_properties",
    "read_server_config",
    "registry_locked",
    "remove_leftovers",
    "server_properties_path",
    "state_path",
    "sync_names",
    "topic_of_properties",
    "topic_properties_path",
    "write_topic_properties",
]

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"  # CleanShutdownFileHandler.CLEAN_SHUTDOWN_FILE_NAME
CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'
_SUBDIRECTORIES: Final = ("locks", "topics", "staging", "commits", "readers")
_LOCK_TIMEOUT_MS: Final = 30_000
_LOST_AND_FOUND: Final = "lost+found"  # at the top of every ext4 file system
# Beside the partitions of a copied log.dir: checkpoints, the broker's lock, its mark.
_OF_A_LOG_DIR: Final = re.compile(
    r"[a-z-]+-offset-checkpoint|\.lock|\.kafka_cleanshutdown", re.ASCII
)
_NAMED_MAX: Final = 5  # so many names an error quotes
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

_logger = logging.getLogger(__name__)


def is_our_root(fs: FileSystem, root: str) -> bool:
    """Tell whether a directory has been made a log root by streamlog, completely."""
    found = fs.stat(server_properties_path(root))
    return found is not None and found.kind is FileKind.FILE


def is_log_dir(fs: FileSystem, root: str) -> bool:
    """Tell whether a directory is a log root or a broker's log.dir, by files beside partitions.

    Raises:
        StorageError: It cannot be listed.
    """
    names = fs.list(root)
    known = (META_PROPERTIES, STATE_DIRECTORY)
    return any(name in known or _OF_A_LOG_DIR.fullmatch(name) for name in names)


# ---- looking at a root ----------------------------------------------------------------------
def check_root(fs: FileSystem, root: str) -> None:
    """Check that a root is a directory that can be read.

    Raises:
        UnknownTopicError: There is nothing.
        InvalidRequestError: It is a file or something else.
        StorageError: It cannot be listed.
    """
    found = stat_directory(fs, root)
    if found is None:
        raise UnknownTopicError(
            "there is no log root",
            path=root,
            hint=f"make it with its first topic: {command_at(root, 'topics create NAME')}",
        )
    _check_is_directory(root, found)
    try:
        fs.list(root)
    except StorageError as error:
        error.hint = f"see who may read it: ls -ld {root}"
        raise


# ---- making a root --------------------------------------------------------------------------
def make_root(
    fs: FileSystem,
    clock: Clock,
    root: str,
    *,
    random: random_module.Random,
    adopt: bool = False,
    named: TopicPartition | None = None,
) -> None:
    """Make a log root, or finish one whose making was cut short; durable.

    Partitions that lie there already become topics of the root; nothing else is touched.

    Args:
        fs: Where to make it.
        clock: Measures the wait for another process that makes it.
        root: The directory; missing ones above it are made too.
        random: For the ids in `meta.properties`.
        adopt: Whether a directory may hold files already.
        named: A partition that the caller has named: then a directory that holds nothing but logs
            is taken as well.

    Raises:
        InvalidRequestError: A file is in the way, the directory is not empty, everybody may write
            to it, it is the operating system's, it belongs to a Kafka broker, or another user
            has put something there.
        UnavailableError: A running broker owns the directory.
        StorageError: It failed; making it again goes on where it stopped.
    """
    refuse_planted(fs, root)
    if is_our_root(fs, root):
        return
    _refuse_system_directory(fs, root)
    found = stat_directory(fs, root)
    if found is not None:
        _check_is_directory(root, found)
        refuse_live_broker(fs, root)
        _refuse_formatted_log_dir(fs, root)
        _refuse_world_writable(root, found)
        if not adopt:
            _refuse_filled(fs, root, named)
    make_directories(fs, root)
    make_directories(fs, state_path(root))
    refuse_planted(fs, root)  # a stranger may have been faster
    for name in _SUBDIRECTORIES:
        fs.make_directory(state_path(root, name))
    fs.sync_directory(state_path(root))
    with registry_locked(fs, clock, root):
        if not is_our_root(fs, root):
            _fill_root(fs, root, random)
            _logger.info("made log root %s", root)


@contextlib.contextmanager
def registry_locked(fs: FileSystem, clock: Clock, root: str) -> Iterator[None]:
    """Hold the lock under which topics come and go.

    Who holds it may take partitions' locks and then the root lock, never the other way round.

    Raises:
        LockTimeoutError: Another process kept it.
        StorageError: The lock file cannot be opened.
    """
    path = state_path(root, "locks", "topics")
    what = f"the list of topics of {root}"
    lock = acquire_lock(fs, clock, path, shared=False, timeout_ms=_LOCK_TIMEOUT_MS, what=what)
    try:
        yield
    finally:
        lock.release()


def _fill_root(fs: FileSystem, root: str, random: random_module.Random) -> None:
    found = _logs_in(fs, root)
    topics = {each.topic for each in found}
    for topic in sorted(topics):
        if fs.stat(topic_properties_path(root, topic)) is None:  # else it has settings to keep
            write_topic_properties(fs, root, topic, {})
    if not fs.stat(f"{root}/{META_PROPERTIES}"):
        write_meta_properties(fs, root, MetaProperties.fresh(random))
    fs.sync_directory(root)  # an earlier process may have died after the rename of that file
    if not topics:
        write_file_atomically(fs, f"{root}/{CLEAN_SHUTDOWN}", CLEAN_SHUTDOWN_CONTENT)
    write_file_atomically(fs, server_properties_path(root), _server_template().encode("utf-8"))


def write_topic_properties(
    fs: FileSystem, root: str, topic: str, properties: Mapping[str, str]
) -> None:
    """Write a topic's own settings, durably; the first time this is what makes it a topic.

    Raises:
        StorageError: It failed; the old settings stand.
    """
    path = topic_properties_path(root, topic)
    make_directories(fs, os.path.dirname(path))
    write_file_atomically(fs, path, format_properties(properties).encode("ascii"))


def remove_leftovers(fs: FileSystem, root: str, *, now_ms: int) -> int:
    """Remove temporary files that dead processes left in a root, outside of partitions.

    Args:
        fs: Where the root is.
        root: A log root made by `make_root`.
        now_ms: The time, in milliseconds since 1970; younger ones than an hour stay.

    Returns:
        How many were removed.

    Raises:
        StorageError: A directory cannot be listed, or a file not be removed.
    """
    topics = state_path(root, "topics")
    parted = [f"{topics}/{name}" for name in fs.list(topics) if name.endswith("~")]
    directories = (
        root,
        state_path(root),
        topics,
        *parted,
        state_path(root, "readers"),
        state_path(root, "commits", "pending"),
        state_path(root, "commits", "ledgers"),
    )
    return sum(remove_stale_temporaries(fs, each, now_ms=now_ms) for each in directories)


def _check_is_directory(root: str, found: FileStat) -> None:
    if found.kind is not FileKind.DIRECTORY:
        raise InvalidRequestError(
            "a log root must be a directory",
            path=root,
            got=f"a {found.kind.value}",
            hint="name the directory that holds the partitions' directories",
        )


def _refuse_system_directory(fs: FileSystem, root: str) -> None:
    resolved = fs.resolve(root)
    if resolved in _OF_THE_SYSTEM or resolved.startswith(_OF_THE_KERNEL):
        raise InvalidRequestError(
            "a directory of the operating system cannot be a log root",
            path=root,
            expected="a directory of its own",
            hint=f"name one below it: {os.path.join(root, 'streamlog')}",
        )


def _refuse_filled(fs: FileSystem, root: str, named: TopicPartition | None) -> None:
    """Raise for a directory that holds something; half a root of ours is finished."""
    names = [name for name in fs.list(root) if name != _LOST_AND_FOUND]
    if not names or STATE_DIRECTORY in names:
        return
    logs = _logs_in(fs, root)
    if named is not None and holding_of(fs, f"{root}/{named}") is Holding.EMPTY:
        logs.add(named)
    others = [
        name
        for name in names
        if parse_partition_directory(name) not in logs and not _OF_A_LOG_DIR.fullmatch(name)
    ]
    if named is not None and not others:
        return
    listed = ", ".join((others or names)[:_NAMED_MAX])
    raise InvalidRequestError(
        "this directory is not empty, so it is not made a log root",
        path=root,
        got=listed + (", …" if len(others or names) > _NAMED_MAX else ""),
        expected="a missing or an empty directory",
        hint="name a directory of its own; to keep logs and other files in one, make the root with "
        + command_at(root, "topics create NAME --adopt"),
    )


def _logs_in(fs: FileSystem, root: str) -> set[TopicPartition]:
    """Return the partitions that lie in a directory, by what they hold."""
    named = (parse_partition_directory(name) for name in fs.list(root))
    return {
        each
        for each in named
        if each is not None and holding_of(fs, f"{root}/{each}") is Holding.LOG
    }


def _refuse_world_writable(root: str, found: FileStat) -> None:
    if found.mode & stat.S_IWOTH and not found.mode & stat.S_ISVTX:
        raise InvalidRequestError(
            "everybody may write to this directory, so it cannot be a log root",
            path=root,
            got=f"mode {stat.S_IMODE(found.mode):04o}",
            expected="no write permission for others",
            hint=f"chmod o-w {root}",
        )


def _refuse_formatted_log_dir(fs: FileSystem, root: str) -> None:
    """Raise for a broker's own log.dir: with `.streamlog` in it the broker would not start."""
    if fs.stat(f"{root}/{META_PROPERTIES}") and not fs.stat(state_path(root)):
        hint = "copy its partition directories to a directory of their own to write to them"
        if fs.stat(f"{root}{STATE_DIRECTORY}") is not None:  # left there by a handover
            hint = f"stop the broker, then: {command_at(root, 'handover --from-kafka')}"
        raise InvalidRequestError(
            "this is the log.dir of a Kafka broker; it is only read here",
            path=root,
            got=META_PROPERTIES,
            expected="a root made by streamlog, or an empty directory",
            hint=hint,
        )


def _server_template() -> str:
    """Return `conf/server.properties`: beside the package where installed, else of the checkout."""
    packaged = resources.files("streamlog").joinpath("server.properties")
    if packaged.is_file():
        return packaged.read_text("utf-8")
    checkout = Path(os.path.abspath(__file__)).parents[2] / "conf" / "server.properties"
    # A package that travels as a zip to Spark's workers has neither.
    return checkout.read_text("utf-8") if checkout.is_file() else server_template()
