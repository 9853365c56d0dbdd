"""The JVM is killed with SIGKILL at each step of a commit; nothing is lost, nothing is twice."""

from pathlib import Path

import pytest

from streamlog.commits.staging import is_staged_name
from tests.support.killing_job import POINTS, run_job
from tests.support.sink import Checkpoint, sorted_values

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("way", ["writer", "function"])
def test_a_jvm_killed_at_every_step_loses_nothing_and_repeats_nothing(root, tmp_path, way):
    root.create("in").create("out", partitions=2)
    checkpoint = Checkpoint(tmp_path / "cp")
    rows = [f"row {number:03d}" for number in range(12)]
    root.append("in", 0, rows)
    points = POINTS if way == "writer" else POINTS[1:]

    for batch, point in enumerate(points):
        run_job(root.path, checkpoint, way, point, batch)
        assert checkpoint.batches("offsets") == list(range(batch + 1))
        assert checkpoint.batches("commits") == list(range(batch))
        if point == "applied":
            assert len(sorted_values(root.path, "out")) == 2 * (batch + 1)
    run_job(root.path, checkpoint, way)

    assert sorted_values(root.path, "out") == rows
    assert checkpoint.batches("commits") == list(range(6))
    assert root.manager.commits.last_version(f"{checkpoint.query_id}/out") == 5


def test_a_worker_killed_after_staging_leaves_a_file_that_nobody_names(root, tmp_path):
    root.create("in").create("out", partitions=2)
    checkpoint = Checkpoint(tmp_path / "cp")
    rows = [f"row {number:03d}" for number in range(6)]
    root.append("in", 0, rows)

    run_job(root.path, checkpoint, "writer", "attempt", 1)

    assert sorted_values(root.path, "out") == rows
    named = {file.name for each in root.manager.commits.pending() for file in each.files}
    assert len(named) == 3
    assert len(staged_files(root) - named) == 1
    root.manager.commits.retire()
    assert staged_files(root) == set()


def staged_files(root):
    """Return the names of all staged files."""
    below = Path(root.path, ".streamlog/staging").rglob("*")
    return {path.name for path in below if is_staged_name(path.name)}
