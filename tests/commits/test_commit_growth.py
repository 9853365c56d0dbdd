"""The cost of a commit does not grow with deleted topics or retired decisions."""

import threading

import pytest

from streamlog.commits.commit_log import CommitLog
from streamlog.commits.history import History, Ledgers
from streamlog.commits.pending import PendingDecisions
from streamlog.commits.retirement import RETIRE_AFTER_MS, BackgroundChores
from streamlog.fs.memory import MemoryFile
from streamlog.topic import TopicPartition
from tests.support.commits import APP, ROOT, Scene

DAYS = 180  # a ledger is full of fingerprints after a hundred


def newest_size(scene: Scene) -> int:
    """Return the size of the newest decision in bytes."""
    found = scene.fs.stat(f"{ROOT}/.streamlog/commits/pending/{scene.pending_names()[-1]}")
    assert found is not None
    return found.size


def ledger_size(scene: Scene) -> int:
    found = scene.fs.stat(f"{ROOT}/.streamlog/commits/ledgers/query-1%2Ft")
    return 0 if found is None else found.size


def history(scene: Scene) -> History:
    return History.load(APP, PendingDecisions(scene.log_root), Ledgers(scene.log_root))


def commit_a_day(scene: Scene, day: int) -> None:
    """Write to a topic of the day, and delete the previous day's."""
    scene.manager.create_topic(f"day-{day}", 2)
    staged = scene.stage(day, {0: [b"a"], 1: [b"b"]}, topic=f"day-{day}")
    scene.commit(day, [staged])
    if day:
        scene.manager.delete_topic(f"day-{day - 1}")


def test_a_topic_a_day_leaves_commits_as_small_as_they_were() -> None:
    scene = Scene()
    sizes = []
    for day in range(DAYS):
        commit_a_day(scene, day)
        sizes.append(newest_size(scene) if scene.pending_names() else 0)
        scene.clock.sleep_ms(RETIRE_AFTER_MS / 7)
        if day == 77:
            early_ledger = ledger_size(scene)
    first, last = (max(sizes[i : i + 20]) for i in (40, DAYS - 20))
    assert last <= first * 1.1
    assert ledger_size(scene) <= early_ledger * 1.6, "its hundred fingerprints fill up at first"
    partitions = history(scene).standing.partitions
    assert TopicPartition(f"day-{DAYS - 1}", 1) in partitions
    assert len(partitions) < 40


def test_topics_that_live_keep_their_standing() -> None:
    scene = Scene()
    scene.manager.create_topic("other", 1)
    scene.commit(0, [scene.stage(0, {0: [b"a", b"b"]}, topic="other")])
    scene.commits.retire()
    scene.commit(1)
    scene.commits.retire()
    at = history(scene).standing.partitions[TopicPartition("other", 0)]
    assert (at.next_sequence, at.end_offset, at.unretired_size) == (2, 2, 0)


def test_a_recreated_topic_starts_without_history() -> None:
    scene = Scene()
    scene.commit(0)
    old = history(scene).standing.partitions[TopicPartition("t", 0)].topic_id
    scene.commits.retire()
    scene.manager.delete_topic("t")
    scene.manager.create_topic("t", 2)
    scene.commit(1)
    scene.commits.retire()
    at = history(scene).standing.partitions[TopicPartition("t", 0)]
    assert at.topic_id != old
    assert at.next_sequence == at.end_offset == 6


def test_commits_made_during_a_retirement_do_not_count_what_it_retired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.manager.create_topic("gone", 1)
    chores = BackgroundChores()
    scene.commits = CommitLog(scene.log_root, open_logs=scene.manager.logs, chores=chores)
    scene.commit(0, [scene.stage(0, {0: [b"x"]}, topic="gone")])
    scene.commits.retire()
    scene.commit(1, [scene.stage(1, {0: [b"a"]})])
    scene.commit(2, [scene.stage(2, {0: [b"b"]})])
    is_syncing, may_end = threading.Event(), threading.Event()
    sync = MemoryFile.sync

    def slow(file: MemoryFile) -> None:
        if file.path.endswith("t-0/00000000000000000000.log"):
            is_syncing.set()
            assert may_end.wait(10)
        sync(file)

    def retire() -> None:
        scene.commits.retire()

    scene.manager.delete_topic("gone")
    monkeypatch.setattr(MemoryFile, "sync", slow)
    chores(retire)
    assert is_syncing.wait(10)
    scene.clock.sleep_ms(5)
    scene.commit(3, [scene.stage(3, {1: [b"c"]})])
    may_end.set()
    chores.wait()
    standing = history(scene).standing
    assert (standing.number, standing.unretired) == (4, 1)
    assert standing.unretired_since_ms == scene.clock.now_ms()
    assert {each: at.unretired_size > 0 for each, at in standing.partitions.items()} == {
        TopicPartition("t", 0): False,
        TopicPartition("t", 1): True,
    }
