"""The recorded readers of a root, and the segments that are kept for them.

    <root>/.streamlog/readers/<name>.json
    {"group": "billing", "committedMs": 1700000000000, "offsets": {"orders": {"0": 123}, …}}
    {"group": "audit", "committedMs": …, "offsets": {…}, "checkpoint": "/checkpoints/audit"}

A query with `kafka.group.id` writes the first kind, at its start and after each batch (when:
`streamlog.spark.group_progress`). It is the only file that a reader ever writes, only on request,
and never in a root that streamlog did not make. `streamlog readers add` writes the second kind: the
query knows nothing of it, and its position is read from its checkpoint (ours, or that of Spark's
own Kafka source). The offsets in the file are those known when the reader was added; they are used
once the checkpoint is gone.

A reader holds a partition from its first unfinished offset on: the segment with that offset and
all later ones are kept whole. Beyond `streamlog.readers.max.bytes` only the newest segments of that
size are kept. A reader that was silent for `offsets.retention.minutes` holds nothing. Each file is
replaced as a whole; offsets have the format of `streamlog.query.offsets`.
"""

import json
import logging
import os
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from streamlog.errors import (
    CorruptCheckpointError,
    FileMissingError,
    InvalidOptionError,
    InvalidRequestError,
    StreamLogError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import locked, make_directories, read_file, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.fs.names import temporary_path
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.partition.topic_config import read_server_config
from streamlog.query.checkpoint import QueryCheckpoint
from streamlog.query.offsets import SourceOffset, parse_source_offset
from streamlog.records.layout import MAX_INT64
from streamlog.root.roots import is_our_root, refuse_planted
from streamlog.topic import TopicPartition

__all__ = [
    "Held",
    "Holds",
    "Reader",
    "add_reader",
    "at_checkpoint",
    "check_progress",
    "check_reader_name",
    "forget_reader",
    "held_from",
    "list_readers",
    "parse_reader",
    "reader_at",
    "reader_names",
    "recorded_reader",
    "write_progress",
]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", re.ASCII)
_SUFFIX: Final = ".json"
MAX_READER_SIZE: Final = 1 << 26
_MINUTE_MS: Final = 60_000

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A recorded reader.

    Attributes:
        name: Its name, a `kafka.group.id`.
        position: The next offset in each partition; everything below is finished.
        committed_ms: Time of the position, in milliseconds since 1970.
        checkpoint: The directory its position is read from; None if the query writes it itself.
        problem: Why the checkpoint cannot be read; the position may be stale then.
        topics_ms: Times of positions in topics that the last write did not name.
    """

    name: str
    position: SourceOffset
    committed_ms: int
    checkpoint: str | None = None
    problem: str | None = None
    topics_ms: Mapping[str, int] = field(default_factory=dict)

    def is_silent(self, now_ms: int, retention_minutes: int) -> bool:
        """Return whether the reader is stale, so that nothing is kept for it."""
        return now_ms - self.committed_ms > retention_minutes * _MINUTE_MS

    def knows(self, topic: str, topic_id: str | None) -> bool:
        """Return whether its offsets belong to the topic with this id.

        A topic that was deleted and created again under its name starts at offset 0.
        """
        known = self.position.topic_ids.get(topic)
        return known is None or topic_id is None or known == topic_id

    def stands_at(self, partition: TopicPartition, topic_id: str | None) -> int | None:
        """Return its recorded offset in a partition, None if it has none in this topic."""
        if not self.knows(partition.topic, topic_id):
            return None
        return self.position.offsets.get(partition)

    def goes_on_from(self, partition: TopicPartition, topic_id: str | None) -> int | None:
        """Return its first unfinished offset, None if it does not read the partition.

        A partition whose number is above all recorded ones of its topic was added later and will be
        read from its beginning. So will a topic that was deleted and created again.

        Args:
            partition: The partition.
            topic_id: Id of the present topic.
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
        """Return the first offset that is kept for it, None if nothing is.

        Nothing is kept of a topic that was deleted and created again: `failOnDataLoss` stops the
        query there.
        """
        if not self.knows(partition.topic, topic_id):
            return None
        return self.goes_on_from(partition, topic_id)


# ---- files of readers --------------------------------------------------------------------------
def list_readers(root: LogRoot) -> list[Reader]:
    """Return the recorded readers of a root by name, each with its present position.

    Raises:
        CorruptCheckpointError: A file is malformed, so it is unknown what its reader needs.
    """
    found = []
    for name in reader_names(root):
        try:
            found.append(recorded_reader(root, name))
        except FileMissingError:  # forgotten after the listing
            continue
    return found


def reader_names(root: LogRoot) -> list[str]:
    """Return the names of the recorded readers of a root, also of those with malformed files."""
    try:
        names = root.fs.list(root.readers)
    except FileMissingError:
        return []
    return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]


