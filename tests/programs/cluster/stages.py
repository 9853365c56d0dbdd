"""The stages of the jobs at which hosts are killed, and how each is caught."""

import re
import threading
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from tests.programs.cluster.gates import Gate, GatedServer


class Victim(Enum):
    """What is killed: every process of the host."""

    WORKER = "worker"
    DRIVER = "driver"
    BOTH = "both"


@dataclass(frozen=True)
class Stage:
    """A moment of a job.

    Attributes:
        name: Its name.
        job: The job.
        path: A pattern of the object that is being written.
        is_done: Whether the object is there already, and only the answer is missing.
    """

    name: str
    job: str
    path: str
    is_done: bool


@dataclass(frozen=True)
class Case:
    """A kill."""

    stage: Stage
    victim: Victim

    def __str__(self) -> str:
        return f"{self.stage.name}-{self.victim.value}"


FEED, AIRCRAFT, DELAYS = "flights_to_topic", "aircraft_state", "carrier_delays"
_STAGING, _ENTRY = r"/root/\.streamlog/staging/", r"/root/\.streamlog/journal/"
_DATA, _STATE, _COMMIT = r"/delays/part-", r"/checkpoints/delays/state/", r"/_delta_log/\d+\.json$"
STAGES = (
    Stage("staging", FEED, _STAGING, is_done=False),
    Stage("staged", FEED, _STAGING, is_done=True),
    Stage("deciding", FEED, _ENTRY, is_done=False),
    Stage("decided", FEED, _ENTRY, is_done=True),
    Stage("latest-staged", AIRCRAFT, _STAGING, is_done=True),
    Stage("latest-decided", AIRCRAFT, _ENTRY, is_done=True),
    Stage("state", DELAYS, _STATE, is_done=False),
    Stage("table-data", DELAYS, _DATA, is_done=False),
    Stage("table-commit", DELAYS, _COMMIT, is_done=False),
    Stage("table-committed", DELAYS, _COMMIT, is_done=True),
)
# In a directory nothing holds a process: it is killed as soon as such a file is seen.
SHARED_STAGES = (
    Stage("staged", FEED, "root/.streamlog/staging/**/*", is_done=True),
    Stage("planned", FEED, "checkpoints/feed/offsets/*", is_done=True),
    Stage("committed", FEED, "checkpoints/feed/commits/*", is_done=True),
    Stage("latest-staged", AIRCRAFT, "root/.streamlog/staging/**/*", is_done=True),
    Stage("table-data", DELAYS, "delays/part-*", is_done=True),
    Stage("table-committed", DELAYS, "delays/_delta_log/*.json", is_done=True),
)


class Trap(Protocol):
    """Catches the moment of a stage."""

    def set(self, stage: Stage, skip: int) -> Gate:
        """Return a gate that the next moment but `skip` of this stage reaches."""


class RequestTrap:
    """Catches requests to a server, and holds them."""

    def __init__(self, server: GatedServer) -> None:
        self._server = server

    def set(self, stage: Stage, skip: int) -> Gate:
        """Return a gate for a request."""
        gate = Gate(re.compile(stage.path), stage.is_done, skip)
        self._server.gate = gate
        return gate


class FileTrap:
    """Catches new files below a directory; nobody is held."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def set(self, stage: Stage, skip: int) -> Gate:
        """Return a gate for a file."""
        gate = Gate(re.compile(""), is_done=True)
        threading.Thread(target=self._watch, args=(stage.path, skip + 1, gate), daemon=True).start()
        return gate

    def _watch(self, pattern: str, count: int, gate: Gate) -> None:
        known = set(self._directory.glob(pattern))
        while len(set(self._directory.glob(pattern)) - known) < count:
            if gate.released.wait(0.002):
                return
        gate.reached.set()
