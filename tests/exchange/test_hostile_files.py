"""Files that no export wrote: each is a typed error that names the file, or means what it says."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlog import LogManager, read_table
from streamlog.errors import (
    CommitMismatchError,
    CorruptDataError,
    FileMissingError,
    InvalidOptionError,
    InvalidRequestError,
    StreamLogError,
)
from streamlog.exchange.import_source import ImportOptions
from tests.exchange.topics import export, fill, import_into


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with LogManager.open(tmp_path / "root", create=True) as manager:
        manager.create_topic("t", 1)
    return tmp_path / "root"


NDJSON = {
    "no JSON": b'{"value":"a"}\nhello\n',
    "cut off": b'{"value":"a"',
    "no object": b"[1]\n",
    "unknown field": b'{"value":"a","valeu":"b"}\n',
    "number for text": b'{"value":1}\n',
    "text for number": b'{"value":"a","partition":"0"}\n',
    "partition too large": b'{"value":"a","partition":4294967296}\n',
    "missing partition": b'{"value":"a","partition":7}\n',
    "negative partition": b'{"value":"a","partition":-1}\n',
    "time before 1970": b'{"value":"a","timestamp":-5}\n',
    "time too large": b'{"value":"a","timestamp":9223372036854775807}\n',
    "two values": b'{"value":"a","valueBase64":"YQ=="}\n',
    "bad base64": b'{"valueBase64":"YQ="}\n',
    "header without key": b'{"value":"a","headers":[{"value":"x"}]}\n',
    "header null": b'{"value":"a","headers":[null]}\n',
    "header field": b'{"value":"a","headers":[{"key":"x","valeu":"y"}]}\n',
    "no UTF-8": b'{"value":"\xff"}\n',
    "key twice": b'{"value":"a","value":"b"}\n',
    "deep": b'{"value":' + b"[" * 100_000 + b"\n",
    "zeros": b"\0" * 100,
}
CSV = {
    "nothing": b"",
    "no value": b"key\na\n",
    "unknown column": b"value,valeu\na,b\n",
    "column twice": b"value,value\na,b\n",
    "too many fields": b"value,key\na,b,c\n",
    "open quote": b'value,key\n"a,b\n',
    "text for number": b"value,partition\na,x\n",
    "no UTF-8": b"value,key\n\xff,a\n",
    "headers no JSON": b"value,headers\na,x\n",
    "headers inject": b'value,headers\na,"[]}\n{""h"":[]"\n',
    "two values": b"value,valueBase64\na,YQ==\n",
    "bad base64": b"value,valueBase64\n,Y\n",
    "zeros": b"\0" * 100,
}
CASES = [("ndjson", name, content) for name, content in NDJSON.items()]
CASES += [("csv", name, content) for name, content in CSV.items()]


@pytest.mark.parametrize(("kind", "name", "content"), CASES, ids=[f"{k}: {n}" for k, n, _ in CASES])
def test_bad_text_is_refused_as_a_whole(
    root: Path, tmp_path: Path, kind: str, name: str, content: bytes
) -> None:
    path = tmp_path / f"in.{kind}"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError) as error:
        import_into(root, "t", path)
    assert str(path) in str(error.value) or error.value.got is not None
    assert len(read_table(str(root), "t")) == 0


def test_what_is_unusual_but_right_is_taken(root: Path, tmp_path: Path) -> None:
    lines = b'\n  \n{"value": null, "key": "a\\u0000"}\r\n{"valueBase64":"/w=="} \n{"value":""}'
    (tmp_path / "in.jsonl").write_bytes(lines)
    import_into(root, "t", tmp_path / "in.jsonl")
    rows = read_table(str(root), "t").to_pylist()
    got = [(row["key"], row["value"]) for row in rows]
    assert got == [(b"a\0", None), (None, b"\xff"), (None, b"")]


def test_other_columns_are_chosen_by_name(root: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b'id,payload,at,x\n1,"a ""b""",5,9\n2,,6,9\n')
    with pytest.raises(InvalidRequestError, match="unknown column 'id'"):
        import_into(root, "t", tmp_path / "in.csv")
    columns = ImportOptions.parse_columns("key=id,value=payload,timestamp=at")
    report = import_into(root, "t", tmp_path / "in.csv", columns=columns)
    assert report.ignored == ["x"]
    rows = read_table(str(root), "t").to_pylist()
    got = [(row["key"], row["value"], row["timestamp"].timestamp()) for row in rows]
    assert got == [(b"1", b'a "b"', 0.005), (b"2", None, 0.006)]
    with pytest.raises(InvalidRequestError, match="no column 'nothing'"):
        import_into(root, "t", tmp_path / "in.csv", columns={"value": "nothing"})
    (tmp_path / "in.ndjson").write_bytes(b'{"id":"1","payload":"p","x":[1]}\n')
    import_into(root, "t", tmp_path / "in.ndjson", columns={"value": "payload"})
    assert read_table(str(root), "t").to_pylist()[-1]["value"] == b"p"
    for bad in ("valeu", "value,value", "value="):
        with pytest.raises(InvalidOptionError):
            ImportOptions.parse_columns(bad)


