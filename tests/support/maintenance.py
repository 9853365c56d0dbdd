"""A root in memory under maintenance, with a manual clock."""

from random import Random

from streamlog.clock import ManualClock
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.log_root import LogRoot
from streamlog.maintenance.runner import Maintenance
from streamlog.root.manager import LogManager

NOW = 1_700_000_000_000
ROOT = "/logs"


def manager(fs: FileSystem, clock: ManualClock, *, create: bool = False) -> LogManager:
    """Return the open root."""
    return LogManager.open(ROOT, create=create, fs=fs, clock=clock, random=Random(1))


def maintenance(fs: FileSystem, clock: ManualClock) -> Maintenance:
    """Return a maintenance runner."""
    return Maintenance(ROOT, fs=fs, clock=clock, random=Random(2))


def put_server(fs: FileSystem, text: str) -> None:
    """Append settings to the root's `server.properties`."""
    with fs.open(LogRoot.at(ROOT).server_properties, OpenMode.WRITE) as file:
        file.pwrite(text.encode(), file.stat().size)
