"""What an app remembers of the commits that are done with.

One sealed file (see `sealed`) an app, `.streamlog/commits/ledgers/<app>`, replaced as a
whole whenever decisions are retired, and durable before they are removed:

    app
    entries       [{version, revision, fingerprint}]      the last 100, oldest first
    last_parts    [{topic, partition, base_offset, last_offset}]   of the last entry
    standing      where the app stands with the last entry (`streamlog.commits.standing`)

Offsets are kept of the last entry only: Spark never runs again but its last batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from streamlog.commits.decisions import Decision, format_fingerprint, parse_fingerprint
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.identity import app_key
from streamlog.commits.sealed import MAX_SEALED_SIZE, SealedValues, seal, unseal
from streamlog.commits.standing import (
    Standing,
    format_standing,
    parse_standing,
    parse_topic_partition,
)
from streamlog.errors import FileMissingError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import make_directories, read_file, write_file_atomically
from streamlog.fs.names import TEMPORARY_SUFFIX
from streamlog.topic import TopicPartition

__all__ = ["KEPT_FINGERPRINTS", "CommittedRange", "Ledger", "LedgerEntry", "Ledgers"]

KEPT_FINGERPRINTS: Final = 100  # as many batches as Spark keeps (minBatchesToRetain)
_KIND: Final = "ledger"


class CommittedRange(NamedTuple):
    """The offsets a commit took in one partition."""

    topic_partition: TopicPartition
    base_offset: int
    last_offset: int


class LedgerEntry(NamedTuple):
    """A commit that is done with."""

    version: int
    revision: int
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What one app remembers.

    Attributes:
        app: The app.
        entries: The last commits, oldest first.
        last_parts: Where the last of them went.
        standing: Where the app stands with it.
    """

    app: str
    entries: tuple[LedgerEntry, ...]
    last_parts: tuple[CommittedRange, ...]
    standing: Standing

    @classmethod
    def empty(cls, app: str) -> "Ledger":
        """Return the ledger of an app that never committed."""
        return cls(app=app, entries=(), last_parts=(), standing=Standing())

    def with_decisions(
        self, decisions: Iterable[Decision], dropped: Iterable[TopicPartition]
    ) -> "Ledger":
        """Return the ledger after `decisions`, the next ones of this app, are retired.

        Args:
            decisions: One or more, oldest first.
            dropped: Partitions that are no more; their standing is forgotten.
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
    """Return the offsets that a decision takes."""
    return tuple(
        CommittedRange(part.topic_partition, part.base_offset, part.last_offset)
        for part in decision.parts
    )


class Ledgers:
    """The ledgers of a root.

    Args:
        fs: Where the root is.
        root: The log root.
    """

    __slots__ = ("_fs", "path")

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self.path = f"{root}/.streamlog/commits/ledgers"

    def load(self, app: str) -> Ledger | None:
        """Return an app's ledger, None where nothing of it was ever retired.

        Raises:
            CorruptCheckpointError: It cannot be understood; commits of the app must stop.
            StorageError: The disk refuses.
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
        """Tell whether a decision is retired though its file is there.

        Raises:
            CorruptCheckpointError: The app's ledger cannot be understood.
            StorageError: The disk refuses.
        """
        ledger = self.load(decision.identity.app)
        return ledger is not None and decision.number <= ledger.standing.number

    def store(self, ledger: Ledger) -> None:
        """Replace an app's ledger; durable on return.

        Raises:
            StorageError: It failed; the old one stands, or the new one.
        """
        if self._fs.stat(self._file_path(ledger.app)) is None:
            make_directories(self._fs, self.path)
        write_file_atomically(self._fs, self._file_path(ledger.app), _format(ledger))

    def sync(self) -> None:
        """Make the names of all ledgers durable, whoever wrote them.

        Raises:
            StorageError: It failed.
        """
        self._fs.sync_directory(self.path)

    def exists(self, key: str) -> bool:
        """Tell whether the app with this key has a ledger.

        Raises:
            StorageError: The disk refuses.
        """
        return self._fs.stat(f"{self.path}/{key}") is not None

    def _file_path(self, app: str) -> str:
        return f"{self.path}/{app_key(app)}"


def _is_leftover(content: bytes, path: str, app: str) -> bool:
    """Tell whether a file is the temporary one of another app's ledger.

    Earlier versions wrote `KEY.tmp` beside the ledger `KEY`, and an app can be called that.
    """
    if not path.endswith(TEMPORARY_SUFFIX):
        return False
    owner = unseal(_KIND, content, path).text("app")
    return owner != app and f"{app_key(owner)}{TEMPORARY_SUFFIX}" == app_key(app)


def _format(ledger: Ledger) -> bytes:
    return seal(
        _KIND,
        {
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
        },
    )


def _parse(content: bytes, path: str, app: str) -> Ledger:
    values = unseal(_KIND, content, path)
    if values.text("app") != app:
        raise values.malformed("app", values.text("app"), repr(app))
    return Ledger(
        app=app,
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


def _parse_range(values: SealedValues) -> CommittedRange:
    return CommittedRange(
        parse_topic_partition(values),
        values.integer("base_offset"),
        values.integer("last_offset"),
    )
