"""Wheel and source archive pass the checks of the index they are published on."""

from pathlib import Path

import pytest

from tests.programs.distribution.__main__ import build_packages

pytestmark = pytest.mark.compat


def test_packages_pass_the_checks_of_the_index(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    packages = build_packages(tmp_path)
    assert [path.suffix for path in packages] == [".whl", ".gz"]
    assert capfd.readouterr().out.count("PASSED") == 2
