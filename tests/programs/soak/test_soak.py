"""The soak in its short form."""

from pathlib import Path

import pytest

from tests.programs.soak.run import Soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

SECONDS = 45  # plus the starts of Spark


def test_nothing_is_lost_when_all_processes_are_killed_for_a_while(tmp_path: Path) -> None:
    report = Soak(tmp_path, seed=7).run(SECONDS)
    assert report.records > 1000
    assert min(report.kills, report.recoveries, report.compactions, report.deletions) > 0
