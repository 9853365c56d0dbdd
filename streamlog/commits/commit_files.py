"""The commit files of one root of a replica set, as a copy of the leader's.

Besides decisions, ledgers and staged files there is the epoch: the leader epoch of `commits` that
the files belong to. A root that begins to lead writes its epoch to itself and to each follower
before anything else, and every copy checks it under the follower's lock. A leader that was replaced
without noticing can therefore change nothing on the other roots.
"""

import contextlib
from collections.abc import Generator, Iterable, Iterator
from typing import Final

from streamlog.binary.sealed import MAX_SEALED_SIZE, seal, unseal
from streamlog.commits.decisions import DecidedPart
from streamlog.commits.history import Ledgers, number_in, owner_of
from streamlog.commits.identity import app_key, topic_of
from streamlog.commits.pending import PendingDecisions, decision_number
from streamlog.commits.staging import StagingArea
from streamlog.errors import (
    FileMissingError,
    NotLeaderError,
    StorageError,
    UnavailableError,
)
from streamlog.fs.api import FileLock
from streamlog.fs.files import (
    acquire_lock,
    make_directories,
    read_file,
    write_file_atomically,
)
from streamlog.fs.log_root import LogRoot
from streamlog.partition.log import Log
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.topic import TopicPartition

__all__ = ["NO_EPOCH", "CommitFiles", "SourceFailedError"]

NO_EPOCH: Final = -1  # of a root that never followed a leader, or whose disk was replaced

_COPY_SIZE: Final = 4 << 20
_EPOCH_SIZE_MAX: Final = 64 << 10
_KIND: Final = "commits-epoch"


class SourceFailedError(Exception):
    """A root cannot be read that another one copies from; not a failure of the copying root.

    Attributes:
        error: The failure.
    """

    def __init__(self, error: StorageError) -> None:
        super().__init__(str(error))
        self.error = error


