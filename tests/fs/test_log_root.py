"""Every path of a log root: none collides with another, and long names fit in a file name."""

import os
from pathlib import Path
from random import Random

import pytest

from streamlog.clock import ManualClock, SystemClock
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import CHECKPOINTS, LogRoot, topic_of_properties
from streamlog.fs.memory import MemoryFileSystem
from streamlog.fs.names import NAME_SIZE_MAX, is_temporary
from streamlog.topic import MAX_NAME_LENGTH, TopicPartition

LONG = "t" * MAX_NAME_LENGTH
ROOT = LogRoot("/logs", MemoryFileSystem(), ManualClock(), Random(1))


def paths(topic: str, app: str) -> list[str]:
    """Return the path of everything that one root may hold for a topic and an app."""
    properties = [
        getattr(ROOT, name) for name, value in vars(LogRoot).items() if isinstance(value, property)
    ]
    zero = TopicPartition(topic, 0)
    return [
        *properties,
        *map(ROOT.checkpoint, CHECKPOINTS),
        *(ROOT.partition(zero), ROOT.partition_lock(zero), ROOT.maintenance_lock(zero)),
        *(ROOT.topic_properties(topic), ROOT.deleted_topic(topic)),
        *(ROOT.app_lock(app), ROOT.staged_by(app), ROOT.ledger(app), ROOT.reader(app)),
    ]


@pytest.mark.parametrize("name", ["orders", "root", "apps", "t~", "commits", "a.maintenance", LONG])
def test_no_two_things_share_a_path(name: str) -> None:
    found = paths(name, name)
    assert len(found) > 35
    assert len(set(found)) == len(found)
    assert all(path.startswith(("/logs/", "/logs.streamlog")) for path in found)


def test_locks_of_a_partition_called_like_one_of_the_roots_are_others() -> None:
    roots = {ROOT.checkpoints_lock, ROOT.topics_lock, ROOT.writers_lock, ROOT.readers_lock}
    roots |= {ROOT.maintainer_lock, ROOT.app_locks}
    for name in ("root", "topics", "open", "readers", "maintenance", "apps"):
        one = TopicPartition(name, 0)
        assert not {ROOT.partition_lock(one), ROOT.maintenance_lock(one)} & roots


def test_names_of_the_longest_topic_fit() -> None:
    longest = TopicPartition(LONG, 2**31 - 1)
    for path in (
        ROOT.topic_properties(LONG),
        ROOT.deleted_topic(LONG),
        ROOT.partition_lock(longest),
        ROOT.maintenance_lock(longest),
    ):
        assert all(len(part) <= NAME_SIZE_MAX for part in path.split("/"))
    assert ROOT.maintenance_lock(longest).endswith(".maintenance")


@pytest.mark.parametrize("length", [1, 199, 200, 201, MAX_NAME_LENGTH])
def test_the_name_of_a_settings_file_gives_back_the_topic(length: int) -> None:
    topic = "t" * length
    path = ROOT.topic_properties(topic).removeprefix(f"{ROOT.topics}/")
    directory, name = os.path.split(path)
    assert topic_of_properties(directory, name) == topic
    assert topic_of_properties(directory, f"{name}.tmp") is None
    deleted = os.path.basename(ROOT.deleted_topic(topic))
    assert topic_of_properties(directory, deleted) is None


def test_probes_are_temporary_files_of_their_own() -> None:
    one, other = ROOT.probe(), ROOT.probe()
    assert one != other
    assert is_temporary(os.path.basename(one))
    assert os.path.dirname(one) == ROOT.state


def test_what_is_not_passed_in_is_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = LogRoot.at("logs")
    assert found.path == str(tmp_path / "logs")
    assert isinstance(found.fs, LocalFileSystem)
    assert isinstance(found.clock, SystemClock)
    assert LogRoot.at("/logs", fs=ROOT.fs, clock=ROOT.clock, random=ROOT.random) == ROOT
