"""Runs the pages on a socket until Ctrl-C."""

import socket

import uvicorn

from streamlog.web.server import LogPages

__all__ = ["serve_pages"]

_CONNECTIONS = 64


def serve_pages(pages: LogPages, door: socket.socket) -> None:
    """Answer requests that arrive on a bound socket, in the foreground.

    Args:
        pages: What to show.
        door: The socket.
    """
    config = uvicorn.Config(
        pages.app(),
        log_level="error",
        access_log=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=5,
        server_header=False,
        proxy_headers=False,
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[door])