class CommitFiles:
    """The commit files of one root.

    Args:
        root: The log root.
        lock_timeout_ms: How long to wait for another process that copies to this root.

    Attributes:
        root: The log root.
        pending: Its unretired decisions; empty unless it leads.
        prepared: The decisions that the leader made, or was about to make; read afresh each time.
        ledgers: Its ledgers.
        area: Its staged files.
    """

    def __init__(self, root: LogRoot, lock_timeout_ms: float) -> None:
        self.root, self._fs, self._timeout_ms = root, root.fs, lock_timeout_ms
        self.pending = PendingDecisions(root)
        self.ledgers = Ledgers(root)
        self.area = StagingArea(root)

    @property
    def prepared(self) -> PendingDecisions:
        """The prepared decisions; not cached, since a leader may use a name again."""
        return PendingDecisions(self.root, self.root.prepared_decisions)

    # ---- what belongs to this root alone ---------------------------------------------------------
    def is_replicated(self, partition: TopicPartition) -> bool:
        """Whether a partition has replicas in several roots, by the register here."""
        return self._fs.stat(self.root.partition_register(partition)) is not None

    def holds_alone(self, part: DecidedPart) -> bool:
        """Whether this root has the partition of a part, which has no other replica."""
        partition = part.topic_partition
        if self.is_replicated(partition):
            return False
        return read_topic_id(self._fs, self.root.partition(partition)) == part.topic_id

    def owns(self, app: str) -> bool:
        """Whether an app writes a topic of this root that has no other replica.

        Its history stays here: wherever else the app may be known, this root knows better.
        """
        topic = topic_of(app)
        if topic is None or self.is_replicated(TopicPartition(topic, 0)):
            return False
        return self._fs.stat(self.root.topic_properties(topic)) is not None

    # ---- the epoch -----------------------------------------------------------------------------
    @contextlib.contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock of this root's commit files."""
        lock = self._take(shared=shared)
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def followed(self, epoch: int) -> Iterator[None]:
        """Hold the lock while the files belong to the leader of `epoch`.

        Raises:
            NotLeaderError: Another leader was elected since.
            StorageError: The files are older than the leader's: the disk was replaced or restored.
        """
        with self.locked():
            found = self.check_epoch(epoch)
            if found < epoch:
                raise StorageError(
                    "commit files were replaced by none or older ones",
                    path=self.root.commits_epoch,
                    got=f"leader epoch {found}",
                    expected=str(epoch),
                )
            yield

    def check_epoch(self, epoch: int) -> int:
        """Return the epoch; raise `NotLeaderError` if the files belong to a later leader."""
        found = self.epoch()
        if found > epoch:
            raise NotLeaderError(
                "another root was elected to lead the commits",
                path=self.root.commits_epoch,
                got=f"leader epoch {epoch}",
                expected=str(found),
            )
        return found

    def epoch(self) -> int:
        """Return the leader epoch that the files belong to; `NO_EPOCH` in a new root.

        Raises:
            CorruptCheckpointError: The file is damaged.
        """
        path = self.root.commits_epoch
        try:
            content = read_file(self._fs, path, max_size=_EPOCH_SIZE_MAX)
        except FileMissingError:
            return NO_EPOCH
        return unseal(_KIND, content, path).integer("epoch")

    def set_epoch(self, epoch: int) -> None:
        """Make the files belong to the leader of `epoch`; durable on return."""
        content = seal(_KIND, {"epoch": epoch})
        self._replace(self.root.prepared_decisions, self.root.commits_epoch, content)

    # ---- decisions -----------------------------------------------------------------------------
    def discard(self, decisions: PendingDecisions, names: Iterable[str]) -> None:
        """Remove decisions durably: one that came back after a power cut might be decided."""
        names = list(names)
        for name in names:
            decisions.remove(name)
        if names:
            decisions.sync()

    def refuse_undecided(self, log: Log, leader: int) -> None:
        """Check that no decision made elsewhere, or never, has the offsets that come next in a log.

        Args:
            log: A partition that a root leads which does not lead the commits, or not yet.
            leader: The node that leads the commits.

        Raises:
            UnavailableError: Records of a decision known here would stand there.
        """
        waiting = self.prepared.naming(log.topic_partition)
        if self.root.path != log.root:  # its own ones are applied first
            waiting += self.pending.naming(log.topic_partition)
        for decision, part in waiting:
            is_above = part.topic_id == log.topic_id and part.last_offset >= log.log_end_offset
            if is_above and not self.ledgers.has_retired(decision):
                raise UnavailableError(
                    f"{decision.identity} may be decided, and another root leads the commits",
                    path=log.path,
                    offset=part.base_offset,
                    expected=f"node {leader} to lead the partition",
                    hint="let the commits go on: commit again, or streamlog replicate --once",
                )

    # ---- ledgers -------------------------------------------------------------------------------
    def ledger(self, key: str) -> bytes | None:
        """Return the ledger of an app by its key, None if there is none."""
        try:
            return read_file(self._fs, self.root.ledger(key), max_size=MAX_SEALED_SIZE)
        except FileMissingError:
            return None

    def store_ledger(self, key: str, content: bytes) -> None:
        """Store a copy of the leader's ledger unless it is here already; durable on return."""
        if self.ledger(key) == content:
            self.ledgers.sync()  # the process that stored it may have died before its sync
        elif not self.owns(owner_of(content, self.root.ledger(key))):
            self._replace(self.root.ledgers, self.root.ledger(key), content)

    def last_number(self, app: str) -> int:
        """Return the number of an app's last decision known here, 0 without any.

        Raises:
            CorruptCheckpointError: The ledger is damaged.
        """
        names = (*self.prepared.of_app(app), *self.pending.of_app(app))
        if names:
            return max(map(decision_number, names))
        key = app_key(app)
        ledger = self.ledger(key)
        return 0 if ledger is None else number_in(ledger, self.root.ledger(key))

    def learn_ledger(self, key: str, content: bytes) -> None:
        """Store another root's ledger if it is ahead of the one here; durable on return."""
        own, path = self.ledger(key), self.root.ledger(key)
        if own is None or (own != content and number_in(own, path) < number_in(content, path)):
            self.store_ledger(key, content)

    def ledger_keys(self) -> list[str]:
        """Return the keys of the apps that have a ledger."""
        try:
            return [name for name in self._fs.list(self.root.ledgers) if not name.startswith(".")]
        except FileMissingError:
            return []

    def _replace(self, directory: str, path: str, content: bytes) -> None:
        try:
            write_file_atomically(self._fs, path, content)
        except FileMissingError:
            make_directories(self._fs, directory)
            write_file_atomically(self._fs, path, content)

    # ---- staged files --------------------------------------------------------------------------
    def has_staged(self, app: str, name: str, size: int) -> bool:
        """Return whether a staged file is here in full; its task synced it."""
        found = self._fs.stat(self.area.file_path(app, name))
        return found is not None and found.size == size

    def copy_staged(self, source: "CommitFiles", app: str, name: str, size: int) -> None:
        """Copy a staged file from another root; synced, its name not yet.

        The checksums of its batches are checked before they are applied, on either root.

        Raises:
            SourceFailedError: The other root does not have it in full, or cannot be read.
        """
        self.area.remove(app, [name])  # part of an earlier copy
        with contextlib.closing(source.pieces(app, name, size)) as pieces:
            first = next(pieces, b"")  # a file that cannot be read leaves nothing here
            with self.area.create(app, lambda: name) as write:
                write.pwrite(first, 0)
                position = len(first)
                for piece in pieces:
                    write.pwrite(piece, position)
                    position += len(piece)
                write.sync()

    def pieces(self, app: str, name: str, size: int) -> Generator[bytes, None, None]:
        """Yield the bytes of a staged file.

        Raises:
            SourceFailedError: It is not here in full, or cannot be read.
        """
        try:
            with self.area.open(app, name) as file:
                found = file.stat().size
                if found != size:
                    raise StorageError(
                        "staged file does not have the size that its task reported",
                        path=self.area.file_path(app, name),
                        got=f"{found} bytes",
                        expected=size,
                    )
                for position in range(0, size, _COPY_SIZE):
                    yield file.pread(_COPY_SIZE, position)
        except StorageError as error:
            raise SourceFailedError(error) from error

    def lacking(self, app: str, files: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return those of the staged files, as names with sizes, that are not here in full."""
        return [(name, size) for name, size in files if not self.has_staged(app, name, size)]

    def remove_unnamed(self, app: str, names: Iterable[str]) -> None:
        """Remove an app's staged files except those that a decision here names."""
        named = self._named(app, self.pending) | self._named(app, self.prepared)
        self.area.remove(app, (name for name in names if name not in named))

    def _named(self, app: str, decisions: PendingDecisions) -> set[str]:
        found = (decisions.load(name) for name in decisions.of_app(app))
        return {file.name for decision in found if decision for file in decision.files}

    def _take(self, *, shared: bool) -> FileLock:
        path, clock = self.root.commit_files_lock, self.root.clock
        what = f"the commit files of {self.root.path}"
        try:
            return acquire_lock(
                self._fs, clock, path, shared=shared, timeout_ms=self._timeout_ms, what=what
            )
        except FileMissingError:  # the first lock of this root
            make_directories(self._fs, self.root.locks)
        return acquire_lock(
            self._fs, clock, path, shared=shared, timeout_ms=self._timeout_ms, what=what
        )
