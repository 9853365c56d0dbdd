"""Authentication of a connection: SaslHandshake, SaslAuthenticate.

Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator, KIP-152.
"""

from typing import Any, Final

from streamlog.gateway.broker import Broker
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.request import Request
from streamlog.gateway.security import MECHANISMS, Authentication, CredentialsError

__all__ = ["HANDLERS"]

_EXCHANGE: Final = "authentication"  # key in a peer's state


async def handshake(broker: Broker, request: Request) -> dict[str, Any]:
    """Choose the mechanism."""
    mechanism, users = request.values["mechanism"], broker.users
    if users is None or mechanism not in MECHANISMS:
        offered = [] if users is None else list(MECHANISMS)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if users else ErrorCode.ILLEGAL_SASL_STATE
        return {"errorCode": int(code), "mechanisms": offered}
    request.peer.state[_EXCHANGE] = users.begin(mechanism)
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


def _failed(request: Request, code: ErrorCode, reason: str) -> dict[str, Any]:
    request.peer.is_leaving = True
    return {"errorCode": int(code), "errorMessage": reason, "authBytes": b""}


HANDLERS: Final = {"SaslHandshake": handshake, "SaslAuthenticate": authenticate}
