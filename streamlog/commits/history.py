"""The history of an app: its ledger of retired decisions, and its unretired decisions.

The ledger is one sealed file per app (see `sealed`), `.streamlog/commits/ledgers/<app>`. Each
retirement replaces it as a whole and makes it durable before removing the decisions it covers:

    app
    entries       [{version, revision, fingerprint}]      the last 100, oldest first
    last_parts    [{topic, partition, base_offset, last_offset}]   of the last entry
    standing      the app's state after the last entry (`streamlog.commits.decisions`)

Offsets are kept for the last entry only, because Spark repeats only its last batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from streamlog.binary.sealed import MAX_SEALED_SIZE, SealedValues, seal, unseal
from streamlog.commits.decisions import (
    Decision,
    Standing,
    format_fingerprint,
    format_standing,
    parse_fingerprint,
    parse_standing,
    parse_topic_partition,
)
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.identity import app_key
from streamlog.commits.pending import PendingDecisions, decision_number
from streamlog.errors import CorruptCheckpointError, FileMissingError
from streamlog.fs.files import make_directories, read_file, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.fs.names import TEMPORARY_SUFFIX
from streamlog.topic import TopicPartition

__all__ = [
    "KEPT_FINGERPRINTS",
    "CommittedRange",
    "History",
    "Ledger",
    "LedgerEntry",
    "Ledgers",
    "PastCommit",
    "format_ledger",
    "number_in",
    "owner_of",
    "parse_ledger",
]

KEPT_FINGERPRINTS: Final = 100  # as many batches as Spark keeps (minBatchesToRetain)
_KIND: Final = "ledger"


# ---- the ledger -----------------------------------------------------------------------------
class CommittedRange(NamedTuple):
    """The offsets of a commit in one partition."""

    topic_partition: TopicPartition
    base_offset: int
    last_offset: int


class LedgerEntry(NamedTuple):
    """A retired commit."""

    version: int
    revision: int
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """An app's record of its retired commits.

    Attributes:
        app: The app.
        entries: The last commits, oldest first.
        last_parts: The offsets of the last commit.
        standing: The app's standing after the last commit.
    """

    app: str
    entries: tuple[LedgerEntry, ...]
    last_parts: tuple[CommittedRange, ...]
    standing: Standing

    @classmethod
    def empty(cls, app: str) -> "Ledger":
        """Return the ledger of an app without retired commits."""
        return cls(app=app, entries=(), last_parts=(), standing=Standing())

    def with_decisions(
        self, decisions: Iterable[Decision], dropped: Iterable[TopicPartition]
    ) -> "Ledger":
        """Return the ledger after the app's next decisions are retired.

        Args:
            decisions: One or more, oldest first.
            dropped: Partitions that no longer exist; their standing is removed.
        """
        decisions = list(decisions)
        last = decisions[-1]
        entries = [LedgerEntry(d.identity.version, d.revision, d.fingerprint) for d in decisions]
        gone = set(dropped)
        partitions = {
            partition: at._replace(unretired_size=0)
            for partition, at in last.standing.partitions.items()
            if partition not in gone
        }
        return Ledger(
            app=self.app,
            entries=(*self.entries, *entries)[-KEPT_FINGERPRINTS:],
            last_parts=ranges_of(last),
            standing=replace(last.standing, unretired=0, partitions=partitions),
        )


def ranges_of(decision: Decision) -> tuple[CommittedRange, ...]:
    """Return the offsets of a decision."""
    return tuple(
        CommittedRange(part.topic_partition, part.base_offset, part.last_offset)
        for part in decision.parts
    )


class Ledgers:
    """The ledgers of a root.

    Args:
        root: The log root.
    """

    __slots__ = ("_fs", "_root", "path")

    def __init__(self, root: LogRoot) -> None:
        self._root, self._fs = root, root.fs
        self.path = root.ledgers

    def load(self, app: str) -> Ledger | None:
        """Return an app's ledger, None if none of its commits was ever retired.

        Raises:
            CorruptCheckpointError: The ledger is damaged; commits of the app must stop.
        """
        path = self._file_path(app)
        try:
            content = read_file(self._fs, path, max_size=MAX_SEALED_SIZE)
        except FileMissingError:
            return None
        if _is_leftover(content, path, app):
            return None
        return _parse(content, path, app)

    def has_retired(self, decision: Decision) -> bool:
        """Return whether a decision is retired although its file still exists."""
        ledger = self.load(decision.identity.app)
        return ledger is not None and decision.number <= ledger.standing.number

    def store(self, ledger: Ledger) -> None:
        """Replace an app's ledger; durable on return.

        Raises:
            StorageError: The write failed; the file holds the old ledger or the new one.
        """
        if self._fs.stat(self._file_path(ledger.app)) is None:
            make_directories(self._fs, self.path)
        write_file_atomically(
            self._fs, self._file_path(ledger.app), seal(_KIND, format_ledger(ledger))
        )

    def sync(self) -> None:
        """Make the names of all ledgers durable, including those that other processes created."""
        self._fs.sync_directory(self.path)

    def exists(self, key: str) -> bool:
        """Return whether the app with this key has a ledger."""
        return self._fs.stat(self._root.ledger(key)) is not None

    def _file_path(self, app: str) -> str:
        return self._root.ledger(app_key(app))


def owner_of(content: bytes, path: str) -> str:
    """Return the app of a ledger file.

    Raises:
        CorruptCheckpointError: The content is damaged.
    """
    return unseal(_KIND, content, path).text("app")


def number_in(content: bytes, path: str) -> int:
    """Return the number of the last retired decision of a ledger file.

    Raises:
        CorruptCheckpointError: The content is damaged.
    """
    return parse_standing(unseal(_KIND, content, path).nested("standing")).number


def _is_leftover(content: bytes, path: str, app: str) -> bool:
    """Return whether a file is the temporary file of another app's ledger.

    Earlier versions wrote `KEY.tmp` next to the ledger `KEY`, and an app can have that key.
    """
    if not path.endswith(TEMPORARY_SUFFIX):
        return False
    owner = owner_of(content, path)
    return owner != app and f"{app_key(owner)}{TEMPORARY_SUFFIX}" == app_key(app)


def format_ledger(ledger: Ledger) -> dict[str, object]:
    """Return a ledger as a JSON object."""
    return {
        "app": ledger.app,
        "entries": [
            {
                "version": entry.version,
                "revision": entry.revision,
                "fingerprint": format_fingerprint(entry.fingerprint),
            }
            for entry in ledger.entries
        ],
        "last_parts": [
            {
                "topic": part.topic_partition.topic,
                "partition": part.topic_partition.partition,
                "base_offset": part.base_offset,
                "last_offset": part.last_offset,
            }
            for part in ledger.last_parts
        ],
        "standing": format_standing(ledger.standing),
    }


def parse_ledger(values: SealedValues) -> Ledger:
    """Return the ledger in a JSON object.

    Raises:
        CorruptCheckpointError: A value is invalid.
    """
    return Ledger(
        app=values.text("app"),
        entries=tuple(
            LedgerEntry(
                value.integer("version"),
                value.integer("revision"),
                parse_fingerprint(value.nested("fingerprint")),
            )
            for value in values.objects("entries")
        ),
        last_parts=tuple(_parse_range(value) for value in values.objects("last_parts")),
        standing=parse_standing(values.nested("standing")),
    )


def _parse(content: bytes, path: str, app: str) -> Ledger:
    values = unseal(_KIND, content, path)
    if values.text("app") != app:
        raise values.malformed("app", values.text("app"), repr(app))
    return parse_ledger(values)


def _parse_range(values: SealedValues) -> CommittedRange:
    return CommittedRange(
        parse_topic_partition(values),
        values.integer("base_offset"),
        values.integer("last_offset"),
    )


# ---- ledger and unretired decisions together -------------------------------------------------
class PastCommit(NamedTuple):
    """One committed revision of a version; `decision` is None if it is retired."""

    revision: int
    fingerprint: Fingerprint
    parts: tuple[CommittedRange, ...]
    decision: Decision | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """An app's history, valid while the app's lock is held.

    Attributes:
        app: The app.
        ledger: The retired decisions.
        live: Names of the unretired decisions, oldest first.
        stale: Names of retired decisions whose files still exist.
        standing: The app's current standing.
        pending: The unretired decisions of the root.
    """

    app: str
    ledger: Ledger
    live: tuple[str, ...]
    stale: tuple[str, ...]
    standing: Standing
    pending: PendingDecisions

    @classmethod
    def load(cls, app: str, pending: PendingDecisions, ledgers: Ledgers) -> "History":
        """Return an app's history.

        Args:
            app: The app; its lock is held.
            pending: The unretired decisions of the root.
            ledgers: The ledgers of the root.

        Raises:
            CorruptCheckpointError: A file is damaged or missing.
        """
        ledger = ledgers.load(app) or Ledger.empty(app)
        retired = ledger.standing.number
        names = pending.of_app(app)
        live = tuple(name for name in names if decision_number(name) > retired)
        _check_gapless(live, retired, pending.path)
        return cls(
            app=app,
            ledger=ledger,
            live=live,
            stale=tuple(name for name in names if decision_number(name) <= retired),
            standing=_standing(ledger, live, pending) if live else ledger.standing,
            pending=pending,
        )

    @property
    def is_new(self) -> bool:
        """Whether the app has no commits."""
        return self.standing.number == 0

    def decisions(self) -> list[Decision]:
        """Return the unretired decisions, oldest first.

        Raises:
            CorruptCheckpointError: A decision is damaged.
        """
        return [_load(self.pending, name, self.app) for name in self.live]

    def find(self, version: int) -> list[PastCommit]:
        """Return the known revisions of a version, oldest first; empty if there are none.

        Raises:
            CorruptCheckpointError: A decision is damaged.
        """
        if version > self.standing.last_version:
            return []
        last = len(self.ledger.entries) - 1
        retired = [
            PastCommit(
                entry.revision,
                entry.fingerprint,
                self.ledger.last_parts if index == last else (),
                None,
            )
            for index, entry in enumerate(self.ledger.entries)
            if entry.version == version
        ]
        live = [
            PastCommit(decision.revision, decision.fingerprint, ranges_of(decision), decision)
            for decision in self.decisions()
            if decision.identity.version == version
        ]
        return retired + live

    def named_files(self) -> set[str]:
        """Return the names of all staged files that an unretired decision needs.

        Raises:
            CorruptCheckpointError: A decision is damaged.
        """
        return {file.name for decision in self.decisions() for file in decision.files}


def _standing(ledger: Ledger, live: tuple[str, ...], pending: PendingDecisions) -> Standing:
    """Return an app's standing after its last decision.

    The last decision contains it. But if earlier decisions were retired while that decision was
    being made, it counts them as unretired, and it lists partitions that the ledger dropped with
    their topics. Both are corrected here.
    """
    standing = _load(pending, live[-1], ledger.app).standing
    if standing.unretired == len(live):
        return standing
    decisions = [_load(pending, name, ledger.app) for name in live]
    sizes: dict[tuple[TopicPartition, str], int] = {}
    for decision in decisions:
        for part in decision.parts:
            key = part.topic_partition, part.topic_id
            sizes[key] = sizes.get(key, 0) + part.size
    partitions = {}
    for partition, at in standing.partitions.items():
        retired = ledger.standing.find(partition, at.topic_id)
        if (partition, at.topic_id) in sizes:
            size = sizes[partition, at.topic_id]
            partitions[partition] = at._replace(unretired_size=size)
        elif retired is not None:
            partitions[partition] = retired
    return replace(
        standing,
        unretired=len(live),
        unretired_since_ms=decisions[0].decided_ms,
        partitions=partitions,
    )


def _load(pending: PendingDecisions, name: str, app: str) -> Decision:
    decision = pending.load(name)
    if decision is None or decision.identity.app != app:
        raise CorruptCheckpointError(
            "decision is missing, or belongs to another app",
            path=f"{pending.path}/{name}",
            got="no file" if decision is None else repr(decision.identity.app),
            expected=f"a decision of {app!r}",
        )
    return decision


def _check_gapless(live: tuple[str, ...], retired: int, path: str) -> None:
    for expected, name in enumerate(live, start=retired + 1):
        if decision_number(name) != expected:
            raise CorruptCheckpointError(
                "decision or ledger of this app is missing",
                path=f"{path}/{name}",
                got=f"decision {decision_number(name)}",
                expected=f"decision {expected}",
                hint="restore .streamlog/commits from a copy",
            )
