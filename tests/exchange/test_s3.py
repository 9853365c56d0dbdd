"""Exports into a real S3 server, and back; credentials stay in the environment.

delta-rs holds the interpreter while it waits, so the server would not answer a request of this
process: tables are written by processes of their own.
"""

from pathlib import Path

import pytest

from streamlog.errors import InvalidOptionError
from streamlog.exchange.libraries import library_detail
from streamlog.store.remote import open_store
from tests.exchange.topics import export, fill, import_into, table
from tests.store.test_s3 import set_unchecked
from tests.support.cli import Ran, start
from tests.support.s3 import S3Server

KEY, SECRET = "AKIATHISISONLYATEST1", "a+secret/of+mine/that/nobody+may/see+it1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "root", "orders", 0, 100)
    fill(tmp_path / "back", "orders", 0, 0)
    return tmp_path / "root"


@pytest.fixture
def url(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place in a bucket; pyiceberg's catalog has its warehouse there."""
    place, front = s3.new_bucket(), "PYICEBERG_CATALOG__DEFAULT__"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv(f"{front}TYPE", "sql")
    monkeypatch.setenv(f"{front}URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv(f"{front}WAREHOUSE", f"{place}/warehouse")
    return place


def command(*arguments: object) -> Ran:
    process = start(*arguments)
    out, error = process.communicate()
    return Ran(process.returncode, out, error.decode())


def assert_secret(*contents: bytes) -> None:
    for content in contents:
        assert SECRET.encode() not in content and KEY.encode() not in content


@pytest.mark.parametrize("format", ["parquet", "csv", "ndjson"])
def test_files_go_to_s3_and_back(root: Path, url: str, tmp_path: Path, format: str) -> None:
    for wanted in (200, 0):
        report = export(root, f"{url}/there", format, file_size=5_000)
        assert sum(each.records for each in report.partitions) == wanted
    import_into(tmp_path / "back", "orders", f"{url}/there")
    assert table(tmp_path / "back").equals(table(root))
    store = open_store(url)
    assert not list(store.list("there/_temporary/"))
    assert_secret(*(store.get(each.key, max_size=1 << 20) for each in store.list("")))


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_tables_go_to_s3_and_back(root: Path, url: str, tmp_path: Path, format: str) -> None:
    target = "shop.orders" if format == "iceberg" else f"{url}/there"
    ran = command("--path", root, "export", "orders", target, "--format", format)
    assert ran.code == 0 and sum(row["count"] for row in ran.rows) == 200, ran.error
    back = command("--path", tmp_path / "back", "import", target, "orders", "--format", format)
    assert back.code == 0, back.error
    assert table(tmp_path / "back").equals(table(root))
    store = open_store(url)
    contents = [store.get(each.key, max_size=1 << 20) for each in store.list("")]
    assert len(contents) > 1
    assert_secret(*contents, *(path.read_bytes() for path in tmp_path.glob("catalog.db")))
    assert_secret(ran.error.encode(), back.error.encode())


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_wrong_credentials_are_named_and_not_shown(
    s3: S3Server, root: Path, url: str, format: str
) -> None:
    target = "shop.orders" if format == "iceberg" else f"{url}/there"
    set_unchecked(s3, "0")
    try:
        ran = command("--path", root, "export", "orders", target, "--format", format)
    finally:
        set_unchecked(s3, "inf")
    assert ran.code == 1 and "Traceback" not in ran.error
    assert "\n" not in ran.error.partition("Error: ")[2].partition("\nTry: ")[0]
    assert "check the credentials" in ran.error
    assert_secret(ran.error.encode())


def test_a_url_with_credentials_is_refused(root: Path) -> None:
    for format in ("parquet", "delta"):
        with pytest.raises(InvalidOptionError, match="come from the environment") as error:
            export(root, "s3://name:secret@bucket/there", format)
        assert "secret" not in str(error.value)
    with pytest.raises(InvalidOptionError, match="come from the environment"):
        import_into(root, "back", "s3://name:secret@bucket/there", format="delta")


def test_what_a_library_says_is_one_line_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    drawn = (
        f"S3 error\n  \x1b[31m↳\x1b[0m cannot: {SECRET} postgresql://u:p@host\n   0: <unknown>\n"
    )
    assert library_detail(OSError(drawn)) == "S3 error cannot: … postgresql://…@host"
