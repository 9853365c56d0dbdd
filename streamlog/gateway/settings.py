"""How a gateway listens and what it allows; Kafka's own settings stand in `server.properties`."""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamlog.errors import InvalidOptionError

__all__ = ["Address", "GatewaySettings"]

_ADDRESS: Final = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})")
_PORTS: Final = range(1 << 16)


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Return the address that `HOST:PORT` or `[IPV6]:PORT` names.

        Raises:
            InvalidOptionError: It is neither.
        """
        found = _ADDRESS.fullmatch(text)
        if found is None or int(found["port"]) not in _PORTS:
            raise InvalidOptionError(
                "invalid address", got=repr(text), expected="HOST:PORT or [IPV6]:PORT"
            )
        return cls(found["v6"] or found["host"] or "127.0.0.1", int(found["port"]))

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect to it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_LOOPBACK: Final = Address("127.0.0.1", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """How a gateway listens.

    Attributes:
        listen: The address to listen on; port 0 takes a free one.
        advertise: The address that clients are given to connect to; None: the one it listens on.
        is_read_only: Whether it writes nothing: for a broker's disk or a copy of one.
        threads: How many requests read, write or sync files at the same time.
        tls_cert: The path of a PEM file with the certificate chain; None: no TLS.
        tls_key: The path of its private key; None: it stands in the same file.
        sasl_users: The path of a file with the users that may connect; None: no authentication.
        receive_timeout_s: How long a client may be silent within a request, in seconds.
        stop_timeout_s: How long a graceful stop waits for requests in progress, in seconds.
    """

    listen: Address = _LOOPBACK
    advertise: Address | None = None
    is_read_only: bool = False
    threads: int = 8
    tls_cert: str | None = None
    tls_key: str | None = None
    sasl_users: str | None = None
    receive_timeout_s: float = 30.0
    stop_timeout_s: float = 30.0
