"""A gateway answers as a real broker does."""

from collections.abc import Iterator

import pytest

from tests.programs.wire import compare
from tests.programs.wire.scenarios import SCENARIOS
from tests.programs.wire.side import Side

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with compare.both(tmp_path_factory.mktemp("compare")) as pair:
        yield pair


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_the_gateway_answers_as_a_broker(
    scenario: compare.Scenario, sides: tuple[Side, Side]
) -> None:
    ours, theirs = (dict(scenario(side)) for side in sides)
    assert len(theirs) > 4
    unexplained = {
        what: compare.unexplained(what, ours.get(what), answer) for what, answer in theirs.items()
    }
    assert {what: found for what, found in unexplained.items() if found} == {}


def test_a_difference_is_found() -> None:
    assert list(compare.differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]})) == [
        ".a[1].b: 2, the broker 3"
    ]
