"""`streamlog dump`: what a real broker's files hold, beside what Kafka's own readers said."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from tests.support.cli import ok, streamlog
from tests.support.golden import GOLDEN, json_lines, unpack

EXPECT = GOLDEN / "C-broker" / "clean-expect"
SEGMENT = f"{137:020}"
WORDS = [
    "baseOffset",
    "lastOffset",
    "count",
    "baseSequence",
    "lastSequence",
    "producerId",
    "producerEpoch",
    "partitionLeaderEpoch",
    "isTransactional",
    "isControl",
    "deleteHorizonMs",
    "position",
    "timestampType",
    "maxTimestamp",
    "size",
    "magic",
    "compresscodec",
    "crc",
    "isvalid",
]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log.dir of a broker that was stopped cleanly; not to be changed."""
    return unpack("C-broker/clean-log.dir.tar.gz", tmp_path_factory.mktemp("x")) / "clean-log.dir"


@pytest.fixture(scope="module")
def txn() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((EXPECT / "txn-0.json").read_text())
    return facts


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    """A copy of the partition `txn-0` that a test may change."""
    path = tmp_path / "txn-0"
    path.mkdir()
    for each in (clean / "txn-0").iterdir():
        (path / each.name).write_bytes(each.read_bytes())
    return path


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


# ---- batches and records ------------------------------------------------------------------------
def test_batches_are_those_that_kafka_saw(clean: Path) -> None:
    rows = ok("dump", *segments(clean / "txn-0")).rows
    expected = json_lines("C-broker/clean-expect/txn-0.batches.jsonl.gz")
    assert len(rows) == len(expected) > 100
    for row, facts in zip(rows, expected, strict=True):
        assert list(row) == ["file", *WORDS]
        assert Path(row.pop("file")).name == facts["file"]
        assert row == {word: facts[word] for word in WORDS}


def test_records_are_those_that_a_consumer_got_and_nothing_is_lost(clean: Path) -> None:
    rows = ok("dump", *segments(clean / "txn-0"), "--print-data-log", "--encoding", "base64").rows
    records = [record for row in rows if not row["isControl"] for record in row.pop("records")]
    expected = json_lines("C-broker/clean-expect/txn-0.consumer.jsonl.gz")
    assert [record["offset"] for record in records] == [facts["offset"] for facts in expected]
    for record, facts in zip(records, expected, strict=True):
        assert (record["topic"], record["partition"]) == ("txn", 0)
        for word in ("timestamp", "timestampType", "key", "value"):
            assert record[word] == facts[word]
        assert [[each["key"], each["value"]] for each in record["headers"]] == facts["headers"]


def test_control_records_say_what_they_decide(clean: Path) -> None:
    rows = ok("dump", *segments(clean / "txn-0"), "--print-data-log").rows
    markers = [record["control"] for row in rows if row["isControl"] for record in row["records"]]
    assert {marker["type"] for marker in markers} == {"ABORT", "COMMIT"}
    assert markers[0] == {"version": 0, "typeId": 1, "type": "COMMIT", "coordinatorEpoch": 0}


@pytest.mark.parametrize("name", ["017-0.8.2.2-log-dir", "041-0.10.2.2-log-dir-logappendtime"])
def test_messages_of_old_formats(name: str) -> None:
    [directory] = (GOLDEN / "B-legacy" / name).glob("old*")
    lines = gzip.decompress((directory.parent / "expect.jsonl.gz").read_bytes()).splitlines()
    expected = [json.loads(line) for line in lines]
    batches = [facts for facts in expected if facts["kind"] == "batch"]
    rows = ok("dump", *segments(directory), "--print-data-log", "--encoding", "base64").rows
    assert [[row[word] for word in WORDS] for row in rows] == [
        [facts[word] for word in WORDS] for facts in batches
    ]
    offsets = [facts["offset"] for facts in expected if facts["kind"] == "record"]
    assert [record["offset"] for row in rows for record in row["records"]] == offsets


