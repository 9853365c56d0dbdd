"""Who may talk to the server: browsers that were sent to this address, and no other page.

A page of another site cannot read answers, but it can send requests, and by DNS rebinding its own
name can point to this machine. So the `Host` of every request must be an address of this server. A
change also needs a token that only our own pages contain, and must not come from another origin.
"""

import hmac
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ChangeToken", "HostGuard"]

_NAMES: Final = ("127.0.0.1", "localhost", "::1")
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self';"
    " connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class HostGuard:
    """Refuses requests to other hosts, and adds headers that keep other sites out.

    Args:
        app: The server.
        host: The name or address that it listens on, beside those of the loopback.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app, self._hosts = app, {*_NAMES, host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        if _host_of(Headers(scope=scope).get("host", "")) not in self._hosts:
            refusal = PlainTextResponse("this server answers only to its own address", 421)
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def _host_of(value: str) -> str | None:
    try:
        return urlsplit(f"//{value}").hostname
    except ValueError:
        return None


class ChangeToken:
    """A secret of this process that each form of ours carries."""

    def __init__(self) -> None:
        self.value = secrets.token_urlsafe(32)

    def allows(self, headers: Mapping[str, str], given: str) -> bool:
        """Return whether a change was asked for by one of our pages."""
        origin = headers.get("origin")
        is_ours = origin is None or urlsplit(origin).netloc == headers.get("host")
        is_same_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        return is_ours and is_same_site and hmac.compare_digest(given.encode(), self.value.encode())
