"""The packed environment: streamlog for hosts that have only Python and Spark."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.programs.cluster.hosts import REPOSITORY


def pack(archive: Path) -> None:
    """Make the archive as `docs/clusters.md` says, if it is not there."""
    if archive.exists():
        return
    place = archive.with_suffix(".making")
    shutil.rmtree(place, ignore_errors=True)
    run = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([sys.executable, "-m", "venv", str(place)], **run)
    packages = (f"{REPOSITORY}[object-storage]", "pandas>=2.2,<3")
    subprocess.run([str(place / "bin" / "pip"), "install", "--quiet", *packages], **run)
    subprocess.run(
        [str(place / "bin" / "streamlog"), "doctor", "--warm-up"],
        env=os.environ | {"NUMBA_CACHE_DIR": str(place / "numba")},
        stdout=subprocess.DEVNULL,
        check=False,  # the environment has no Spark, which doctor reports
    )
    unfinished = archive.with_suffix(".unfinished")
    subprocess.run(["tar", "-czf", str(unfinished), "-C", str(place), "."], **run)
    unfinished.rename(archive)
    shutil.rmtree(place)
