"""Authentication and encryption: TLS by Python's ssl, SASL/PLAIN and SCRAM for users of a file.

    # user:password, one per line
    alice:correct horse battery staple

Passwords stand in plain text, as in the `jaas.conf` of a broker: only the owner may read the file.

Source: RFC 4616 (PLAIN), RFC 5802 (SCRAM), KIP-12, KIP-84, KIP-152.
"""

import hmac
import ssl
import stat
from importlib.util import find_spec
from typing import Any, Final, Protocol

from streamlog.errors import InvalidOptionError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import read_file

__all__ = [
    "MECHANISMS",
    "SCRAM_ITERATIONS",
    "Authentication",
    "CredentialsError",
    "Users",
    "tls_context",
]

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM_ITERATIONS: Final = 4096  # as Kafka's ScramMechanism asks for at least
_MAX_SIZE: Final = 1 << 20


class CredentialsError(Exception):
    """Wrong credentials; the text goes to the client and does not say which part is wrong."""


class Authentication(Protocol):
    """One exchange with a client."""

    @property
    def user(self) -> str | None:
        """The user, once the exchange has succeeded."""
        ...

    def answer(self, message: bytes) -> bytes:
        """Take the client's next message and return the answer to it.

        Raises:
            CredentialsError: Wrong user, password or message.
        """
        ...


class Users:
    """The users that may connect, with their passwords.

    Args:
        passwords: Password by user.
    """

    def __init__(self, passwords: dict[str, str]) -> None:
        self._passwords = passwords
        self._credentials: dict[tuple[str, str], Any] = {}

    @classmethod
    def load(cls, fs: FileSystem, path: str) -> "Users":
        """Read a file of users.

        Raises:
            InvalidOptionError: Others may read it, a line is not `USER:PASSWORD`, it is empty, or
                the library for SCRAM is missing.
            StorageError: It cannot be read.
        """
        if find_spec("scramp") is None:
            raise InvalidOptionError(
                "SASL needs the package scramp",
                path=path,
                hint="pip install 'pyspark-streamlog[gateway]'",
            )
        found = fs.stat(path)
        if found is not None and found.mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidOptionError(
                "other users may read the passwords",
                path=path,
                got=f"mode {stat.S_IMODE(found.mode):04o}",
                expected="0600 or 0400",
                hint=f"chmod 600 {path}",
            )
        passwords: dict[str, str] = {}
        text = read_file(fs, path, max_size=_MAX_SIZE).decode("utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            user, colon, password = line.partition(":")
            if not (user and colon and password):
                raise InvalidOptionError(
                    f"line {number} is not a user", path=path, expected="USER:PASSWORD"
                )
            passwords[user] = password
        if not passwords:
            raise InvalidOptionError("no users", path=path, expected="a line USER:PASSWORD")
        return cls(passwords)

    @property
    def names(self) -> list[str]:
        """The users."""
        return list(self._passwords)

    def begin(self, mechanism: str) -> Authentication:
        """Begin an exchange by one of `MECHANISMS`."""
        if mechanism == "PLAIN":
            return _PlainAuthentication(self)
        return _ScramAuthentication(self, mechanism)

    def is_password(self, user: str, password: str) -> bool:
        """Whether this is the user's password; takes the same time for a wrong user."""
        known = self._passwords.get(user, "")
        is_same = hmac.compare_digest(known.encode(), password.encode())
        return is_same and user in self._passwords

    def scram_credential(self, mechanism: str, user: str) -> Any:
        """Return salt, keys and iterations for a user's SCRAM exchange."""
        from scramp import ScramMechanism

        credential = self._credentials.get((mechanism, user))
        if credential is None:
            if user not in self._passwords:
                raise CredentialsError("invalid credentials")
            made = ScramMechanism(mechanism).make_auth_info(
                self._passwords[user], iteration_count=SCRAM_ITERATIONS
            )
            credential = self._credentials[mechanism, user] = made
        return credential


class _PlainAuthentication:
    """SASL/PLAIN: user and password in one message."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._user: str | None = None

    @property
    def user(self) -> str | None:
        """The user, once the exchange has succeeded."""
        return self._user

    def answer(self, message: bytes) -> bytes:
        """Check `authzid NUL user NUL password`."""
        parts = message.split(b"\0")
        try:
            authzid, user, password = (each.decode("utf-8") for each in parts)
        except ValueError:
            raise CredentialsError("malformed PLAIN message") from None
        if authzid not in ("", user) or not self._users.is_password(user, password):
            raise CredentialsError("invalid username or password")
        self._user = user
        return b""


class _ScramAuthentication:
    """SASL/SCRAM: two messages each way; the password is never sent."""

    def __init__(self, users: Users, mechanism: str) -> None:
        from scramp import ScramMechanism

        self._name = ""
        self._is_first, self._is_done = True, False

        def credential(user: str) -> Any:
            self._name = user
            return users.scram_credential(mechanism, user)

        self._server = ScramMechanism(mechanism).make_server(credential)

    @property
    def user(self) -> str | None:
        """The user, once the exchange has succeeded."""
        return self._name if self._is_done else None

    def answer(self, message: bytes) -> bytes:
        """Take `client-first` or `client-final`."""
        from scramp import ScramException

        try:
            if self._is_first:
                self._is_first = False
                self._server.set_client_first(message.decode("utf-8"))
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(message.decode("utf-8"))
            final = str(self._server.get_server_final()).encode()
        except (ScramException, ValueError):
            raise CredentialsError("invalid credentials") from None
        self._is_done = True
        return final


def tls_context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the context of a TLS server, None without a certificate.

    Raises:
        InvalidOptionError: The files are missing, or hold no certificate and its key.
    """
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidOptionError(
            "cannot use the TLS certificate", path=certificate, got=str(error)
        ) from error
    return context