def test_a_table_is_what_kafkas_tool_prints(clean: Path) -> None:
    path = clean / "txn-0" / f"{1:020}.log"
    out = ok("dump", path, "--print-data-log", "--format", "table").out.decode()
    lines = out.splitlines()
    assert lines[:4] == [
        f"Dumping {path}",
        "Log starting offset: 1",
        "baseOffset: 1 lastOffset: 1 count: 1 baseSequence: -1 lastSequence: -1 producerId: 12"
        " producerEpoch: 1 partitionLeaderEpoch: 0 isTransactional: true isControl: true"
        " deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1795227472315 size: 78"
        " magic: 2 compresscodec: none crc: 1934833318 isvalid: true",
        "| offset: 1 CreateTime: 1795227472315 keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
        " endTxnMarker: COMMIT coordinatorEpoch: 0",
    ]
    assert (
        "| offset: 7 CreateTime: 1700500467545 keySize: 6 valueSize: -1 sequence: 0 headerKeys: []"
        " key: key-15"
    ) in lines


def test_hostile_text_steers_no_terminal_and_splits_no_line(tmp_path: Path) -> None:
    root = tmp_path / "root"
    value = json.dumps({"value": "red \x1b[31m\n\u2028 next"})
    ok("topics", "create", "t", "--path", root)
    ok("produce", "t", "--path", root, "--format", "ndjson", stdin=value.encode() + b"\n")
    path = root / "t-0" / f"{0:020}.log"
    table = ok("dump", path, "--print-data-log", "--format", "table").out
    assert b"\x1b" not in table and len(table.splitlines()) == 4
    [row] = ok("dump", path, "--print-data-log").rows
    assert row["records"][0]["value"] == json.loads(value)["value"]
    assert len(ok("dump", path, "--print-data-log").out.decode().splitlines()) == 1


def test_control_records_that_make_no_sense_are_shown_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "host-3" / "copied" / f"{0:020}.log"
    path.parent.mkdir(parents=True)
    builder = BatchBuilder(base_offset=0, producer_id=1, producer_epoch=0, is_control=True)
    builder.append(Record(b"?", None, timestamp=5))
    path.write_bytes(builder.build())
    [row] = ok("dump", path, "--print-data-log").rows
    assert row["records"][0]["control"] is None
    assert row["records"][0]["topic"] is None  # the directory is no partition's
    assert b"controlType: UNKNOWN" in ok("dump", path, "--print-data-log", "--format", "table").out


def test_so_many_bytes_and_no_more(clean: Path) -> None:
    path = clean / "txn-0" / f"{1:020}.log"
    assert [row["baseOffset"] for row in ok("dump", path, "--max-bytes", 300).rows] == [1, 2]
    assert ok("dump", path, "--max-bytes", 0, "--format", "json").out == b"[]\n"


