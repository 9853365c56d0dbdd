"""Whose commit it is: its identity, and the names made of it."""

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
]

MAX_VERSION: Final = 2**63 - 1  # a Spark batch id is a long
MAX_APP_LENGTH: Final = 4096
_ANONYMOUS: Final = "anonymous/"
_ROWS_NAME_TOPICS: Final = "*"  # no topic can be called that
_KEY_LENGTH_MAX: Final = 120  # leaves room in the 255 bytes of a file name
_KEY_FRONT: Final = 80
PRODUCER_ID_BASE: Final = 1 << 62  # a broker hands out ids from 0; it never gets that far
_PRODUCER_ID_BITS: Final = 61


class FormerName(NamedTuple):
    """The name an app had before its target was part of it: the bare `txnAppId`.

    Decisions and ledgers under that name may still lie in a root, and a commit they hold must not
    be made a second time (see `streamlog.commits.inheritance`).

    Attributes:
        app: The bare name.
        topic: The target of the app today; None where rows name their topics.
    """

    app: str
    topic: str | None


class CommitIdentity(NamedTuple):
    """A commit's name. The same identity twice is a replay.

    Attributes:
        app: Whose commits these are; any text.
        version: The number of this one, at least 0.
        is_anonymous: Whether the app is used for this one commit only, so that nothing of it need
            be remembered.
        former: The name under which earlier releases kept the app's past, None for none.
    """

    app: str
    version: int
    is_anonymous: bool = False
    former: FormerName | None = None

    @classmethod
    def of(
        cls, *, txn_app_id: str | None, query_id: str | None, topic: str | None, version: int
    ) -> "CommitIdentity":
        """Return the identity of a sink's commit: who writes, and where to.

        This is the only place that names an app. The target is part of the name, or one batch
        written to two topics under one `txnAppId` would count as written after the first. No topic
        has a `/` in its name, so no two pairs of writer and target have one app.

        Args:
            txn_app_id: The name the user gave the writer, None for none.
            query_id: The id of the streaming query, None outside of one; counts where the user
                gave no name.
            topic: The topic of all rows; None where the rows name their topics.
            version: The number of the commit.

        Raises:
            InvalidRequestError: There is neither a name nor a query.
        """
        writer = txn_app_id or query_id
        if not writer:
            raise InvalidRequestError(
                "nothing says who writes", expected="a streaming query, or txnAppId"
            )
        former = FormerName(txn_app_id, topic) if txn_app_id else None
        return cls(f"{writer}/{topic or _ROWS_NAME_TOPICS}", version, former=former)

    @classmethod
    def anonymous(cls, random: random_module.Random) -> "CommitIdentity":
        """Return an identity that nobody else has: atomic, but not to be replayed."""
        return cls(f"{_ANONYMOUS}{random.getrandbits(128):032x}", 0, is_anonymous=True)

    def __str__(self) -> str:
        return f"version {self.version} of {self.app}"


def check_identity(identity: CommitIdentity) -> None:
    """Raise where no commit can be called that.

    Raises:
        InvalidRequestError: The app is empty, too long or not valid Unicode, or the version is
            not a number from 0 to 2**63 - 1.
    """
    app, version = identity.app, identity.version
    is_sound = 0 < len(app) <= MAX_APP_LENGTH and not any("\ud800" <= c <= "\udfff" for c in app)
    if not is_sound:
        raise InvalidRequestError(
            "not the id of an app (txnAppId)",
            got=repr(app[:80]),
            expected=f"1 to {MAX_APP_LENGTH} characters",
        )
    if isinstance(version, bool) or not 0 <= version <= MAX_VERSION:
        raise InvalidRequestError(
            "not the version of a commit (txnVersion)",
            got=repr(version),
            expected=f"0 to {MAX_VERSION}",
        )


def app_key(app: str) -> str:
    """Return a name for files and directories of an app.

    Letters, digits, `.`, `_`, `-` and `~` stand for themselves (a dot in front does not), all else
    is percent-encoded. Of what gets too long the front and a hash remain, so a file must hold the
    app itself, to be compared.
    """
    key = quote(app, safe="")
    if key.startswith("."):
        key = f"%2E{key[1:]}"
    if len(key) <= _KEY_LENGTH_MAX:
        return key
    return f"{key[:_KEY_FRONT]}={hashlib.sha256(app.encode()).hexdigest()[:32]}"


def producer_id_for(app: str) -> int:
    """Return the producer id that all batches of an app carry: 2**62 and 61 bits of a hash."""
    digest = hashlib.sha256(app.encode()).digest()
    return PRODUCER_ID_BASE + (int.from_bytes(digest[:8], "big") >> (64 - _PRODUCER_ID_BITS))
