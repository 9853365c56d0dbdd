"""Kafka's Java producers and consumer survive kill -9 of their server."""

import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from streamlog import LogManager
from streamlog.records.record import IsolationLevel
from tests.gateway.killed_server import KILLS, KilledServer, kill_now_and_then
from tests.programs.wire.programs.jars import command

__all__ = ["PROGRAMS"]

_SOURCE: Final = Path(__file__).with_name("Survive.java")
_PATIENCE_S: Final = 180


def idempotent(scratch: Path) -> str:
    """Nothing acknowledged is lost, and nothing comes twice."""
    found = _survive(scratch, "idempotent")
    acknowledged = found["acknowledged"]
    assert found["failed"] == []
    assert sorted(acknowledged) == list(range(len(acknowledged)))
    assert len(acknowledged) > 100
    assert found["log"] == sorted(acknowledged)
    assert found["seen"] == found["log"]
    return f"{len(acknowledged):,} records once each, {KILLS} kills"


def transactional(scratch: Path) -> str:
    """Each transaction is there as a whole or not at all, and no aborted record is seen."""
    found = _survive(scratch, "transactional")
    committed, aborted, unknown = (set(found[name]) for name in ("committed", "aborted", "unknown"))
    seen = found["seen"]
    assert seen == found["log"]
    assert len(seen) == len(set(seen))
    wholes = {number // 10 for number in seen}
    assert len(seen) == 5 * len(wholes)
    assert committed <= wholes <= committed | unknown
    assert not wholes & aborted
    assert len(committed) > 5
    assert len(aborted) > 2
    counts = f"{len(committed)} committed, {len(aborted)} aborted, {len(unknown)} unknown"
    return f"{counts}; {KILLS} kills"


def _survive(scratch: Path, kind: str) -> dict[str, list[int]]:
    """Return the numbers that the program reports, by file, and as `log` those in the log."""
    results = scratch / "results"
    results.mkdir()
    server = KilledServer(scratch / "root")
    with LogManager.open(str(server.root), create=True) as manager:
        manager.create_topic("events", 1)
    server.start()
    progress: list[str] = []
    try:
        with (scratch / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command("kafka-tools"), str(_SOURCE), server.address, kind, str(results)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
            )
        assert process.stdout is not None
        assert process.stdin is not None
        reading = threading.Thread(target=_collect, args=(process.stdout, progress))
        reading.start()
        kill_now_and_then(server, 3, threading.Event(), lambda: len(progress))
        process.stdin.close()
        code = process.wait(_PATIENCE_S)
        reading.join()
    finally:
        process.kill()
        server.kill()
    assert code == 0, (scratch / "log").read_text("utf-8")[-3000:]
    found = {path.name: [int(n) for n in path.read_text().split()] for path in results.iterdir()}
    with LogManager.open(str(server.root)) as manager:
        rows = manager.reader("events", 0).records(isolation=IsolationLevel.READ_COMMITTED)
        return found | {"log": [int(row.value or b"-1") for row in rows]}


def _collect(lines: Iterable[str], into: list[str]) -> None:
    for line in lines:
        into.append(line)  # one by one: another thread watches its length


PROGRAMS: Final[dict[str, Callable[[Path], str]]] = {
    "java-idempotent-producer-server-killed": idempotent,
    "java-transactional-producer-server-killed": transactional,
}