# ---- the other files ----------------------------------------------------------------------------
def without_file(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert all(list(row)[-1] == "file" for row in rows)
    return [{key: row[key] for key in row if key != "file"} for row in rows]


def test_index_entries_are_those_that_kafka_saw(clean: Path, txn: dict[str, Any]) -> None:
    for name, entries in txn["offsetIndex"].items():
        rows = without_file(ok("dump", clean / "txn-0" / name).rows)
        assert rows == [{"offset": offset, "position": position} for offset, position in entries]
    for name, entries in txn["timeIndex"].items():
        rows = without_file(ok("dump", clean / "txn-0" / name).rows)
        assert rows == [{"timestamp": time, "offset": offset} for time, offset in entries]
    for name, entries in txn["txnIndex"].items():
        assert without_file(ok("dump", clean / "txn-0" / name).rows) == entries


def test_producers_epochs_and_ids_are_those_that_kafka_saw(
    clean: Path, txn: dict[str, Any]
) -> None:
    for name, producers in txn["producerSnapshots"].items():
        rows = without_file(ok("dump", clean / "txn-0" / name).rows)
        assert sorted(rows, key=lambda row: int(row["producerId"])) == producers
    rows = without_file(ok("dump", clean / "txn-0" / "leader-epoch-checkpoint").rows)
    assert [[row["epoch"], row["startOffset"]] for row in rows] == txn["leaderEpochs"]
    [row] = ok("dump", clean / "txn-0" / "partition.metadata").rows
    assert (row["version"], row["topicId"]) == (0, txn["topicId"])


@pytest.mark.parametrize("which", ["recovery-point", "log-start", "replication", "cleaner"])
def test_checkpoints(clean: Path, which: str) -> None:
    name = f"{which}-offset-checkpoint"
    text = json.loads((EXPECT / "log.dir-files.json").read_text())[name]["text"]
    rows = ok("dump", clean / name).rows
    found = [f"{row['topic']} {row['partition']} {row['offset']}" for row in rows]
    assert found == text.splitlines()[2:]


def test_cluster_and_node(clean: Path) -> None:
    [row] = ok("dump", clean / "meta.properties").rows
    assert (row["version"], row["nodeId"]) == (1, 1)
    assert (row["clusterId"], row["directoryId"]) == (
        "JEL_7t5qsHgfR_sUhF8mgw",
        "TAN-wWuiqYB18BSJ26qtIw",
    )


def test_tables_of_other_files_are_what_kafkas_tool_prints(clean: Path) -> None:
    directory = clean / "txn-0"
    names = [f"{1:020}.index", f"{1:020}.timeindex", f"{1:020}.txnindex", f"{64:020}.snapshot"]
    paths = [directory / name for name in names]
    lines = ok("dump", *paths, directory / f"{0:020}.index", "--format", "table").out.decode()
    assert set(lines.splitlines()) >= {
        *(f"Dumping {path}" for path in paths),
        "offset: 11 position: 1152",
        "timestamp: 1795227472522 offset: 8",
        "version: 0 producerId: 13 firstOffset: 9 lastOffset: 13 lastStableOffset: 14",
        "producerId: 11 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset:"
        " OptionalLong.empty lastTimestamp: 1700500492832 firstSequence: 10 lastSequence: 10"
        " lastOffset: 61 offsetDelta: 0 timestamp: 1700500492832",
        "producerId: 12 producerEpoch: 16 coordinatorEpoch: 0 currentTxnFirstOffset:"
        " OptionalLong.empty lastTimestamp: 1795227473343 ",
        f"{directory / f'{0:020}.index'} is empty.",
    }


# ---- internal topics ----------------------------------------------------------------------------
def test_committed_offsets_are_those_of_the_consumer_groups(clean: Path) -> None:
    logs = [each for part in (0, 1) for each in segments(clean / f"__consumer_offsets-{part}")]
    rows = ok("dump", *logs, "--offsets-decoder").rows
    groups: dict[str, dict[str, Any]] = {}
    for record in (record for row in rows for record in row["records"]):
        key, value = record["key"], record["value"]
        if key["type"] != "1":
            continue
        data = key["data"]
        if value is None:  # the group has let go of it
            groups[data["group"]].pop(f"{data['topic']}-{data['partition']}")
            continue
        committed = {word: value["data"][word] for word in ("offset", "metadata", "leaderEpoch")}
        groups.setdefault(data["group"], {})[f"{data['topic']}-{data['partition']}"] = committed
    assert groups == json.loads((EXPECT / "consumer-groups.json").read_text())


def test_members_of_a_group_are_taken_apart(clean: Path) -> None:
    path = clean / "__consumer_offsets-0" / f"{0:020}.log"
    rows = ok("dump", path, "--offsets-decoder").rows
    [group] = [
        record["value"]["data"]
        for row in rows
        for record in row["records"]
        if record["key"]["type"] == "2" and record["value"]["data"]["members"]
    ]
    [member] = group["members"]
    assert member["subscription"]["topics"] == ["codec-lz4", "keyed"]
    assert member["assignment"]["assignedPartitions"][1] == {
        "topic": "keyed",
        "partitions": [0, 1, 2],
    }


def test_transactions_are_taken_apart(clean: Path) -> None:
    path = clean / "__transaction_state-0" / f"{0:020}.log"
    rows = ok("dump", path, "--transaction-log-decoder").rows
    records = [record for row in rows for record in row["records"]]
    assert records[3]["key"] == {"type": "0", "data": {"transactionalId": "tx-a"}}
    assert records[3]["value"] == {
        "version": "1",
        "data": {
            "producerId": 12,
            "producerEpoch": 0,
            "transactionTimeoutMs": 600000,
            "transactionStatus": 1,
            "transactionPartitions": [
                {"topic": "compacted-txn", "partitionIds": [0]},
                {"topic": "txn", "partitionIds": [0]},
            ],
            "transactionLastUpdateTimestampMs": 1795227472242,
            "transactionStartTimestampMs": 1795227472242,
            "clientTransactionVersion": 2,
        },
    }


def test_records_that_are_none_of_the_internal_topic_stay_as_they_are(clean: Path) -> None:
    path = clean / "codec-none-0" / f"{0:020}.log"
    plain = ok("dump", path, "--print-data-log").rows
    assert ok("dump", path, "--offsets-decoder").rows == plain
    assert streamlog("dump", path, "--offsets-decoder", "--transaction-log-decoder").code == 2


# ---- what is wrong ------------------------------------------------------------------------------
def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_wrong_checksum_is_shown_and_reported(copy: Path) -> None:
    path = copy / f"{SEGMENT}.log"
    count = len(ok("dump", path).rows)
    flip(path, 70)
    ran = streamlog("dump", path)
    assert ran.code == 1 and len(ran.rows) == count
    assert [row["isvalid"] for row in ran.rows[:2]] == [False, True]
    assert f"wrong checksum in {path} at byte 0" in ran.error


def test_a_torn_tail_is_reported_after_the_readable_part(copy: Path) -> None:
    path = copy / f"{348:020}.log"
    lines = ok("dump", path, "--format", "table").out.splitlines()
    path.write_bytes(path.read_bytes() + b"half a batch")
    ran = streamlog("dump", path, "--format", "table")
    found = f"Found 12 invalid bytes at the end of {path.name}".encode()
    assert (ran.code, ran.out.splitlines()) == (1, [*lines, found])
    assert "not a complete batch" in ran.error


def test_undecodable_records_are_reported_with_deep(copy: Path) -> None:
    path = copy / f"{SEGMENT}.log"
    flip(path, 61)  # the length of the first record
    assert "record" in streamlog("dump", path, "--deep-iteration").error


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_is_held_against_its_log(copy: Path, suffix: str) -> None:
    path = copy / f"{SEGMENT}{suffix}"
    assert ok("dump", path, "--verify-index-only").out == b""
    assert ok("dump", path, "--index-sanity-check", "--format", "table").out.endswith(
        b"passed sanity check.\n"
    )
    rows = len(ok("dump", path).rows)
    path.write_bytes((copy / f"{67:020}{suffix}").read_bytes())
    ran = streamlog("dump", path, "--verify-index-only")
    assert (ran.code, ran.out) == (1, b"")
    assert str(path) in ran.error
    assert streamlog("dump", path).code == 1
    path.write_bytes(path.read_bytes()[:-1])
    assert streamlog("dump", path, "--index-sanity-check").code == 1
    assert rows


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "partition.metadata", f"{SEGMENT}.snapshot"]
)
def test_a_damaged_small_file_is_reported(copy: Path, name: str) -> None:
    flip(copy / name, 0)
    ran = streamlog("dump", copy / name)
    assert (ran.code, ran.out) == (1, b"")
    assert str(copy / name) in ran.error


