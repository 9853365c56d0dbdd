"""Streaming queries outlive the loss of a disk; more cases: `python -m tests.programs.replicas`."""

from random import Random

import pytest

from tests.programs.reliability.kinds.disks import missing
from tests.programs.replicas.faults import Case, Fault, Return, Victim
from tests.programs.replicas.streams import Job, StreamCase, run

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(missing("ext4") is not None, reason=str(missing("ext4"))),
]


@pytest.mark.parametrize(
    "case",
    [
        StreamCase(Case(Fault.POWER, Victim.LEADER, Return.BACK)),
        StreamCase(Case(Fault.POWER, Victim.LEADER, Return.REPLACED)),
        StreamCase(Case(Fault.POWER, Victim.LEADER, Return.RESTORED), Job.RESTARTS),
    ],
    ids=str,
)
def test_queries_go_on_with_each_row_once(case: StreamCase) -> None:
    report = run(case, Random(1))
    assert report.failures == 0, "no query had to be started again"
    assert report.rows > 0
