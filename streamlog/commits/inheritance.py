"""What an app inherits from the name it had before its target was part of it.

Earlier releases called the app of a `txnAppId` by that name alone, whatever topic it wrote. A
commit that stands under the bare name must be recognised after an upgrade, or it would be written
a second time. So an app without a past of its own is judged by that of its former name, as far as
that past can be its own:

    the former app wrote              the past of the app with target T is
    nothing, or T alone               the whole past
    T and other topics                of each version, what is known to have gone to T; a version
                                      whose topics are not remembered is refused as forgotten
    other topics only                 none: that was another target, whose versions say nothing
    anything, and T is "rows name     the whole past
    their topics"

The app's first commit gives it a past of its own, which alone counts from then on.
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
    """The past under the former name, as far as it counts.

    Attributes:
        last_version: The highest version committed under it.
        past: The revisions of the version in question that are known.
    """

    last_version: int
    past: tuple[PastCommit, ...]


def inheritance_of(
    identity: CommitIdentity, pending: PendingDecisions, ledgers: Ledgers, lock: LockApp
) -> Inheritance | None:
    """Return what a commit inherits; None for an app that has a past of its own, or no other.

    Args:
        identity: The commit; no lock of an app is held.
        pending: The decisions of the root.
        ledgers: The ledgers of the root.
        lock: Holds the former app's lock, so that nothing of it is retired meanwhile.

    Raises:
        CorruptCheckpointError: A file of the former app cannot be read.
        LockTimeoutError: Its lock cannot be had.
        StorageError: The disk refuses.
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
    """Return what counts of the history of a former name; None where nothing does."""
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
    """Return the revisions of a version that stand already, and the app's last version.

    Raises:
        CorruptCheckpointError: A decision cannot be read.
        StorageError: The disk refuses.
    """
    if history.is_new and inheritance is not None:
        return inheritance.past, inheritance.last_version
    return history.find(version), history.standing.last_version


def _has_past(app: str, pending: PendingDecisions, ledgers: Ledgers) -> bool:
    return ledgers.exists(app_key(app)) or bool(pending.of_app(app))
