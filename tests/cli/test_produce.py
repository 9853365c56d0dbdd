"""`streamlog produce`: where records go, and what is told about them."""

import json
from pathlib import Path

import pytest

from streamlog.records.partitioner import murmur2
from streamlog.root.manager import LogManager
from tests.support.cli import Ran, ok, streamlog


def produce(root: Path, stdin: bytes, *arguments: object, topic: str = "orders") -> Ran:
    return streamlog("produce", topic, "--path", root, *arguments, stdin=stdin)


def values(root: Path, topic: str = "orders") -> list[str]:
    return [row["value"] for row in ok("cat", topic, "--path", root).rows]


def test_lines_are_appended_and_reported_by_partition(root: Path) -> None:
    (first,) = produce(root, b"a\nb\n", "--partition", 1).rows
    assert first == {
        "topic": "orders",
        "partition": 1,
        "baseOffset": 0,
        "lastOffset": 1,
        "count": 2,
    }
    (second,) = produce(root, b"c\n", "-p", 1).rows
    assert (second["baseOffset"], second["lastOffset"], second["count"]) == (2, 2, 1)
    assert values(root) == ["a", "b", "c"]


def test_keys_choose_partitions_as_kafka_does(root: Path) -> None:
    keys = [b"key-%d" % i for i in range(50)]
    produce(root, b"".join(key + b":x\n" for key in keys), "--key-separator", ":")
    for row in ok("cat", "orders", "--path", root).rows:
        assert row["partition"] == (murmur2(row["key"].encode()) & 0x7FFFFFFF) % 3


def test_records_without_a_key_are_spread_in_batches(root: Path) -> None:
    rows = produce(root, b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 20_000).rows
    assert [row["partition"] for row in rows] == [0, 1, 2]
    assert sum(row["count"] for row in rows) == 20_001


def test_a_few_records_without_a_key_go_to_one_partition(root: Path) -> None:
    assert len(produce(root, b"a\nb\nc\n").rows) == 1


def test_a_record_may_ask_for_its_partition(root: Path) -> None:
    lines = [{"value": str(i), "partition": i % 3, "key": "same"} for i in range(6)]
    rows = produce(root, "\n".join(map(json.dumps, lines)).encode(), "--format", "ndjson").rows
    assert [(row["partition"], row["count"]) for row in rows] == [(0, 2), (1, 2), (2, 2)]


def test_an_absent_partition_is_wrong_use(root: Path) -> None:
    ran = produce(root, b'{"value":"a","partition":3}\n', "--format", "ndjson")
    assert ran.code == 2
    assert "no partition 3" in ran.error
    assert ran.out == b""


def test_nothing_in_is_nothing_out(root: Path) -> None:
    ran = produce(root, b"")
    assert (ran.code, ran.out, ran.error) == (0, b"", "")


