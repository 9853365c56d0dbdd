"""Stream processors count words on a gateway: Kafka Streams, quixstreams and faust."""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from streamlog import LogManager
from streamlog.gateway import serve
from streamlog.records.record import IsolationLevel
from tests.programs.wire.programs.jars import command
from tests.programs.wire.programs.running import Running
from tests.support.environments import environment

__all__ = ["PROGRAMS", "counted", "produce_lines"]

_SOURCE: Final = Path(__file__).with_name("WordCount.java")
_QUIX: Final = _SOURCE.with_name("quix_words.py")
_FAUST: Final = _SOURCE.with_name("faust_words.py")
_LINES: Final = 4000
_FEW_LINES: Final = 1000
_WORDS: Final = ("log", "batch", "offset", "segment", "index", "epoch", "leader", "replica")
_PATIENCE_S: Final = 120


def word_count(scratch: Path) -> str:
    """Count words; kill the program twice, and once take its state away, too."""
    root, state = scratch / "root", scratch / "state"
    _make(root)
    with serve(root) as gateway:
        expected = Counter[str]()
        started = [*command("kafka-streams"), str(_SOURCE)]
        started += [gateway.bootstrap_servers, "wc", str(state)]
        for kills in range(3):
            before = expected.total()
            expected += produce_lines(gateway.bootstrap_servers, _LINES, seed=kills)
            total = expected.total()
            middle = before + (total - before) // 4
            with Running(started, scratch / "log") as process:
                process.wait_until(lambda least=middle: _progress(root) > least)
                if kills < 2:
                    process.kill()
                else:
                    process.wait_until(lambda total=total: _progress(root) >= total)
            if kills == 1:
                shutil.rmtree(state)
    _check(counted(root), expected)
    with LogManager.open(root) as manager:
        topics = set(manager.topics())
    internal = {"wc-words-changelog", "wc-words-repartition"}
    assert internal <= topics, topics
    return f"{expected.total():,} words counted once each, killed twice"


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


def quixstreams(scratch: Path) -> str:
    """Count words in Python, exactly once; kill the program meanwhile."""
    started = [str(environment("stream-processors") / "python"), str(_QUIX)]
    root, state = scratch / "root", scratch / "state"
    _make(root)
    with serve(root) as gateway:
        expected = produce_lines(gateway.bootstrap_servers, _FEW_LINES, seed=7)
        started += [gateway.bootstrap_servers, str(state)]
        with Running(started, scratch / "log") as process:
            process.wait_until(lambda: _progress(root) > expected.total() // 4)
            process.kill()
        with Running(started, scratch / "log") as process:
            process.wait_until(lambda: _progress(root) >= expected.total())
    _check(counted(root), expected)
    return f"{expected.total():,} words counted once each, killed once"


def faust(scratch: Path) -> str:
    """Count words in Python by an agent and a table."""
    started = [str(environment("stream-processors") / "faust"), "-A", _FAUST.stem]
    started += ["worker", "--without-web", "-l", "warn"]
    root = scratch / "root"
    _make(root)
    with serve(root) as gateway:
        expected = produce_lines(gateway.bootstrap_servers, _FEW_LINES, seed=8)
        settings = {
            "FAUST_BROKER": gateway.bootstrap_servers,
            "FAUST_STATE": str(scratch / "state"),
            "PYTHONPATH": str(_FAUST.parent),
        }
        with Running(started, scratch / "log", os.environ | settings) as process:
            process.wait_until(lambda: _progress(root) >= expected.total())
    _check(counted(root), expected)
    return f"{expected.total():,} words counted once each"


def _make(root: Path) -> None:
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("lines", 2)
        manager.create_topic("counts", 2)


def _check(counts: Mapping[str, list[int]], expected: Mapping[str, int]) -> None:
    """Check that each word was counted from 1 to its number, without a gap or a repetition."""
    assert counts.keys() == expected.keys()
    for word, numbers in counts.items():
        assert numbers == list(range(1, expected[word] + 1)), (word, expected[word], numbers[-5:])


PROGRAMS: Final[dict[str, Callable[[Path], str]]] = {
    "streams-word-count": word_count,
    "quixstreams-word-count": quixstreams,
    "faust-word-count": faust,
}
