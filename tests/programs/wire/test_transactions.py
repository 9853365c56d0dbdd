"""Kafka's Java clients copy a topic in transactions of version 2 (KIP-890)."""

import subprocess
from pathlib import Path

import pytest

from streamlog import LogManager, Record
from streamlog.gateway import serve
from tests.programs.compat.kafka import classpath, java

pytestmark = pytest.mark.compat

PROGRAM = Path(__file__).with_name("Transact.java")
COUNT = 40


def test_the_java_client_consumes_transforms_and_produces(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("input", 1)
        manager.create_topic("output", 1)
        manager.log("input", 0).append([Record(None, b"%d" % each) for each in range(COUNT)])
    with serve(root) as gateway:
        command = [java(), "-cp", classpath(), str(PROGRAM), gateway.bootstrap_servers, str(COUNT)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [f"committed {COUNT}", "fenced", f"read {COUNT}"]