def add_reader(root: LogRoot, name: str, checkpoint: str, *, now_ms: int) -> Reader:
    """Record a query by its checkpoint; durable.

    Args:
        root: The log root; the checkpoint lies in the same file system.
        name: The reader's name.
        checkpoint: The query's `checkpointLocation`, a local directory.
        now_ms: Time of its position, unless the checkpoint has a later one.

    Raises:
        InvalidOptionError: The name is invalid, or streamlog did not make the root.
        InvalidRequestError: There is no checkpoint, or it holds no offsets of a log.
    """
    check_reader_name(name)
    check_progress(root, name)
    reader = reader_at(root.fs, name, checkpoint, now_ms=now_ms)
    document = {
        "group": reader.name,
        "committedMs": reader.committed_ms,
        "offsets": reader.position.to_json(),
        "checkpoint": reader.checkpoint,
    }
    _write(root, name, document)
    return reader


def reader_at(fs: FileSystem, name: str, checkpoint: str, *, now_ms: int) -> Reader:
    """Return a query as a reader, by its checkpoint; it need not be recorded.

    Args:
        fs: The file system of the checkpoint.
        name: The reader's name.
        checkpoint: The query's `checkpointLocation`, a local directory.
        now_ms: Time of its position, unless the checkpoint has a later one.

    Raises:
        InvalidRequestError: There is no checkpoint, or it holds no offsets of a log.
    """
    known = Reader(
        name=name,
        position=SourceOffset(offsets={}),
        committed_ms=now_ms,
        checkpoint=os.path.abspath(checkpoint),
    )
    reader = at_checkpoint(fs, known)
    if reader.problem is not None:
        raise InvalidRequestError(
            f"the position of {name} cannot be read from its checkpoint",
            path=checkpoint,
            got=reader.problem,
            expected="the checkpointLocation of a query that has finished a batch",
        )
    return reader


def forget_reader(root: LogRoot, name: str) -> None:
    """Remove a reader, so that nothing is kept for it; durable.

    Raises:
        InvalidRequestError: No such reader is recorded.
    """
    check_reader_name(name)
    try:
        root.fs.remove(root.reader(name))
    except FileMissingError:
        known = ", ".join(each.name for each in list_readers(root))
        raise InvalidRequestError(
            f"no reader {name} is recorded",
            path=root.path,
            expected=f"one of {known}" if known else None,
        ) from None
    root.fs.sync_directory(root.readers)


def check_progress(root: LogRoot, group: str) -> None:
    """Check that progress can be written, so that a query fails at its start, not at its end.

    Raises:
        InvalidOptionError: Streamlog did not make the root.
        StorageError: The directory of readers is not writable.
    """
    if not is_our_root(root):
        raise InvalidOptionError(
            "option kafka.group.id needs a log root of streamlog: its readers folder is written to",
            path=root.path,
            got="a directory without .streamlog",
            hint="leave kafka.group.id out; the query's checkpoint keeps its offsets anyway",
        )
    refuse_planted(root)
    make_directories(root.fs, root.readers)
    # Not the file itself: another query may be starting under the same group.
    probe = temporary_path(root.reader(group))
    root.fs.open(probe, OpenMode.CREATE).close()
    root.fs.remove(probe)


def write_progress(
    root: LogRoot, group: str, offsets: Mapping[str, object], *, now_ms: int
) -> None:
    """Record that a group has finished everything below `offsets`.

    Sources of one query may share a group and read different topics: positions in topics that
    `offsets` does not name stay until they are as old as `offsets.retention.minutes`.

    Raises:
        LockTimeoutError: Another source held the lock of the readers.
    """
    what = f"the readers of {root.path}"
    with locked(root.fs, root.clock, root.readers_lock, what=what):
        document = {"group": group, "committedMs": now_ms, "offsets": offsets}
        _write(root, group, {**document, **_of_other_topics(root, group, document)})


