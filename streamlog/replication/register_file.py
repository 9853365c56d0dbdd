"""The register of a partition in one log root: an acceptor, kept in a file.

`<root>/.streamlog/replication/<topic>-<n>` is an acceptor (`streamlog.replication.quorum`): a
sealed file, replaced atomically and durably under the lock of the partition in that root. An append
checks the file under the same lock, so after a new leader's state has been accepted in a root, no
writer of an older epoch appends there.
"""

import logging
import os
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from streamlog.binary.sealed import MAX_SEALED_SIZE, SealedValues, seal, unseal
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    LimitExceededError,
)
from streamlog.fs.api import FileStat, OpenMode
from streamlog.fs.files import make_directories, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.replication.partition_state import (
    NO_LEADER,
    LeaderRecovery,
    PartitionState,
    ReplicationEvents,
)
from streamlog.replication.quorum import (
    Accepted,
    Acceptor,
    Answer,
    Ballot,
    Voter,
    accept,
    prepare,
)

__all__ = ["RegisterFile", "decode_acceptor", "encode_acceptor"]

_KIND: Final = "replication"
_SIZES: Final = 61  # a file's size differs from those of its last 60 versions
_T = TypeVar("_T")

_logger = logging.getLogger(__name__)


class RegisterFile:
    """The acceptor of one register in one log root.

    A file system may give a new version the inode of the version before the last, within one tick
    of its clock. The sizes of successive versions therefore differ, and inode, time and size
    together reveal a change.

    Args:
        root: The log root.
        name: The register: a partition, or `commits`.
        check: Raises `UnavailableError` if the root is offline; asked before a file that is new
            or missing is believed.
    """

    def __init__(
        self, root: LogRoot, name: str, *, check: Callable[[], None] | None = None
    ) -> None:
        self.root = root
        self.name = name
        self.path = root.partition_register(name)
        self._check = check
        self._known: tuple[FileStat | None, Acceptor | None, int] = (None, None, 0)

    @property
    def last_read(self) -> Accepted | None:
        """The value that the last read found; current while the partition's lock stays held."""
        acceptor = self._known[1]
        return None if acceptor is None else acceptor.accepted

    def has_changed(self) -> bool:
        """Return whether the file is another one than at the last read; one `stat`.

        Raises:
            StorageError: The root cannot be reached.
        """
        return not _is_same(self._stat(), self._known[0])

    def read(self) -> Accepted | None:
        """Return the accepted value, None if there is none; one `stat` while nothing changes.

        Raises:
            CorruptCheckpointError: The file is damaged.
            StorageError: The root cannot be reached.
        """
        acceptor = self.acceptor()
        return None if acceptor is None else acceptor.accepted

    def acceptor(self) -> Acceptor | None:
        """Return the content of the file, None if it does not exist.

        Raises:
            CorruptCheckpointError: The file is damaged.
            StorageError: The root cannot be reached.
        """
        found, acceptor, _ = self._known
        now = self._stat()
        if now is not None and _is_same(now, found):
            return acceptor
        if self._check is not None:
            self._check()
        if now is None:
            self._known = (None, None, 0)
            return None
        return self._parse()

    def prepare(self, ballot: Ballot, *, creates: bool = False) -> Answer:
        """Promise a ballot, durably; the caller holds the partition's lock of this root.

        Raises:
            CorruptCheckpointError: The file is damaged.
            StorageError: The disk failed; the promise may be in the file.
        """
        before = self.acceptor()
        after, answer = prepare(before, ballot, creates=creates)
        self._replace(before, after)
        return answer

    def accept(self, value: Accepted) -> Answer:
        """Accept a value, durably; the caller holds the partition's lock of this root.

        Raises:
            CorruptCheckpointError: The file is damaged.
            StorageError: The disk failed; the value may be in the file.
        """
        before = self.acceptor()
        after, answer = accept(before, value)
        self._replace(before, after)
        return answer

    def install(self, acceptor: Acceptor) -> bool:
        """Replace the file, durably, by another incarnation; the caller holds the lock.

        Returns:
            False if the file has promised more meanwhile, and was left as it is.

        Raises:
            StorageError: The disk failed; the file may be written.
        """
        try:
            before = self.acceptor()
        except CorruptDataError as error:
            _logger.warning("replaced a damaged register: %s", error)
            before = None
        if before is not None and before.promised >= acceptor.promised:
            return False
        make_directories(self.root.fs, os.path.dirname(self.path))
        self._write(acceptor)
        return True

    def remove(self) -> None:
        """Remove the file, durably; the caller holds the partition's lock of this root."""
        if self.root.fs.stat(self.path) is not None:
            self.root.fs.remove(self.path)
            self.root.fs.sync_directory(os.path.dirname(self.path))

    def _stat(self) -> FileStat | None:
        found = self.root.fs.stat(self.path)
        if found is None and self.root.fs.stat(self.root.path) is None:
            raise FileMissingError("log root is missing", path=self.root.path)
        return found

    def _parse(self) -> Acceptor | None:
        try:
            with self.root.fs.open(self.path, OpenMode.READ) as file:
                found = file.stat()
                if found.size > MAX_SEALED_SIZE:
                    raise LimitExceededError(
                        "register is larger than any sound one",
                        path=self.path,
                        got=f"{found.size} bytes",
                        expected=f"at most {MAX_SEALED_SIZE}",
                    )
                content = file.pread(found.size, 0)
        except FileMissingError:  # removed meanwhile
            self._known = (None, None, 0)
            return None
        acceptor, version = decode_acceptor(content, self.path)
        self._known = (found, acceptor, version)
        return acceptor

    def _replace(self, before: Acceptor | None, after: Acceptor | None) -> None:
        if after is None or after == before:
            return
        if before is None:
            make_directories(self.root.fs, os.path.dirname(self.path))
        self._write(after)

    def _write(self, acceptor: Acceptor) -> None:
        data = encode_acceptor(acceptor, version=self._known[2] + 1)
        write_file_atomically(self.root.fs, self.path, data)


