"""Workloads: sequences of operations on a root while faults are injected.

Most crash-consistency bugs need at most three operations on a fresh file system ("Finding
Crash-Consistency Bugs with Bounded Black-Box Crash Testing", OSDI 2018), so all short sequences are
tried. Longer ones are named if they have a meaning, or random.
"""

import itertools
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from tests.programs.reliability.subject import OPERATIONS


class Workload(NamedTuple):
    """Operations in order, and a name.

    `on_nothing`: Whether the workload creates the root; otherwise it exists before.
    `unbroken`: The number of operations before the first fault.
    """

    name: str
    operations: tuple[str, ...]
    on_nothing: bool = False
    unbroken: int = 0


# fmt: off
NAMED: Final = (
    Workload("creation", ("append", "commit"), on_nothing=True),
    Workload(
        "appends and flushes", ("append", "append other", "flush", "append", "append batches")
    ),
    Workload("rolls", ("append", "append batches", "roll", "append", "roll", "append", "flush")),
    Workload("commits", ("commit", "commit", "append", "commit again", "retire", "commit")),
    Workload("commits beside appends", ("append", "commit", "append", "commit", "flush", "commit")),
    Workload(
        "truncations", ("append batches", "flush", "truncate", "append", "commit", "truncate")
    ),
    Workload("reopening", ("append", "commit", "reopen", "append", "reopen", "commit again")),
    Workload("producers", ("repeat", "transaction", "repeat", "flush", "reopen", "repeat")),
    Workload("compaction", ("append", "append", "roll", "append", "roll", "clean", "append")),
    Workload(
        "tombstones",
        ("append batches", "append", "roll", "clean", "append batches", "roll", "clean", "wait",
         "append", "roll", "clean"),
    ),
    Workload("compaction and a cut", ("append", "append", "roll", "append", "clean", "truncate")),
    Workload("retention", ("append", "roll", "append", "retain", "wait", "retain", "append")),
    Workload(
        "deletions",
        ("append batches", "roll", "append", "delete records", "append", "delete records", "clean"),
    ),
    Workload("commits and deletions", ("commit", "delete records", "commit", "delete records")),
    Workload("settings", ("append", "alter config", "append", "append", "alter config", "append")),
    Workload("two writers", ("append", "append elsewhere", "append", "append elsewhere", "flush")),
    Workload("an older checkpoint", ("commit", "commit other", "commit", "commit again")),
)
# fmt: on


def short(length: int) -> Iterator[Workload]:
    """Yield all sequences of up to `length` operations, the short ones first."""
    for count in range(1, length + 1):
        for operations in itertools.product(OPERATIONS, repeat=count):
            yield Workload(", ".join(operations), operations)


def drawn(random: Random) -> Workload:
    """Return a random sequence of four to twelve operations."""
    names = list(OPERATIONS)
    operations = tuple(random.choice(names) for _ in range(random.randrange(4, 13)))
    return Workload(", ".join(operations), operations)
