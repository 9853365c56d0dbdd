"""A copy through a real S3 server, by the command."""

from pathlib import Path

from streamlog import LogManager, Record, read_table
from tests.support.cli import ok, streamlog
from tests.support.s3 import S3Server


def test_an_archive_in_s3_is_restored(s3: S3Server, tmp_path: Path) -> None:
    root, url = tmp_path / "root", s3.new_bucket()
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 2, {"internal.segment.bytes": 20_000})
        for number in (0, 1):
            log = manager.log("orders", number)
            for at in range(0, 500, 50):
                log.append([Record(None, b"%d" % n * 30, timestamp=n) for n in range(at, at + 50)])
    done = ok("copy", root, url)
    assert [(row["partition"], row["endOffset"]) for row in done.rows] == [(0, 500), (1, 500)]
    assert "checked at the target" in done.error
    s3.requests.clear()
    assert [row["batches"] for row in ok("copy", root, url).rows] == [0, 0]
    assert len(s3.requests) < 20  # it looks at the last batch of each partition
    ok("copy", url, tmp_path / "back", "--to-time", "319")
    table = read_table(str(tmp_path / "back"), topic="orders")
    assert table.num_rows == 2 * 320
    assert [row["value"] for row in ok("cat", f"{url}/orders-1", "-o", "-1").rows] == ["499" * 30]
    refused = streamlog("copy", tmp_path / "back", url)
    assert refused.code == 2 and "ahead of the source" in refused.error
    wrong = streamlog("copy", root, url, "--to-time", "yesterday")
    assert wrong.code == 2 and "--to-time" in wrong.error
