"""Commits to a replica set on real directories, over the loss of the root that leads them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.stage import StagePlan, stage_rows
from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_table
from streamlog.clock import SystemClock
from streamlog.commits.commit_log import CommitOutcome
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import StagedFile, Stager
from streamlog.errors import UnavailableError
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.records.record import CompressionType
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.root.manager import LogManager
from streamlog.root.replica_roots import add_root
from streamlog.root.replica_set import ReplicaSet
from streamlog.root.roots import make_root
from streamlog.root.set_commits import staging_roots
from streamlog.topic import TopicPartition
from tests.support.commits import batches_of

NAMES = ("a", "b", "c")


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in NAMES]
    make_root(LogRoot.at(paths[0]))
    for path in paths[1:]:
        add_root(LogRoot.at(paths[0]), path)
    with LogManager.open(paths[0]) as manager:
        manager.create_topic("t", 2, replication_factor=3)
    return paths


def write(root: Path, version: int) -> bool:
    rows = pa.table(
        {
            "value": [f"{version}-{row}".encode() for row in range(4)],
            "partition": pa.array([row % 2 for row in range(4)], pa.int32()),
        }
    )
    return write_table(rows, root, "t", txn_app_id="app", txn_version=version).is_replay


def commit(manager: LogManager, version: int) -> CommitOutcome:
    with Stager(manager.log_root, "app/t", version, 0) as stager:
        for partition in (0, 1):
            rows = [f"{version}-{2 * row + partition}".encode() for row in range(2)]
            stager.append(TopicPartition("t", partition), batches_of(rows))
        staged = stager.finish(rows=4, checksum=0)
    return manager.commits.commit(CommitIdentity("app/t", version), [staged])


def values(root: Path) -> list[str]:
    found = []
    for partition in (0, 1):
        found += read_table(root / f"t-{partition}").column("value").to_pylist()
    return sorted(value.decode() for value in found)


def state(root: Path) -> PartitionState:
    found = RootSet.load(LogRoot.at(root))
    assert found is not None
    return found.register(COMMITS).read()


def expected(*versions: int) -> list[str]:
    return sorted(f"{version}-{row}" for version in versions for row in range(4))


def test_a_commit_is_prepared_in_all_roots(roots: list[Path]) -> None:
    assert not write(roots[0], 0)
    assert write(roots[1], 0), "the same version through another root is a replay"
    for root in roots:
        assert values(root) == expected(0)
    prepared = [sorted(p.name for p in (root / ".streamlog/replication/prepared").iterdir())
                for root in roots[1:]]  # fmt: skip
    assert prepared[0] == prepared[1] and len(prepared[0]) == 2, "the decision, and the epoch"


def test_commits_go_on_without_the_leaders_root(roots: list[Path], tmp_path: Path) -> None:
    write(roots[0], 0)
    roots[0].rename(tmp_path / "gone")
    assert write(roots[1], 0), "decided before the loss"
    assert not write(roots[1], 1)
    assert state(roots[1]).leader != 1
    for root in roots[1:]:
        assert values(root) == expected(0, 1)


def test_a_running_writer_goes_on_when_the_leaders_root_disappears(
    roots: list[Path], tmp_path: Path
) -> None:
    with LogManager.open(roots[1]) as manager:
        for version in range(4):
            if version == 2:
                roots[0].rename(tmp_path / "gone")
            outcome = commit(manager, version)
            assert not outcome.is_replay
    for root in roots[1:]:
        assert values(root) == expected(0, 1, 2, 3)


def test_a_root_that_returns_follows_the_commits_again(roots: list[Path], tmp_path: Path) -> None:
    write(roots[0], 0)
    roots[2].rename(tmp_path / "away")
    write(roots[0], 1)
    assert state(roots[0]).isr == (1, 2)
    (tmp_path / "away").rename(roots[2])
    write(roots[0], 2)
    assert state(roots[0]).isr == (1, 2, 3)
    write(roots[0], 3)
    for root in roots:
        assert values(root) == expected(0, 1, 2, 3)


def test_a_former_leader_is_brought_back_without_a_commit(
    roots: list[Path], tmp_path: Path
) -> None:
    with LogManager.open(roots[0]) as manager:
        commit(manager, 0)
        shutil.copytree(roots[0], tmp_path / "after a power cut")
    roots[0].rename(tmp_path / "gone")
    write(roots[1], 1)
    (tmp_path / "after a power cut").rename(roots[0])
    for log in roots[0].glob("t-*/*.log"):  # decisions are synced, logs are not
        log.write_bytes(b"")
    for state_file in roots[0].glob(".streamlog/locks/t-*"):
        state_file.unlink()
    with ReplicaSet.open(roots[1]) as replica_set:
        assert replica_set.replicate_once() == {}
    assert state(roots[1]).isr == (2, 3, 1)
    for root in roots:
        assert values(root) == expected(0, 1)
    assert not [*(roots[0] / ".streamlog/commits/pending").iterdir()], "prepared instead"


def test_a_set_without_writers_elects_a_leader_of_its_commits(roots: list[Path]) -> None:
    write(roots[0], 0)
    roots[0].rename(roots[0].with_name("away"))
    with ReplicaSet.open(roots[1]) as replica_set:
        assert replica_set.replicate_once() == {}
    assert (state(roots[1]).leader, state(roots[1]).isr) == (2, (2, 3))
    assert [*(roots[1] / ".streamlog/commits/pending").iterdir()], "decided there"


def test_a_table_is_written_without_the_first_of_several_roots(
    roots: list[Path], tmp_path: Path
) -> None:
    write(roots[0], 0)
    roots[0].rename(tmp_path / "gone")
    for text in (roots, ",".join(map(str, roots))):
        write_table(pa.table({"value": [b"more"], "partition": [0]}), text, "t")
    for root in roots[1:]:
        assert values(root) == [*expected(0), "more", "more"]


def rows_losing(root: Path, *, size: int) -> Iterator[pa.RecordBatch]:
    """Yield three batches; a root disappears after the second."""
    for number in range(3):
        yield pa.record_batch({"value": [b"%d" % number * size]})
        if number == 1:
            root.rename(f"{root}-gone")


def stage(roots: list[Path], batches: Iterator[pa.RecordBatch]) -> StagedFile:
    plan = StagePlan(
        roots=staging_roots([str(roots[0])]),
        schema=SinkSchema(
            value=0, key=None, headers=None, topic=None, partition=None, timestamp=None
        ),
        topic="t",
        compression=CompressionType.NONE,
        has_checksum=False,
    )
    fs, clock = LocalFileSystem(), SystemClock()
    return stage_rows(fs, clock, plan, batches, app="app/t", version=0, task=0)


def test_a_task_whose_root_disappears_stages_its_rows_in_the_next_one(roots: list[Path]) -> None:
    staged = stage(roots, rows_losing(roots[0], size=1))
    with LogManager.open(roots) as manager:
        manager.commits.commit(CommitIdentity("app/t", 0), [staged])
    for root in roots[1:]:
        assert values(root) == ["0", "1", "2"]


def test_a_task_with_too_many_rows_to_keep_fails_to_be_run_again(
    roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlog.arrow.stage._KEPT_BYTES", 1000)
    with pytest.raises(UnavailableError, match="too many rows"):
        stage(roots, rows_losing(roots[0], size=600))
    assert stage(roots[1:], iter([pa.record_batch({"value": [b"again"]})])).rows == 1


def test_staged_files_outlive_the_root_of_their_task(roots: list[Path], tmp_path: Path) -> None:
    staged = stage(roots, iter([pa.record_batch({"value": [b"kept"]})]))
    roots[0].rename(tmp_path / "gone")
    with LogManager.open(roots) as manager:
        manager.commits.commit(CommitIdentity("app/t", 0), [staged])
    assert values(roots[2]) == ["kept"]


def test_a_commit_finds_files_staged_outside_of_its_isr(roots: list[Path], tmp_path: Path) -> None:
    write(roots[0], 0)
    roots[2].rename(tmp_path / "away")
    write(roots[0], 1)
    with Stager(LogRoot.at(tmp_path / "away"), "app/t", 2, 0) as stager:
        stager.append(TopicPartition("t", 0), batches_of([b"late"]))
        staged = stager.finish(rows=1, checksum=0)
    with LogManager.open(roots) as manager:
        commits = manager.commits
        assert commits.last_version("app/t") == 1
        (tmp_path / "away").rename(roots[2])
        assert state(roots[0]).isr == (1, 2)
        commits.commit(CommitIdentity("app/t", 2), [staged])
    assert values(roots[0]) == [*expected(0, 1), "late"]
