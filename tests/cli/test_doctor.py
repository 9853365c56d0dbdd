"""`streamlog doctor`: each fault is found, and its cure can be typed."""

import errno
import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from streamlog.cli import doctor, root_checkup
from streamlog.cli.root_checkup import (
    FAIL,
    OK,
    WARN,
    CheckupFinding,
    check_access,
    check_look_alikes,
    check_promises,
)
from streamlog.clock import ManualClock
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from tests.support.cli import streamlog


def root_findings(root: Path) -> dict[str, CheckupFinding]:
    found = list(root_checkup.check_root_at(LogRoot.at(root)))
    return {finding.check: finding for finding in found}


def make_python(directory: Path, answer: dict[str, object]) -> str:
    """Make an executable that answers the probe as some Python would."""
    path = directory / "python3"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    path.chmod(0o755)
    return str(path)


def python_findings(
    monkeypatch: pytest.MonkeyPatch, directory: Path, **facts: object
) -> dict[str, CheckupFinding]:
    answer = {
        "executable": "/opt/python3",
        "version": list(sys.version_info[:3]),
        "broken": {},
        "streamlog": "0.1.0",
        "autoload": "StreamLogDataSource",
        "pyspark": "4.2.0",
        "pyarrow": "20",
        **facts,
    }
    known = {key: value for key, value in answer.items() if value != "absent"}
    monkeypatch.setenv("PYSPARK_PYTHON", make_python(directory, known))
    return {finding.check: finding for finding in doctor._check_spark_python()}


def test_command_prints_every_check_and_cures(root: Path) -> None:
    ran = streamlog("doctor", "--path", root, PYSPARK_PYTHON=sys.executable)
    rows = {row["check"]: row for row in ran.rows}
    assert {"python", "packages", "spark's python", "java", "root", "writing"} <= set(rows)
    assert list(ran.rows[0]) == ["check", "status", "found", "cure"]
    assert all(row["cure"] for row in ran.rows if row["status"] == FAIL)
    assert ran.code == int(any(row["status"] == FAIL for row in ran.rows))
    assert rows["spark's python"]["status"] == OK


