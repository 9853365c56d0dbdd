"""All programs by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.programs.wire.programs import (
    command_line,
    connect,
    killed_server,
    spark_connector,
    stream_processors,
    terminal,
)

__all__ = ["PROGRAMS"]

PROGRAMS: Final[dict[str, Callable[[Path], str]]] = {
    **command_line.PROGRAMS,
    **stream_processors.PROGRAMS,
    **connect.PROGRAMS,
    **killed_server.PROGRAMS,
    **spark_connector.PROGRAMS,
    **terminal.PROGRAMS,
}
