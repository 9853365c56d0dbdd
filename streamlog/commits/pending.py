"""Decisions that are not retired: the files in `.streamlog/commits/pending`.

The directory contains only unretired decisions, at most a few dozen per app. A decision never
changes, so a process reads each one once and caches it until it is retired.

A decision file contains two copies (see `sealed`). If both are damaged, the app's history shows
which topics the decision may name: the standings in its other decisions and in its ledger. A query
writes the same topics in every batch, so partitions of other topics continue. Without a history,
the decision may name any topic, and every partition stops.

An app that chooses topics by its rows may name a topic for the first time in the damaged decision.
Writers of that topic are not stopped, but the app is; `verify` and `doctor` report the file, and
each partition that ignores it logs a warning.
"""

import contextlib
import logging
import re
import threading
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from streamlog.binary.sealed import MAX_SEALED_SIZE, unseal
from streamlog.commits.decisions import (
    DecidedPart,
    Decision,
    Standing,
    format_decision,
    parse_decision,
    parse_standing,
)
from streamlog.commits.identity import app_key
from streamlog.errors import (
    CorruptCheckpointError,
    FileMissingError,
    LimitExceededError,
    UnavailableError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.files import (
    create_file_atomically,
    make_directories,
    read_file,
    write_file_atomically,
)
from streamlog.fs.log_root import LogRoot
from streamlog.fs.names import is_temporary
from streamlog.topic import TopicPartition

__all__ = [
    "PendingDecisions",
    "decision_key",
    "decision_number",
]

KEPT_SIZE: Final = 64 << 20  # bytes of files; parsed, up to three times as much memory
_NAME: Final = re.compile(r"[^@/]+@[0-9]{20}", re.ASCII)
_logger = logging.getLogger(__name__)


def decision_key(name: str) -> str:
    """Return the app key (`streamlog.commits.identity.app_key`) in a decision's file name."""
    return name.rpartition("@")[0]


def decision_number(name: str) -> int:
    """Return the number in a decision's file name."""
    return int(name.rpartition("@")[2])


class _Parsed(NamedTuple):
    """A decision, its parts by partition, and the size of its file."""

    decision: Decision
    parts: dict[TopicPartition, DecidedPart]
    size: int

    @classmethod
    def of(cls, decision: Decision, size: int) -> "_Parsed":
        return cls(decision, {part.topic_partition: part for part in decision.parts}, size)


class _Kept:
    """Cache of parsed decisions, up to `KEPT_SIZE` bytes of files; thread-safe.

    A decision that does not fit is parsed each time. Evicting another one would not help, because
    each partition's lookup reads all of them.
    """

    __slots__ = ("_by_name", "_guard", "_size")

    def __init__(self) -> None:
        self._by_name: dict[str, _Parsed] = {}
        self._size = 0
        self._guard = threading.Lock()

    def get(self, name: str) -> _Parsed | None:
        return self._by_name.get(name)

    def add(self, parsed: _Parsed) -> None:
        with self._guard:
            name = parsed.decision.name
            if name not in self._by_name and self._size + parsed.size <= KEPT_SIZE:
                self._by_name[name] = parsed
                self._size += parsed.size

    def drop(self, name: str) -> None:
        with self._guard:
            self._drop(name)

    def drop_all_but(self, names: Iterable[str]) -> None:
        with self._guard:
            for gone in self._by_name.keys() - names:
                self._drop(gone)

    def _drop(self, name: str) -> None:
        parsed = self._by_name.pop(name, None)
        self._size -= 0 if parsed is None else parsed.size


class PendingDecisions:
    """The unretired decisions of a root.

    All partitions opened through one `LogManager` share one object: opening a partition reads all
    decisions, and parsing them takes longer than the rest of the opening.

    Args:
        root: The log root.
        path: Another directory of decisions: those prepared for another root.
    """

    __slots__ = ("_fs", "_kept", "_root", "path")

    def __init__(self, root: LogRoot, path: str | None = None) -> None:
        self._root, self._fs = root, root.fs
        self.path = root.pending_decisions if path is None else path
        self._kept = _Kept()

    def names(self) -> list[str]:
        """Return the names of all decisions, sorted by app and number."""
        try:
            names = [name for name in self._fs.list(self.path) if _NAME.fullmatch(name)]
        except FileMissingError:
            names = []
        self._kept.drop_all_but(names)
        return names

    def any(self) -> bool:
        """Return whether there is any decision; most openings need only this."""
        try:
            return any(not is_temporary(name) for name in self._fs.list(self.path))
        except FileMissingError:
            return False

    def load(self, name: str) -> Decision | None:
        """Return a decision, None if it has been retired.

        Raises:
            CorruptCheckpointError: The decision is damaged, so its partitions are unknown.
        """
        parsed = self._load(name)
        return None if parsed is None else parsed.decision

    def _load(self, name: str) -> _Parsed | None:
        parsed = self._kept.get(name)
        if parsed is None:
            path = f"{self.path}/{name}"
            try:
                content = read_file(self._fs, path, max_size=MAX_SEALED_SIZE)
            except FileMissingError:
                return None
            parsed = _Parsed.of(parse_decision(content, path), len(content))
            self._kept.add(parsed)
        return parsed

    def naming(self, partition: TopicPartition) -> list[tuple[Decision, DecidedPart]]:
        """Return the decisions that name `partition`, sorted by their offsets there.

        A damaged decision that may name the partition stops it; one that can only name other topics
        is ignored with a warning.

        Raises:
            CorruptCheckpointError: A decision that may name the partition is damaged.
        """
        found = []
        names = self.names()
        for name in names:
            parsed = self._load_unless_elsewhere(name, names, partition)
            part = None if parsed is None else parsed.parts.get(partition)
            if parsed is not None and part is not None:
                found.append((parsed.decision, part))
        return sorted(found, key=lambda row: (row[1].base_offset, row[0].name))

    def _load_unless_elsewhere(
        self, name: str, names: Iterable[str], partition: TopicPartition
    ) -> _Parsed | None:
        """Return a decision, None if it is retired, or damaged and of other topics."""
        try:
            return self._load(name)
        except CorruptCheckpointError as error:
            key = decision_key(name)
            others = (each for each in names if each != name and decision_key(each) == key)
            topics = _topics_of_app(self._root, key, self._readable(others))
            if not topics or partition.topic in topics:
                error.hint = f"list possible repairs: streamlog repair {self._root.path} --dry-run"
                raise
            _logger.warning(
                "[%s] ignored a damaged decision of another topic (%s): %s",
                partition,
                ", ".join(sorted(topics)),
                error.path,
            )
            return None

    def newest(self) -> list[Decision]:
        """Return the newest decision of each app, without damaged ones."""
        names = {decision_key(name): name for name in self.names()}
        return list(self._readable(names.values()))

    def unreadable(self) -> list[CorruptCheckpointError]:
        """Return the error of each damaged decision."""
        errors = []
        for name in self.names():
            try:
                self.load(name)
            except CorruptCheckpointError as error:
                errors.append(error)
        return errors

    def _readable(self, names: Iterable[str]) -> Iterator[Decision]:
        for name in names:
            try:
                decision = self.load(name)
            except CorruptCheckpointError as error:
                _logger.warning("decision is damaged: %s", error)
                continue
            if decision is not None:
                yield decision

    def create(self, decision: Decision) -> None:
        """Make a decision durable: the commit point.

        Raises:
            FileExistsAlreadyError: Another committer was faster; nothing was decided.
            LimitExceededError: The decision is too large; nothing was decided.
            UnavailableError: The disk refused. If the error says that the outcome is unknown, the
                decision is visible now but may disappear in a power cut.
        """
        content = format_decision(decision)
        path = f"{self.path}/{decision.name}"
        if len(content) > MAX_SEALED_SIZE:
            raise LimitExceededError(
                "commit has too many extents for one decision",
                path=path,
                got=f"{len(content)} bytes",
                expected=f"at most {MAX_SEALED_SIZE}",
                hint="commit fewer rows at once, or stage larger extents",
            )
        if decision.number == 1:  # an earlier decision of the app made the directory durable
            make_directories(self._fs, self.path)
        create_file_atomically(self._fs, path, content)
        self._kept.add(_Parsed.of(decision, len(content)))

    def content(self, name: str) -> bytes | None:
        """Return a decision as it is stored, None if there is none."""
        try:
            return read_file(self._fs, f"{self.path}/{name}", max_size=MAX_SEALED_SIZE)
        except FileMissingError:
            return None

    def store(self, name: str, content: bytes) -> None:
        """Store or replace a decision; durable on return."""
        self._kept.drop(name)
        try:
            write_file_atomically(self._fs, f"{self.path}/{name}", content)
        except FileMissingError:
            make_directories(self._fs, self.path)
            write_file_atomically(self._fs, f"{self.path}/{name}", content)

    def forget(self) -> None:
        """Drop the cache: another root led meanwhile and may have used the same names."""
        self._kept.drop_all_but(())

    def stands(self, decision: Decision) -> bool:
        """Return whether a decision's file exists; True if the disk does not answer."""
        try:
            return self._fs.stat(f"{self.path}/{decision.name}") is not None
        except UnavailableError:
            return True

    def sync(self) -> None:
        """Make the names of all decisions durable, including those that other processes created."""
        self._fs.sync_directory(self.path)

    def remove(self, name: str) -> None:
        """Remove a retired decision if it still exists."""
        with contextlib.suppress(FileMissingError):
            self._fs.remove(f"{self.path}/{name}")
        self._kept.drop(name)

    def of_app(self, app: str) -> list[str]:
        """Return the names of an app's decisions, oldest first."""
        prefix = f"{app_key(app)}@"
        return [name for name in self.names() if name.startswith(prefix)]


def _topics_of_app(root: LogRoot, key: str, decisions: Iterable[Decision]) -> frozenset[str]:
    """Return the topics that an app is known to write; empty if it has no history.

    Args:
        root: The log root.
        key: The app's key (`streamlog.commits.identity.app_key`).
        decisions: Its undamaged decisions.
    """
    standings = [decision.standing for decision in decisions]
    ledger = _standing_in_ledger(root.fs, root.ledger(key))
    if ledger is not None:
        standings.append(ledger)
    return frozenset(partition.topic for standing in standings for partition in standing.partitions)


def _standing_in_ledger(fs: FileSystem, path: str) -> Standing | None:
    try:
        content = read_file(fs, path, max_size=MAX_SEALED_SIZE)
        return parse_standing(unseal("ledger", content, path).nested("standing"))
    except (FileMissingError, CorruptCheckpointError):
        return None