def _is_same(found: FileStat | None, known: FileStat | None) -> bool:
    if found is None or known is None:
        return found is known
    return (found.inode, found.mtime_ns, found.size) == (known.inode, known.mtime_ns, known.size)


# ---- the file ---------------------------------------------------------------------------------
def encode_acceptor(acceptor: Acceptor, *, version: int) -> bytes:
    """Return the content of a register file.

    Args:
        acceptor: What it holds.
        version: The number of this version of the file.
    """
    accepted = acceptor.accepted
    return seal(
        _KIND,
        {
            "version": version,
            "padding": " " * (version % _SIZES),
            "promised": _ballot_row(acceptor.promised),
            "incarnation": acceptor.incarnation,
            "accepted": None
            if accepted is None
            else {
                "ballot": _ballot_row(accepted.ballot),
                "voters": [list(voter) for voter in accepted.voters],
                "state": None if accepted.state is None else _state_values(accepted.state),
            },
        },
    )


def decode_acceptor(content: bytes, path: str) -> tuple[Acceptor, int]:
    """Return what a register file holds, and the number of its version.

    Raises:
        CorruptCheckpointError: The content is damaged.
    """
    values = unseal(_KIND, content, path)
    accepted = None
    if not values.is_null("accepted"):
        inner = values.nested("accepted")
        state = None if inner.is_null("state") else _state(inner.nested("state"))
        voters = tuple(Voter(node, number) for node, number in inner.integers("voters", 2))
        accepted = Accepted(_ballot(inner, "ballot"), voters, state)
    acceptor = Acceptor(_ballot(values, "promised"), values.integer("incarnation"), accepted)
    return acceptor, values.integer("version")


def _state_values(state: PartitionState) -> dict[str, object]:
    return {
        "topic_id": state.topic_id,
        "replicas": _rows(state.replicas),
        "isr": _rows(state.isr),
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "elr": _rows(state.elr),
        "last_known_leader": state.last_known_leader,
        "recovery": state.recovery.value,
        "adding": _rows(state.adding),
        "removing": _rows(state.removing),
        "events": [list(state.events)],
    }


def _state(values: SealedValues) -> PartitionState:
    return PartitionState(
        topic_id=values.text("topic_id"),
        replicas=_nodes(values, "replicas"),
        isr=_nodes(values, "isr"),
        leader=values.integer("leader", NO_LEADER),
        leader_epoch=values.integer("leader_epoch"),
        partition_epoch=values.integer("partition_epoch"),
        elr=_nodes(values, "elr"),
        last_known_leader=values.integer("last_known_leader", NO_LEADER),
        recovery=LeaderRecovery(values.integer("recovery", 0, LeaderRecovery.RECOVERING.value)),
        adding=_nodes(values, "adding"),
        removing=_nodes(values, "removing"),
        events=_events(values),
    )


def _events(values: SealedValues) -> ReplicationEvents:
    if values.is_null("events"):  # written before events were counted
        return ReplicationEvents()
    rows = values.integers("events", 3)
    if len(rows) != 1:
        raise values.malformed("events", rows, "one row")
    return ReplicationEvents(*rows[0])


def _ballot_row(ballot: Ballot) -> list[list[int]]:
    return [[ballot.generation, ballot.round, ballot.proposer]]


def _ballot(values: SealedValues, name: str) -> Ballot:
    rows = values.integers(name, 3)
    if len(rows) != 1:
        raise values.malformed(name, rows, "one ballot")
    return Ballot(*rows[0])


def _rows(nodes: Collection[int]) -> list[list[int]]:
    return [[node] for node in nodes]


def _nodes(values: SealedValues, name: str) -> tuple[int, ...]:
    return tuple(row[0] for row in values.integers(name, 1))
