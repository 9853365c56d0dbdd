"""Environments of programs in Python, made from the pins of `conf/requirements-NAME.txt`."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.meta.repository import ROOT

__all__ = ["environment"]

CACHE = ROOT / ".cache" / "environments"


def environment(name: str) -> Path:
    """Return the `bin` of the environment; the first time it is made.

    Raises:
        subprocess.CalledProcessError: It cannot be made.
    """
    pins = ROOT / "conf" / f"requirements-{name}.txt"
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*pip, "-r", pins], check=True)
        (folder / "complete").touch()
    return folder / "bin"