def test_each_of_several_roots_is_checked(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "nowhere"
    ran = streamlog("doctor", "--path", f"{root},{other}", PYSPARK_PYTHON=sys.executable)
    assert ran.code == 1
    found = {(row["root"], row["check"]): row["status"] for row in ran.rows}
    assert found[str(root), "root"] == OK
    assert found[str(other), "root"] == FAIL
    assert (None, "python") in found
    table = streamlog("doctor", "--path", f"{root},{other}", "--format", "table").out.decode()
    assert table.startswith("ROOT")


def test_a_python_that_does_not_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nonexistent/python3")
    (found,) = doctor._check_spark_python()
    assert found.status == FAIL
    assert found.cure == f"export PYSPARK_PYTHON={shlex.quote(sys.executable)}"


def test_sound_python_is_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = python_findings(monkeypatch, tmp_path)
    assert {finding.status for finding in found.values()} == {OK}
    assert set(found) == {"spark's python", "auto-registration", "neighbours"}


@pytest.mark.parametrize(
    ("facts", "check", "told"),
    [
        ({"streamlog": "absent", "streamlog_error": "gone"}, "spark's python", "cannot import"),
        ({"version": [3, 8, 0]}, "spark's python", "differs from this Python"),
        ({"pyarrow": None}, "spark's python", "pyarrow"),
        ({"autoload": "absent"}, "auto-registration", "cannot be imported there"),
        ({"broken": {"pyspark_bad": "ImportError()"}}, "neighbours", "pyspark_bad"),
    ],
)
def test_faults_of_sparks_python_are_found(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    facts: dict[str, object],
    check: str,
    told: str,
) -> None:
    found = python_findings(monkeypatch, tmp_path, **facts)[check]
    assert found.status == FAIL
    assert told in found.found
    assert found.cure


@pytest.mark.parametrize(
    ("version", "status"),
    [("1.8.0_392", FAIL), ("11.0.2", FAIL), ("17.0.15", OK), ("21", OK), ("strange", FAIL)],
)
def test_java_is_asked_for_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, status: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (found,) = doctor._check_java()
    assert found.status == status


def test_missing_java_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (found,) = doctor._check_java()
    assert found.status == FAIL
    assert "openjdk-17" in str(found.cure)


def test_a_strangers_streamlog_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", {"streamlog": "3.0.0"}.get)
    (found,) = doctor._check_strangers()
    assert found.status == FAIL
    assert "uninstall -y streamlog" in str(found.cure)


@pytest.mark.parametrize(
    ("pyspark", "pandas", "expected"),
    [
        (None, None, {"pyspark": WARN}),
        ("4.0.1", "2.3.3", {"pyspark": FAIL}),
        ("4.2.0", "2.3.3", {"pyspark": OK}),
        ("4.2.0", "3.1.1", {"pyspark": OK, "pandas": WARN}),
        ("4.3.0", None, {"pyspark": OK, "pandas": WARN}),
    ],
)
def test_versions_of_pyspark_and_pandas_are_judged(
    monkeypatch: pytest.MonkeyPatch,
    pyspark: str | None,
    pandas: str | None,
    expected: dict[str, str],
) -> None:
    monkeypatch.setattr(doctor, "_version", {"pyspark": pyspark, "pandas": pandas}.get)
    assert {each.check: each.status for each in doctor._check_pyspark()} == expected


def test_a_sound_root_is_fine_and_left_as_it_was(root: Path) -> None:
    before = sorted(root.rglob("*"))
    found = root_findings(root)
    assert found["root"].found.endswith("topics: 1, partitions: 3")
    assert found["writing"].status == OK
    assert sorted(root.rglob("*")) == before


def test_a_missing_root_names_the_command_that_makes_it(tmp_path: Path) -> None:
    found = root_findings(tmp_path / "nowhere")["root"]
    assert found.status == FAIL
    assert "topics create" in str(found.cure)


def test_a_foreign_root_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    found = root_findings(tmp_path)
    assert "read-only" in found["root"].found
    assert "writing" not in found


def test_leftovers_are_named(root: Path) -> None:
    (root / "orders-1" / f"{0:020}.log.torn-1").write_bytes(b"cut")
    found = root_findings(root)["leftovers"]
    assert found.status == WARN
    assert f"orders-1/{0:020}.log.torn-1" in found.found


@pytest.mark.parametrize(
    "name",
    [
        f"orders-0/{0:020}.log.tmp",
        "orders-7.11111111111111111111111111111111-delete",
        "orders-7-stray",
    ],
)
def test_files_half_written_and_partitions_set_aside_are_leftovers(root: Path, name: str) -> None:
    (root / name).mkdir()
    found = root_findings(root)["leftovers"]
    assert found.status == WARN
    assert found.found == f"1: {name}"


@pytest.mark.parametrize(
    "name",
    ["orders-00", "orders-+1", "orders-\N{ARABIC-INDIC DIGIT ONE}", "Orders-0", "other-0", "\n-0"],
)
def test_names_that_look_like_partitions_are_found(root: Path, name: str) -> None:
    (root / name).mkdir()
    found = root_findings(root)["look-alikes"]
    assert found.status == WARN
    assert name in found.found


def test_distinct_topic_names_are_no_look_alikes(root: Path) -> None:
    assert root_findings(root)["look-alikes"].status == OK


def test_topics_that_are_hard_to_tell_apart_are_found(root: Path) -> None:
    found = [*check_look_alikes(LogRoot.at(root), ["Orders", "a.b", "a_b", "orders"])]
    assert [each.status for each in found] == [OK, WARN, WARN]
    assert found[1].found.endswith("Orders, orders") and found[2].found.endswith("a.b, a_b")


def test_staged_rows_are_named(root: Path) -> None:
    (root / ".streamlog" / "staging" / "some-query").mkdir()
    found = root_findings(root)["staging"]
    assert found.status == WARN
    assert "some-query" in found.found


@pytest.mark.parametrize("name", ["", "orders-0", f"orders-0/{0:020}.log"])
def test_world_writable_directories_are_found(root: Path, name: str) -> None:
    (root / "orders-0" / f"{0:020}.log").touch()
    (root / name).chmod(0o777)
    found = root_findings(root)["modes"]
    assert found.status == FAIL
    assert name in found.found
    assert str(found.cure).startswith("chmod -R o-w ")


def test_a_root_with_a_sticky_bit_is_as_safe_as_tmp(root: Path) -> None:
    root.chmod(0o1777)
    assert root_findings(root)["modes"].status == OK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_found(root: Path) -> None:
    os.chown(root / "orders-1", 12345, -1)
    found = root_findings(root)["owners"]
    assert found.status == WARN
    assert "orders-1" in found.found


def test_links_are_found_and_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    (root / "orders-9").symlink_to(outside)
    (root / "orders-0" / f"{7:020}.log").write_bytes(b"")
    os.link(root / "orders-0" / f"{7:020}.log", tmp_path / "second name")
    found = root_findings(root)
    assert found["links"].status == FAIL
    assert "orders-9" in found["links"].found and f"{7:020}.log" in found["links"].found
    assert found["modes"].status == OK


def test_a_partition_on_another_disk_is_nothing_unusual(root: Path, tmp_path: Path) -> None:
    (root / "orders-1").rename(tmp_path / "orders-1")
    (root / "orders-1").symlink_to(tmp_path / "orders-1")
    assert root_findings(root)["links"].status == OK
    (root.parent / "link to it").symlink_to(root)
    assert root_findings(root.parent / "link to it")["links"].status == OK
    (tmp_path / "orders-1").rename(tmp_path / "gone")
    assert root_findings(root)["links"].status == FAIL


def test_a_pipe_is_found_without_blocking(root: Path) -> None:
    os.mkfifo(root / "orders-0" / f"{9:020}.log")
    found = [*check_access(LogRoot.at(root))]
    assert [each.status for each in found if each.check == "kinds"] == [FAIL]


@pytest.mark.parametrize(
    ("operation", "check"), [("link", "names"), ("rename", "names"), ("lock", "locks")]
)
def test_a_file_system_without_a_promise_is_found(root: Path, operation: str, check: str) -> None:
    refused = Fault(operation=operation, errno=errno.EOPNOTSUPP, is_lasting=True)
    before = sorted(root.rglob("*"))
    found = {each.check: each for each in check_promises(LogRoot.at(root, fs=_faulty(refused)))}
    assert found[check].status == FAIL and found[check].cure
    assert sorted(root.rglob("*")) == before


def test_locks_without_effect_are_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    found = {each.check: each for each in check_promises(LogRoot.at(root))}
    assert found["locks"].status == FAIL


def test_a_sync_that_lies_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_checkup, "MOUNTS", root / "no such file")  # not to know a tmpfs
    clock = ManualClock()  # no time passes: as for a sync that does nothing
    found = {each.check: each for each in check_promises(LogRoot.at(root, clock=clock))}
    assert found["sync"].status == FAIL
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libeatmydata.so")
    found = {each.check: each for each in check_promises(LogRoot.at(root))}
    assert "LD_PRELOAD" in found["sync"].found


