"""A gateway answers as a real broker does."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from streamlog.protocol.apis import apis_by_key
from tests.programs.wire import compare
from tests.programs.wire.side import Side

pytestmark = pytest.mark.compat

Answers = tuple[dict[str, Any], dict[str, Any]]  # ours and theirs, by what was asked
_LEFT_OUT = {
    "SaslHandshake": "needs users; what clients make of it is tested in test_security",
    "SaslAuthenticate": "the same",
    "DescribeQuorum": "a root has no quorum: the answer describes the server alone",
}
_FIRST = {"Produce": 3}  # the versions below are named for librdkafka only


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with compare.both(tmp_path_factory.mktemp("compare")) as pair:
        yield pair


@pytest.fixture(scope="module")
def answers(sides: tuple[Side, Side]) -> Callable[[compare.Scenario], Answers]:
    @cache
    def ask(scenario: compare.Scenario) -> Answers:
        ours, theirs = sides
        return dict(scenario(ours)), dict(scenario(theirs))

    return ask


@pytest.mark.parametrize("scenario", compare.ALL, ids=lambda each: each.__name__)
def test_the_gateway_answers_as_a_broker(
    scenario: compare.Scenario, answers: Callable[[compare.Scenario], Answers]
) -> None:
    ours, theirs = answers(scenario)
    assert len(theirs) > 4
    assert ours.keys() == theirs.keys()
    unexplained = {
        what: compare.unexplained(what, ours[what], answer) for what, answer in theirs.items()
    }
    assert {what: found for what, found in unexplained.items() if found} == {}


def test_every_served_request_is_compared_in_every_version(
    sides: tuple[Side, Side], answers: Callable[[compare.Scenario], Answers]
) -> None:
    for scenario in compare.ALL:
        answers(scenario)
    wanted = set()
    for each in sides[0].ask("ApiVersions", 0)["apiKeys"]:
        name = apis_by_key()[each["apiKey"]].name
        first = _FIRST.get(name, each["minVersion"])
        wanted |= {(name, version) for version in range(first, each["maxVersion"] + 1)}
    assert {each for each in wanted - sides[0].asked if each[0] not in _LEFT_OUT} == set()


def test_a_difference_is_found() -> None:
    assert list(compare.differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]})) == [
        ".a[1].b: 2, the broker 3"
    ]
