"""What TOPIC, DIR, `--offset` and `--time` name: open partitions, places in them, times."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from streamlog.arrow.views import open_read_roots
from streamlog.bucket.places import is_bucket, root_paths
from streamlog.cli.output import counted, human_size
from streamlog.cli.roots import bucket_url
from streamlog.cli.verb import Settings, is_path
from streamlog.errors import StorageError, StreamLogError, UnknownTopicError
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.health.verify import size_of_logs
from streamlog.partition.iteration import DirectoryWatch
from streamlog.records.record import IsolationLevel
from streamlog.root.directories import Holding, holding_of
from streamlog.root.read_roots import Directories, ReadRoots
from streamlog.root.topics import find_partitions, unknown_topic_error
from streamlog.segment.filenames import parse_log_file_name
from streamlog.topic import TopicPartition, check_topic_name, parse_partition_directory

if TYPE_CHECKING:
    from streamlog.arrow.views import AnyReadRoots

__all__ = [
    "Source",
    "Sources",
    "contents_of",
    "find_sources",
    "inside_bucket",
]

Paths = list[tuple[TopicPartition, tuple[str, ...]]]


class Source:
    """One partition open for reading, or the part of it in one `.log` file.

    Args:
        roots: The log root, or those of a replica set.
        partition: Its topic and number.
        paths: The partition's directory in each root, or the file.
        max_decompressed_bytes: Maximum decompressed size of a batch; None: the topic's setting.
    """

    def __init__(
        self,
        roots: "AnyReadRoots",
        partition: TopicPartition,
        paths: tuple[str, ...],
        max_decompressed_bytes: int | None,
    ) -> None:
        self.partition = partition
        self._base_offset = parse_log_file_name(os.path.basename(paths[0]))
        if self._base_offset is not None:
            paths = (os.path.dirname(paths[0]),)
        limit = max_decompressed_bytes
        self.reader = roots.open(partition, paths, max_decompressed_bytes=limit)
        self._standing: DirectoryWatch | None = None
        if isinstance(roots, ReadRoots) and not roots.is_set:
            self._standing = DirectoryWatch(roots.fs, paths[0])

    def check(self) -> None:
        """Raise UnknownTopicError if the partition was deleted, or deleted and recreated."""
        if self._standing is None:
            self.reader.refresh()
        else:
            self._standing.check()

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self.reader.readable(IsolationLevel.READ_UNCOMMITTED, self._base_offset).start

    def end_offset(self, isolation: IsolationLevel) -> int:
        """The offset after the last record visible at `isolation`."""
        return self.reader.readable(isolation, self._base_offset).end


class Sources:
    """Open partitions, closed together.

    Args:
        roots: The log root, or those of a replica set.
        paths: The partitions and their paths.
        errors: Errors found before opening.
        find: Lists the partitions again, including new ones.
        max_decompressed_bytes: Maximum decompressed size of a batch; None: the topic's setting.

    Attributes:
        opened: The partitions that could be opened.
        errors: Errors to report when the readable partitions are done.
    """

    def __init__(
        self,
        roots: "AnyReadRoots",
        paths: Paths,
        errors: Iterator[StreamLogError],
        find: Callable[[], Paths],
        max_decompressed_bytes: int | None,
    ) -> None:
        self.opened: list[Source] = []
        self.errors = [*errors]
        self._roots = roots
        self._find = find
        self._max_decompressed_bytes = max_decompressed_bytes
        self._known: set[TopicPartition] = set()
        self._open_new(paths, self.errors)

    def look(self) -> list[Source]:
        """Open and return the partitions added since the last call.

        A partition that cannot be opened yet, during creation or deletion, is tried again later.
        """
        with contextlib.suppress(UnknownTopicError):
            return self._open_new(self._find(), [])
        return []

    def _open_new(self, paths: Paths, errors: list[StreamLogError]) -> list[Source]:
        opened = []
        for partition, there in paths:
            if partition in self._known:
                continue
            try:
                limit = self._max_decompressed_bytes
                opened.append(Source(self._roots, partition, there, limit))
                self._known.add(partition)
            except StreamLogError as error:
                errors.append(error)
        self.opened += opened
        return opened

    def __enter__(self) -> "Sources":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for source in self.opened:
            source.reader.close()


def find_sources(
    settings: Settings,
    argument: str | None,
    partitions: Sequence[int] = (),
    *,
    max_decompressed_bytes: int | None = None,
) -> Sources:
    """Open the partitions that an argument names.

    Args:
        settings: The shared options; a topic name needs a root.
        argument: A topic, or a path with a slash; None: every topic of the root. A URL names a
            root, or a topic or a partition in it.
        partitions: Partition numbers; empty: all.
        max_decompressed_bytes: Maximum decompressed size of a batch; None: the topic's setting.

    Returns:
        The partitions, sorted by topic and number.
    """
    topic = None if argument is None or is_path(argument) else argument
    path = argument if argument is not None and topic is None else settings.root
    if topic is not None:
        check_topic_name(topic)
    if topic is None and "://" in path:
        path, topic, partitions = inside_bucket(path, partitions)
    roots = open_read_roots(root_paths(path, LocalFileSystem()))
    find = functools.partial(_find, roots, topic, partitions)
    found, paths = find()
    there = {partition.partition for partition, _ in paths}
    missing = sorted(set(partitions) - there)
    if missing:
        known = sorted({number for numbers in found.values() for number in numbers})
        raise UnknownTopicError(
            f"partition {missing[0]} does not exist",
            path=argument or settings.root,
            expected=f"one of {', '.join(map(str, known[:20]))}" if known else "a partition",
            hint="omit --partition to read all partitions",
        )
    look_alikes = _look_alikes(roots, topic, partitions)
    return Sources(roots, paths, look_alikes, lambda: find()[1], max_decompressed_bytes)


def inside_bucket(url: str, partitions: Sequence[int]) -> tuple[str, str | None, Sequence[int]]:
    """Return the root that a URL names, or lies in, and the topic and partitions in it.

    Args:
        url: The URL.
        partitions: The partitions that the user chose; empty: all.
    """
    above, _, name = url.rstrip("/").rpartition("/")
    if bucket_url(url) is not None and _is_root(url):
        return url, None, partitions
    if above.count("/") < 2 or bucket_url(above) is None or not _is_root(above):
        return url, None, partitions  # the error names what was given
    named = parse_partition_directory(name)
    topics = open_read_roots(root_paths(above, LocalFileSystem())).find()
    if named is None or name in topics:
        return above, name, partitions
    return above, named.topic, partitions or (named.partition,)


def _is_root(url: str) -> bool:
    from streamlog.bucket.read_roots import BucketReadRoots

    try:
        BucketReadRoots(root_paths(url, LocalFileSystem())[0]).state()
    except UnknownTopicError:
        return False
    return True


def _find(
    roots: "AnyReadRoots", topic: str | None, partitions: Sequence[int]
) -> tuple[Directories, Paths]:
    """Return all partitions at the path, and the paths of the selected ones."""
    found = roots.find()
    if topic is not None:
        if topic not in found:
            raise unknown_topic_error(roots.name, topic, sorted(found), offline=roots.offline)
        found = {topic: found[topic]}
    return found, [
        (TopicPartition(name, number), there)
        for name, numbers in found.items()
        for number, there in numbers.items()
        if not partitions or number in partitions
    ]


def _look_alikes(
    roots: "AnyReadRoots", topic: str | None, partitions: Sequence[int]
) -> Iterator[StreamLogError]:
    """Yield an error for each file that is named like a selected partition.

    In a replica set it does not matter: another root has the partition, or reading it fails.
    """
    if not isinstance(roots, ReadRoots):
        return
    fs, root = roots.fs, roots.paths[0]
    is_directory = (found := fs.stat(root)) is None or found.kind is not FileKind.FILE
    for name in fs.list(root) if is_directory and not roots.is_set else ():
        named = parse_partition_directory(name)
        if named is None or topic not in (None, named.topic):
            continue
        is_wanted = not partitions or named.partition in partitions
        if is_wanted and _is_no_directory(fs, f"{root}/{name}"):
            yield StorageError(
                "named like a partition but not a directory; skipped",
                path=f"{root.rstrip('/')}/{name}",
                got=f"a file named {name}",
                expected="a directory, or a link to one",
            )


def _is_no_directory(fs: FileSystem, path: str) -> bool:
    try:
        return holding_of(fs, path) is Holding.NO_DIRECTORY
    except StorageError:
        return False  # a dangling link; reading it raises the error


def contents_of(fs: FileSystem, path: str) -> str:
    """Return a summary of the logs at a path, such as `2 topics, 7 partitions, 12.3 MiB`.

    Args:
        fs: The file system.
        path: A log root, a partition directory or a file.
    """
    try:
        if is_bucket(path):
            return _contents_of_bucket(path)
        found = fs.stat(path)
        if found is not None and found.kind is FileKind.FILE:
            return human_size(found.size)
        topics = find_partitions(fs, path)
        partitions = counted(sum(map(len, topics.values())), "partition")
        size = human_size(size_of_logs(fs, path))
    except StreamLogError:
        return "all files"  # changed since the check, which has reported any errors
    return f"{counted(len(topics), 'topic')}, {partitions}, {size}"


def _contents_of_bucket(url: str) -> str:
    from streamlog.bucket.read_roots import BucketReadRoots

    state = BucketReadRoots(url).state()
    size = sum(each.size for at in state.partitions.values() for each in at.stretches)
    partitions = counted(len(state.partitions), "partition")
    return f"{counted(len(state.topics), 'topic')}, {partitions}, {human_size(size)}"
