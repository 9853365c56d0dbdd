"""Which cases `--only` selects."""

from tests.programs.replicas import streams
from tests.programs.replicas.__main__ import is_wanted
from tests.programs.replicas.faults import CASES, POLICIES


def test_a_name_selects_the_cases_that_begin_with_it() -> None:
    names = [*map(str, CASES), *POLICIES, *map(str, streams.CASES)]
    power = [each for each in names if is_wanted(each, "power-")]
    assert power
    assert all(each.startswith("power-") for each in power)
    restored = [each for each in names if is_wanted(each, "*restored")]
    assert {each.partition("-")[0] for each in restored} == {"spark", "detached", "power"}
    assert [each for each in names if is_wanted(each, "")] == names
