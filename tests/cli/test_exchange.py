"""`streamlog export` and `streamlog import` as typed."""

from pathlib import Path

import pytest

from tests.support.cli import ok, streamlog


@pytest.fixture
def root(tmp_path: Path) -> Path:
    ok("--path", tmp_path / "root", "topics", "create", "orders", "--partitions", "2")
    ok("--path", tmp_path / "root", "topics", "create", "back", "--partitions", "2")
    lines = "".join(f"k{number}:v{number}\n" for number in range(100)).encode()
    ok("--path", tmp_path / "root", "produce", "orders", "-K", ":", stdin=lines)
    return tmp_path / "root"


def lines(root: Path, topic: str) -> list[dict[str, object]]:
    rows = ok("--path", root, "cat", topic).rows
    return [{**row, "topic": ""} for row in rows]


@pytest.mark.parametrize("kind", ["parquet", "csv", "ndjson", "delta"])
def test_there_and_back_again(root: Path, tmp_path: Path, kind: str) -> None:
    there = tmp_path / "there"
    plan = ok("--path", root, "export", "orders", there, "--format", kind, "--dry-run")
    assert [row["endOffset"] for row in plan.rows] != [0, 0] and not there.exists()
    ran = ok("--path", root, "export", "orders", there, "--format", kind)
    assert sum(row["count"] for row in ran.rows) == 100
    assert list(ran.rows[0]) == ["topic", "partition", "startOffset", "endOffset", "count"]
    assert "100 records in" in ran.error
    assert (
        sum(
            r["count"] for r in ok("--path", root, "export", "orders", there, "--format", kind).rows
        )
        == 0
    )
    plan = ok("--path", root, "import", there, "back", "--dry-run")
    assert not any(row["isComplete"] for row in plan.rows)
    ran = ok("--path", root, "import", there, "back")
    assert sum(row["count"] for row in ran.rows) == 100
    assert "not imported: topic, offset, timestampType" in ran.error
    assert ok("--path", root, "import", there, "back", "--quiet").error == ""
    assert lines(root, "back") == lines(root, "orders")


def test_files_that_cat_printed_can_be_imported(root: Path, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_bytes(ok("--path", root, "cat", "orders").out)
    ok("--path", root, "import", tmp_path / "in.ndjson", "back")
    assert lines(root, "back") == lines(root, "orders")
    export = ("--path", root, "export", "orders", tmp_path / "there", "--format", "ndjson")
    ok(*export)
    files = sorted((tmp_path / "there").glob("*.ndjson"))
    whole = b"".join(path.read_bytes() for path in files)
    assert whole == ok("--path", root, "cat", "orders").out


def test_one_partition_directory_and_a_part_of_it(root: Path, tmp_path: Path) -> None:
    ran = ok(
        "export", root / "orders-1", tmp_path / "a", "-o", "10..20", "--columns", "value,offset"
    )
    assert [(row["startOffset"], row["endOffset"]) for row in ran.rows] == [(10, 20)]
    ran = ok("export", root, tmp_path / "b", "--target-file-size", "1KiB")
    assert {row["topic"] for row in ran.rows} == {"orders", "back"}


def test_errors_name_what_to_do(root: Path, tmp_path: Path) -> None:
    for arguments, text in (
        (("export", "orders", tmp_path / "a", "--target-file-size", "much"), "128MiB"),
        (("export", "clicks", tmp_path / "a"), "clicks"),
        (("export", "orders", tmp_path / "a.csv"), "--format csv"),
        (("export", "orders", "orders", "--format", "iceberg"), "pyiceberg"),
        (("export", "orders", tmp_path / "a", "-r", "schemas"), "requires --decode"),
        (("export", "orders", tmp_path / "a", "-s", "value=xml"), "json, avro, protobuf"),
        (("export", "orders", tmp_path / "a", "-s", "value=json"), "needs a schema"),
        (
            ("export", "orders", tmp_path / "a", "-s", "value=json", "--key-schema", "a INT"),
            "--key-schema requires --decode key=FORMAT",
        ),
        (
            ("export", "orders", tmp_path / "a", "-s", "value=avro", "-r", "https://u:secret@x"),
            "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO",
        ),
        (("import", tmp_path / "nothing", "back"), "nothing to import"),
        (("import", root / "orders-0", "back"), "format"),
        (("import", tmp_path / "nothing", "back", "--columns", "valeu"), "valeu"),
    ):
        ran = streamlog("--path", root, *arguments)
        assert ran.code == 2 and text in ran.error, ran.error
        assert "Traceback" not in ran.error and "secret" not in ran.error
    assert not (tmp_path / "a.csv").exists() and not (tmp_path / "a").exists()
