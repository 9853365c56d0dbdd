"""Imports go down only; the contracts stand in pyproject.toml."""

import subprocess
import sys
from pathlib import Path

from tests.meta.repository import ROOT


def test_every_import_contract_is_kept() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