def test_records_before_a_bad_line_are_appended_and_reported(root: Path) -> None:
    ran = produce(root, b'{"value":"a","partition":0}\nnonsense\n', "--format", "ndjson")
    assert ran.code == 2
    assert "line 2: invalid JSON" in ran.error
    assert [row["count"] for row in ran.rows] == [1]
    assert values(root) == ["a"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_reads_back(root: Path, codec: str) -> None:
    lines = [b"line %d %s" % (i, b"x" * 50) for i in range(500)]
    produce(root, b"\n".join(lines), "--compression.type", codec, "-p", 0)
    assert values(root) == [line.decode() for line in lines]


def test_a_record_above_the_limit_is_refused_with_the_limit(root: Path) -> None:
    ok("topics", "create", "small", "--config", "max.message.bytes=1000", "--path", root)
    ran = produce(root, b"x" * 2000, topic="small")
    assert ran.code == 2
    assert "1000" in ran.error


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("form", ["lines", "ndjson"])
def test_a_refused_record_is_reported_with_its_line(root: Path, codec: str, form: str) -> None:
    limits = ("max.message.bytes=1000", "streamlog.max.decompressed.bytes=1000")
    given = [word for limit in limits for word in ("--config", limit)]
    ok("topics", "create", "small", "--partitions", 3, *given, "--path", root)
    values = [b"a", b"b", b"x" * 2000, b"c"]
    lines = values if form == "lines" else [b'{"value":"%s"}' % value for value in values]
    text = b"\n".join(lines) if form == "lines" else b"\n\n".join(lines)
    ran = produce(root, text, "--format", form, "--compression.type", codec, topic="small")
    assert ran.code == 2
    assert f"line {3 if form == 'lines' else 5} of the input" in ran.error
    assert "1000" in ran.error


def test_a_refused_batch_names_the_lines_it_has(root: Path) -> None:
    ok("topics", "create", "state", "--config", "cleanup.policy=compact", "--path", root)
    ran = produce(root, b"one\ntwo\n", topic="state")
    assert ran.code == 2
    assert "lines 1 to 2 of the input" in ran.error


def test_a_line_shorter_than_the_separator_is_refused_as_a_line(root: Path) -> None:
    ran = produce(root, b"abc", "--key-separator", "ABCDE")
    assert ran.code == 2
    assert "line 1: no key separator" in ran.error


def test_input_larger_than_a_segment_is_split_into_appends(root: Path) -> None:
    ok("topics", "create", "s", "--config", "segment.bytes=1048576", "--path", root)
    lines = b"".join(b"%07d" % i + b"x" * 92 + b"\n" for i in range(60_000))
    (row,) = produce(root, lines, topic="s").rows
    assert (row["baseOffset"], row["lastOffset"], row["count"]) == (0, 59_999, 60_000)
    (described,) = ok("topics", "describe", "s", "--path", root).rows
    assert described["partitions"][0]["segments"] >= 6
    assert [value[:7] for value in values(root, "s")] == [f"{i:07d}" for i in range(60_000)]


def test_reported_records_are_synced(root: Path) -> None:
    produce(root, b"a\nb\n", "--partition", 2)
    with LogManager.open(root) as manager:
        assert manager.log("orders", 2).recovery_point == 2


def test_an_unknown_topic_names_the_command_that_makes_it(root: Path) -> None:
    ran = produce(root, b"a\n", topic="new")
    assert ran.code == 2
    assert "topics create new" in ran.error


def test_an_unknown_topic_is_created_if_the_root_allows_it(root: Path) -> None:
    settings = root / ".streamlog" / "server.properties"
    settings.write_text("auto.create.topics.enable=true\nnum.partitions=2\n")
    assert produce(root, b"a\n", topic="new").code == 0
    assert ok("topics", "describe", "new", "--path", root).rows[0]["topic"] == "new"


def test_a_null_key_is_refused_by_a_compacted_topic(root: Path) -> None:
    ok("topics", "create", "state", "--config", "cleanup.policy=compact", "--path", root)
    ran = produce(root, b"no key\n", topic="state")
    assert ran.code == 2
    assert ran.out == b""


def test_lines_get_a_key_headers_and_a_time(root: Path) -> None:
    arguments = (
        "-k",
        "eu",
        "-H",
        "source=file",
        "-H",
        "empty=",
        "--timestamp",
        "1970-01-01T00:00:05",
    )
    assert produce(root, b"a\nb\n", *arguments).code == 0
    rows = ok("cat", "orders", "--path", root).rows
    assert [(row["key"], row["value"], row["timestamp"]) for row in rows] == [
        ("eu", "a", 5000),
        ("eu", "b", 5000),
    ]
    headers = [{"key": "source", "value": "file"}, {"key": "empty", "value": ""}]
    assert [row["headers"] for row in rows] == [headers, headers]


def test_empty_is_null_on_request(root: Path) -> None:
    produce(root, b"a:\n:b\n:\n", "-K", ":", "-Z", "-p", 0)
    produce(root, b"a:\n", "-K", ":", "-p", 0)
    rows = ok("cat", "orders", "--path", root).rows
    assert [(row["key"], row["value"]) for row in rows] == [
        ("a", None),
        (None, "b"),
        (None, None),
        ("a", ""),
    ]


def test_lines_before_a_bad_one_are_dressed_too(root: Path) -> None:
    ran = produce(root, b"a:1\nb\n", "-K", ":", "-H", "h=1")
    assert ran.code == 2
    (row,) = ok("cat", "orders", "--path", root).rows
    assert (row["key"], row["headers"]) == ("a", [{"key": "h", "value": "1"}])


def test_a_file_is_read_in_place_of_stdin(root: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_bytes(b"a\nb\n")
    ran = streamlog("produce", "orders", tmp_path / "lines.txt", "--path", root, "-z", "lz4")
    assert ran.code == 0, ran.error
    assert values(root) == ["a", "b"]
    ran = streamlog("produce", "orders", tmp_path / "missing.txt", "--path", root)
    assert ran.code == 2 and "missing.txt" in ran.error


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "ndjson", "-k", "a"),
        ("--format", "ndjson", "-Z"),
        ("--format", "ndjson", "--timestamp", "5"),
        ("--format", "ndjson", "-H", "a=b"),
        ("-k", "a", "-K", ":"),
        ("-H", "nothing"),
        ("--timestamp", "soon"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_use(
    root: Path, arguments: tuple[str, ...]
) -> None:
    ran = produce(root, b"a\n", *arguments)
    assert (ran.code, ran.out) == (2, b"")
    assert values(root) == []


SPREAD = b"".join(
    b'{"value":"%d","key":"k%d","partition":%d}\n' % (i, i % 7, i % 3) for i in range(9000)
)


def test_a_copy_to_fewer_partitions_names_the_way_out(root: Path) -> None:
    ok("topics", "create", "smaller", "--partitions", 2, "--path", root)
    ran = produce(root, SPREAD, "--format", "ndjson", topic="smaller")
    assert ran.code == 2
    assert "no partition 2" in ran.error and "--ignore-partition" in ran.error


def test_a_copy_to_fewer_partitions_uses_the_keys_on_request(root: Path) -> None:
    ok("topics", "create", "smaller", "--partitions", 2, "--path", root)
    ran = produce(root, SPREAD, "--format", "ndjson", "--ignore-partition", topic="smaller")
    assert sum(row["count"] for row in ran.rows) == 9000
    for row in ok("cat", "smaller", "--path", root).rows:
        assert row["partition"] == (murmur2(row["key"].encode()) & 0x7FFFFFFF) % 2


@pytest.mark.parametrize("end", [b'{"value":"x","partition":9}\n', b"nonsense\n"])
def test_atomic_appends_all_or_nothing(root: Path, end: bytes) -> None:
    """Input of several chunks, the last line of which cannot be appended."""
    padding = b'{"value":"%s","partition":1}\n' % (b"x" * 1000) * 9000
    ran = produce(root, padding + end, "--format", "ndjson", "--atomic")
    assert (ran.code, ran.out) == (2, b"")
    assert values(root) == []
    ran = produce(root, SPREAD, "--format", "ndjson", "--atomic", "-z", "lz4")
    assert [(row["partition"], row["baseOffset"], row["count"]) for row in ran.rows] == [
        (0, 0, 3000),
        (1, 0, 3000),
        (2, 0, 3000),
    ]
    assert len(values(root)) == 9000
    assert produce(root, b"", "--atomic").rows == []
