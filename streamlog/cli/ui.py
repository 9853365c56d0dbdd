"""`streamlog ui`: the pages of a log root on the loopback, in the foreground."""

import ipaddress
import socket
import webbrowser

import click

from streamlog.cli.decode_options import field_decoders
from streamlog.cli.output import remark
from streamlog.cli.verb import Settings
from streamlog.errors import InvalidOptionError, InvalidRequestError
from streamlog.overview.look import overview_of

__all__ = ["ui"]


def ui(
    settings: Settings,
    *,
    root: str | None,
    listen: str,
    allow_writes: bool,
    should_open: bool,
    decode: tuple[str, ...],
    schema_registry: str | None,
) -> None:
    """Serve until Ctrl-C."""
    path = settings.root if root is None else root
    host, port = _address(listen)
    try:
        from streamlog.web.server import LogPages
        from streamlog.web.serving import serve_pages
    except ImportError as error:
        raise InvalidRequestError(
            "the pages need an extra",
            got=f"no module {error.name}",
            hint="pip install 'pyspark-streamlog[ui]'",
        ) from error
    overview_of(path, steps=1)  # a wrong path is an error now, not on the first page
    fields = field_decoders(decode, {"schema_registry": schema_registry})
    pages = LogPages(path, allows_writes=allow_writes, host=host, fields=fields)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host, port))
            door.listen()  # a request that comes before the server runs waits
        except OSError as error:
            raise InvalidOptionError(
                "cannot listen there",
                got=f"{listen}: {error.strerror}",
                expected="a free port",
                hint="pass --listen 127.0.0.1:0 for any free port",
            ) from error
        named = f"[{host}]" if ":" in host else host
        url = f"http://{named}:{door.getsockname()[1]}/"
        mode = "changes are allowed" if allow_writes else "read-only"
        remark(settings, f"showing {path} on {url} ({mode}); Ctrl-C ends it")
        if should_open:
            webbrowser.open(url)
        serve_pages(pages, door)


def _address(listen: str) -> tuple[str, int]:
    """Return the host and port to listen on; only the loopback: there are no passwords."""
    host, colon, port = listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if host == "localhost":
        host = "127.0.0.1"
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not colon or not port.isdigit() or int(port) > 65_535 or not is_loopback:
        raise click.BadParameter(
            f"expected an address of the loopback and a port, such as 127.0.0.1:8095, got"
            f" {listen!r}; the pages have no passwords: from another machine, use"
            " ssh -L 8095:127.0.0.1:8095 HOST",
            param_hint="--listen",
        )
    return host, int(port)
