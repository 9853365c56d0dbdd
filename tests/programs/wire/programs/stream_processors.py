"""Kafka Streams counts words with exactly_once_v2 on a gateway, and is killed meanwhile."""

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from streamlog import LogManager
from streamlog.gateway import serve
from streamlog.records.record import IsolationLevel
from tests.programs.wire.programs.jars import command

__all__ = ["PROGRAMS", "counted", "produce_lines", "wait_until"]

_SOURCE: Final = Path(__file__).with_name("WordCount.java")
_LINES: Final = 4000
_WORDS: Final = ("log", "batch", "offset", "segment", "index", "epoch", "leader", "replica")
_PATIENCE_S: Final = 120


def word_count(scratch: Path) -> str:
    """Count words; kill the program twice, and once take its state away, too."""
    root, state = scratch / "root", scratch / "state"
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("lines", 2)
        manager.create_topic("counts", 2)
    with serve(root) as gateway:
        expected = Counter[str]()
        process = _started(gateway.bootstrap_servers, state, scratch)
        try:
            for part in range(3):
                before = expected.total()
                expected += produce_lines(gateway.bootstrap_servers, _LINES, seed=part)
                middle = before + (expected.total() - before) // 4
                wait_until(lambda least=middle: _progress(root) > least, process, scratch)
                if part < 2:
                    process.kill()
                    process.wait()
                    if part == 1:
                        shutil.rmtree(state)
                    process = _started(gateway.bootstrap_servers, state, scratch)
            wait_until(lambda: _progress(root) >= expected.total(), process, scratch)
        finally:
            process.terminate()
            process.wait(_PATIENCE_S)
    for word, counts in counted(root).items():
        assert counts == list(range(1, expected[word] + 1)), (word, expected[word], counts[-5:])
    with LogManager.open(root) as manager:
        topics = set(manager.topics())
    internal = {"wc-words-changelog", "wc-words-repartition"}
    assert internal <= topics, topics
    return f"{expected.total():,} words counted once each, killed twice"


def _started(bootstrap: str, state: Path, scratch: Path) -> "subprocess.Popen[bytes]":
    log = (scratch / "log").open("ab")
    with log:
        return subprocess.Popen(
            [*command("kafka-streams"), str(_SOURCE), bootstrap, "wc", str(state)],
            stdout=log,
            stderr=log,
        )


def produce_lines(bootstrap: str, count: int, *, seed: int) -> Counter[str]:
    """Produce lines of random words to `lines`; return how often each word comes."""
    choose = random.Random(seed)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    words = Counter[str]()
    for number in range(count):
        line = choose.choices(_WORDS, k=5)
        words.update(line)
        producer.produce("lines", " ".join(line), key=str(number))
    assert producer.flush(_PATIENCE_S) == 0
    return words


def counted(root: Path) -> dict[str, list[int]]:
    """Return the counts that were written for each word, committed ones only."""
    counts: dict[str, list[int]] = {}
    with LogManager.open(root) as manager:
        for partition in range(2):
            reader = manager.reader("counts", partition)
            for row in reader.records(isolation=IsolationLevel.READ_COMMITTED):
                assert row.key is not None
                assert row.value is not None
                counts.setdefault(row.key.decode(), []).append(int(row.value))
    return counts


def _progress(root: Path) -> int:
    return sum(counts[-1] for counts in counted(root).values())


def wait_until(
    is_done: Callable[[], bool], process: "subprocess.Popen[bytes]", scratch: Path
) -> None:
    """Wait for something that a running program does.

    Raises:
        RuntimeError: The program ended, or it takes too long.
    """
    until = time.monotonic() + _PATIENCE_S
    while not is_done():
        if process.poll() is not None or time.monotonic() > until:
            said = (scratch / "log").read_text("utf-8", "replace")
            raise RuntimeError(f"the program ended or is stuck: {said[-3000:]}")
        time.sleep(0.2)


PROGRAMS: Final[dict[str, Callable[[Path], str]]] = {"streams-word-count": word_count}
