"""Whose commit it is and what it was made from: identity, fingerprint, and names made of them."""

import hashlib
import random as random_module
from typing import Final, NamedTuple
from urllib.parse import quote

from streamlog.errors import InvalidRequestError

__all__ = [
    "PRODUCER_ID_BASE",
    "CommitIdentity",
    "Fingerprint",
    "app_key",
    "check_identity",
    "checksum_sum",
    "producer_id_for",
]

MAX_VERSION: Final = 2**63 - 1  # a Spark batch id is a long
MAX_APP_LENGTH: Final = 4096
_ANONYMOUS: Final = "anonymous/"
_CHECKSUM_SPAN: Final = 1 << 64
_KEY_LENGTH_MAX: Final = 120  # leaves room in the 255 bytes of a file name
_KEY_FRONT: Final = 80
PRODUCER_ID_BASE: Final = 1 << 62  # a broker hands out ids from 0; it never gets that far
_PRODUCER_ID_BITS: Final = 61
_SOURCE_LENGTH_MAX: Final = 1024  # of a fingerprint that is kept as it is


class CommitIdentity(NamedTuple):
    """A commit's name. The same identity twice is a replay.

    Attributes:
        app: Whose commits these are; any text.
        version: The number of this one, at least 0.
        is_anonymous: Whether the app is used for this one commit only, so that nothing of it need
            be remembered.
    """

    app: str
    version: int
    is_anonymous: bool = False

    @classmethod
    def anonymous(cls, random: random_module.Random) -> "CommitIdentity":
        """Return an identity that nobody else has: atomic, but not to be replayed."""
        return cls(f"{_ANONYMOUS}{random.getrandbits(128):032x}", 0, is_anonymous=True)

    def __str__(self) -> str:
        return f"version {self.version} of {self.app}"


class Fingerprint(NamedTuple):
    """What a commit was made from.

    Attributes:
        source: The source lines of the checkpoint's `offsets/N`, None where unknown.
        rows: How many rows it had.
        checksum: Sum of the rows' hashes modulo 2**64, the same in any order.
    """

    source: str | None
    rows: int
    checksum: int

    @classmethod
    def of(cls, source: str | None, rows: int, checksum: int) -> "Fingerprint":
        """Return the fingerprint; the front of a long source and a hash stand for the whole."""
        if source is not None and len(source) > _SOURCE_LENGTH_MAX:
            digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
            front = source[: _SOURCE_LENGTH_MAX - 128]
            source = f"{front}… ({len(source)} characters, sha256 {digest})"
        return cls(source, rows, checksum)

    def matches(self, other: "Fingerprint") -> bool:
        """Tell whether both stand for the same rows, as far as both can say."""
        if self.source is not None and other.source is not None:
            return self.source == other.source
        return (self.rows, self.checksum) == (other.rows, other.checksum)

    def __str__(self) -> str:
        rows = f"{self.rows} rows with checksum {self.checksum:016x}"
        return rows if self.source is None else f"{rows} from {self.source}"


def checksum_sum(left: int, right: int) -> int:
    """Return the checksum of two sets of rows together."""
    return (left + right) % _CHECKSUM_SPAN


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
