"""`streamlog verify`: findings as rows, and exit codes that mean something."""

from pathlib import Path

import pytest

from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from tests.support.cli import ok, streamlog
from tests.support.golden import unpack

FIELDS = [
    "kind",
    "severity",
    "file",
    "position",
    "offset",
    "lastOffset",
    "what",
    "got",
    "expected",
    "count",
]  # fmt: skip


@pytest.fixture
def filled(root: Path) -> Path:
    with LogManager.open(root) as manager:
        for partition in range(3):
            manager.log("orders", partition).append([Record(value=b"x" * 100)])
            manager.log("orders", partition).append([Record(value=b"y" * 100)])
    return root


def test_the_log_root_of_the_environment_is_verified(filled: Path) -> None:
    assert "no log root" in streamlog("verify").error
    assert "sound" in ok("verify", "--path", filled).error
    damage(filled, 1)
    ran = streamlog("verify", STREAMLOG_PATH=str(filled))
    assert (ran.code, len(ran.rows)) == (1, 1)


def damage(root: Path, partition: int) -> Path:
    path = root / f"orders-{partition}" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    return path


def test_a_sound_log_prints_nothing_and_exits_with_0(filled: Path) -> None:
    assert ok("verify", filled).out == b""
    assert ok("verify", filled, "--format", "json", "--deep").out == b"[]\n"
    assert ok("verify", filled, "--format", "table").out == b""


def test_a_finding_is_a_row_and_exits_with_1(filled: Path) -> None:
    path = damage(filled, 1)
    ran = streamlog("verify", filled)
    assert ran.code == 1
    [row] = ran.rows
    assert list(row) == FIELDS
    assert (row["kind"], row["severity"], row["count"]) == ("bad-checksum", "damage", 1)
    assert (row["file"], row["position"], row["offset"]) == (str(path), 0, 0)
    [hint] = ran.error.splitlines()
    assert hint.startswith(f"restore {path} from a copy")
    assert hint.endswith(f"streamlog repair '{path.parent}' --skip-damage --dry-run")


def test_damage_that_the_next_writer_repairs_is_reported_as_such(filled: Path) -> None:
    (filled / "orders-1" / f"{5:020}.index").touch()
    ran = streamlog("verify", filled)
    assert [row["severity"] for row in ran.rows] == ["repairable"]
    assert ran.error == (
        f"the next writer repairs this, or: streamlog repair '{filled}/orders-1'\n"
    )


@pytest.mark.parametrize("name", ["torn-1", "corrupt-2"])
def test_kept_tails_are_reported_separately(filled: Path, name: str) -> None:
    path = filled / "orders-1" / f"{0:020}.log.{name}"
    path.write_bytes(b"cut off")
    ran = ok("verify", filled)
    assert ran.out == b""
    what = "bytes removed from the log are kept here until you delete the file"
    assert f"{path}: {what}: 7 bytes" in ran.error


def test_several_paths_are_verified_and_a_table_lists_the_findings(filled: Path) -> None:
    damage(filled, 2)
    ran = streamlog("verify", filled / "orders-0", filled / "orders-2", "--format", "table")
    assert ran.code == 1
    lines = ran.out.decode().splitlines()
    assert lines[0].split()[:3] == ["SEVERITY", "KIND", "FILE"]
    assert len(lines) == 2 and "orders-2" in lines[1]


def test_a_path_that_is_not_there_is_wrong_use_and_the_others_come_first(filled: Path) -> None:
    damage(filled, 0)
    ran = streamlog("verify", filled / "missing", filled)
    assert (ran.code, len(ran.rows)) == (2, 1)
    assert "\nError: no such file or directory" in ran.error


def test_notes_go_to_stderr(tmp_path: Path) -> None:
    unpack("C-broker/clean-log.dir.tar.gz", tmp_path, "clean-log.dir/retained-0/")
    ran = ok("verify", tmp_path / "clean-log.dir/retained-0")
    assert ran.out == b""
    assert "files are waiting for removal" in ran.error
    assert ok("verify", tmp_path / "clean-log.dir/retained-0", "--quiet").error == ""


def test_a_sound_root_is_reported_with_the_verified_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    ok("--path", root, "topics", "create", "orders", "--partitions", 2)
    ran = ok("verify", root)
    assert ran.error == f"{root}: sound; checked 1 topic, 2 partitions, 0 B\n"
    assert ran.out == b""
    assert ok("verify", root, "--quiet").error == ""


def test_a_directory_without_a_log_is_not_called_sound(tmp_path: Path) -> None:
    (tmp_path / "backup-2").mkdir()
    (tmp_path / "backup-2" / "data.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path, tmp_path / "empty"):
        ran = streamlog("verify", path)
        assert (ran.code, ran.out) == (2, b"")
        assert "the directory holds no log" in ran.error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("maintain",), "nothing is due; checked 1 topic, 1 partition, 0 B"),
        (("maintain", "--dry-run"), "nothing is due; checked 1 topic, 1 partition, 0 B"),
        (("readers", "list"), "no readers are recorded"),
        (("lag",), "no readers are recorded"),
    ],
)
def test_a_verb_that_finds_nothing_says_so_beside_the_data(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    root = tmp_path / "root"
    ok("--path", root, "topics", "create", "orders")
    ran = ok("--path", root, *words, "--format", "json")
    assert ran.out == b"[]\n"
    assert said in ran.error
    assert ok("--path", root, *words, "--quiet").error == ""


def test_a_repair_that_finds_nothing_says_so(tmp_path: Path) -> None:
    root = tmp_path / "root"
    ok("--path", root, "topics", "create", "orders")
    assert "nothing to repair; checked 1 topic" in ok("repair", root).error


def test_a_note_without_a_value_ends_with_its_text(filled: Path) -> None:
    (filled / "backup-2").mkdir()
    (filled / "backup-2" / "data.txt").write_text("a")
    assert f"{filled}/backup-2: named like a partition but holds no log: ignored\n" in (
        ok("verify", filled).error
    )
