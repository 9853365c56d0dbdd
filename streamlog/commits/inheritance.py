"""The history that an app inherits from its former name, which did not include the target.

Earlier releases named the app of a `txnAppId` by that id alone, whatever topic it wrote. A commit
under the bare name must be recognized after an upgrade; otherwise it would be written again. An app
without a history of its own is therefore judged by that of its former name, as far as it concerns
the same target:

    the former app wrote              the history of the app with target T is
    nothing, or T alone               the whole history
    T and other topics                for each version, the parts known to have gone to T; a
                                      version whose topics are unknown is refused as forgotten
    other topics only                 none: that was another target, whose versions say nothing
    anything, and T is "rows name     the whole history
    their topics"

After its first commit, only the app's own history counts.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from streamlog.commits.history import History, Ledgers, PastCommit
from streamlog.commits.identity import CommitIdentity, FormerName, app_key
from streamlog.commits.pending import PendingDecisions

__all__ = ["Inheritance", "inheritance_of", "inherited", "past_of"]


class LockApp(Protocol):
    """Holds the lock of an app."""

    def __call__(self, app: str) -> AbstractContextManager[None]: ...


class Inheritance(NamedTuple):
    """The history under the former name, as far as it counts.

    Attributes:
        last_version: The highest version committed under it.
        past: The known revisions of the version to be committed.
    """

    last_version: int
    past: tuple[PastCommit, ...]


def inheritance_of(
    identity: CommitIdentity, pending: PendingDecisions, ledgers: Ledgers, lock: LockApp
) -> Inheritance | None:
    """Return a commit's inheritance; None if the app has a history of its own or no former name.

    Args:
        identity: The commit's identity; no app lock is held.
        pending: The unretired decisions of the root.
        ledgers: The ledgers of the root.
        lock: Holds the former app's lock, so that none of its decisions is retired meanwhile.

    Raises:
        CorruptCheckpointError: A file of the former app is damaged.
        LockTimeoutError: Its lock is held by another process.
    """
    former = identity.former
    if former is None or _has_past(identity.app, pending, ledgers):
        return None
    if not _has_past(former.app, pending, ledgers):
        return None
    with lock(former.app):
        history = History.load(former.app, pending, ledgers)
        return inherited(former, history, identity.version)


def inherited(former: FormerName, history: History, version: int) -> Inheritance | None:
    """Return the part of a former name's history that counts; None if nothing does."""
    topics = {partition.topic for partition in history.standing.partitions}
    topic = former.topic
    if history.is_new or (topic is not None and topics and topic not in topics):
        return None
    past: Sequence[PastCommit] = history.find(version)
    if topic is not None and topics - {topic}:
        past = [old for old in past if topic in {part.topic_partition.topic for part in old.parts}]
    return Inheritance(history.standing.last_version, tuple(past))


def past_of(
    history: History, inheritance: Inheritance | None, version: int
) -> tuple[Sequence[PastCommit], int]:
    """Return the known revisions of a version, and the app's last version.

    Raises:
        CorruptCheckpointError: A decision is damaged.
    """
    if history.is_new and inheritance is not None:
        return inheritance.past, inheritance.last_version
    return history.find(version), history.standing.last_version


def _has_past(app: str, pending: PendingDecisions, ledgers: Ledgers) -> bool:
    return ledgers.exists(app_key(app)) or bool(pending.of_app(app))
