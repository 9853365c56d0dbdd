"""The JVM is killed with SIGKILL around a commit to an S3 server; each row arrives once."""

import pyarrow as pa
import pytest

from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_table
from streamlog.bucket.keys import STAGING
from streamlog.bucket.manager import BucketManager
from streamlog.bucket.places import shared_store
from tests.support.killing_job import run_job
from tests.support.object_root import root_at
from tests.support.sink import Checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = [f"row {number:03d}" for number in range(6)]


def values(url):
    return sorted(value.decode() for value in read_table(url, "out")["value"].to_pylist())


def test_a_jvm_killed_before_and_after_the_entry_loses_nothing_and_repeats_nothing(s3, tmp_path):
    url, checkpoint = s3.new_bucket(), Checkpoint(tmp_path / "cp")
    with BucketManager(url, create=True) as manager:
        manager.create_topic("in", 1)
        manager.create_topic("out", 2)
    write_table(pa.table({"value": ROWS}), url, "in")
    staged = len(list(shared_store(url).list(STAGING)))

    run_job(url, checkpoint, "writer", "collected", 0)
    assert values(url) == []
    assert len(list(shared_store(url).list(STAGING))) > staged  # no entry names these
    run_job(url, checkpoint, "writer", "applied", 1)
    assert values(url) == ROWS[:4]
    assert checkpoint.batches("offsets") == [0, 1]
    assert checkpoint.batches("commits") == [0]
    run_job(url, checkpoint, "writer")

    assert values(url) == ROWS
    assert checkpoint.batches("commits") == [0, 1, 2]
    assert root_at(url).state.apps[f"{checkpoint.query_id}/out"].standing.last_version == 2
