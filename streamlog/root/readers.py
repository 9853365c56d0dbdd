"""Who reads a root and how far each reader is, so that nothing it still needs is deleted.

    <root>/.streamlog/readers/<name>.json
    {"group": "billing", "committedMs": 1700000000000, "offsets": {"orders": {"0": 123}, …}}
    {"group": "audit", "committedMs": …, "offsets": {…}, "checkpoint": "/checkpoints/audit"}

The first kind is written by a query that was given `kafka.group.id`, from its start on and after
each batch (when: `streamlog.spark.group_progress`): the only thing that a reader ever writes, and
only when asked to; a root that is not ours is never written to. The second kind is made by
`streamlog readers add`: that query does not know of it, its position is read from its checkpoint
(ours, or that of Spark's own Kafka source), and what stands here is what was known when it was
added, for the day when the checkpoint is gone.

A reader holds a partition from the offset it has not finished on. It counts no more when it has
been silent for `offsets.retention.minutes`. The file is replaced as a whole; offsets are those of
`streamlog.query.offsets`.
"""

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from streamlog.clock import SystemClock
from streamlog.errors import (
    CorruptCheckpointError,
    FileMissingError,
    InvalidOptionError,
    InvalidRequestError,
    StreamLogError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import acquire_lock, make_directories, read_file, write_file_atomically
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.names import temporary_path
from streamlog.query.checkpoint import QueryCheckpoint
from streamlog.query.offsets import SourceOffset, parse_source_offset
from streamlog.root.planted import refuse_planted
from streamlog.root.roots import is_our_root, read_server_config, state_path
from streamlog.topic import TopicPartition

__all__ = [
    "Reader",
    "add_reader",
    "check_progress",
    "forget_reader",
    "list_readers",
    "progress_path",
    "reader_at",
    "reader_names",
    "recorded_reader",
    "write_progress",
]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", re.ASCII)
_SUFFIX: Final = ".json"
_MAX_SIZE: Final = 1 << 26
_MINUTE_MS: Final = 60_000
_LOCK_TIMEOUT_MS: Final = 30_000

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A recorded reader.

    Attributes:
        name: Its name, a `kafka.group.id`.
        position: What it has finished: the next offset in each partition.
        committed_ms: When it said so.
        checkpoint: The directory its position is read from, None where it writes it itself.
        problem: Why the position may be old: the checkpoint cannot be read.
        topics_ms: When it said so of topics that it did not name the last time.
    """

    name: str
    position: SourceOffset
    committed_ms: int
    checkpoint: str | None = None
    problem: str | None = None
    topics_ms: Mapping[str, int] = field(default_factory=dict)

    def is_silent(self, now_ms: int, retention_minutes: int) -> bool:
        """Tell whether it has not moved for so long that nothing is kept for it."""
        return now_ms - self.committed_ms > retention_minutes * _MINUTE_MS

    def knows(self, topic: str, topic_id: str | None) -> bool:
        """Tell whether its offsets hold in the topic that is there now.

        Those of a topic that was deleted do not hold in one that was created under its name.
        """
        known = self.position.topic_ids.get(topic)
        return known is None or topic_id is None or known == topic_id

    def stands_at(self, partition: TopicPartition, topic_id: str | None) -> int | None:
        """Return the offset it has recorded in a partition, None where it has none that holds."""
        if not self.knows(partition.topic, topic_id):
            return None
        return self.position.offsets.get(partition)

    def goes_on_from(self, partition: TopicPartition, topic_id: str | None) -> int | None:
        """Return the first offset that it has not finished, None where it does not read there.

        A partition with a higher number than those it knows of its topic was added since: it is
        going to be read from its beginning. So is a topic that was deleted and created again,
        should the query go on at all.

        Args:
            partition: The partition.
            topic_id: Of the topic that is there now.
        """
        offset = self.stands_at(partition, topic_id)
        if offset is not None:
            return offset
        numbers = [
            each.partition for each in self.position.offsets if each.topic == partition.topic
        ]
        is_read = bool(numbers) and (
            partition.partition in numbers or partition.partition > max(numbers)
        )
        return 0 if is_read else None

    def needed_from(self, partition: TopicPartition, topic_id: str | None) -> int | None:
        """Return the first offset that is kept for it, None where nothing is.

        Nothing is kept of a topic that was deleted and created again: a query stops there, by
        `failOnDataLoss`.
        """
        if not self.knows(partition.topic, topic_id):
            return None
        return self.goes_on_from(partition, topic_id)


# ---- the books ----------------------------------------------------------------------------------
def progress_path(root: str, group: str) -> str:
    """Return where the progress of a group is."""
    return f"{state_path(root, 'readers')}/{group}{_SUFFIX}"


def list_readers(fs: FileSystem, root: str) -> list[Reader]:
    """Return the recorded readers of a root by name, each with its position as of now.

    Raises:
        CorruptCheckpointError: A file of theirs cannot be understood: nobody knows what it needs.
        StorageError: The directory or a file cannot be read.
    """
    found = []
    for name in reader_names(fs, root):
        try:
            found.append(recorded_reader(fs, root, name))
        except FileMissingError:  # forgotten since
            continue
    return found


def reader_names(fs: FileSystem, root: str) -> list[str]:
    """Return the names of the recorded readers of a root, whether or not they can be read.

    Raises:
        StorageError: The directory cannot be read.
    """
    try:
        names = fs.list(state_path(root, "readers"))
    except FileMissingError:
        return []
    return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]


def add_reader(fs: FileSystem, root: str, name: str, checkpoint: str, *, now_ms: int) -> Reader:
    """Record a query by its checkpoint; durable.

    Args:
        fs: Where both are.
        root: The log root.
        name: What to call it.
        checkpoint: The query's `checkpointLocation`, a local directory.
        now_ms: The time.

    Raises:
        InvalidOptionError: Not a name, or not a root of ours.
        InvalidRequestError: There is no checkpoint, or no offsets of a log in it.
        StorageError: It cannot be written.
    """
    _check_name(name)
    check_progress(root, name, fs=fs)
    reader = reader_at(fs, name, checkpoint, now_ms=now_ms)
    _write(fs, root, reader)
    return reader


def reader_at(fs: FileSystem, name: str, checkpoint: str, *, now_ms: int) -> Reader:
    """Return a query as a reader, by its checkpoint; it need not be recorded.

    Args:
        fs: Where the checkpoint is.
        name: What to call it.
        checkpoint: The query's `checkpointLocation`, a local directory.
        now_ms: When it is to have moved at the earliest.

    Raises:
        InvalidRequestError: There is no checkpoint, or no offsets of a log in it.
    """
    known = Reader(
        name=name,
        position=SourceOffset(offsets={}),
        committed_ms=now_ms,
        checkpoint=os.path.abspath(checkpoint),
    )
    reader = _with_checkpoint(fs, known)
    if reader.problem is not None:
        raise InvalidRequestError(
            f"the position of {name} cannot be read from its checkpoint",
            path=checkpoint,
            got=reader.problem,
            expected="the checkpointLocation of a query that has finished a batch",
        )
    return reader


def forget_reader(fs: FileSystem, root: str, name: str) -> None:
    """Strike a reader off; nothing is kept for it any more. Durable.

    Raises:
        InvalidRequestError: No such reader is recorded.
        StorageError: It cannot be removed.
    """
    _check_name(name)
    directory = state_path(root, "readers")
    try:
        fs.remove(progress_path(root, name))
    except FileMissingError:
        known = ", ".join(each.name for each in list_readers(fs, root))
        raise InvalidRequestError(
            f"no reader {name} is recorded",
            path=root,
            expected=f"one of {known}" if known else None,
        ) from None
    fs.sync_directory(directory)


def check_progress(root: str, group: str, *, fs: FileSystem | None = None) -> None:
    """Make the folder for progress, so that a query fails at its start and not at its end.

    Raises:
        InvalidOptionError: The root is not ours to write to.
        StorageError: It cannot be written to.
    """
    fs = fs or LocalFileSystem()
    if not is_our_root(fs, root):
        raise InvalidOptionError(
            "option kafka.group.id needs a log root of streamlog: its readers folder is written to",
            path=root,
            got="a directory without .streamlog",
            hint="leave kafka.group.id out; the query's checkpoint keeps its offsets anyway",
        )
    refuse_planted(fs, root)
    path = progress_path(root, group)
    make_directories(fs, path.rpartition("/")[0])
    probe = temporary_path(path)  # a name of its own: another query may start under this group
    fs.open(probe, OpenMode.CREATE).close()
    fs.remove(probe)


def write_progress(
    root: str,
    group: str,
    offsets: Mapping[str, object],
    *,
    now_ms: int,
    fs: FileSystem | None = None,
) -> None:
    """Write down that `group` has finished everything before `offsets`.

    Several sources of a query may have one group, for topics of their own: what others wrote of
    other topics stays, until it is as old as `offsets.retention.minutes`.

    Raises:
        LockTimeoutError: Another source kept the lock of the readers.
        StorageError: It cannot be written.
    """
    fs, path = fs or LocalFileSystem(), progress_path(root, group)
    lock = acquire_lock(
        fs,
        SystemClock(),
        state_path(root, "locks", "readers"),
        shared=False,
        timeout_ms=_LOCK_TIMEOUT_MS,
        what=f"the readers of {root}",
    )
    try:
        document = {"group": group, "committedMs": now_ms, "offsets": offsets}
        _write_document(fs, path, {**document, **_of_other_topics(fs, root, group, document)})
    finally:
        lock.release()


def _of_other_topics(
    fs: FileSystem, root: str, group: str, document: Mapping[str, Any]
) -> dict[str, object]:
    """Return what a new document keeps of the one it replaces; nothing where it has all topics."""
    try:
        before = _load(fs, progress_path(root, group))
    except (FileMissingError, CorruptCheckpointError):
        return {}
    mine = parse_source_offset(document["offsets"])
    topics = {partition.topic for partition in mine.offsets}
    written_ms = {
        topic: before.topics_ms.get(topic, before.committed_ms)
        for topic in {partition.topic for partition in before.position.offsets} - topics
    }
    if not written_ms:
        return {}
    oldest = document["committedMs"] - (
        read_server_config(fs, root).offsets_retention_minutes * _MINUTE_MS
    )
    kept = {topic: ms for topic, ms in sorted(written_ms.items()) if ms >= oldest}
    merged = SourceOffset(
        offsets={**before.position.of_topics(kept), **mine.offsets},
        leader_epochs=mine.leader_epochs,
        topic_ids={
            **{each: id_ for each, id_ in before.position.topic_ids.items() if each in kept},
            **mine.topic_ids,
        },
    )
    return {"offsets": merged.to_json(), "otherTopicsMs": kept} if kept else {}


def _write(fs: FileSystem, root: str, reader: Reader) -> None:
    document = {
        "group": reader.name,
        "committedMs": reader.committed_ms,
        "offsets": reader.position.to_json(),
        "checkpoint": reader.checkpoint,
    }
    _write_document(fs, progress_path(root, reader.name), document)


def _write_document(fs: FileSystem, path: str, document: Mapping[str, object]) -> None:
    write_file_atomically(fs, path, (json.dumps(document, indent=1) + "\n").encode())


def recorded_reader(fs: FileSystem, root: str, name: str) -> Reader:
    """Return one recorded reader with its position as of now.

    Raises:
        FileMissingError: It is not recorded.
        CorruptCheckpointError: Its file cannot be understood.
        StorageError: It cannot be read.
    """
    reader = _load(fs, progress_path(root, name))
    return reader if reader.checkpoint is None else _with_checkpoint(fs, reader)


def _load(fs: FileSystem, path: str) -> Reader:
    """Return a reader as its file describes it."""
    data = read_file(fs, path, max_size=_MAX_SIZE)
    try:
        document = json.loads(data)
        position = parse_source_offset(document["offsets"])
        committed_ms, checkpoint = document["committedMs"], document.get("checkpoint")
        topics_ms = dict(document.get("otherTopicsMs", {}))
        if type(committed_ms) is not int or not isinstance(checkpoint, str | None):
            raise TypeError(f"committedMs {committed_ms!r}, checkpoint {checkpoint!r}")
        if not all(type(number) is int for number in topics_ms.values()):
            raise TypeError(f"otherTopicsMs {topics_ms!r}")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _unreadable(path, data, error) from error
    except InvalidOptionError as error:
        raise _unreadable(path, data, error) from error
    return Reader(
        name=os.path.basename(path).removesuffix(_SUFFIX),
        position=position,
        committed_ms=committed_ms,
        checkpoint=checkpoint,
        topics_ms=topics_ms,
    )


def _unreadable(path: str, data: bytes, error: Exception) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"what a reader has recorded cannot be understood ({error})",
        path=path,
        got=repr(data[:80]),
        expected='{"group": …, "committedMs": …, "offsets": {"TOPIC": {"0": 1}}}',
        hint=f"where that reader is no more: rm {path}",
    )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidOptionError(
            "this cannot be the name of a reader, for it is to be that of a file",
            got=repr(name),
            expected="letters, digits, '.', '_' and '-', not beginning with '.' or '-'",
        )


# ---- positions in checkpoints -------------------------------------------------------------------
def _with_checkpoint(fs: FileSystem, reader: Reader) -> Reader:
    """Return a reader with the position that its query's checkpoint tells now."""
    assert reader.checkpoint is not None
    try:
        found = QueryCheckpoint.find(fs, reader.checkpoint)
        done = None if found is None else found.last_commit()
        if found is None or done is None:
            problem = "no checkpoint" if found is None else "no finished batch"
            return _with_problem(reader, problem)
        position = _position(found.source_lines(done.batch_id) or "")
    except StreamLogError as error:
        return _with_problem(reader, str(error))
    if not position.offsets:
        return _with_problem(reader, f"no offsets of a log in batch {done.batch_id}")
    committed_ms = max(done.committed_ms, reader.committed_ms)
    return replace(reader, position=position, committed_ms=committed_ms)


def _with_problem(reader: Reader, problem: str) -> Reader:
    _logger.warning("reader %s: %s in %s", reader.name, problem, reader.checkpoint)
    return replace(reader, problem=problem)


def _position(lines: str) -> SourceOffset:
    """Return the least offsets of all sources of a query that read a log of Kafka's kind."""
    offsets: dict[TopicPartition, int] = {}
    topic_ids: dict[str, str] = {}
    for line in lines.splitlines():
        try:
            found = parse_source_offset(line)
        except InvalidOptionError:  # a source of another kind
            continue
        topic_ids.update(found.topic_ids)
        for partition, offset in found.offsets.items():
            offsets[partition] = min(offset, offsets.get(partition, offset))
    return SourceOffset(offsets=offsets, topic_ids=topic_ids)
