"""Random logs written and read by both sides, and damaged ones opened by both.

These tests always use the same cases; `python -m tests.programs.compat.differential` runs others
and more.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.programs.compat.answers import told_by_reader
from tests.programs.compat.differential import case, comparison
from tests.programs.compat.differential.__main__ import MEMORY, run
from tests.programs.compat.differential.life import Life
from tests.programs.compat.kafka import Kafka

pytestmark = pytest.mark.compat

CASES = 500


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory if available, because a case writes some hundred files."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as place:
        yield Path(place)


def test_five_hundred_random_logs_are_equal_for_kafka_and_for_us(
    kafka: Kafka, scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = run(kafka, range(CASES), scratch)
    assert capsys.readouterr().out == ""
    assert (tally.compared, tally.differing) == (CASES, 0)
    assert tally.kept_more > CASES // 10


@pytest.mark.parametrize("what", ["an answer", "an outcome", "an index entry"])
def test_a_difference_is_detected(
    kafka: Kafka, scratch: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An answer or a file of ours is altered on purpose."""
    if what == "an outcome":
        monkeypatch.setattr(Life, "_append", lambda life, step: 0)
    elif what == "an answer":
        monkeypatch.setattr(case, "told_by_reader", _told_wrongly)
    else:
        monkeypatch.setattr(comparison, "indexes", lambda directory, start=0: {str(directory): b""})
    assert run(kafka, range(4), scratch).differing > 0


def _told_wrongly(*arguments: Any, **named: Any) -> dict[str, Any]:
    return {**told_by_reader(*arguments, **named), "lastStableOffset": -1}
