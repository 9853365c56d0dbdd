"""The kinds of faults: each injects faults into a workload and runs the checker.

A kind yields one `Case` for each state it has produced, with the violations found there, so that
its caller can stop at any time. Exhaustive kinds inject a fault at every operation of the file
system.
"""

import functools
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, NamedTuple

from tests.programs.reliability.kinds import disks, pipelines
from tests.programs.reliability.kinds.clocks import clocks
from tests.programs.reliability.kinds.crashes import crashes, double_crashes, kills_and_power_cuts
from tests.programs.reliability.kinds.damage import flips, mutations
from tests.programs.reliability.kinds.failures import (
    errors,
    rare_errors,
    reading_errors,
    short_transfers,
)
from tests.programs.reliability.kinds.object_stores import (
    object_store_crashes,
    object_store_failures,
)
from tests.programs.reliability.kinds.races import races
from tests.programs.reliability.kinds.survival import Case
from tests.programs.reliability.workloads import Workload

__all__ = ["CI", "KINDS", "Case", "Kind"]


def nothing() -> str | None:
    """Return None: every machine can run this kind."""
    return None


class Kind(NamedTuple):
    """One kind of fault.

    `run`: Injects it into a workload.
    `share`: Its relative share of the time. With these shares, each kind completes all named
        workloads in the `full` budget.
    `is_for_ci`: Whether every CI machine can run it.
    `missing`: Returns what this machine lacks for it, None for nothing.
    `least`: The minimum number of workloads, whatever the time.
    """

    run: Callable[[Workload, Random], Iterable[Case]]
    share: int
    is_for_ci: bool = True
    missing: Callable[[], str | None] = nothing
    least: int = 0


KINDS: Final[dict[str, Kind]] = {
    "crashes": Kind(crashes, 6),
    "double crashes": Kind(double_crashes, 8),
    "kills, then power cuts": Kind(kills_and_power_cuts, 4),
    "errors": Kind(errors, 28),
    "rare errors": Kind(rare_errors, 20),
    "reading errors": Kind(reading_errors, 4),
    "short transfers": Kind(short_transfers, 2),
    "flips": Kind(flips, 2),
    "clocks": Kind(clocks, 2),
    "races": Kind(races, 2),
    "mutations": Kind(mutations, 1),
    "crashes with an object store": Kind(object_store_crashes, 4),
    "failing object stores": Kind(object_store_failures, 4),
    "power cuts of ext4": Kind(
        disks.power_cuts("ext4"), 5, False, functools.partial(disks.missing, "ext4")
    ),
    "power cuts of xfs": Kind(
        disks.power_cuts("xfs"), 4, False, functools.partial(disks.missing, "xfs")
    ),
    "refused writes to ext4": Kind(
        disks.refused_writes("ext4"), 7, False, functools.partial(disks.missing_below, "ext4")
    ),
    "refused writes to xfs": Kind(
        disks.refused_writes("xfs"), 7, False, functools.partial(disks.missing_below, "xfs")
    ),
    "pipelines": Kind(pipelines.pipelines, 6, False, pipelines.missing, least=1),
}
CI: Final = [name for name, kind in KINDS.items() if kind.is_for_ci]
