"""`streamlog topics`."""

import os
from pathlib import Path

import pytest

from tests.support.cli import ok, start, streamlog


def test_create_creates_the_root_and_prints_the_topic(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "root"
    (row,) = ok("topics", "create", "a.b_c-1", "--partitions", 2, "--path", root).rows
    assert list(row) == ["topic", "topicId", "partitions", "offsets", "bytes"]
    assert (row["topic"], row["partitions"], row["offsets"]) == ("a.b_c-1", 2, 0)
    assert len(row["topicId"]) == 22


def test_create_without_a_number_makes_one_partition(root: Path) -> None:
    assert ok("topics", "create", "one", "--path", root).rows[0]["partitions"] == 1


def test_create_twice_is_refused_unless_asked_to_leave_it(root: Path) -> None:
    ran = streamlog("topics", "create", "orders", "--path", root)
    assert ran.code == 2
    assert "exists already" in ran.error
    again = ok("topics", "create", "orders", "--if-not-exists", "--path", root)
    assert again.rows[0]["partitions"] == 3


def test_a_refused_create_makes_no_root(tmp_path: Path) -> None:
    for bad in (("bad/name",), ("x", "--config", "no.such.key=1")):
        assert streamlog("topics", "create", *bad, "--path", tmp_path / "root").code == 2
    assert not (tmp_path / "root").exists()


def test_list_is_sorted(root: Path) -> None:
    for name in ("zebra", "apple"):
        ok("topics", "create", name, "--path", root)
    assert [row["topic"] for row in ok("topics", "list", "--path", root).rows] == [
        "apple",
        "orders",
        "zebra",
    ]


@pytest.mark.parametrize("verb", ["list", "describe"])
def test_a_topic_that_cannot_be_opened_hides_no_other(root: Path, verb: str) -> None:
    ok("topics", "create", "other", "--path", root)
    os.mkfifo(root / "orders-1" / f"{0:020}.log")
    ran = streamlog("topics", verb, "--path", root)
    assert [row["topic"] for row in ran.rows] == ["other"]
    assert ran.code == 1
    assert f"not a regular file in {root}/orders-1/{0:020}.log" in ran.error


def test_describe_prints_partitions_and_sources_of_settings(root: Path) -> None:
    ok("topics", "create", "x", "--config", "segment.bytes=1048576", "--path", root)
    ok("produce", "x", "--path", root, stdin=b"a\nb\n")
    (row,) = ok("topics", "describe", "x", "--path", root).rows
    (partition,) = row["partitions"]
    assert list(partition) == [
        *("partition", "leader", "leaderEpoch", "logStartOffset"),
        *("highWatermark", "logEndOffset", "segments", "bytes"),
        *("partitionEpoch", "replicas", "isr", "elr", "offlineReplicas", "logs"),
    ]
    assert (partition["logEndOffset"], partition["segments"]) == (2, 1)
    assert partition["bytes"] > 0
    configs = {each["name"]: each for each in row["configs"]}
    assert configs["segment.bytes"] == {
        "name": "segment.bytes",
        "value": "1048576",
        "source": "topic",
    }
    assert configs["retention.ms"]["source"] == "default"


def test_describe_as_a_table_shows_non_default_settings(root: Path) -> None:
    ok("topics", "create", "x", "--config", "cleanup.policy=compact", "--path", root)
    text = ok("topics", "describe", "x", "--path", root, "--format", "table").out.decode()
    assert text.splitlines()[1].split() == [
        *("PART", "LEADER", "EPOCH", "START", "HW", "END", "SEGS", "SIZE")
    ]
    assert "cleanup.policy  compact  topic" in text
    assert "retention.ms" not in text


def test_describe_without_a_name_is_of_all(root: Path) -> None:
    ok("topics", "create", "x", "--path", root)
    rows = ok("topics", "describe", "--path", root).rows
    assert [row["topic"] for row in rows] == ["orders", "x"]


def test_delete_removes_the_topic(root: Path) -> None:
    ok("topics", "delete", "orders", "--path", root)
    assert ok("topics", "list", "--path", root).rows == []
    assert streamlog("cat", "orders", "--path", root).code == 2


@pytest.mark.parametrize(("answer", "is_gone"), [(b"y\n", True), (b"n\n", False), (b"", False)])
def test_delete_asks_on_a_terminal(root: Path, answer: bytes, is_gone: bool) -> None:
    import pty

    terminal, end = pty.openpty()
    try:
        command = start("topics", "delete", "orders", "--path", root, stdin=end)
        os.write(terminal, answer or b"\x04")
        out, error = command.communicate(timeout=60)
    finally:
        os.close(terminal)
        os.close(end)
    assert b"delete topic orders" in error and b"partitions" in error
    assert (command.returncode == 0) == is_gone
    assert (ok("topics", "list", "--path", root).rows == []) == is_gone
    assert out == b""


def test_delete_does_not_ask_a_script_nor_with_yes(root: Path) -> None:
    assert "delete topic" not in ok("topics", "delete", "orders", "--yes", "--path", root).error


def test_nothing_but_logs_becomes_a_topic_or_is_deleted(tmp_path: Path) -> None:
    """A directory of somebody's files is neither taken over nor removed, not by a slip either."""
    (tmp_path / "backup-2").mkdir()
    (tmp_path / "backup-2" / "data.txt").write_text("a")
    ran = streamlog("--path", tmp_path, "topics", "create", "x")
    assert ran.code == 2
    assert "not empty" in ran.error and "--adopt" in ran.error
    assert os.listdir(tmp_path) == ["backup-2"]
    ok("--path", tmp_path, "topics", "create", "x", "--adopt")
    assert [row["topic"] for row in ok("--path", tmp_path, "topics", "list").rows] == ["x"]
    assert streamlog("--path", tmp_path, "topics", "delete", "backup").code == 2
    (tmp_path / "x-0" / "mine.txt").write_text("b")
    error = ok("--path", tmp_path, "topics", "delete", "x").error
    assert f"kept {tmp_path}/x-0/mine.txt" in error
    assert (tmp_path / "backup-2" / "data.txt").read_text() == "a"
    ran = streamlog("--path", tmp_path, "handover", "--to-kafka", "--dry-run")
    assert ran.code == 2
    assert "is not a partition of a topic" in ran.error and "topics" not in ran.error


def configs_of(root: Path, topic: str) -> dict[str, tuple[str, str]]:
    (row,) = ok("topics", "describe", topic, "--path", root).rows
    return {each["name"]: (each["value"], each["source"]) for each in row["configs"]}


def test_alter_sets_and_deletes_settings_and_adds_partitions(root: Path) -> None:
    ok("topics", "create", "x", "--config", "segment.ms=7", "--path", root)
    (row,) = ok(
        *("topics", "alter", "x", "--config", "retention.ms=60000", "--delete-config"),
        *("segment.ms", "--partitions", 3, "--path", root),
    ).rows
    assert row["partitions"] == 3
    configs = configs_of(root, "x")
    assert configs["retention.ms"] == ("60000", "topic")
    assert configs["segment.ms"] == ("604800000", "default")
    ok("produce", "x", "--partition", 2, "--path", root, stdin=b"a\n")


def test_alter_prints_the_source_of_a_setting_of_the_root(root: Path) -> None:
    with (root / ".streamlog" / "server.properties").open("a") as file:
        file.write("log.retention.hours=2\nlog.roll.hours=3\nlog.segment.bytes=1048577\n")
    configs = configs_of(root, "orders")
    assert configs["retention.ms"] == ("7200000", "server")
    assert configs["segment.ms"] == ("10800000", "server")
    assert configs["segment.bytes"] == ("1048577", "server")


def test_alter_reports_unsupported_changes(root: Path) -> None:
    def refused(*arguments: object) -> str:
        ran = streamlog("topics", "alter", "orders", *arguments, "--path", root)
        assert ran.code == 2
        return ran.error

    assert "retention.ms" in refused("--config", "retension.ms=1")
    assert "at least -1" in refused("--config", "retention.ms=-2")
    assert "does not set segment.ms" in refused("--delete-config", "segment.ms")
    assert "use retention.ms" in refused("--delete-config", "retension.ms")
    assert "can only grow" in refused("--partitions", 3)
    assert "nothing to alter" in refused()
    assert streamlog("topics", "alter", "none", "--partitions", 3, "--path", root).code == 2
