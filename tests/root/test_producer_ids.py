"""Producer ids are assigned once, whatever ends in between and whoever else assigns."""

import threading
from pathlib import Path

import pytest

from streamlog import LogManager
from streamlog.errors import CorruptDataError, StorageError
from streamlog.fs.log_root import LogRoot
from streamlog.root.producer_ids import ProducerIds, read_next_producer_id


@pytest.fixture
def root(tmp_path: Path) -> LogRoot:
    with LogManager.open(tmp_path / "root", create=True) as manager:
        return manager.log_root


def test_processes_of_one_root_take_other_blocks(root: LogRoot) -> None:
    assert read_next_producer_id(root) is None
    handles = [ProducerIds(root, lambda: 5) for _ in range(3)]
    seen = [each.assign() for _ in range(1500) for each in handles]
    assert len(set(seen)) == len(seen)
    assert min(seen) == 5
    assert (read_next_producer_id(root) or 0) > max(seen)


def test_threads_get_different_ids(root: LogRoot) -> None:
    ids, seen = ProducerIds(root, lambda: 0), []
    threads = [
        threading.Thread(target=lambda: seen.extend(ids.assign() for _ in range(900)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(3600))


def test_ids_of_the_logs_are_left_out_once_a_block_is_due(root: LogRoot) -> None:
    assert ProducerIds(root, lambda: 0).assign() == 0
    assert ProducerIds(root, lambda: 70_000).assign() == 70_000
    assert ProducerIds(root, lambda: 0).assign() == 71_000


def test_nothing_is_assigned_from_a_damaged_file(root: LogRoot) -> None:
    path = Path(root.producer_ids)
    path.write_text("12x\n")
    with pytest.raises(CorruptDataError, match="no number"):
        ProducerIds(root, lambda: 0).assign()
    path.write_text("40\n")
    assert ProducerIds(root, lambda: 0).assign() == 40


def test_nothing_is_assigned_before_the_block_is_durable(root: LogRoot) -> None:
    ids = ProducerIds(root, lambda: 0)
    Path(root.producer_ids).mkdir()
    with pytest.raises(StorageError):
        ids.assign()
    Path(root.producer_ids).rmdir()
    assert ids.assign() == 0
