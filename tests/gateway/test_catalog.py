"""What it costs to know the topics of a root again after one was created."""

from pathlib import Path

from streamlog import LogManager
from streamlog.clock import ManualClock
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.gateway.catalog import Catalog


class _ListingFileSystem(LocalFileSystem):
    """Counts how often a directory is listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = 0

    def list(self, path: str) -> list[str]:
        self.listed += 1
        return super().list(path)


def test_a_change_lists_the_root_once_however_many_topics_it_has(tmp_path: Path) -> None:
    with LogManager.open(tmp_path / "root", create=True) as manager:
        for number in range(3):
            manager.create_topic(f"topic-{number}", 2)
        fs = _ListingFileSystem()
        catalog = Catalog(LogRoot.at(tmp_path / "root", fs=fs))
        assert len(catalog.topics()) == 3
        few = fs.listed
        for number in range(3, 20):
            manager.create_topic(f"topic-{number}", 2)
        fs.listed = 0
        found = catalog.topics()
        assert fs.listed <= few
    assert [each.partitions for each in found.values()] == [(0, 1)] * 20
    assert len({each.topic_id for each in found.values()}) == 20


def test_recent_topics_are_looked_for_again_where_they_are_missing_or_after_a_while(
    tmp_path: Path,
) -> None:
    root, clock = tmp_path / "root", ManualClock(1_700_000_000_000)
    catalog = Catalog(LogRoot.at(root, clock=clock))
    with LogManager.open(root, create=True) as manager:
        first = manager.create_topic("a", 1).topic_id
        assert catalog.recent_topic("a") == catalog.recent_topic_of_id(first) is not None
        second = manager.create_topic("b", 1).topic_id  # at the same time, by the clock
        assert catalog.recent_topic("b") == catalog.recent_topic_of_id(second) is not None
        manager.delete_topic("a")
        assert catalog.recent_topic("a") is not None
        clock.advance(5)
        assert catalog.recent_topic("a") is None
        manager.delete_topic("b")
        catalog.refresh()  # as who deletes it here does
        assert catalog.recent_topic_of_id(second) is None
