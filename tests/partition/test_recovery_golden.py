"""417 damaged logs: what Kafka's recovery made of them, and what ours makes of them.

Each case is a directory of a live log, damaged (`tests/golden/D-recovery`, PROVENANCE.md there).
Where we answer otherwise than Kafka, STRICTER.md there says so and why; this test takes the
numbers from that file, so what it lists is what is true.
"""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptRecordError,
    StreamLogError,
)
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.segment.filenames import log_file_name
from tests.support.golden import GOLDEN, files_of, json_lines
from tests.support.segments import read_bytes, write_bytes

FOLDER = GOLDEN / "D-recovery"
CASES = json_lines("D-recovery/cases.jsonl.gz")
BASES = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in ("base-a", "base-b")}
ROOT, PATH = "/logs", "/logs/orders-0"


def _listed() -> Iterator[tuple[int, tuple[str, str]]]:
    heading = ""
    for line in (FOLDER / "STRICTER.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
        row = re.fullmatch(r"\| (.+) \| ([\d, -]+) \|", line)
        if row is not None:
            for item in row[2].split(", "):
                first, _, last = item.partition("-")
                for number in range(int(first), int(last or first) + 1):
                    yield number, (heading, row[1])


LISTED = dict(_listed())


class Opened(NamedTuple):
    """What the log said when it was open."""

    log_start: int
    log_end: int
    last_stable: int
    segments: list[dict[str, int]]


def damaged(case: dict[str, Any]) -> MemoryFileSystem:
    """Return a file system with the case's directory, and checkpoints as it was opened with."""
    fs = MemoryFileSystem(clock=ManualClock(BASES[case["base"]]["now"]))
    fs.make_directory(ROOT)
    fs.make_directory(PATH)
    for name, data in files_of(FOLDER / case["base"]):
        write_bytes(fs, f"{PATH}/{name}", data)
    for operation in case["ops"]:
        damage(fs, operation)
    for key, name in (
        ("recoveryPoint", "recovery-point-offset-checkpoint"),
        ("logStartOffset", "log-start-offset-checkpoint"),
    ):
        if case["open"][key]:
            row = f"0\n1\norders 0 {case['open'][key]}\n"
            write_bytes(fs, f"{ROOT}/{name}", row.encode())
    return fs


def damage(fs: MemoryFileSystem, operation: dict[str, Any]) -> None:
    path = f"{PATH}/{operation['file']}"
    match operation["op"]:
        case "delete":
            fs.remove(path)
        case "rename":
            fs.rename(path, f"{PATH}/{operation['to']}")
        case "copy":
            write_bytes(fs, f"{PATH}/{operation['to']}", read_bytes(fs, path))
        case "write":
            write_bytes(fs, path, bytes.fromhex(operation["hex"]))
        case "append":
            write_bytes(fs, path, read_bytes(fs, path) + bytes.fromhex(operation["hex"]))
        case "truncate":
            with fs.open(path, OpenMode.WRITE) as file:
                file.truncate(operation["size"])
        case "set" | "zeros":
            zeros = bytes(operation.get("count", 0))
            with fs.open(path, OpenMode.WRITE) as file:
                file.pwrite(bytes.fromhex(operation.get("hex", "")) or zeros, operation["position"])


def open_log(fs: MemoryFileSystem, case: dict[str, Any]) -> PartitionLog:
    base = BASES[case["base"]]
    config = LogConfig.from_properties(base["config"])
    return PartitionLog.open(PATH, config=config, fs=fs, clock=ManualClock(base["now"]))


def ours(fs: MemoryFileSystem, case: dict[str, Any]) -> Opened:
    with open_log(fs, case) as log:
        segments = [{"baseOffset": s.base_offset, "size": s.size} for s in log.segments]
        return Opened(log.log_start_offset, log.log_end_offset, log.last_stable_offset, segments)


def kafkas(case: dict[str, Any]) -> Opened:
    expect = case["expect"]
    return Opened(
        expect["logStartOffset"],
        expect["logEndOffset"],
        expect["lastStableOffset"],
        expect["segments"],
    )


def log_files(fs: MemoryFileSystem) -> dict[str, bytes]:
    names = [name for name in fs.list(PATH) if name.endswith(".log")]
    return {name: read_bytes(fs, f"{PATH}/{name}") for name in names}


def check_bytes(fs: MemoryFileSystem, case: dict[str, Any]) -> None:
    """The surviving records are Kafka's byte for byte."""
    names = [log_file_name(each["baseOffset"]) for each in case["expect"]["segments"]]
    if "thenAppend" in case["expect"]:
        names.pop()  # Kafka appended a record before its files were listed
    found = log_files(fs)
    for name in names:
        expected = case["expect"]["filesAfterClose"][name]
        if expected == "=":
            assert found[name] == (FOLDER / case["base"] / name).read_bytes(), name
        else:
            assert [len(found[name]), sha256(found[name]).hexdigest()] == expected, name


def is_listed(kind: str) -> list[dict[str, Any]]:
    return [case for case in CASES if LISTED.get(case["case"], ("", ""))[0] == kind]


def name_of(case: dict[str, Any]) -> str:
    return f"{case['case']}-{case['what'][:40]}"


def test_each_listed_case_exists_and_the_others_are_most() -> None:
    assert set(LISTED) <= {case["case"] for case in CASES}
    kinds = {kind for kind, _ in LISTED.values()}
    assert kinds == {
        "refused",
        "refused checkpoint",
        "cuts more",
        "opens",
        "other segments",
        "other stable offset",
    }
    assert len(CASES) == 417 and len(CASES) - len(LISTED) >= 300


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["case"] not in LISTED], ids=name_of
)
def test_answers_are_kafkas(case: dict[str, Any]) -> None:
    fs = damaged(case)
    if case["expect"]["outcome"] == "error":
        with pytest.raises(StreamLogError):
            ours(fs, case)
        return
    assert ours(fs, case) == kafkas(case)
    check_bytes(fs, case)


