"""Imports only go down the layers; pyproject.toml has the contracts."""

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
