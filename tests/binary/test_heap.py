"""Reuse of freed memory, measured in a process of its own."""

import platform
import subprocess
import sys

import pytest

from tests.meta.repository import ROOT

BLOCKS = """
import resource
import numpy as np
from streamlog.binary.heap import keep_large_blocks

def touch():
    blocks = [np.empty(size << 10, np.uint8) for size in (256, 1024, 1024)]
    for block in blocks:
        block[:] = 1

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if {keeps}:
    keep_large_blocks()
touch()
before = faults()
for _ in range(20):
    touch()
print((faults() - before) // 20)
"""


def faults_per_use(*, keeps: bool) -> int:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKS.format(keeps=keeps)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back so")
def test_freed_memory_is_reused_without_a_page_fault() -> None:
    assert faults_per_use(keeps=False) > 200
    assert faults_per_use(keeps=True) < 5