def test_a_row_may_be_larger_than_a_block(root: Path, tmp_path: Path) -> None:
    with LogManager.open(root) as manager:
        manager.create_topic("big", 1, {"max.message.bytes": 40 << 20})
    value = b"x" * (20 << 20)
    (tmp_path / "in.csv").write_bytes(b"value,key\na,1\n" + value + b",2\n")
    (tmp_path / "in.ndjson").write_bytes(b'{"value":"' + value + b'"}\n')
    for kind in ("csv", "ndjson"):
        import_into(root, "big", tmp_path / f"in.{kind}")
    sizes = [len(row["value"]) for row in read_table(str(root), "big").to_pylist()]
    assert sizes == [1, 20 << 20, 20 << 20]


def test_the_names_of_columns_are_cut_in_an_error(root: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"x" * 5_000 + b",y\n1,2\n")
    with pytest.raises(InvalidRequestError, match="unknown column 'xxx") as raised:
        import_into(root, "t", tmp_path / "in.csv")
    assert len(str(raised.value)) < 1_000


def test_damaged_parquet_is_an_error_or_nothing(root: Path, tmp_path: Path) -> None:
    fill(root, "orders", 0, 100)
    export(root, tmp_path / "there", "parquet", partitions=[0])
    content = next((tmp_path / "there").glob("*.parquet")).read_bytes()
    noise = random.Random(1)
    bad = tmp_path / "in.parquet"
    seen = 0
    for number in range(60):
        damaged = bytearray(content)
        if number % 2:
            del damaged[noise.randrange(len(damaged)) :]
        for _ in range(3):
            if damaged:
                damaged[noise.randrange(len(damaged))] = noise.randrange(256)
        bad.write_bytes(damaged)
        try:
            import_into(root, "t", bad, columns={"value": "value", "key": "key"})
        except StreamLogError:
            seen += 1
            continue
        bad.unlink()
        bad = tmp_path / f"in-{number}.parquet"  # another file, as that one was imported
    assert seen > 30
    bad.write_bytes(b"PAR1")
    with pytest.raises(CorruptDataError, match="not Parquet"):
        import_into(root, "t", bad)


def test_a_file_that_changed_is_not_imported_again(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_bytes(b'{"value":"a"}\n')
    assert import_into(root, "t", path).rows == 1
    assert import_into(root, "t", path).complete == 1
    with LogManager.open(root) as manager:
        manager.delete_topic("t")
        manager.create_topic("t", 1)
    assert import_into(root, "t", path).rows == 1  # another topic of that name
    path.write_bytes(b'{"value":"a"}\n{"value":"b"}\n')
    with pytest.raises(CommitMismatchError, match="has changed"):
        import_into(root, "t", path)
    assert len(read_table(str(root), "t")) == 1


def test_a_source_that_is_none_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(FileMissingError):
        import_into(root, "t", tmp_path / "nothing")
    with pytest.raises(FileMissingError, match="no Delta table"):
        import_into(root, "t", tmp_path, format="delta")
    place = tmp_path / "mixed"
    place.mkdir()
    (place / "a.csv").write_bytes(b"value,key\na,b\n")
    (place / "b.ndjson").write_bytes(b'{"value":"a"}\n')
    with pytest.raises(InvalidRequestError, match="several formats"):
        import_into(root, "t", place)
    (place / "c.xml").write_bytes(b"<a/>")
    with pytest.raises(InvalidRequestError, match="cannot tell the format"):
        import_into(root, "t", place)
    pq.write_table(pa.table({"value": [1.5]}), tmp_path / "in.parquet")
    with pytest.raises(InvalidRequestError, match="unsupported type"):
        import_into(root, "t", tmp_path / "in.parquet")
    assert len(read_table(str(root), "t")) == 0
