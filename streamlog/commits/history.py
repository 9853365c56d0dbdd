"""What an app committed so far: its ledger, and its decisions that are not retired."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from streamlog.commits.decisions import Decision
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.ledger import CommittedRange, Ledger, Ledgers, ranges_of
from streamlog.commits.pending import PendingDecisions, decision_number
from streamlog.commits.standing import Standing
from streamlog.errors import CorruptCheckpointError
from streamlog.topic import TopicPartition

__all__ = ["History", "PastCommit"]


class PastCommit(NamedTuple):
    """One revision of a version that is committed; `decision` is None where it is retired."""

    revision: int
    fingerprint: Fingerprint
    parts: tuple[CommittedRange, ...]
    decision: Decision | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """An app's past, as it is while the app's lock is held.

    Attributes:
        app: The app.
        ledger: What is retired.
        live: Names of the decisions that are not, oldest first.
        stale: Names of decisions that are retired and whose files are there all the same.
        standing: Where the app stands.
    """

    app: str
    ledger: Ledger
    live: tuple[str, ...]
    stale: tuple[str, ...]
    standing: Standing
    pending: PendingDecisions

    @classmethod
    def load(cls, app: str, pending: PendingDecisions, ledgers: Ledgers) -> "History":
        """Return what an app committed so far.

        Args:
            app: The app; its lock is held.
            pending: The decisions of the root.
            ledgers: The ledgers of the root.

        Raises:
            CorruptCheckpointError: A file cannot be read, or one is missing.
            StorageError: The disk refuses.
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
        """Whether the app never committed."""
        return self.standing.number == 0

    def decisions(self) -> list[Decision]:
        """Return the decisions that are not retired, oldest first.

        Raises:
            CorruptCheckpointError: One cannot be read.
            StorageError: The disk refuses.
        """
        return [_load(self.pending, name, self.app) for name in self.live]

    def find(self, version: int) -> list[PastCommit]:
        """Return the revisions of a version, oldest first; none where it is not known.

        Raises:
            CorruptCheckpointError: A decision cannot be read.
            StorageError: The disk refuses.
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
        """Return the names of all staged files that a decision still needs.

        Raises:
            CorruptCheckpointError: A decision cannot be read.
            StorageError: The disk refuses.
        """
        return {file.name for decision in self.decisions() for file in decision.files}


def _standing(ledger: Ledger, live: tuple[str, ...], pending: PendingDecisions) -> Standing:
    """Return where an app stands with its last decision.

    That decision says so itself, unless others were retired since the one before it was made: then
    it counts them as unretired, and carries what the ledger forgot because its topic is gone.
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
            "a decision is gone, or belongs to another app",
            path=f"{pending.path}/{name}",
            got="no file" if decision is None else repr(decision.identity.app),
            expected=f"a decision of {app!r}",
        )
    return decision


def _check_gapless(live: tuple[str, ...], retired: int, path: str) -> None:
    for expected, name in enumerate(live, start=retired + 1):
        if decision_number(name) != expected:
            raise CorruptCheckpointError(
                "a decision or the ledger of this app is missing",
                path=f"{path}/{name}",
                got=f"decision {decision_number(name)}",
                expected=f"decision {expected}",
                hint="restore .streamlog/commits from a copy",
            )
