"""The cache of compiled kernels holds when the package is unpacked elsewhere, and knows changes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import streamlog

CALL = """
import numpy as np
from streamlog.binary.big_endian import read_int8

assert read_int8(np.array([255], np.uint8), 0) == -1
stats = read_int8.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def hits_and_misses(site: Path, cache: Path) -> str:
    """Call a kernel of the package in `site` in a process of its own."""
    called = subprocess.run(
        [sys.executable, "-c", CALL],
        env=os.environ | {"PYTHONPATH": str(site), "NUMBA_CACHE_DIR": str(cache)},
        cwd=site,
        capture_output=True,
        text=True,
        check=True,
    )
    return called.stdout.strip()


def unpacked(site: Path) -> Path:
    """Copy the package to a directory, with other times, as an unpacked archive may have."""
    shutil.copytree(Path(streamlog.__file__).parent, site / "streamlog", copy_function=shutil.copy)
    return site


def test_kernels_are_compiled_once_for_all_places_of_the_package(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert hits_and_misses(unpacked(tmp_path / "first"), cache) == "0 1"
    second = unpacked(tmp_path / "second")
    assert hits_and_misses(second, cache) == "1 0"

    own = second / "streamlog" / "binary" / "murmur2.py"  # shared: kernels of other files call it
    own.write_text(own.read_text().replace("unsigned", "Unsigned"))
    assert hits_and_misses(second, cache) == "0 1"
