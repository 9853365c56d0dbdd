"""Kafka's command-line tools and Java clients on a gateway; the other programs take minutes."""

from pathlib import Path

import pytest

from tests.programs.wire.programs import command_line, killed_server

pytestmark = pytest.mark.compat

QUICK = command_line.PROGRAMS | killed_server.PROGRAMS


@pytest.mark.parametrize("name", QUICK)
def test_a_program(name: str, tmp_path: Path) -> None:
    assert QUICK[name](tmp_path)
