"""The identity of a commit, and the names derived from it."""

import hashlib
import random as random_module
from typing import Final, NamedTuple
from urllib.parse import quote

from streamlog.errors import InvalidRequestError

__all__ = [
    "PRODUCER_ID_BASE",
    "CommitIdentity",
    "FormerName",
    "app_key",
    "check_identity",
    "producer_id_for",
    "topic_of",
]

MAX_VERSION: Final = 2**63 - 1  # a Spark batch id is a long
MAX_APP_LENGTH: Final = 4096
_ANONYMOUS: Final = "anonymous/"
_ROWS_NAME_TOPICS: Final = "*"  # not a valid topic name
_KEY_LENGTH_MAX: Final = 120  # leaves room in the 255 bytes of a file name
_KEY_FRONT: Final = 80
PRODUCER_ID_BASE: Final = 1 << 62  # brokers assign ids from 0 and never get this far
_PRODUCER_ID_BITS: Final = 61


class FormerName(NamedTuple):
    """The app name used before the target was part of it: the bare `txnAppId`.

    Decisions and ledgers under that name may still exist in a root, and their commits must not be
    repeated (see `streamlog.commits.inheritance`).

    Attributes:
        app: The bare name.
        topic: The app's current target; None if rows name their topics.
    """

    app: str
    topic: str | None


class CommitIdentity(NamedTuple):
    """The identity of a commit. Committing the same identity again is a replay.

    Attributes:
        app: The owner of a sequence of commits; any text.
        version: The number of this commit, at least 0.
        is_anonymous: Whether the app is used for this commit only, so no history is kept.
        former: The name under which earlier releases kept the app's history; None if there is none.
    """

    app: str
    version: int
    is_anonymous: bool = False
    former: FormerName | None = None

    @classmethod
    def of(
        cls, *, txn_app_id: str | None, query_id: str | None, topic: str | None, version: int
    ) -> "CommitIdentity":
        """Return the identity of a sink's commit, derived from writer and target.

        This is the only place that names an app. The name includes the target; otherwise one batch
        written to two topics under one `txnAppId` would count as a replay after the first. A topic
        name contains no `/`, so different pairs of writer and target have different apps.

        Args:
            txn_app_id: The user's name for the writer, None if not set.
            query_id: The id of the streaming query, None outside of one; used without `txn_app_id`.
            topic: The topic of all rows; None if rows name their topics.
            version: The number of the commit.

        Raises:
            InvalidRequestError: Neither `txn_app_id` nor `query_id` is given.
        """
        writer = txn_app_id or query_id
        if not writer:
            raise InvalidRequestError(
                "commit has no writer", expected="a streaming query, or txnAppId"
            )
        former = FormerName(txn_app_id, topic) if txn_app_id else None
        return cls(f"{writer}/{topic or _ROWS_NAME_TOPICS}", version, former=former)

    @classmethod
    def anonymous(cls, random: random_module.Random) -> "CommitIdentity":
        """Return a unique identity: the commit is atomic but cannot be replayed."""
        return cls(f"{_ANONYMOUS}{random.getrandbits(128):032x}", 0, is_anonymous=True)

    def __str__(self) -> str:
        return f"version {self.version} of {self.app}"


def check_identity(identity: CommitIdentity) -> None:
    """Check that an identity is valid.

    Raises:
        InvalidRequestError: The app is empty, too long or not valid Unicode, or the version is not
            an integer from 0 to 2**63 - 1.
    """
    app, version = identity.app, identity.version
    is_sound = 0 < len(app) <= MAX_APP_LENGTH and not any("\ud800" <= c <= "\udfff" for c in app)
    if not is_sound:
        raise InvalidRequestError(
            "invalid app id (txnAppId)",
            got=repr(app[:80]),
            expected=f"1 to {MAX_APP_LENGTH} characters",
        )
    if isinstance(version, bool) or not 0 <= version <= MAX_VERSION:
        raise InvalidRequestError(
            "invalid commit version (txnVersion)",
            got=repr(version),
            expected=f"0 to {MAX_VERSION}",
        )


def topic_of(app: str) -> str | None:
    """Return the topic of all rows of an app; None if its rows name their topics.

    An app that is used once has a topic that does not exist.
    """
    writer, _, target = app.rpartition("/")
    return target if writer and target and target != _ROWS_NAME_TOPICS else None


def app_key(app: str) -> str:
    """Return the name of an app's files and directories.

    Letters, digits, `.`, `_`, `-` and `~` stand for themselves; everything else and a leading dot
    are percent-encoded. A long key is shortened to its first characters and a hash, so files must
    store the full app for comparison.
    """
    key = quote(app, safe="")
    if key.startswith("."):
        key = f"%2E{key[1:]}"
    if len(key) <= _KEY_LENGTH_MAX:
        return key
    return f"{key[:_KEY_FRONT]}={hashlib.sha256(app.encode()).hexdigest()[:32]}"


def producer_id_for(app: str) -> int:
    """Return the producer id of all batches of an app: 2**62 plus 61 bits of a hash."""
    digest = hashlib.sha256(app.encode()).digest()
    return PRODUCER_ID_BASE + (int.from_bytes(digest[:8], "big") >> (64 - _PRODUCER_ID_BITS))
