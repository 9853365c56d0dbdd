"""`streamlog serve`: Kafka's protocol for one log root, in the foreground."""

import asyncio
import gc
import logging
import resource
import signal
import sys

import click

from streamlog.cli.output import remark
from streamlog.cli.verb import Settings
from streamlog.gateway import Address, Gateway, GatewaySettings

__all__ = ["serve"]


def serve(
    settings: Settings,
    *,
    listen: str,
    advertise: str | None,
    read_only: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    sasl_users: str | None,
) -> None:
    """Serve until a signal asks to stop."""
    if read_only is not None and settings.path:
        raise click.UsageError("--read-only names the directory: it excludes --path")
    if tls_key is not None and tls_cert is None:
        raise click.UsageError("--tls-key needs --tls-cert")
    address = Address.parse(listen)
    gateway = Gateway(
        settings.root if read_only is None else read_only,
        GatewaySettings(
            listen=address,
            advertise=None if advertise is None else Address.parse(advertise),
            is_read_only=read_only is not None,
            tls_cert=tls_cert,
            tls_key=tls_key,
            sasl_users=sasl_users,
        ),
    )
    _log_warnings()
    _raise_descriptor_limit()
    if not address.is_loopback and sasl_users is None:
        click.echo(
            f"warning: {address} can be reached from other hosts, and clients are not "
            "authenticated; pass --sasl-users, and --tls-cert to encrypt",
            err=True,
        )
    asyncio.run(_run(settings, gateway))


async def _run(settings: Settings, gateway: Gateway) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, gateway.stop)

    def on_ready() -> None:
        gc.freeze()  # no collection, which holds up all clients, looks through these objects again
        remark(settings, f"listening on {gateway.bootstrap_servers}")

    await gateway.run(on_ready)
    remark(settings, "stopped; everything acknowledged is durable")


def _raise_descriptor_limit() -> None:
    """Allow as many connections and open files as the system lets this user have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _log_warnings() -> None:
    """Print the server's warnings: no caller sees the errors that clients cause."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("streamlog.gateway")
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
