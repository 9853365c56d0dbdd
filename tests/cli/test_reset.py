"""`readers plan`, `reset` and `move`: dry runs, refusals, and checkpoints afterwards."""

import json
import os
import time
import urllib.request
from pathlib import Path

import pytest

from streamlog.store.remote import open_store
from tests.root.test_readers import checkpoint
from tests.support.cli import ok, streamlog
from tests.support.s3 import S3Server

OURS = json.dumps({"$topicIds": {"orders": "A" * 22}, "orders": {"0": 2, "1": 0, "2": 0}})


@pytest.fixture
def stopped(root: Path, tmp_path: Path) -> Path:
    """A checkpoint that was last changed an hour ago, of a query that has read two records."""
    ok("produce", "orders", "--partition", 0, "--path", root, stdin=b"a\nb\nc\nd\n")
    path = tmp_path / "audit"
    checkpoint(path, {0: [OURS], 1: [OURS]}, done=1)
    hour_ago = time.time() - 3600
    for each in (path, *path.rglob("*")):
        os.utime(each, (hour_ago, hour_ago))
    return path


def line(path: Path, number: int = 1) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(
        (path / "offsets" / str(number)).read_text().splitlines()[2]
    )
    return found


def test_a_plan_and_a_dry_run_change_nothing(root: Path, stopped: Path) -> None:
    for command in (("plan",), ("reset", "--dry-run")):
        ran = ok("readers", *command, stopped, "--to", "latest", "--path", root)
        assert ran.rows[0] == {
            "source": 0,
            "topic": "orders",
            "partition": 0,
            "currentOffset": 2,
            "newOffset": 4,
            "logStartOffset": 0,
            "logEndOffset": 4,
        }
        assert "nothing was changed" in ran.error
        assert line(stopped) == json.loads(OURS)
        assert sorted(os.listdir(stopped.parent)) == ["audit", "log root"]


@pytest.mark.parametrize("to", ["earliest", '{"orders":{"0":0}}', "1970-01-01", "-365d"])
def test_a_reset_keeps_the_former_checkpoint(root: Path, stopped: Path, to: str) -> None:
    ran = ok("readers", "reset", stopped, "--to", to, "--path", root)
    assert f"{stopped}.1" in ran.error
    assert line(stopped)["orders"] == {"0": 0, "1": 0, "2": 0}
    assert line(Path(f"{stopped}.1")) == json.loads(OURS)
    rows = ok("lag", "--checkpoint", stopped, "--path", root).rows
    assert [row["lag"] for row in rows] == [4, 0, 0]


def test_a_query_that_seems_to_run_is_refused(root: Path, stopped: Path) -> None:
    os.utime(stopped / "commits")
    ran = streamlog("readers", "reset", stopped, "--to", "earliest", "--path", root)
    assert (ran.code, "changed 0 s ago" in ran.error) == (2, True)
    ran = ok("readers", "plan", stopped, "--to", "earliest", "--path", root)
    assert "seems to run" in ran.error
    ok("readers", "reset", stopped, "--to", "earliest", "--stopped", "--path", root)


def test_an_unfinished_batch_is_refused(root: Path, stopped: Path) -> None:
    (stopped / "commits" / "1").unlink()
    arguments = ("readers", "reset", stopped, "--to", "earliest", "--stopped", "--path", root)
    ran = streamlog(*arguments)
    assert (ran.code, "--skip-unfinished" in ran.error) == (2, True)
    ok(*arguments, "--skip-unfinished")
    assert (stopped / "commits" / "1").exists()


def test_a_checkpoint_moves_to_kafka_and_back(root: Path, stopped: Path) -> None:
    ok("readers", "move", stopped, "--to", "kafka")
    plain = {"orders": {"0": 2, "1": 0, "2": 0}}
    assert [line(stopped, number) for number in (0, 1)] == [plain, plain]
    arguments = ("readers", "move", stopped, "--to", "streamlog", "--stopped")
    ok(*arguments, "--path", root)
    assert [line(stopped, number).keys() for number in (0, 1)] == [
        {"orders"},
        {"orders", "$topicId/orders", "$leaderEpochs/orders"},
    ]
    assert streamlog(*arguments).code == 2  # without a root
    assert Path(f"{stopped}.2").exists()


def test_a_checkpoint_in_an_object_store_is_reset(
    root: Path, stopped: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", s3.endpoint)
    url = s3.new_bucket()
    store = open_store(url)
    for file in stopped.rglob("*"):
        if file.is_file():
            store.put(f"audit/{file.relative_to(stopped)}", file.read_bytes())
    marker = f"{s3.endpoint}/{url.removeprefix('s3://')}/audit/offsets/"  # of Hadoop
    urllib.request.urlopen(urllib.request.Request(marker, b"", method="PUT")).close()
    arguments = ("readers", "reset", f"{url}/audit", "--to", "earliest", "--path", root)
    ran = streamlog(*arguments)
    assert (ran.code, "its checkpoint changed" in ran.error) == (2, True)
    ran = ok(*arguments, "--stopped")
    assert f"{url}/audit.1" in ran.error
    rows = ok("lag", "--checkpoint", f"{url}/audit", "--path", root).rows
    assert [row["lag"] for row in rows] == [4, 0, 0]
    before = {file: (stopped / file).read_bytes() for file in ("offsets/1", "metadata")}
    assert before == {file: store.get(f"audit.1/{file}", max_size=9999) for file in before}
    ran = streamlog("readers", "reset", "s3://bucket", "--to", "earliest", "--path", root)
    assert (ran.code, "a whole bucket cannot be reset" in ran.error) == (2, True)


@pytest.mark.parametrize("to", ["soon", "", "{", '{"orders":{"9":1}}', '{"orders":{"0":5}}', "[]"])
def test_an_invalid_target_is_refused(root: Path, stopped: Path, to: str) -> None:
    ran = streamlog("readers", "reset", stopped, "--to", to, "--path", root)
    assert (ran.code, ran.rows) == (2, [])
    assert line(stopped) == json.loads(OURS)
