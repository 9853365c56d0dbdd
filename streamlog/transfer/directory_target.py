"""Copying into a directory.

A new topic is written into a root of its own inside `.streamlog`, where no reader looks for topics.
At the end its partitions are renamed into place, and its properties file, which makes it a topic,
is written last. A topic that is there already gets more records, as from a producer.
"""

from collections.abc import Callable, Iterator

from streamlog.bucket.segments import APPENDS, WholeBatches, cut_batches
from streamlog.errors import (
    InconsistentTopicIdError,
    InvalidRequestError,
    TopicExistsError,
    command_at,
)
from streamlog.fs.files import write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.partition.checkpoints import (
    read_log_start_offsets,
    remove_topic,
    write_log_start_offsets,
)
from streamlog.partition.epochs import EpochEntry
from streamlog.partition.partition_metadata import new_topic_id, read_topic_id
from streamlog.partition.topic_config import (
    read_properties,
    read_server_config,
    read_topic_properties,
)
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.root.registry import (
    alter_topic,
    check_creation,
    finish_deletion,
    make_partition,
    refuse_taken_name,
)
from streamlog.root.roots import make_root, registry_locked, write_topic_properties
from streamlog.root.topics import list_topics, partition_directories, topic_exists
from streamlog.topic import TopicPartition
from streamlog.transfer.configs import accepted_configs
from streamlog.transfer.directory_source import DirectoryPartition
from streamlog.transfer.ends import CopyTopic, Piece, SourcePartition, merged_epochs

__all__ = ["DirectoryTarget"]


