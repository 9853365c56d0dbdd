"""The cost of a commit by its number of partitions, and after many topics were deleted.

The peer is the same stage of a commit to one partition, in the same process.
"""

import tempfile
import time
from collections.abc import Callable, Iterator

from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import Stager
from streamlog.records.builder import encode_columns
from streamlog.root.manager import LogManager
from streamlog.topic import TopicPartition
from tests.programs.performance.comparison import Comparison
from tests.programs.performance.peers import records

WIDTHS = (1, 10, 100, 1000)
TOPICS = 1000
STEADY = 5  # commits
STAGES = ("first", "steady", "retire", "close")


def commit(manager: LogManager, version: int, topic: str, partitions: int) -> None:
    """Commit a row to each partition of a topic."""
    with Stager(manager.log_root, "app", version, 0) as stager:
        for number in range(partitions):
            encoded = encode_columns(records(1, 100), batch_size=512 << 10)
            stager.append(TopicPartition(topic, number), encoded)
        staged = stager.finish(rows=partitions, checksum=0)
    manager.commits.commit(CommitIdentity("app", version), [staged])


def seconds(what: Callable[[], object]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def stages_ms(partitions: int) -> list[float]:
    """Return the ms of the first commit, a later one, retirement and closing."""
    with tempfile.TemporaryDirectory(prefix="streamlog-performance-") as name:
        manager = LogManager.open(f"{name}/log", create=True)
        manager.create_topic("t", partitions)
        first = seconds(lambda: commit(manager, 0, "t", partitions))
        later = seconds(
            lambda: [commit(manager, 1 + each, "t", partitions) for each in range(STEADY)]
        )
        retire = seconds(manager.commits.retire)
        close = seconds(manager.close)
        return [each * 1000 for each in (first, later / STEADY, retire, close)]


def after_topics_ms() -> tuple[float, float]:
    """Return the ms of a commit after many topics were created and deleted, and of one before."""
    with (
        tempfile.TemporaryDirectory(prefix="streamlog-performance-") as name,
        LogManager.open(f"{name}/log", create=True) as manager,
    ):
        manager.create_topic("t", 1)
        commit(manager, 0, "t", 1)
        before = seconds(lambda: [commit(manager, 1 + each, "t", 1) for each in range(STEADY)])
        version = 1 + STEADY
        for number in range(TOPICS):
            manager.create_topic(f"day-{number}", 1)
            commit(manager, version + number, f"day-{number}", 1)
            manager.delete_topic(f"day-{number}")
        version += TOPICS
        after = seconds(lambda: [commit(manager, version + each, "t", 1) for each in range(STEADY)])
        return after / STEADY * 1000, before / STEADY * 1000


def compare_widths() -> Iterator[Comparison]:
    """Yield each stage by number of partitions, then a commit after many topics were deleted."""
    stages_ms(1)  # compiles the kernels
    one = stages_ms(1)
    for width in WIDTHS:
        for stage, ours, peer in zip(STAGES, stages_ms(width), one, strict=True):
            yield Comparison(
                f"commit.{width}p.{stage}", ours, peer, "1 partition", "ms", higher_is_better=False
            )
    yield Comparison(
        f"commit.after{TOPICS}topics",
        *after_topics_ms(),
        "before them",
        "ms",
        higher_is_better=False,
    )
