"""The command as a process: pipes, signals, terminals."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from streamlog.fs.log_root import LogRoot
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.root.readers import write_progress
from tests.support.cli import ok, start

LINES = b"".join(b"%06d %s\n" % (i, b"x" * 90) for i in range(50_000))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose topic `many` fills any pipe."""
    path = tmp_path_factory.mktemp("process") / "root"
    ok("topics", "create", "many", "--path", path)
    ok("produce", "many", "--path", path, stdin=LINES)
    return path


def finish(process: "subprocess.Popen[bytes]") -> tuple[int, bytes, bytes]:
    out, error = process.communicate(timeout=60)
    return process.returncode, out, error


def test_a_closed_pipe_ends_in_silence(root: Path) -> None:
    process = start("cat", "many", "--path", root)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.stdout.close()
    assert json.loads(first)["offset"] == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0


def test_ctrl_c_while_following_exits_with_130_and_has_shown_all(root: Path) -> None:
    process = start("cat", "many", "-o", "-1", "-f", "--path", root)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["value"].startswith("049999")
    ok("produce", "many", "--path", root, stdin=b"later\n")
    assert json.loads(process.stdout.readline())["value"] == "later"
    process.send_signal(signal.SIGINT)
    code, rest, error = finish(process)
    assert (code, rest, error) == (130, b"", b"")


def test_following_stops_after_count(root: Path) -> None:
    process = start("cat", "many", "-o", "end", "-f", "-c", "2", "--path", root)
    for i in range(20):
        if process.poll() is not None:
            break
        ok("produce", "many", "--path", root, stdin=b"more %d\n" % i)
        select.select([], [], [], 0.5)
    code, out, _ = finish(process)
    assert code == 0
    assert len(out.splitlines()) == 2


def test_ctrl_c_while_producing_keeps_and_reports_the_appended_records(root: Path) -> None:
    ok("topics", "create", "cut", "--path", root)
    process = start("produce", "cut", "--path", root)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nhalf a li")
    process.stdin.flush()
    while not ok("cat", "cut", "--path", root).rows:  # a pause hands the lines over
        select.select([], [], [], 0.05)
    process.send_signal(signal.SIGINT)
    code, out, error = finish(process)
    assert (code, error) == (130, b"")
    assert json.loads(out)["count"] == 2


def test_cat_pipes_into_produce(root: Path) -> None:
    ok("topics", "create", "copy", "--partitions", "2", "--path", root)
    source = start("cat", "many", "-c", "30000", "--path", root)
    target = start(
        "produce", "copy", "--format", "ndjson", "--path", root, "-p", 1, stdin=source.stdout
    )
    code, out, error = finish(target)
    assert (code, error) == (0, b"")
    assert json.loads(out) == {
        "topic": "copy",
        "partition": 1,
        "baseOffset": 0,
        "lastOffset": 29_999,
        "count": 30_000,
    }
    source.communicate()


def on_terminal(*arguments: object, columns: int = 100) -> tuple[int, str]:
    """Run the command on a terminal; return its exit code and all it showed."""
    outside, inside = pty.openpty()
    environment = {**os.environ, "STREAMLOG_PATH": "", "COLUMNS": str(columns)}
    process = start(*arguments, stdin=inside, stdout=inside, stderr=inside, env=environment)
    os.close(inside)
    shown = b""
    while True:
        try:
            part = os.read(outside, 65536)
        except OSError:  # the last process that had it open is gone
            break
        if not part:
            break
        shown += part
    os.close(outside)
    return process.wait(timeout=60), shown.decode()


def test_on_a_terminal_data_is_a_table(root: Path) -> None:
    code, shown = on_terminal("topics", "list", "--path", root)
    assert code == 0
    assert "PARTITIONS" in shown
    assert "MiB" in shown
    assert "{" not in shown


def test_on_a_terminal_lag_is_a_table_that_is_replaced_in_place(root: Path) -> None:
    ok("topics", "create", "orders", "--path", root)
    offsets = {"orders": {"0": 0}}
    write_progress(LogRoot.at(str(root)), "billing", offsets, now_ms=time.time_ns() // 1_000_000)
    ok("produce", "orders", "--partition", 0, "--path", root, stdin=b"one\ntwo\n")
    again = ("lag", "--watch", "--every", "100ms", "--count", 2, "--path", root)
    code, shown = on_terminal(*again)
    assert (code, "0 ms" in shown) == (0, True)
    assert shown.count("LOG-END-OFFSET") >= 2
    assert "\x1b[1A" in shown  # up: the second table is where the first one was


def test_on_a_terminal_reassign_shows_what_it_copies(tmp_path: Path) -> None:
    first = tmp_path / "a"
    for name in "bc":
        ok("replicas", "add", tmp_path / name, "--path", first)
    ok("topics", "create", "copied", "--replication-factor", 2, "--path", first)
    ok("produce", "copied", "--path", first, stdin=b"x\n" * 1000)
    code, shown = on_terminal("reassign", "copied:0", "--replicas", "1,9", "--path", first)
    assert code == 2
    assert "copying" not in shown
    code, shown = on_terminal("reassign", "copied:0", "--replicas", "1,3", "--path", first)
    assert code == 0
    assert "copying copied-0" in shown
    ran = ok("reassign", "copied:0", "--replicas", "1,2", "--path", first)
    assert ran.error == ""


def test_on_a_terminal_long_values_are_shortened(root: Path) -> None:
    code, shown = on_terminal("cat", "many", "-c", "1", "--path", root)
    assert code == 0
    assert "000000 xxx" in shown
    assert "x…" in shown
    assert "x" * 90 not in shown


def test_ndjson_on_a_terminal_on_request(root: Path) -> None:
    code, shown = on_terminal("cat", "many", "-c", "1", "--format", "ndjson", "--path", root)
    assert code == 0
    assert json.loads(shown)["offset"] == 0


def test_a_description_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Offsets of ten digits: no title and no number is broken into lines."""
    ok("topics", "create", "x", "--config", "cleanup.policy=compact,delete", "--path", tmp_path)
    offset = 1_234_567_890
    with PartitionLog.open(tmp_path / "x-0") as log:
        builder = BatchBuilder(base_offset=offset)
        builder.append(Record(b"k", b"v"))
        log.append_as_follower(builder.build())
    code, shown = on_terminal("topics", "describe", "x", "--path", tmp_path, columns=80)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80, shown
    rows = [line.split() for line in lines]
    assert ["PART", "LEADER", "EPOCH", "START", "HW", "END", "SEGS", "SIZE"] in rows
    assert [row.count(str(offset + 1)) for row in rows if row[:1] == ["0"]] == [2]
    assert ["cleanup.policy", "compact,delete", "topic"] in rows
