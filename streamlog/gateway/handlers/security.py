"""Authentication of a connection: SaslHandshake, SaslAuthenticate.

Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator, KIP-152.
"""

from typing import Any, Final

from streamlog.gateway.broker import Broker
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.request import Peer, Request
from streamlog.gateway.security import MECHANISMS, Authentication, CredentialsError

__all__ = ["HANDLERS", "answer_token", "expects_token"]

_EXCHANGE: Final = "authentication"  # key in a peer's state
_BARE: Final = "authentication without requests around it"  # the same, after SaslHandshake v0


async def handshake(broker: Broker, request: Request) -> dict[str, Any]:
    """Choose the mechanism."""
    mechanism, users = request.values["mechanism"], broker.users
    if users is None or mechanism not in MECHANISMS:
        offered = [] if users is None else list(MECHANISMS)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if users else ErrorCode.ILLEGAL_SASL_STATE
        return {"errorCode": int(code), "mechanisms": offered}
    request.peer.state[_EXCHANGE if request.version else _BARE] = users.begin(mechanism)
    return {"errorCode": 0, "mechanisms": list(MECHANISMS)}


async def authenticate(broker: Broker, request: Request) -> dict[str, Any]:
    """Take the next message of the exchange; close the connection if it fails."""
    peer = request.peer
    exchange: Authentication | None = peer.state.get(_EXCHANGE)
    if exchange is None:
        return _failed(request, ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
    try:
        # Deriving the keys of a user takes milliseconds.
        answer = await broker.run(exchange.answer, request.values["authBytes"])
    except CredentialsError as rejected:
        reason = f"Authentication failed: {rejected}"
        return _failed(request, ErrorCode.SASL_AUTHENTICATION_FAILED, reason)
    if exchange.user is not None:
        peer.principal = exchange.user
        del peer.state[_EXCHANGE]
    return {"errorCode": 0, "errorMessage": None, "authBytes": answer, "sessionLifetimeMs": 0}


def expects_token(peer: Peer) -> bool:
    """Whether what the client sends next is no request, but a message of the exchange."""
    return _BARE in peer.state


async def answer_token(broker: Broker, peer: Peer, token: bytes) -> bytes:
    """Take the next message of an exchange that SaslHandshake v0 began; return the answer.

    Raises:
        ConnectionAbortedError: The authentication failed; there is no answer that could say so.
    """
    exchange: Authentication = peer.state[_BARE]
    try:
        answer = await broker.run(exchange.answer, token)
    except CredentialsError as rejected:
        raise ConnectionAbortedError(f"authentication failed: {rejected}") from rejected
    if exchange.user is not None:
        peer.principal = exchange.user
        del peer.state[_BARE]
    return answer


def _failed(request: Request, code: ErrorCode, reason: str) -> dict[str, Any]:
    request.peer.is_leaving = True
    return {"errorCode": int(code), "errorMessage": reason, "authBytes": b""}


HANDLERS: Final = {"SaslHandshake": handshake, "SaslAuthenticate": authenticate}
