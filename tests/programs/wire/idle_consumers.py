"""Measure what idle consumers cost a server: its share of a core while nothing is written.

    python -m tests.programs.wire.idle_consumers [--partitions 1000] [--wait-ms 500] [--seconds 10]

Ten consumers in fetch sessions wait for all partitions of an empty log root together.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from streamlog import LogManager
from tests.gateway.wire_client import WireClient

_CONSUMERS: Final = 10
_SETTLES_S: Final = 5


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument(
        "--wait-ms", type=int, default=500, help="fetch.max.wait.ms of the consumers"
    )
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    each = given.partitions // _CONSUMERS
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        with LogManager.open(root, create=True) as manager:
            for number in range(_CONSUMERS):
                manager.create_topic(f"idle-{number}", each)
        command = [sys.executable, "-m", "streamlog", "--path", str(root), "serve"]
        server = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
        )
        assert server.stderr is not None
        address = server.stderr.readline().split()[-1]
        try:
            for number in range(_CONSUMERS):
                asked = (address, f"idle-{number}", each, given.wait_ms)
                threading.Thread(target=_consume, args=asked, daemon=True).start()
            time.sleep(_SETTLES_S)
            before = _cpu_seconds(server.pid)
            time.sleep(given.seconds)
            share = (_cpu_seconds(server.pid) - before) / given.seconds
        finally:
            server.terminate()
            server.wait()
    print(f"{each * _CONSUMERS} partitions, waits of {given.wait_ms} ms: {share:.1%} of a core")
    return 0


def _consume(address: str, topic: str, partitions: int, wait_ms: int) -> None:
    """Fetch until the server leaves."""
    wanted = [
        {
            "partition": number,
            "currentLeaderEpoch": -1,
            "fetchOffset": 0,
            "lastFetchedEpoch": -1,
            "logStartOffset": -1,
            "partitionMaxBytes": 1 << 20,
        }
        for number in range(partitions)
    ]
    session: dict[str, Any] = {"sessionId": 0, "sessionEpoch": 0}
    with contextlib.suppress(ConnectionError), WireClient(address) as client:
        while True:
            is_first = session["sessionEpoch"] == 0
            answer = client.call(
                "Fetch",
                12,
                replicaId=-1,
                maxWaitMs=0 if is_first else wait_ms,
                minBytes=1,
                maxBytes=1 << 20,
                isolationLevel=0,
                topics=[{"topic": topic, "partitions": wanted}] if is_first else [],
                forgottenTopicsData=[],
                rackId="",
                **session,
            )
            session["sessionId"] = answer["sessionId"]
            session["sessionEpoch"] += 1


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
