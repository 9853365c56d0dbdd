"""The checkpoint of a streaming query, as far as an exactly-once sink depends on it.

Spark stores a query's progress in a directory of small files:

    metadata        {"id":"<query id>"}, written once
    offsets/<N>     the input of batch N: "v1", a line of settings, one line per source; or "v2" and
                    the name of each source before its line; written before the batch runs
    commits/<N>     batch N is done
    sources/<i>/<n> the log of a file source
    streamlog/…     the last version committed by each of our sinks (`checkpoint_note`)

A batch that runs again has the same number. The source lines of `offsets/<N>` and the files listed
in `sources` show whether it is the same batch, so they are part of a commit's fingerprint
(`BatchSource`). Spark never syncs these files. If a sink made batch N durable and a power cut then
took `offsets/<N>`, the sink would later receive a different batch N; a commit therefore syncs
`paths_to_sync` first.

Only checkpoints in the local file system can be read and synced; others cause a warning.
"""

import functools
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from streamlog.errors import CorruptCheckpointError, FileMissingError, StorageError
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.files import read_file
from streamlog.query.checkpoint_note import CheckpointNote

__all__ = [
    "BatchSource",
    "FinishedBatch",
    "Naming",
    "PlannedBatch",
    "QueryCheckpoint",
    "local_path",
    "logged_files",
    "naming_of",
    "weakest",
]

_NO_OFFSET: Final = "-"  # OffsetSeqLog.SERIALIZED_VOID_OFFSET: the source had nothing yet
_DELTA: Final = {"reservoirId", "reservoirVersion", "index"}  # DeltaSourceOffset
_FILES: Final = {"logOffset"}  # FileStreamSourceOffset
_logger = logging.getLogger(__name__)
_METADATA_SIZE_MAX: Final = 1 << 16
_OFFSETS_SIZE_MAX: Final = 1 << 26  # 64 MiB: over a million partitions
_LOG_TAIL_SIZE: Final = 1 << 22  # bytes read at the end of a file source's log: some 20,000 files
_LOG_STEPS_MAX: Final = 1000  # entries that one batch may have
_QUERY_ID: Final = re.compile(r"[0-9A-Za-z-]{1,64}", re.ASCII)
_VERSION: Final = re.compile(r"v[0-9]{1,3}", re.ASCII)
_WITH_NAMES: Final = "v2"
_NAMED: Final = re.compile(r"([A-Za-z0-9_]+):(.*)", re.ASCII | re.DOTALL)
_BATCH: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_LOG_ENTRY: Final = re.compile(r"([0-9]{1,19})(\.compact)?", re.ASCII)


class Naming(Enum):
    """How much the source lines of a batch identify, weakest first."""

    NOTHING = "nothing"  # a running number: the same one may refer to other data
    END = "end"  # the end of the batch; its start is not recorded
    BATCH = "batch"  # its whole input


class BatchSource(NamedTuple):
    """The input of a batch, as recorded in its query's checkpoint.

    Attributes:
        lines: The source lines of `offsets/N`; None if they cannot be read.
        query_id: The query; None outside of one.
        naming: How much the lines identify.
        files: A digest of the entries that the file sources read; None if there are no file
            sources, or if the entries are unknown.
    """

    lines: str | None
    query_id: str | None = None
    naming: Naming = Naming.NOTHING
    files: str | None = None


def weakest(*namings: Naming) -> Naming:
    """Return the weakest of several levels of identification."""
    return min(namings, key=list(Naming).index)


def naming_of(line: str) -> Naming:
    """Return how much one source line of a checkpoint identifies, by its shape.

    Lines of Kafka's source and of ours (an offset per partition) and of Delta's (a version and an
    index) identify the end of a batch, and so does the line of a source that has no data yet. All
    others are a running number or unknown: file sources, `rate`, `rate-micro-batch`, `socket`.

    Args:
        line: The line.

    Returns:
        END or NOTHING; the start of a batch is recorded in the offsets of the previous batch.
    """
    if line == _NO_OFFSET:
        return Naming.END
    offset = _parse(line)
    if offset.keys() >= _DELTA:
        return Naming.END
    topics = {name: value for name, value in offset.items() if not name.startswith("$")}
    is_kafkas = bool(topics) and all(
        isinstance(value, dict)
        and all(number.isdecimal() and type(at) is int for number, at in value.items())
        for value in topics.values()
    )
    return Naming.END if is_kafkas else Naming.NOTHING


