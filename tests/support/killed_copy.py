"""A copy in a process that dies at a chosen moment."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.cli import ROOT

__all__ = ["kill_copy"]

_COPY = """
import os, signal, sys
from streamlog.transfer.copying import CopyRequest, TopicCopier
from streamlog.transfer.kafka_client import is_kafka
from streamlog.transfer.kafka_copying import KafkaCopier
from streamlog.transfer.places import open_kafka_target, open_source, open_target

def die(size):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

source, target, left = sys.argv[1], sys.argv[2], [int(sys.argv[3])]
kind, there = TopicCopier, open_target
if is_kafka(target):
    kind, there = KafkaCopier, open_kafka_target
copier = kind(open_source(source), there(target), CopyRequest(), on_progress=die)
list(copier.run())
"""


def kill_copy(source: str | Path, target: str | Path, call: int) -> None:
    """Copy everything, in a process that kills itself at a call of its progress, from 1."""
    command = [sys.executable, "-c", _COPY, str(source), str(target), str(call)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
