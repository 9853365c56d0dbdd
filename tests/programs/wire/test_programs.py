"""Kafka's command-line tools do on a gateway what they are for; the other programs take minutes."""

from pathlib import Path

import pytest

from tests.programs.wire.programs.command_line import PROGRAMS

pytestmark = pytest.mark.compat


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tool(name: str, tmp_path: Path) -> None:
    assert PROGRAMS[name](tmp_path)