def logged_files(line: str) -> int | None:
    """Return the last entry of a file source's log that a batch reads; None for other sources.

    Args:
        line: The source's line; `{"logOffset":7}` for a file source.
    """
    offset = _parse(line)
    at = offset.get("logOffset")
    return at if offset.keys() == _FILES and type(at) is int else None


def _parse(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def local_path(location: str) -> str | None:
    """Return the local path of a Hadoop path, None if it is in another file system.

    Args:
        location: `checkpointLocation` as the user set it: `/a/b`, `a/b`, `file:/a/b`,
            `file:///a/b`. A path without a scheme is taken as local.

    Returns:
        An absolute path. Percent signs are not decoded, as in Hadoop's `Path`.
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return os.path.abspath(location)
    if scheme.lower() != "file":
        return None
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        return None if authority or not slash else os.path.normpath("/" + path)
    return os.path.normpath(rest) if rest.startswith("/") else None


@functools.cache
def _warn_once(location: str) -> None:
    """Warn, once per process, about a checkpoint in another file system."""
    _logger.warning(
        "checkpoint %s is not a local directory, so commits cannot make it durable: if a power cut "
        "removes a batch from it, Spark may plan that batch again with other rows. The number of "
        "rows and their checksum then differ, and the query stops (option onReplayMismatch). In "
        "foreachBatch, a log restored from an older copy is not detected",
        location,
    )


_known_checkpoints: Final[dict[tuple[str, str], str]] = {}  # of a location and a query id


class PlannedBatch(NamedTuple):
    """The file `offsets/N`.

    Attributes:
        batch_id: N.
        header: Its version and settings, a line each.
        names: The names of the sources, as far as they have one.
        sources: The end offset of each source, as text.
    """

    batch_id: int
    header: tuple[str, str]
    names: tuple[str | None, ...]
    sources: tuple[str, ...]

    def data(self, sources: Sequence[str]) -> bytes:
        """Return the file with other offsets."""
        lines = [
            text if name is None else f"{name}:{text}"
            for name, text in zip(self.names, sources, strict=True)
        ]
        return "\n".join((*self.header, *lines)).encode()


class FinishedBatch(NamedTuple):
    """A finished batch and the time it finished, in ms since 1970."""

    batch_id: int
    committed_ms: int


class QueryCheckpoint:
    """The checkpoint directory of one streaming query; Spark's files in it are only read.

    Args:
        fs: Its file system.
        path: The directory.
    """

    __slots__ = ("_fs", "path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self.path = path

    @classmethod
    def find(cls, fs: FileSystem, location: str | None) -> "QueryCheckpoint | None":
        """Return the checkpoint at `location`; None if it is unknown, remote or missing.

        Spark's configuration may resolve a path without a scheme to another file system. Spark
        writes `metadata` before the first batch, so a missing `metadata` shows that.
        """
        path = local_path(location) if location else None
        if path is not None:
            path = os.path.realpath(path)  # a link to a directory cannot be synced
            found = fs.stat(os.path.join(path, "metadata"))
            if found is not None and found.kind is FileKind.FILE:
                return cls(fs, path)
        if location:
            _warn_once(location)
        return None

    @classmethod
    def below(
        cls, fs: FileSystem, top: str, *, query_name: str | None, query_id: str
    ) -> "QueryCheckpoint | None":
        """Return the checkpoint that Spark created for a query below the session's location.

        A query without its own checkpointLocation gets a directory below
        `spark.sql.streaming.checkpointLocation`, named after the query or, if it has no name, by a
        random UUID that Spark does not expose. The directory is therefore identified by the query's
        id.

        Args:
            fs: Its file system.
            top: The session's location.
            query_name: The query's name, None if it has none.
            query_id: The query's id.

        Returns:
            The checkpoint; None if no local directory below `top` belongs to the query.

        Source: org.apache.spark.sql.classic.StreamingQueryManager, ResolveWriteToStream.
        """
        path = local_path(top)
        if path is not None:
            path = os.path.realpath(path)
            for each in _candidates(fs, path, query_name, query_id):
                checkpoint = cls(fs, each)
                try:
                    found_id = checkpoint.query_id()
                except (CorruptCheckpointError, StorageError):  # not this query's checkpoint
                    continue
                if found_id == query_id:
                    _known_checkpoints[path, query_id] = each
                    return checkpoint
        _warn_once(top)
        return None

    def query_id(self) -> str:
        """Return the id of the query, which stays the same across restarts.

        Raises:
            CorruptCheckpointError: `metadata` contains no query id.
            StorageError: `metadata` cannot be read.
        """
        path = os.path.join(self.path, "metadata")
        content = read_file(self._fs, path, max_size=_METADATA_SIZE_MAX)
        try:
            query_id = json.loads(content)["id"]
        except (ValueError, TypeError, KeyError, RecursionError):
            query_id = None
        if not isinstance(query_id, str) or not _QUERY_ID.fullmatch(query_id):
            raise CorruptCheckpointError(
                "query metadata contains no query id",
                path=path,
                got=repr(content[:80]),
                expected='{"id":"…"}',
            )
        return query_id

    def source_lines(self, batch_id: int) -> str | None:
        """Return the lines that distinguish a batch from others of the same number.

        Args:
            batch_id: The batch.

        Returns:
            The lines of `offsets/<batch_id>` with each source's end offset; None if there is no
            such file.

        Raises:
            CorruptCheckpointError: The file is not in Spark's format.
        """
        planned = self.planned(batch_id)
        return None if planned is None else "\n".join(planned.sources)

    def planned(self, batch_id: int) -> PlannedBatch | None:
        """Return `offsets/<batch_id>`; None if there is no such file.

        Raises:
            CorruptCheckpointError: The file is not in Spark's format.
        """
        path = self._numbered("offsets", batch_id)
        try:
            content = read_file(self._fs, path, max_size=_OFFSETS_SIZE_MAX)
        except FileMissingError:
            return None
        try:
            version, settings, *lines = content.decode("utf-8").splitlines()
        except ValueError:
            version, settings, lines = "", "", []
        if not lines or not _VERSION.fullmatch(version):
            raise CorruptCheckpointError(
                "offsets of the batch are not in Spark's format",
                path=path,
                got=repr(content[:80]),
                expected="a version line, a line of settings, and one line per source",
            )
        matches = [_NAMED.fullmatch(line) if version == _WITH_NAMES else None for line in lines]
        return PlannedBatch(
            batch_id,
            (version, settings),
            tuple(None if match is None else match[1] for match in matches),
            tuple(
                line if match is None else match[2]
                for match, line in zip(matches, lines, strict=True)
            ),
        )

    def batch_source(self, batch_id: int) -> BatchSource | None:
        """Return the input of a batch; None if there is no `offsets/<batch_id>`.

        Args:
            batch_id: The batch.

        Raises:
            CorruptCheckpointError: A file is not in Spark's format.
        """
        text = self.source_lines(batch_id)
        if text is None:
            return None
        lines = text.splitlines()
        before = self._lines_before(batch_id)
        digest, count = hashlib.sha256(), 0
        namings = []
        for source, line in enumerate(lines):
            end = logged_files(line)
            if end is None:
                named = naming_of(line)
                is_whole = named is Naming.END and before is not None
                namings.append(Naming.BATCH if is_whole else named)
                continue
            entries = self._entries(source, _start(before, source, batch_id), end)
            namings.append(Naming.NOTHING if entries is None else Naming.BATCH)
            for entry in entries or ():
                digest.update(b"%d %d %s\n" % (source, len(entry), entry))
                count += 1
        has_files = any(logged_files(line) is not None for line in lines)
        naming = weakest(*namings)
        is_known = has_files and naming is not Naming.NOTHING
        files = f"{count}, sha256 {digest.hexdigest()[:32]}" if is_known else None
        return BatchSource(text, self.query_id(), naming, files)

    def _lines_before(self, batch_id: int) -> list[str] | None:
        """Return the source lines of the previous batch, None if they are not available."""
        try:
            lines = self.source_lines(batch_id - 1) if batch_id > 0 else None
        except CorruptCheckpointError:  # a power cut may have torn it; the weaker rule then applies
            lines = None
        return None if lines is None else lines.splitlines()

    def _entries(self, source: int, start: int | None, end: int) -> list[bytes] | None:
        """Return a file source's log entries after `start` up to `end`, None if unknown."""
        if start is None or not 0 <= end - start <= _LOG_STEPS_MAX:
            return None
        found: list[bytes] = []
        for number in range(start + 1, end + 1):
            entries = self._entries_of(os.path.join(self.path, "sources", str(source)), number)
            if entries is None:
                return None
            found += entries
        return found

    def _entries_of(self, log: str, number: int) -> list[bytes] | None:
        """Return the lines of one entry; in a compacted log, only the end is searched."""
        for name in (str(number), f"{number}.compact"):
            try:
                with self._fs.open(os.path.join(log, name), OpenMode.READ) as file:
                    size = file.stat().size
                    content = file.pread(min(size, _LOG_TAIL_SIZE), max(0, size - _LOG_TAIL_SIZE))
            except FileMissingError:
                continue
            lines = content.splitlines()[int(size > len(content)) :]  # the first may be torn
            mark = b'"batchId":%d' % number  # most lines of a long log are older
            own = [line for line in lines if mark in line and _batch_of(line) == number]
            # An entry is never empty. If it fills everything read, its first lines were not read.
            return own if 0 < len(own) < len(lines) else None
        return None

    def last_commit(self) -> "FinishedBatch | None":
        """Return the newest batch that Spark has recorded as done, None if there is none."""
        numbers = [int(name) for name in _list(self._fs, os.path.join(self.path, "commits"))
                   if _BATCH.fullmatch(name)]  # fmt: skip
        for batch_id in sorted(numbers, reverse=True):
            found = self._fs.stat(self._numbered("commits", batch_id))
            if found is not None:
                return FinishedBatch(batch_id, found.mtime_ms)
        return None

    def paths_to_sync(self, batch_id: int) -> tuple[str, ...]:
        """Return the files, then the directories, that must be durable before this batch is.

        Args:
            batch_id: The batch about to be committed.

        Returns:
            Absolute paths of those that exist: the metadata, this batch's offsets, the previous
            batch's commit, the newest file of each source's own log, and their directories.
        """
        files = [
            os.path.join(self.path, "metadata"),
            self._numbered("offsets", batch_id),
            self._numbered("commits", batch_id - 1),
        ]
        directories = [self.path, os.path.join(self.path, "offsets")]
        directories.append(os.path.join(self.path, "commits"))
        if batch_id == 0:  # the checkpoint itself is new
            directories.append(os.path.dirname(self.path))
        for log in self._source_logs():
            directories.append(log)
            files += self._newest(log)
        return (
            *(path for path in files if self._is(FileKind.FILE, path)),
            *(path for path in directories if self._is(FileKind.DIRECTORY, path)),
        )

    def note(self, key: str, *, directory_id: str | None, place: str) -> CheckpointNote:
        """Return this checkpoint's note of an app's last version; see `CheckpointNote.find`."""
        return CheckpointNote.find(
            self._fs, self.path, key=key, directory_id=directory_id, place=place
        )

    def _numbered(self, kind: str, batch_id: int) -> str:
        return os.path.join(self.path, kind, str(batch_id))

    def _is(self, kind: FileKind, path: str) -> bool:
        found = self._fs.stat(path)
        return found is not None and found.kind is kind

    def _source_logs(self) -> list[str]:
        top = os.path.join(self.path, "sources")
        if not self._is(FileKind.DIRECTORY, top):
            return []
        logs = [os.path.join(top, name) for name in _list(self._fs, top)]
        return [top, *(log for log in logs if self._is(FileKind.DIRECTORY, log))]

    def _newest(self, log: str) -> list[str]:
        entries = [match for name in _list(self._fs, log) if (match := _LOG_ENTRY.fullmatch(name))]
        newest = max((int(entry[1]) for entry in entries), default=None)
        return [os.path.join(log, entry[0]) for entry in entries if int(entry[1]) == newest]


def _candidates(fs: FileSystem, top: str, query_name: str | None, query_id: str) -> Iterator[str]:
    """Yield the directories that may be a query's, a previously found one first."""
    known = _known_checkpoints.get((top, query_id))
    if known is not None:
        yield known
    for name in [query_name] if query_name else _list(fs, top):
        yield os.path.join(top, name)


def _list(fs: FileSystem, path: str) -> list[str]:
    try:
        return fs.list(path)
    except FileMissingError:  # Spark may remove it at any time
        return []


def _start(before: list[str] | None, source: int, batch_id: int) -> int | None:
    """Return the last entry of a file source's log that the previous batch read."""
    if batch_id == 0:
        return -1  # FileStreamSource: before the first entry
    if before is None or source >= len(before):
        return None
    return -1 if before[source] == "-" else logged_files(before[source])


def _batch_of(line: bytes) -> int | None:
    """Return the number of the log entry that a line belongs to."""
    try:
        number = json.loads(line)["batchId"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return number if type(number) is int else None