def _of_other_topics(root: LogRoot, group: str, document: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields that keep positions in topics which a new document does not name."""
    try:
        before = _load(root, group)
    except (FileMissingError, CorruptCheckpointError):
        # A damaged file has no position to keep; the new one replaces it.
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
        read_server_config(root).offsets_retention_minutes * _MINUTE_MS
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


def _write(root: LogRoot, name: str, document: Mapping[str, object]) -> None:
    data = (json.dumps(document, indent=1) + "\n").encode()
    write_file_atomically(root.fs, root.reader(name), data)


def recorded_reader(root: LogRoot, name: str) -> Reader:
    """Return one recorded reader with its present position.

    Raises:
        FileMissingError: It is not recorded.
        CorruptCheckpointError: Its file is malformed.
    """
    reader = _load(root, name)
    return reader if reader.checkpoint is None else at_checkpoint(root.fs, reader)


def _load(root: LogRoot, name: str) -> Reader:
    """Return a reader as its file describes it."""
    path = root.reader(name)
    return parse_reader(name, read_file(root.fs, path, max_size=MAX_READER_SIZE), path)


def parse_reader(name: str, data: bytes, path: str) -> Reader:
    """Return a reader as its file or object describes it.

    Args:
        name: Its name.
        data: The whole content.
        path: Where it comes from, for errors.

    Raises:
        CorruptCheckpointError: The content is malformed.
    """
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
        name=name,
        position=position,
        committed_ms=committed_ms,
        checkpoint=checkpoint,
        topics_ms=topics_ms,
    )


def _unreadable(path: str, data: bytes, error: Exception) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"malformed file of a recorded reader ({error})",
        path=path,
        got=repr(data[:80]),
        expected='{"group": …, "committedMs": …, "offsets": {"TOPIC": {"0": 1}}}',
        hint=f"if that reader no longer exists: rm {path}",
    )


def check_reader_name(name: str) -> None:
    """Check that a file can be named after a reader.

    Raises:
        InvalidOptionError: It cannot.
    """
    if not _NAME.fullmatch(name):
        raise InvalidOptionError(
            "invalid name of a reader: a file is named after it",
            got=repr(name),
            expected="letters, digits, '.', '_' and '-', not beginning with '.' or '-'",
        )


# ---- positions in checkpoints -------------------------------------------------------------------
def at_checkpoint(fs: FileSystem, reader: Reader) -> Reader:
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


# ---- segments kept for readers ------------------------------------------------------------------
class Held(NamedTuple):
    """The part of a partition that is kept for one reader.

    Attributes:
        reader: Its name.
        partition: The partition.
        offset: Its first unfinished offset.
        kept_from: The first offset that is kept for it; above `offset` if the cap was reached.
        bytes: Size of the sealed segments that are kept for it.
    """

    reader: str
    partition: TopicPartition
    offset: int
    kept_from: int
    bytes: int


def held_from(held: Sequence[Held]) -> int:
    """Return the first offset that is kept for any reader."""
    return min((each.kept_from for each in held), default=MAX_INT64)


class Holds:
    """The readers of a root that are not silent, and the cap, at one moment.

    Args:
        fs: The file system of the root.
        readers: The readers that are not silent.
        max_bytes: Maximum bytes of a partition that are kept for readers; negative: no limit.
    """

    def __init__(self, fs: FileSystem, readers: Sequence[Reader], max_bytes: int) -> None:
        self._fs, self._readers, self._max_bytes = fs, readers, max_bytes

    @classmethod
    def read(cls, root: LogRoot) -> "Holds":
        """Read the recorded readers of a root.

        Raises:
            CorruptCheckpointError: A reader's file is malformed.
        """
        config, now_ms = read_server_config(root), root.clock.now_ms()
        readers = [
            each
            for each in list_readers(root)
            if not each.is_silent(now_ms, config.offsets_retention_minutes)
        ]
        return cls(root.fs, readers, config.streamlog_readers_max_bytes)

    def of(
        self, partition: TopicPartition, path: str, bases: Sequence[int], sizes: Sequence[int]
    ) -> list[Held]:
        """Return the part of a partition that is kept for each reader.

        Args:
            partition: The partition.
            path: Its directory.
            bases: Base offsets of its segments, ascending.
            sizes: Bytes of each segment.
        """
        if not self._readers:
            return []
        return self.of_topic(partition, read_topic_id(self._fs, path), bases, sizes)

    def of_topic(
        self,
        partition: TopicPartition,
        topic_id: str | None,
        bases: Sequence[int],
        sizes: Sequence[int],
    ) -> list[Held]:
        """Return the part of a partition that is kept for each reader, by the id of its topic.

        Args:
            partition: The partition.
            topic_id: The id of its topic, None if it has none.
            bases: Base offsets of its segments, ascending.
            sizes: Bytes of each segment.
        """
        lowest = self._lowest_base(bases, sizes)
        found = []
        for reader in self._readers:
            offset = reader.needed_from(partition, topic_id)
            if offset is not None:
                kept_from = max(offset, lowest)
                first = max(0, bisect_right(bases, kept_from) - 1)
                found.append(Held(reader.name, partition, offset, kept_from, sum(sizes[first:-1])))
        return found

    def _lowest_base(self, bases: Sequence[int], sizes: Sequence[int]) -> int:
        """Return the base offset of the oldest segment that fits under the cap."""
        if self._max_bytes < 0:
            return 0
        left, lowest = self._max_bytes, MAX_INT64
        for base, size in zip(reversed(bases), reversed(sizes), strict=True):
            left -= size
            if left < 0:
                break
            lowest = base
        return lowest
