"""The newest Spark of the matrix, with this Python; the other cells run by hand."""

import sys
from pathlib import Path

import pytest

from tests.programs.matrix.__main__ import (
    CELLS,
    NOT_AVAILABLE,
    NOT_OFFERED,
    PASSED,
    SPARKS,
    Cell,
    build_wheel,
    main,
    selected,
    try_cell,
)

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.compat
@pytest.mark.slow
def test_the_wheel_works_with_the_newest_spark(tmp_path: Path) -> None:
    cell = Cell(SPARKS[-1], PYTHON, "newest")
    outcome = try_cell(cell, build_wheel(tmp_path))
    if outcome.verdict in {NOT_AVAILABLE, NOT_OFFERED}:
        pytest.skip(f"{cell}: {outcome.verdict}: {outcome.detail}")
    assert outcome.verdict == PASSED, outcome.detail


def test_a_python_that_is_missing_is_not_a_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    outcome = try_cell(Cell("4.2.1", "3.12", "oldest"), tmp_path / "none.whl")
    assert outcome.verdict == NOT_AVAILABLE
    assert "no Python 3.12" in outcome.detail


def test_a_selection_names_versions_or_their_beginning() -> None:
    assert len(list(selected([]))) == len(CELLS) == 24
    assert set(selected(["spark=4.3,python=3.13"])) == {
        Cell("4.3.0", "3.13", "oldest"),
        Cell("4.3.0", "3.13", "newest"),
    }


def test_a_selection_without_a_cell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--list", "--only", "scala=2.13"])
    assert ended.value.code == 2
    assert "no such cell" in capsys.readouterr().err
