"""What a TOPIC or DIR argument stands for: partitions open for reading, in order.

Anything a partition may be read from will do: a topic of the root, a log root, a partition's
directory, one `.log` file. Nothing is created, locked or changed there, whoever wrote it.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from streamlog.cli.settings import Settings, is_path
from streamlog.errors import StorageError, StreamLogError, UnknownTopicError
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.partition.iteration import DirectoryWatch
from streamlog.partition.reader import LogReader
from streamlog.records.record import IsolationLevel
from streamlog.root.directories import Holding, holding_of
from streamlog.root.topics import find_partitions, unknown_topic_error
from streamlog.segment.filenames import parse_log_file_name
from streamlog.topic import TopicPartition, check_topic_name, parse_partition_directory

__all__ = ["Source", "Sources", "find_sources"]

Paths = list[tuple[TopicPartition, str]]


class Source:
    """One partition open for reading, or the part of it that one `.log` file holds.

    Args:
        partition: Its topic and number.
        path: Its directory, or the file.
        max_decompressed_bytes: What a batch may decompress to; None: what its topic says.
    """

    def __init__(
        self, partition: TopicPartition, path: str, max_decompressed_bytes: int | None
    ) -> None:
        self.partition = partition
        self._base_offset = parse_log_file_name(os.path.basename(path))
        directory = path if self._base_offset is None else os.path.dirname(path)
        limit = max_decompressed_bytes
        self.reader = LogReader.open(directory, max_decompressed_bytes=limit)
        self._standing = DirectoryWatch(LocalFileSystem(), directory)

    def check(self) -> None:
        """Raise if the partition was deleted, or deleted and created again.

        Raises:
            UnknownTopicError: It was.
        """
        self._standing.check()

    @property
    def start_offset(self) -> int:
        """The first offset there is."""
        return max(self._base_offset or 0, self.reader.log_start_offset)

    def end_offset(self, isolation: IsolationLevel) -> int:
        """The offset behind the last record that `isolation` lets through."""
        reader = self.reader
        committed = isolation is IsolationLevel.READ_COMMITTED
        end = reader.last_stable_offset if committed else reader.high_watermark
        if self._base_offset is not None:
            later = [base for base in reader.segments.base_offsets if base > self._base_offset]
            end = min([end, *later])
        return max(end, self.start_offset)


class Sources:
    """Some partitions, closed together. One that cannot be opened is told of at the end.

    Args:
        paths: The partitions and where they lie.
        errors: What else is to be told of.
        find: Finds them again, and those that were added.
        max_decompressed_bytes: What a batch may decompress to; None: what its topic says.
    """

    def __init__(
        self,
        paths: Paths,
        errors: Iterator[StreamLogError],
        find: Callable[[], Paths],
        max_decompressed_bytes: int | None,
    ) -> None:
        self.opened: list[Source] = []
        self.errors = [*errors]
        self._find = find
        self._max_decompressed_bytes = max_decompressed_bytes
        self._known: set[TopicPartition] = set()
        self._open_new(paths, self.errors)

    def look(self) -> list[Source]:
        """Return the partitions that were added since the last look, opened.

        One that cannot be opened, because it is being created or deleted, is looked at again.
        """
        with contextlib.suppress(UnknownTopicError):
            return self._open_new(self._find(), [])
        return []

    def _open_new(self, paths: Paths, errors: list[StreamLogError]) -> list[Source]:
        opened = []
        for partition, path in paths:
            if partition in self._known:
                continue
            try:
                opened.append(Source(partition, path, self._max_decompressed_bytes))
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
    """Open what an argument names.

    Args:
        settings: The shared options; a topic's name needs a root.
        argument: A topic, or a path with a slash in it; None: every topic of the root.
        partitions: Which partitions; all of them when empty.
        max_decompressed_bytes: What a batch may decompress to; None: what its topic says.

    Returns:
        The partitions, by topic and number.

    Raises:
        UnknownTopicError: No such root, topic or partition.
        InvalidRequestError: A path to something else.
        UsageError: No root was named.
    """
    fs = LocalFileSystem()
    topic = None if argument is None or is_path(argument) else argument
    if topic is not None:
        check_topic_name(topic)
    root = argument if argument is not None and topic is None else settings.root
    find = functools.partial(_find, fs, root, topic, partitions)
    found, paths = find()
    there = {partition.partition for partition, _ in paths}
    missing = sorted(set(partitions) - there)
    if missing:
        known = sorted({number for numbers in found.values() for number in numbers})
        raise UnknownTopicError(
            f"there is no partition {missing[0]}",
            path=argument or settings.root,
            expected=f"one of {', '.join(map(str, known[:20]))}" if known else "none is there",
            hint="leave --partition out to read all of them",
        )
    look_alikes = _look_alikes(fs, root, topic, partitions)
    return Sources(paths, look_alikes, lambda: find()[1], max_decompressed_bytes)


def _find(
    fs: FileSystem, root: str, topic: str | None, partitions: Sequence[int]
) -> tuple[dict[str, dict[int, str]], Paths]:
    """Return all partitions of what was named, and the paths of the wanted ones."""
    found = find_partitions(fs, root)
    if topic is not None:
        if topic not in found:
            raise unknown_topic_error(root, topic, sorted(found))
        found = {topic: found[topic]}
    return found, [
        (TopicPartition(name, number), path)
        for name, numbers in found.items()
        for number, path in numbers.items()
        if not partitions or number in partitions
    ]


def _look_alikes(
    fs: FileSystem, root: str, topic: str | None, partitions: Sequence[int]
) -> Iterator[StreamLogError]:
    """Yield what is called like a wanted partition and is no directory."""
    is_directory = (found := fs.stat(root)) is None or found.kind is not FileKind.FILE
    for name in fs.list(root) if is_directory else ():
        named = parse_partition_directory(name)
        if named is None or topic not in (None, named.topic):
            continue
        is_wanted = not partitions or named.partition in partitions
        if is_wanted and _is_no_directory(fs, f"{root}/{name}"):
            yield StorageError(
                "called like a partition, and is none: it is not read",
                path=f"{root.rstrip('/')}/{name}",
                got=f"a file called {name}",
                expected="a directory, or a link to one",
            )


def _is_no_directory(fs: FileSystem, path: str) -> bool:
    try:
        return holding_of(fs, path) is Holding.NO_DIRECTORY
    except StorageError:
        return False  # a link that leads nowhere: reading it is the error
