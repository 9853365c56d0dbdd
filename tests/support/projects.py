"""A user's project: an empty directory, streamlog installed, and pytest.

Only the wheel's metadata (its entry points) is installed; the code is the repository's, so that no
kernel is compiled again.
"""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.meta.repository import PACKAGE, ROOT

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def install(target: Path) -> list[Path]:
    """Install streamlog and nothing else; return the directories for Python's path."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", target, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = target.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target, [name for name in archive.namelist() if ".dist-info/" in name])
    return [target, ROOT, PACKAGE / "spark" / "_autoload"]


def run_pytest(project: Path, installed: list[Path]) -> str:
    """Run `pytest` in a project; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, installed)), "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return _ESCAPES.sub("", done.stdout)
