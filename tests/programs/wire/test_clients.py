"""A part of the suites of Kafka clients passes against gateways; the commands run all of them.

What a suite needs is fetched once. Where that cannot be done, its tests skip, but fail in
continuous integration. Those of aiokafka, which no package registry has, skip there, too.
"""

import os
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import pytest

from tests.programs.wire import aiokafka, franz_go, kafka_python, kfake
from tests.programs.wire.suites import PASSED, Outcome, Reasons, run_suite

pytestmark = pytest.mark.compat


class Part(NamedTuple):
    """A part of a suite.

    Args:
        suite: The suite's name.
        prepare: Fetches what it needs; OSError: it cannot be had.
        run: Runs it.
        least: How many tests pass at least, so that a selection cannot become empty.
        reasons: Why tests may fail.
        is_in_registries: Whether every machine with a network can fetch it.
    """

    suite: str
    prepare: Callable[[], object]
    run: Callable[[], tuple[int, list[Outcome]]]
    least: int
    reasons: Reasons
    is_in_registries: bool = True


PARTS = (
    Part(
        "franz-go",
        franz_go.fetch,
        lambda: franz_go.run(
            "^(TestTxnEtl|TestGroupSimple|TestIssue.*|TestPauseIssue.*|TestClient_Produce.*)$", 1000
        ),
        10,
        {},
    ),
    Part("kfake", kfake.scenarios, lambda: kfake.run(""), 50, kfake.REASONS),
    Part(
        "kafka-python",
        kafka_python.SOURCE.fetch,
        lambda: kafka_python.run("producer or describe or topics or partitions or delete"),
        20,
        kafka_python.REASONS,
    ),
    Part(
        "aiokafka",
        aiokafka.SOURCE.fetch,
        lambda: aiokafka.run(
            "test_transactional_consumer or test_pep492 or test_admin or TestKafkaSASL"
        ),
        10,
        aiokafka.REASONS,
        is_in_registries=False,
    ),
)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.suite)
def test_a_part_of_a_suite(part: Part, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        part.prepare()
    except OSError as error:
        _give_up(part, error)
    found: list[Outcome] = []

    def run() -> tuple[int, list[Outcome]]:
        code, outcomes = part.run()
        found.extend(outcomes)
        return code, outcomes

    code = run_suite(part.suite, "", run, is_whole=False, reasons=part.reasons)
    assert code == 0, capfd.readouterr().err
    assert sum(each.result == PASSED for each in found) >= part.least


def _give_up(part: Part, error: OSError) -> NoReturn:
    message = f"{part.suite} cannot be fetched: {error}"
    if os.environ.get("CI") and part.is_in_registries:
        pytest.fail(message)
    pytest.skip(message)
