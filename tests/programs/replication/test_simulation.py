"""The simulation finds nothing in the protocol, every seeded bug, and replays exactly."""

import pytest

from tests.programs.replication.bugs import BUGS
from tests.programs.replication.history import INVARIANTS
from tests.programs.replication.simulation import CI_SEEDS, hunt, simulate

PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_invariant_is_violated(part: int) -> None:
    outcomes = [simulate(seed) for seed in range(part, CI_SEEDS, PARTS)]
    assert [(each.seed, str(each.violation)) for each in outcomes if each.violation] == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_bug_is_found(bug) -> None:
    found = hunt(bug)
    assert found.is_found
    assert found.invariant in INVARIANTS


def test_a_seed_replays_exactly() -> None:
    first, again = [], []
    for trace in (first, again):
        simulate(11, trace=trace)
    assert len(first) > 20
    assert first == again
    assert simulate(11).steps == simulate(11, trace=[]).steps


def test_the_runs_are_eventful() -> None:
    total = sum((simulate(seed).counts for seed in range(100)), start=simulate(100).counts)
    for name in ("elections", "ISR changes", "acknowledged records", "crashes"):
        assert total[name] > 100
    for name in ("truncations", "unclean elections", "reassignments", "topics deleted"):
        assert total[name] > 0
    assert total["fault: use an old format"] > 0