@pytest.mark.parametrize("case", is_listed("refused"), ids=name_of)
def test_damage_is_refused_by_its_case_and_nothing_is_changed(case: dict[str, Any]) -> None:
    assert case["expect"]["outcome"] == "opened"
    fs = damaged(case)
    before = {name: read_bytes(fs, f"{PATH}/{name}") for name in fs.list(PATH)}
    with pytest.raises(CorruptRecordError) as caught:
        ours(fs, case)
    assert f"case {LISTED[case['case']][1][:2]}" in caught.value.what
    assert caught.value.path is not None and caught.value.path.startswith(PATH)
    assert caught.value.position is not None and caught.value.offset is not None
    touched = {op["file"] for op in case["ops"] if op["file"].endswith(".log")}
    assert caught.value.path.rpartition("/")[2] in touched
    logs = {name: data for name, data in before.items() if name.endswith(".log")}
    assert log_files(fs) == logs


@pytest.mark.parametrize("case", is_listed("refused checkpoint"), ids=name_of)
def test_damaged_checkpoint_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(CorruptCheckpointError):
        ours(damaged(case), case)


@pytest.mark.parametrize("case", is_listed("cuts more"), ids=name_of)
def test_what_is_no_record_is_cut(case: dict[str, Any]) -> None:
    fs = damaged(case)
    found, kafka = ours(fs, case), kafkas(case)
    assert found[:3] == kafka[:3]
    assert found.segments[:-1] == kafka.segments[:-1]
    active = log_file_name(found.segments[-1]["baseOffset"])
    base = (FOLDER / case["base"] / active).read_bytes()
    assert read_bytes(fs, f"{PATH}/{active}") == base
    assert found.segments[-1]["size"] < kafka.segments[-1]["size"]


@pytest.mark.parametrize("case", is_listed("opens"), ids=name_of)
def test_what_kafka_cannot_open_is_opened(case: dict[str, Any]) -> None:
    assert case["expect"]["outcome"] == "error"
    fs = damaged(case)
    found = ours(fs, case)
    assert found.log_end == {"base-a": 158, "base-b": 184}[case["base"]]
    for name, data in files_of(FOLDER / case["base"]):
        if name.endswith(".log"):
            assert read_bytes(fs, f"{PATH}/{name}") == data


def test_a_damaged_transaction_index_is_refused_when_it_is_needed() -> None:
    case = next(case for case in CASES if case["case"] == 154)
    fs = damaged(case)
    with open_log(fs, case) as log:
        segment = log.segments.find(70)
        assert segment is not None
        with pytest.raises(CorruptIndexError):
            segment.aborted_transactions(70, 100)


@pytest.mark.parametrize("case", is_listed("other segments"), ids=name_of)
def test_a_foreign_file_is_left_alone(case: dict[str, Any]) -> None:
    fs = damaged(case)
    found, kafka = ours(fs, case), kafkas(case)
    assert found[:2] == kafka[:2]
    assert found.segments == [each for each in kafka.segments if each["baseOffset"] != 5]
    assert "5.log" in fs.list(PATH)


@pytest.mark.parametrize("case", is_listed("other stable offset"), ids=name_of)
def test_open_transactions_are_known_better(case: dict[str, Any]) -> None:
    fs = damaged(case)
    found, kafka = ours(fs, case), kafkas(case)
    assert found.last_stable != kafka.last_stable
    assert found._replace(last_stable=0) == kafka._replace(last_stable=0)
    check_bytes(fs, case)
    truth = {"base-a": 57, "base-b": 17}[case["base"]]  # of the undamaged log
    assert found.last_stable == max(truth, found.log_start)


@pytest.mark.parametrize("case", [CASES[0], CASES[20], CASES[90], CASES[215]], ids=name_of)
def test_appends_go_on_after_recovery(case: dict[str, Any]) -> None:
    fs = damaged(case)
    with open_log(fs, case) as log:
        end = log.log_end_offset
        log.append([Record(b"k", b"v")])
        assert log.log_end_offset == end + 1
        assert [record.value for record in log.read(end).records()] == [b"v"]
    assert ours(fs, case).log_end == end + 1


@pytest.mark.parametrize("case", [CASES[1], CASES[9], CASES[91], CASES[216]], ids=name_of)
def test_opening_twice_is_opening_once(case: dict[str, Any]) -> None:
    fs = damaged(case)
    first = ours(fs, case)
    files = {name: read_bytes(fs, f"{PATH}/{name}") for name in fs.list(PATH)}
    assert ours(fs, case) == first
    assert {name: read_bytes(fs, f"{PATH}/{name}") for name in fs.list(PATH)} == files
