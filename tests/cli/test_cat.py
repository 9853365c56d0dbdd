"""`streamlog cat`: which records, in which form, and what damage does to it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from hypothesis import HealthCheck, given, settings

from streamlog.clock import SystemClock
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from tests.records.test_json_records import RECORDS
from tests.support.cli import Ran, ok, start, streamlog
from tests.support.golden import GOLDEN


@pytest.fixture
def filled(root: Path) -> Path:
    """`orders` with ten records in partition 0 (one batch each) and two in partition 2."""
    with LogManager.open(root) as manager:
        for i in range(10):
            record = Record(key=b"k%d" % i, value=b"v%d" % i, timestamp=1000 + i)
            manager.log("orders", 0).append([record])
        for i in range(2):
            manager.log("orders", 2).append([Record(value=b"w%d" % i, timestamp=2000 + i)])
    return root


@contextmanager
def started(*arguments: object) -> "Iterator[Popen[bytes]]":
    """Start a command that follows; it is gone at the end."""
    process = start(*arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_lines(process: "Popen[bytes]", count: int) -> None:
    """Read some lines of what a command prints: it has begun, and knows the topic."""
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline()


def cat(root: Path, *arguments: object) -> Ran:
    return streamlog("cat", "orders", "--path", root, *arguments)


def shown(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.error
    return [row["value"] for row in ran.rows]


NOW = 1_700_000_000_000
V = [f"v{i}" for i in range(10)]
W = ["w0", "w1"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), V + W),
        (("-o", "beginning"), V + W),
        (("-o", "end"), []),
        (("-o", "-3"), V[7:] + W),
        (("-o", "-100"), V + W),
        (("-o", "-0"), []),
        (("-o", "0"), V + W),
        (("-p", "0", "-o", "4"), V[4:]),
        (("-p", "0", "-o", "10"), []),
        (("-p", "2", "-p", "0"), V + W),
        (("-o", "s@1005"), V[5:] + W),
        (("-o", "s@9999"), []),
        (("-o", "e@1005"), V[:5]),
        (("-o", "s@1003", "-o", "e@1005"), V[3:5]),
        (("-o", "s@1008", "-o", "e@2001"), [*V[8:], "w0"]),
        (("-c", "3"), V[:3]),
        (("-c", "0"), []),
        (("-c", "11"), [*V, "w0"]),
        (("-p", "0", "-o", "-4", "-c", "2"), V[6:8]),
    ],
)
def test_offsets_and_count_choose_the_records(
    filled: Path, arguments: tuple[str, ...], expected: list[str]
) -> None:
    assert shown(cat(filled, *arguments)) == expected


def test_an_offset_inside_a_batch_starts_there(root: Path) -> None:
    ok("produce", "orders", "-p", 1, "--path", root, stdin=b"a\nb\nc\nd\n")
    assert shown(cat(root, "-p", 1, "-o", 2)) == ["c", "d"]
    assert shown(cat(root, "-p", 1, "-o", "-1")) == ["d"]


def test_an_offset_out_of_range_names_the_range_and_the_others_come_first(filled: Path) -> None:
    ran = cat(filled, "-o", 5)
    assert ran.code == 2
    assert [row["value"] for row in ran.rows] == V[5:]
    assert "got 5, expected 0 to 2" in ran.error
    assert "got 5, expected 0 to 0" in ran.error


def test_json_is_one_document(filled: Path) -> None:
    found = json.loads(cat(filled, "--format", "json").out)
    assert [row["value"] for row in found] == V + W
    assert json.loads(cat(filled, "--format", "json", "-o", "end").out) == []


def test_a_table_has_a_line_a_record(filled: Path) -> None:
    lines = cat(filled, "--format", "table").out.decode().splitlines()
    assert lines[0].split() == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert lines[1].split() == ["orders-0", "0", "1970-01-01", "00:00:01.000Z", "k0", "v0"]
    assert lines[-1].split() == ["orders-2", "1", "1970-01-01", "00:00:02.001Z", "null", "w1"]
    assert len(lines) == 13


def test_kcat_letters_are_filled_in(root: Path) -> None:
    lines = b"""
        {"key":"k","value":"v\\n","timestamp":7,"headers":[{"key":"a","value":"1"},{"key":"b"}]}
        {"timestamp":8}
    """
    ok("produce", "orders", "-p", 1, "--path", root, "--format", "ndjson", stdin=lines)
    ran = cat(root, "--output-format", r"%t/%p/%o/%T/%k/%K/%s/%S/%h/%%\t\x41\\%R\n")
    assert ran.out == (
        b"orders/1/0/7/k/1/v\n/2/a=1,b=NULL/%\tA\\\x00\x00\x00\x02\n"
        b"orders/1/1/8//-1//-1//%\tA\\\xff\xff\xff\xff\n"
    )


@pytest.mark.parametrize(
    ("encoding", "text"), [("base64", b"/w=="), ("hex", b"ff"), ("utf8", b"\xff")]
)
def test_output_format_encodes_keys_and_values(root: Path, encoding: str, text: bytes) -> None:
    line = b'{"keyBase64":"/w==","valueBase64":"/w=="}'
    ok("produce", "orders", "--path", root, "--format", "ndjson", stdin=line)
    assert cat(root, "--output-format", "%k", "--encoding", encoding).out == text


@pytest.mark.parametrize("template", ["%z", "%", "\\q", "\\xZZ", "\\x", "a\\"])
def test_an_unknown_letter_is_wrong_use(root: Path, template: str) -> None:
    ran = cat(root, "--output-format", template)
    assert ran.code == 2
    assert "%t topic" in ran.error


def test_any_directory_and_any_file_of_a_log_can_be_named(filled: Path) -> None:
    partition = filled / "orders-2"
    for path in (partition, partition / f"{0:020}.log"):
        assert shown(streamlog("cat", path)) == W
    assert shown(streamlog("cat", filled)) == V + W


def test_one_file_of_many_shows_only_its_records(root: Path) -> None:
    ok("topics", "create", "s", "--config", "segment.bytes=1048576", "--path", root)
    with LogManager.open(root) as manager:
        log = manager.log("s", 0)
        for i in range(3):
            log.append([Record(value=b"s%d" % i)])
            log.roll()
    assert shown(streamlog("cat", root / "s-0" / f"{1:020}.log")) == ["s1"]


def test_reading_changes_nothing(filled: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        paths = sorted(filled.rglob("*"))
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in paths}

    before = state()
    cat(filled)
    streamlog("cat", filled / "orders-0")
    ok("offsets", "orders", "--path", filled, "--time", "1005")
    ok("topics", "list", "--path", filled)
    assert state() == before


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("place", ["body", "magic"])
@pytest.mark.parametrize("bad", [0, 4, 9])
def test_records_before_damage_and_other_partitions_come_first(
    filled: Path, bad: int, place: str
) -> None:
    log = filled / "orders-0" / f"{0:020}.log"
    size = log.stat().st_size // 10
    flip_bit(log, bad * size + (size - 2 if place == "body" else 16))
    ran = cat(filled)
    assert ran.code == 1
    assert [row["value"] for row in ran.rows] == V[:bad] + W
    assert ran.error.startswith("Error: ")
    assert str(log) in ran.error
    assert f"byte {bad * size}" in ran.error


@given(RECORDS)
@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("encoding", ["utf8", "base64", "hex"])
def test_cat_into_produce_loses_nothing(root: Path, encoding: str, records: list[Record]) -> None:
    for name in ("source", "target"):
        if name in {row["topic"] for row in ok("topics", "list", "--path", root).rows}:
            ok("topics", "delete", name, "--path", root)
        ok("topics", "create", name, "--path", root)
    plausible = [each._replace(timestamp=(each.timestamp or 0) % NOW) for each in records]
    with LogManager.open(root) as manager:
        if plausible:
            manager.log("source", 0).append(plausible)
    options = ("--path", root, "--encoding", encoding)
    text = ok("cat", "source", *options).out
    ok("produce", "target", "--format", "ndjson", *options, stdin=text)
    with LogManager.open(root) as manager:
        target = manager.log("target", 0).read(0, 1 << 20).records()
        source = manager.log("source", 0).read(0, 1 << 20).records()
        assert list(target) == list(source)


def test_a_directory_of_an_old_kafka_is_shown_with_what_its_format_has() -> None:
    (directory,) = (GOLDEN / "B-legacy").glob("017-*/old*")
    rows = ok("cat", directory).rows
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert {(row["timestamp"], row["timestampType"]) for row in rows} == {(-1, "NoTimestampType")}


def test_an_unreachable_partition_is_reported(filled: Path) -> None:
    (filled / "orders-7").symlink_to(filled.parent / "unmounted")
    (filled / "orders-8").touch()
    (filled / "users-0").touch()
    ran = cat(filled)
    assert (ran.code, [row["value"] for row in ran.rows]) == (1, V + W)
    assert "orders-7: got a link to" in ran.error
    assert f"{filled}/orders-8: got a file" in ran.error
    assert "users-0" not in ran.error
    assert shown(cat(filled, "-p", 0)) == V
    assert "users-0" in streamlog("cat", f"{filled}/").error
    assert "users-0" in streamlog("offsets", f"{filled}/").error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-o", "2..4"), V[2:4]),
        (("-o", "..2"), [*V[:2], *W]),
        (("-o", "8.."), V[8:]),
        (("-o", "8..99"), V[8:]),
        (("-o", "4..2"), []),
        (("-o", "end..end"), []),
        (("-o", "beginning..beginning"), []),
        (("-o", "-2..9"), V[8:9]),
        (("-o", "1..e@1005"), V[1:5]),
        (("-o", "s@1003..1970-01-01T00:00:01.005"), V[3:5]),
        (("-o", "1970-01-01T00:00:01.003Z..1970-01-01T01:00:01.005+01:00"), V[3:5]),
        (("-o", "s@1970-01-01T00:00:01.008"), V[8:]),
        (("-o", "1970-01-02"), []),
        (("-o", "-1h"), []),
        (("-o", "s@-99999d"), V),
        (("-o", "e@-5m"), V),
    ],
)
def test_ranges_dates_and_times_before_now(
    filled: Path, arguments: tuple[str, ...], expected: list[str]
) -> None:
    zero = ("-p", 0) if arguments[-1] != "..2" else ()
    assert shown(cat(filled, *zero, *arguments)) == expected


def test_a_time_before_now_is_before_now(root: Path) -> None:
    now_ms = SystemClock().now_ms()
    with LogManager.open(root) as manager:
        for minutes in (90, 30):
            record = Record(value=b"%d" % minutes, timestamp=now_ms - minutes * 60_000)
            manager.log("orders", 0).append([record])
    assert shown(cat(root, "-o", "-1h")) == ["30"]
    assert shown(cat(root, "-o", "-2h..-1h")) == ["90"]


@pytest.mark.parametrize(
    "offset", ["1..2..3", "..-3", "a..b", "-1w", "2026-13-01", "s@yesterday", "e@", "1...4"]
)
def test_an_invalid_offset_is_refused(filled: Path, offset: str) -> None:
    ran = cat(filled, "-o", offset)
    assert (ran.code, ran.out) == (2, b"")
    assert "invalid value for --offset" in ran.error


def test_following_to_an_end_is_wrong_use(filled: Path) -> None:
    assert cat(filled, "-f", "-o", "1..2").code == 2


def test_following_reads_partitions_that_are_added_later(filled: Path) -> None:
    with started("cat", "orders", "--path", filled, "-f", "-c", 13) as process:
        read_lines(process, 12)
        with LogManager.open(filled) as manager:
            manager.alter_topic("orders", partitions=5)
            manager.log("orders", 4).append([Record(value=b"late")])
        out, error = process.communicate(timeout=60)
    assert json.loads(out)["value"] == "late", error
    assert process.returncode == 0


@pytest.mark.parametrize("is_recreated", [False, True])
def test_following_ends_when_the_topic_is_deleted(filled: Path, is_recreated: bool) -> None:
    with started("cat", "orders", "--path", filled, "-f") as process:
        read_lines(process, 12)
        with LogManager.open(filled) as manager:
            manager.delete_topic("orders")
            if is_recreated:
                manager.create_topic("orders", 3)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert b"deleted" in error