def test_careless_mount_options_are_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts, place = root.parent / "mounts", str(root).replace(" ", r"\040")
    mounts.write_text(
        "1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        f"2 1 8:2 / {place} rw,relatime shared:1 - ext4 /dev/sdb1 rw,nobarrier\n"
    )
    monkeypatch.setattr(root_checkup, "MOUNTS", mounts)
    found = {each.check: each for each in check_promises(LogRoot.at(root))}
    assert found["sync"].status == WARN and "nobarrier" in found["sync"].found


def _faulty(fault: Fault) -> FaultyFileSystem:
    return FaultyFileSystem(LocalFileSystem(), fault)


def test_a_root_that_cannot_be_written_is_found(root: Path) -> None:
    refused = Fault(operation="create", path_suffix="/doctor.tmp", errno=errno.EACCES)
    fs = FaultyFileSystem(LocalFileSystem(), refused)  # no mode stops the superuser
    (found,) = [
        each
        for each in root_checkup.check_root_at(LogRoot.at(root, fs=fs))
        if each.check == "writing"
    ]
    assert found.status == FAIL
    assert str(found.cure).startswith("ls -ld ")


def test_a_leftover_of_an_interrupted_doctor_does_no_harm(root: Path) -> None:
    (root / ".streamlog" / "doctor.tmp").write_bytes(b"")
    assert root_findings(root)["writing"].status == OK
