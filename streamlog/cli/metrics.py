"""`streamlog metrics`: the lag of readers and the offsets of a log, for Prometheus."""

from typing import Final

import click

from streamlog.arrow.views import open_read_roots
from streamlog.bucket.places import root_paths
from streamlog.cli.lag import readers_of
from streamlog.cli.output import Output, explain, remark
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.errors import StreamLogError
from streamlog.fs.local import LocalFileSystem
from streamlog.spark.options import parse_duration_ms
from streamlog.watch.metrics import LogMetrics, Publisher, text_of

__all__ = ["metrics"]

_SHORTEST_MS: Final = 1_000
_LONGEST_MS: Final = 86_400_000


def metrics(
    settings: Settings,
    *,
    checkpoints: tuple[str, ...],
    textfile: str | None,
    listen: str | None,
    every: str | None,
) -> None:
    """Print the metrics once, or publish them until Ctrl-C."""
    if every is not None and textfile is None:
        raise click.UsageError("--every needs --textfile; a port is measured at each scrape")
    every_ms = 15_000 if every is None else parse_duration_ms({}, "--every", default=every)
    if not _SHORTEST_MS <= every_ms <= _LONGEST_MS:
        raise click.BadParameter(f"expected 1s to 1d, got {every!r}", param_hint="--every")
    place = None if listen is None else _host_and_port(listen)
    roots = open_read_roots(root_paths(settings.root, LocalFileSystem()))
    readers_of(roots, checkpoints)  # a checkpoint that does not exist is wrong use
    source = LogMetrics(roots, lambda: readers_of(roots, checkpoints))
    if textfile is None and place is None:
        output = Output(settings)
        output.write(text_of(source))
        output.flush()
        return
    publisher = Publisher(source, textfile=textfile, listen=place)
    if publisher.port is not None and place is not None:
        remark(settings, f"answering on http://{place[0]}:{publisher.port}/metrics")
    clock = SystemClock()
    while True:
        try:
            publisher.write()
        except StreamLogError as error:
            if place is None and every is None:
                raise
            remark(settings, str(explain(error)))
        if place is None and every is None:
            return
        clock.sleep_ms(every_ms)


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"expected HOST:PORT, got {text!r}", param_hint="--listen")
    return host.strip("[]") or "127.0.0.1", int(port)
