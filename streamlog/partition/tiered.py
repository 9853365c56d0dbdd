"""Kafka's tiered storage (KIP-405) and the log.dir beside it, as one tree of plain segments.

A broker with tiered storage copies each closed segment to a remote store and later removes its own
copy. The store that comes with Kafka, LocalTieredStorage, keeps the copies as they were:

    orders-0-LZIZDK01QdayzmsIHcRSrQ/                            topic, partition, topic id
        00000000000000000501-oAtiIQ95REujbuzNd_lkLQ.log         base offset, id of the copy
        00000000000000000501-oAtiIQ95REujbuzNd_lkLQ.index       and .timeindex, .snapshot
        00000000000000000501-oAtiIQ95REujbuzNd_lkLQ.leader_epoch_checkpoint

`TieredFileSystem` shows them under the names that they had in the directory of the partition, next
to the segments that are still there. So everything that reads a log.dir reads both as one log.

*Which copies count.* A copy is whole once its epoch checkpoint is there, which is copied after the
log and its indexes. Two leaders may have copied the same records in segments of different bounds,
and a leader that was replaced by an unclean election may have copied records that are gone. So the
epochs of a copy are compared with those of the log, and a copy whose records another one holds is
left out. A hole between copies, or between them and the log, is an error.

*Committed.* A broker copies nothing above the last stable offset.

Source: org.apache.kafka.server.log.remote.storage.LocalTieredStorage, RemoteLogSegmentFileset;
RemoteLogManager.RLMCopyTask; RemoteLogMetadataCache.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidRequestError,
    StorageError,
)
from streamlog.fs.api import FileKind, FileStat, FileSystem, OpenMode
from streamlog.fs.files import read_file, stat_directory
from streamlog.fs.log_root import META_PROPERTIES
from streamlog.fs.memory import MemoryFileSystem
from streamlog.fs.read_only import ReadOnlyFileSystem
from streamlog.partition.checkpoints import MAX_CHECKPOINT_SIZE
from streamlog.partition.epochs import LEADER_EPOCH_CHECKPOINT, EpochEntry, LeaderEpochCache
from streamlog.partition.partition_metadata import (
    PARTITION_METADATA,
    format_partition_metadata,
    read_topic_id,
)
from streamlog.segment.filenames import (
    FileSuffix,
    base_offsets,
    parse_log_file_name,
    segment_file_name,
)
from streamlog.segment.segment import Segment
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = ["TieredFileSystem", "parse_remote_directory", "with_remote_segments"]

_STORAGE_NAME: Final = "kafka-tiered-storage"  # LocalTieredStorage.ROOT_STORAGE_DIR_NAME
_ID: Final = "[A-Za-z0-9_-]{21}[AQgw]"  # Uuid.toString: 128 bits, so the last character has 2
_DIRECTORY: Final = re.compile(rf"(?P<partition>.+)-(?P<topic_id>{_ID})", re.ASCII)
_FILE: Final = re.compile(rf"(?P<base>[0-9]{{20}})-(?P<id>{_ID})(?P<kind>\.[a-z_]+)", re.ASCII)
_EPOCHS: Final = ".leader_epoch_checkpoint"
_SNAPSHOT: Final = FileSuffix.PRODUCER_SNAPSHOT
_SHOWN: Final = {
    kind.value: kind
    for kind in (
        FileSuffix.LOG,
        FileSuffix.OFFSET_INDEX,
        FileSuffix.TIME_INDEX,
        FileSuffix.TXN_INDEX,
    )
}
_REQUIRED: Final = (
    FileSuffix.LOG.value,
    FileSuffix.OFFSET_INDEX.value,
    FileSuffix.TIME_INDEX.value,
    _EPOCHS,
)


class _RemoteDirectory(NamedTuple):
    """A directory of remote segments."""

    path: str
    partition: TopicPartition
    topic_id: str


class _Span(NamedTuple):
    """Records of a log: their offsets and their epochs."""

    base_offset: int
    end_offset: int
    epochs: tuple[EpochEntry, ...]

    def agrees_with(self, other: "_Span") -> bool:
        """Return whether both have the same epochs at all offsets that both know."""
        first = max(
            self.base_offset,
            *(span.epochs[0].start_offset if span.epochs else 0 for span in (self, other)),
        )
        end = min(self.end_offset, other.end_offset)
        return _clipped(self.epochs, first, end) == _clipped(other.epochs, first, end)


class _Copy(NamedTuple):
    """A whole copy of a segment.

    Attributes:
        span: Its records.
        files: The paths of its files by kind, with the epoch checkpoint.
    """

    span: _Span
    files: Mapping[str, str]


def parse_remote_directory(name: str) -> tuple[TopicPartition, str] | None:
    """Return the partition and the topic id that a directory of remote segments is named after.

    It is never mistaken for the directory of a partition, whose name ends in a digit.
    """
    match = _DIRECTORY.fullmatch(name)
    partition = None if match is None else parse_partition_directory(match["partition"])
    return None if match is None or partition is None else (partition, match["topic_id"])


def with_remote_segments(
    fs: FileSystem, paths: Sequence[str]
) -> tuple[FileSystem, tuple[str, ...]]:
    """Return a file system that shows remote segments in place, and the paths to read there.

    Args:
        fs: The file system of all paths.
        paths: Log roots, partitions, segments; each directory of a LocalTieredStorage among them
            is found by its name, or by the names in it.

    Returns:
        Both unchanged if there is no such storage. The paths without the storages, or only these.
    """
    storages = tuple(path for path in paths if _is_storage(fs, path))
    if not storages:
        return fs, tuple(paths)
    local = tuple(path for path in paths if path not in storages)
    parents = map(os.path.dirname, local)  # of the directory of a partition
    return TieredFileSystem(fs, storages, (*local, *parents)), local or storages


def _is_storage(fs: FileSystem, path: str) -> bool:
    if parse_log_file_name(os.path.basename(path)) is not None:
        return False
    try:
        found = stat_directory(fs, path)
        if found is None or found.kind is not FileKind.DIRECTORY:
            return False
        if os.path.basename(path) == _STORAGE_NAME:
            return True
        if fs.stat(f"{path}/{META_PROPERTIES}") is not None:  # a log root, without a listing
            return False
        return any(parse_remote_directory(name) is not None for name in fs.list(path))
    except StorageError:  # met again by the reader, which may have a replica elsewhere
        return False


class TieredFileSystem(ReadOnlyFileSystem):
    """The files of a log.dir and its remote segments; read-only.

    Args:
        base: The file system of both.
        storages: Directories of LocalTieredStorage; each shows its partitions as a log.dir would.
        log_dirs: Directories whose partitions show the remote segments, too.
    """

    def __init__(
        self, base: FileSystem, storages: Sequence[str], log_dirs: Iterable[str] = ()
    ) -> None:
        super().__init__(base)
        self.storages = tuple(storages)
        self._log_dirs = frozenset((*storages, *log_dirs))
        self._made = MemoryFileSystem()
        self._partitions: dict[str, tuple[FileStat | None, Sequence[_RemoteDirectory]]] = {}
        self._files: dict[str, tuple[object, Mapping[str, str]]] = {}

    def place(self, path: str) -> tuple[FileSystem, str]:
        """Return where the file lies that is shown at a path."""
        directory, name = os.path.split(path)
        remote = self._remote_of(directory)
        if remote:
            if name == PARTITION_METADATA and self.base.stat(path) is None:
                return self._made, self._metadata(remote[0].topic_id)
            return self.base, self._shown(directory, remote).get(name, path)
        return self.base, path

    def stat(self, path: str) -> FileStat | None:
        """Return facts about a name; a directory changes when its remote segments do."""
        found, remote = super().stat(path), self._remote_of(path)
        for there in (self.base.stat(each.path) for each in remote):
            if there is not None:
                newest = max(there.mtime_ns, 0 if found is None else found.mtime_ns)
                found = (found or there)._replace(mtime_ns=newest)
        return found

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        remote = self._remote_of(path)
        if remote:
            here = [] if self.base.stat(path) is None else self.base.list(path)
            return sorted({*here, *self._shown(path, remote), PARTITION_METADATA})
        names = [] if path in self.storages else super().list(path)
        if path in self._log_dirs:
            there = {str(each.partition) for s in self.storages for each in self._in(s)}
            return sorted({*names, *there})
        return names

    # ---- directories -------------------------------------------------------------------------
    def _in(self, storage: str) -> Sequence[_RemoteDirectory]:
        """Return the directories of a storage; lists it when it has changed."""
        stamp = self.base.stat(storage)
        known = self._partitions.get(storage)
        if known is None or known[0] != stamp:
            parsed = ((name, parse_remote_directory(name)) for name in self.base.list(storage))
            found = [_RemoteDirectory(f"{storage}/{name}", *each) for name, each in parsed if each]
            known = self._partitions[storage] = stamp, found
        return known[1]

    def _remote_of(self, path: str) -> Sequence[_RemoteDirectory]:
        """Return the remote directories of the partition at a path; none for any other path.

        Raises:
            InvalidRequestError: There are several, and nothing says which topic is meant.
        """
        parent, name = os.path.split(path)
        partition = parse_partition_directory(name)
        if partition is None or parent not in self._log_dirs:
            return []
        found = [each for s in self.storages for each in self._in(s) if each.partition == partition]
        topic_ids = {each.topic_id for each in found}
        is_local = bool(found) and stat_directory(self.base, path) is not None
        wanted = read_topic_id(self.base, path) if is_local else None
        if wanted is not None:
            return [each for each in found if each.topic_id == wanted]
        if len(topic_ids) > 1:
            raise InvalidRequestError(
                "there are remote segments of several topics of one name",
                path=path,
                got=", ".join(sorted(topic_ids)),
                expected="one topic id",
                hint="pass the log.dir, too: it has the id of the topic that exists",
            )
        return found

    # ---- files -------------------------------------------------------------------------------
    def _shown(self, directory: str, remote: Sequence[_RemoteDirectory]) -> Mapping[str, str]:
        """Return the paths of the remote files that a directory shows, by the names there."""
        stamp = tuple(self.base.stat(each) for each in (directory, *(r.path for r in remote)))
        known = self._files.get(directory)
        if known is None or known[0] != stamp:
            copies = [copy for each in remote for copy in _whole_copies(self.base, each.path)]
            log = _local_log(self.base, directory)
            known = self._files[directory] = stamp, _names(_chosen(copies, log, directory), log)
        return known[1]

    def _metadata(self, topic_id: str) -> str:
        path = f"/{topic_id}"
        with self._made.open(path, OpenMode.CREATE_OR_WRITE) as file:
            file.pwrite(format_partition_metadata(topic_id), 0)
        return path


class _CopyFiles(ReadOnlyFileSystem):
    """The files of one copy, under the names of a segment in the same directory."""

    def __init__(self, base: FileSystem, files: Mapping[str, str]) -> None:
        super().__init__(base)
        self._files = files

    def place(self, path: str) -> tuple[FileSystem, str]:
        """Return where a file of the copy lies."""
        return self.base, self._files.get(os.path.basename(path), path)


def _whole_copies(fs: FileSystem, directory: str) -> Iterator[_Copy]:
    """Yield the copies in a directory that are whole."""
    kinds: dict[tuple[int, str], dict[str, str]] = {}
    for match in map(_FILE.fullmatch, fs.list(directory)):
        if match is not None:
            files = kinds.setdefault((int(match["base"]), match["id"]), {})
            files[match["kind"]] = f"{directory}/{match[0]}"
    for (base_offset, _), files in kinds.items():
        if all(kind in files for kind in _REQUIRED):
            try:
                yield _Copy(_span_of_copy(fs, directory, base_offset, files), files)
            except FileMissingError:
                continue  # removed since it was listed


def _span_of_copy(
    fs: FileSystem, directory: str, base_offset: int, files: Mapping[str, str]
) -> _Span:
    data = read_file(fs, files[_EPOCHS], max_size=MAX_CHECKPOINT_SIZE)
    epochs = LeaderEpochCache.parse(data, files[_EPOCHS]).entries
    named = {segment_file_name(base_offset, _SHOWN[k]): f for k, f in files.items() if k in _SHOWN}
    return _Span(base_offset, _end_of(_CopyFiles(fs, named), directory, base_offset), epochs)


def _local_log(fs: FileSystem, directory: str) -> _Span | None:
    """Return what the directory of a partition holds itself; None without a segment."""
    bases = [] if stat_directory(fs, directory) is None else base_offsets(fs.list(directory))
    if not bases:
        return None
    epochs = LeaderEpochCache.load(fs, directory).entries
    return _Span(bases[0], _end_of(fs, directory, bases[-1]), epochs)


def _end_of(fs: FileSystem, directory: str, base_offset: int) -> int:
    """Return the offset after the last whole batch of a segment."""
    segment = Segment.open(fs, directory, base_offset, config=LogConfig(), writable=False)
    try:
        return segment.next_offset()
    finally:
        segment.close()


def _chosen(copies: Iterable[_Copy], log: _Span | None, directory: str) -> list[_Copy]:
    """Return the copies that complete a log, ascending; none of them is held by another.

    Args:
        copies: The whole copies of segments of its partition.
        log: What its directory holds.
        directory: Its directory, for errors.

    Raises:
        CorruptDataError: Records are missing between two copies, or between them and the log; or
            the log has other records than the copies, which a later leader made.
    """
    copies = sorted(copies, key=lambda copy: (copy.span.base_offset, -copy.span.end_offset))
    if not copies:
        return []
    latest = max((*(copy.span for copy in copies), *(() if log is None else (log,))), key=_age)
    if log is not None and not log.agrees_with(latest):
        raise CorruptDataError(
            "the log and its remote segments diverge",
            path=directory,
            got=f"leader epochs {_listed(log.epochs)}",
            expected=f"{_listed(latest.epochs)}, as in the remote storage",
            hint="read the remote storage alone, or with the log.dir of the last leader",
        )
    chosen: list[_Copy] = []
    end = -1
    for copy in copies:
        span = copy.span
        is_held = span.end_offset <= end or (
            log is not None
            and log.base_offset <= span.base_offset
            and span.end_offset <= log.end_offset
        )
        if not is_held and span.agrees_with(latest):
            chosen.append(copy)
            end = span.end_offset
    _refuse_holes([copy.span for copy in chosen], log, directory)
    return chosen


def _refuse_holes(spans: Sequence[_Span], log: _Span | None, directory: str) -> None:
    ordered = sorted([*spans, *(() if log is None else (log,))])
    for one, two in pairwise(ordered):
        if one.end_offset < two.base_offset:
            raise CorruptDataError(
                "records are missing between remote segments",
                path=directory,
                got=f"offset {two.base_offset} after {one.end_offset - 1}",
                expected=f"offset {one.end_offset}",
                hint="copy the remote storage again: a segment is missing or not whole",
            )


def _names(copies: Sequence[_Copy], log: _Span | None) -> dict[str, str]:
    """Return the paths of the files of copies, by the names that a partition's directory has."""
    names = {
        segment_file_name(copy.span.base_offset, _SHOWN[kind]): path
        for copy in copies
        for kind, path in copy.files.items()
        if kind in _SHOWN
    }
    for span, files in copies:  # a copy has the state after its last record
        if _SNAPSHOT.value in files:
            names[segment_file_name(span.end_offset, _SNAPSHOT)] = files[_SNAPSHOT.value]
    if copies and (log is None or copies[-1].span.end_offset > log.end_offset):
        names[LEADER_EPOCH_CHECKPOINT] = copies[-1].files[_EPOCHS]
    return names


def _age(span: _Span) -> tuple[int, int]:
    return (span.epochs[-1].epoch if span.epochs else -1, span.end_offset)


def _clipped(epochs: Sequence[EpochEntry], start: int, end: int) -> list[EpochEntry]:
    """Return the epochs of the records from `start` to `end`, each from its first record there."""
    clipped: list[EpochEntry] = []
    for epoch, first in epochs:
        if first <= start:
            clipped = [EpochEntry(epoch, start)]
        elif first < end:
            clipped.append(EpochEntry(epoch, first))
    return clipped if start < end else []


def _listed(epochs: Sequence[EpochEntry]) -> str:
    return ", ".join(f"{epoch} at {start}" for epoch, start in epochs) or "none"