def test_wrong_use_and_the_other_files_come_first(clean: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    good = clean / "txn-0" / "partition.metadata"
    missing = tmp_path / f"{5:020}.log"
    ran = streamlog("dump", tmp_path / "notes.txt", missing, tmp_path / "meta.properties", good)
    assert (ran.code, len(ran.rows)) == (2, 1)
    assert ran.error.count("Error: ") == 3


def test_files_on_their_way_out_are_read_too(clean: Path) -> None:
    [path, *_] = sorted((clean / "retained-0").glob("*.log.deleted"))
    assert ok("dump", path).rows[0]["baseOffset"] == int(path.name.partition(".")[0])
    lines = ok("dump", clean / "bootstrap.checkpoint", "--format", "table").out.decode()
    assert lines.splitlines()[1] == "KRaft bootstrap snapshot"
    assert lines.splitlines()[2].startswith("baseOffset: 0 ")


def test_a_snapshot_of_the_cluster_metadata_says_where_it_ends(clean: Path, tmp_path: Path) -> None:
    path = tmp_path / f"{181:020}-{3:010}.checkpoint"
    path.write_bytes((clean / "bootstrap.checkpoint").read_bytes())
    lines = ok("dump", path, "--format", "table").out.decode().splitlines()
    assert lines[1] == "Snapshot end offset: 181, epoch: 3"


def test_base64_and_hex_hold_the_same_bytes(clean: Path) -> None:
    path = clean / "codec-none-0" / f"{0:020}.log"
    values = [
        [
            record["value"]
            for row in ok("dump", path, "--print-data-log", "--encoding", encoding).rows
            for record in row["records"]
        ]
        for encoding in ("base64", "hex")
    ]
    for as_base64, as_hex in zip(*values, strict=True):
        assert (as_base64 is None) == (as_hex is None)
        if as_base64 is not None:
            assert base64.b64decode(as_base64) == bytes.fromhex(as_hex)