class DirectoryTarget:
    """A directory to copy to; see `CopyTarget`. Made a root if it is missing or empty.

    Args:
        root: The directory.

    Raises:
        InvalidRequestError: The directory is no root and cannot become one.
        UnavailableError: A broker has it, or the disk failed.
    """

    is_stable_only = False

    def __init__(self, root: LogRoot) -> None:
        make_root(root)
        self._root, self.name = root, root.path
        self._hidden = root.of_copies()
        self._managers: dict[str, LogManager] = {}

    def begin(self, topic: CopyTopic) -> tuple[str, ...]:
        """See `CopyTarget.begin`."""
        count = max(topic.partitions, default=0) + 1
        if self.is_hidden(topic.name) and self._is_moving(topic.name):
            self.reveal(topic.name)
        if self.is_hidden(topic.name):
            self._check_id(topic, partition_directories(self._hidden, topic.name))
            self._add_partitions(self._hidden, topic.name, count)
            return ()
        if topic_exists(self._root, topic.name):
            self._check_id(topic, partition_directories(self._root, topic.name))
            self._refuse_replicas(topic.name)
            self._add_partitions(self._root, topic.name, count)
            return ()
        check = read_server_config(self._root).log_config
        configs, remarks = accepted_configs(topic.configs, check)
        check_creation(self._root, topic.name, partitions=count, configs=configs)
        self._create_hidden(topic, count, configs)
        return remarks

    def _create_hidden(self, topic: CopyTopic, count: int, configs: dict[str, str]) -> None:
        fs, hidden = self._root.fs, self._hidden
        make_root(hidden)
        server = read_properties(fs, self._root.server_properties) or {}
        if server != read_properties(fs, hidden.server_properties):
            text = "".join(f"{key}={value}\n" for key, value in server.items())
            write_file_atomically(fs, hidden.server_properties, text.encode())
        topic_id = topic.topic_id or new_topic_id(self._root.random)
        with registry_locked(hidden):
            finish_deletion(hidden, topic.name)
            known = partition_directories(hidden, topic.name)  # a copy that died before the end
            found = {read_topic_id(fs, path) for path in known.values()} - {None}
            for number in range(count):
                kept = next(iter(found), None) or topic_id
                make_partition(hidden, TopicPartition(topic.name, number), kept)
            fs.sync_directory(hidden.path)
            write_topic_properties(hidden, topic.name, configs)

    def _add_partitions(self, root: LogRoot, topic: str, count: int) -> None:
        if count > len(partition_directories(root, topic)):
            alter_topic(root, topic, configs={}, delete_configs=(), partitions=count)

    def _check_id(self, topic: CopyTopic, directories: dict[int, str]) -> None:
        for path in directories.values():
            found = read_topic_id(self._root.fs, path)
            if topic.topic_id is not None and found not in (None, topic.topic_id):
                raise InconsistentTopicIdError(
                    f"the target has another topic of the name {topic.name}",
                    path=path,
                    got=f"topic id {found}",
                    expected=topic.topic_id,
                    hint=command_at(self.name, f"topics delete {topic.name}"),
                )

    def _refuse_replicas(self, topic: str) -> None:
        for number in partition_directories(self._root, topic):
            register = self._root.partition_register(TopicPartition(topic, number))
            if self._root.fs.stat(register) is not None:
                raise InvalidRequestError(
                    f"topic {topic} has replicas in other roots",
                    path=self.name,
                    expected="a topic in this root alone",
                    hint="copy it into a root of its own",
                )

    def open(self, partition: TopicPartition) -> "_DirectoryPartition":
        """See `CopyTarget.open`."""
        root = self._hidden if self.is_hidden(partition.topic) else self._root
        return _DirectoryPartition(
            root,
            partition,
            lambda: self._log(root, partition),
            is_hidden=root is self._hidden,
        )

    def _log(self, root: LogRoot, partition: TopicPartition) -> PartitionLog:
        manager = self._managers.get(root.path)
        if manager is None:
            manager = LogManager.open(root.path, fs=root.fs, clock=root.clock, random=root.random)
            self._managers[root.path] = manager
        return manager.local_log(*partition)

    # ---- hidden topics -----------------------------------------------------------------------
    def is_hidden(self, topic: str) -> bool:
        """See `CopyTarget.is_hidden`."""
        return self._root.fs.stat(self._hidden.topic_properties(topic)) is not None

    def _is_moving(self, topic: str) -> bool:
        """Whether a hidden topic is complete, and was being moved into place."""
        at, fs = self._root, self._root.fs
        return topic_exists(at, topic) or any(
            fs.stat(self._hidden.partition(each)) is None for each in self._numbered(topic)
        )

    def _refuse_another(self, topic: str) -> None:
        """Refuse a topic of the same name that was created during the copy."""
        left = partition_directories(self._hidden, topic)
        if topic_exists(self._root, topic) and left:
            raise TopicExistsError(
                f"topic {topic} was created while it was copied here",
                path=self.name,
                hint=f"{command_at(self.name, f'topics delete {topic}')}, then copy again",
            )

    def _numbered(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a hidden topic, moved or not."""
        found = {*partition_directories(self._hidden, topic)}
        found |= {*partition_directories(self._root, topic)}
        return [TopicPartition(topic, number) for number in sorted(found)]

    def reveal(self, topic: str) -> None:
        """See `CopyTarget.reveal`."""
        if not self.is_hidden(topic):
            return
        manager = self._managers.pop(self._hidden.path, None)
        if manager is not None:
            manager.close()
        root, fs = self._root, self._root.fs
        with registry_locked(root):
            self._refuse_another(topic)
            if not topic_exists(root, topic):
                if not self._is_moving(topic):
                    refuse_taken_name(root.path, topic, list_topics(root))
                    finish_deletion(root, topic)
                self._move(topic)
                write_topic_properties(root, topic, read_topic_properties(self._hidden, topic))
        remove_topic(self._hidden, topic)
        fs.remove(self._hidden.topic_properties(topic))
        fs.sync_directory(self._hidden.topics)

    def _move(self, topic: str) -> None:
        root, hidden = self._root, self._hidden
        partitions = self._numbered(topic)
        for partition in partitions:
            source, target = hidden.partition(partition), root.partition(partition)
            if root.fs.stat(source) is None:
                continue  # moved before a crash
            if root.fs.stat(target) is not None:
                raise InvalidRequestError(
                    "a directory is in the way of a copied partition",
                    path=target,
                    expected="no directory of this name",
                    hint=f"move it away: mv {target} {target}.kept",
                )
            root.fs.rename(source, target)
        root.fs.sync_directory(root.path)
        root.fs.sync_directory(hidden.path)
        starts = read_log_start_offsets(hidden)
        write_log_start_offsets(root, {each: starts[each] for each in partitions if each in starts})

    def close(self) -> None:
        """See `CopyTarget.close`."""
        while self._managers:
            _, manager = self._managers.popitem()
            manager.close()


class _DirectoryPartition:
    """A partition of a directory that is copied to; see `TargetPartition`."""

    reads_back = keeps_pieces = False

    def __init__(
        self,
        root: LogRoot,
        partition: TopicPartition,
        open_log: Callable[[], PartitionLog],
        *,
        is_hidden: bool,
    ) -> None:
        self._root, self._open_log, self._is_hidden = root, open_log, is_hidden
        self.path = root.partition(partition)
        reader = DirectoryPartition(root, self.path)
        self.log_start_offset, self.end_offset = reader.log_start_offset, reader.end_offset
        self.is_unused, self._epochs = reader.is_empty, reader.epochs
        reader.close()
        self._log: PartitionLog | None = None
        self._source: SourcePartition | None = None

    def is_finished(self, source: SourcePartition) -> bool:
        """See `TargetPartition.is_finished`."""
        epochs = merged_epochs(self._epochs, source.epochs, self.log_start_offset, self.end_offset)
        return not self._is_hidden and epochs == self._epochs

    def begin(self, source: SourcePartition) -> None:
        """See `TargetPartition.begin`."""
        self._source = source
        self._log = log = self._open_log()
        with log.locked():
            if log.log_end_offset != self.end_offset:
                raise InvalidRequestError(
                    "another process writes to the target",
                    path=self.path,
                    got=f"log end offset {log.log_end_offset}",
                    expected=self.end_offset,
                    hint="stop its writers, then copy again",
                )
            # A recovery may have started an epoch at the log end; the batches have their own.
            own = [each for each in log.leader_epochs.entries if each[1] < log.log_end_offset]
            log.adopt_epochs(own)

    def write(self, piece: Piece) -> None:
        """See `TargetPartition.write`."""
        log = self._log
        assert log is not None, "begin comes first"
        base = int(piece.table.base_offset[0])
        with log.locked():
            if self.is_unused and log.size == 0:
                first = base if piece.segment_base is None else piece.segment_base
                if first != log.log_end_offset:
                    log.restart_at(first)
            elif piece.segment_base is not None:
                if piece.segment_base > log.log_end_offset:
                    log.skip_to(piece.segment_base)
                elif not log.segments.active.is_empty:
                    log.roll()
            is_staged = piece.is_staged
            size = log.config.effective_segment_bytes // APPENDS if is_staged else piece.table.end
            for part in cut_batches(WholeBatches(piece.buffer, piece.table), size):
                log.append_copied(part.buffer, part.table)

    def finish(self, end_offset: int) -> None:
        """See `TargetPartition.finish`."""
        log, source = self._log, self._source
        assert log is not None and source is not None, "begin comes first"
        with log.locked():
            if log.size == 0 and self.is_unused and log.log_end_offset != end_offset:
                log.restart_at(end_offset)
            elif log.log_end_offset < end_offset:  # compaction left nothing up to the end
                log.skip_to(end_offset)
            log.flush()
            if self.is_unused or self._is_hidden:
                log.raise_log_start(min(source.log_start_offset, end_offset))
            old = tuple((int(a), int(b)) for a, b in log.leader_epochs.entries)
            start = log.log_start_offset
            epochs = merged_epochs(old, source.epochs, start, end_offset)
            log.adopt_epochs([EpochEntry(*each) for each in epochs])
            self.log_start_offset, self.end_offset = start, log.log_end_offset

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[Piece]:
        """See `TargetPartition.pieces`; the next piece overwrites the last one."""
        reader = DirectoryPartition(self._root, self.path)
        reader.may_overwrite = True
        try:
            yield from reader.pieces(start_offset, end_offset)
        finally:
            reader.close()

    def close(self) -> None:
        """See `TargetPartition.close`; the manager closes the log."""
