"""951 damaged batches: where Kafka reads records we read the same, where it throws we raise."""

from typing import Any

from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptRecordError
from streamlog.records.batch import ScanStop, check_crc, read_batches, scan_batches
from streamlog.records.decode import decode_columns
from streamlog.records.layout import ATTRIBUTES_OFFSET, CRC_OFFSET, MAGIC_OFFSET
from tests.support.batches import record_facts
from tests.support.golden import GOLDEN, json_lines

FOLDER = GOLDEN / "A-batches" / "099-mutated-batches"
MUTATIONS = json_lines("A-batches/099-mutated-batches/expect.jsonl.gz")
BASES = {path.name: path.read_bytes() for path in FOLDER.glob("base-*.bin")}
ERROR = "error"


def mutated(case: dict[str, Any]) -> bytes:
    buffer = bytearray(BASES[case["file"]])
    for position, value in case["set"]:
        buffer[position] = value
    if case["crcRepaired"]:
        crc = crc32c(buffer[ATTRIBUTES_OFFSET:])
        buffer[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
    return bytes(buffer)


def outcome_of_batches(buffer: bytes) -> Any:
    try:
        batches = list(read_batches(buffer))
        return [record_facts(record) for batch in batches for record in batch.records()]
    except CorruptRecordError:
        return ERROR


def test_batches_read_one_by_one_have_kafkas_outcome() -> None:
    assert len(MUTATIONS) == 951
    for case in MUTATIONS:
        wanted = ERROR if case["outcome"] == ERROR else case.get("records", [])
        assert outcome_of_batches(mutated(case)) == wanted, case


def test_checksums_are_right_where_kafka_says_so() -> None:
    for case in MUTATIONS:
        if case["batches"] and case["outcome"] != ERROR:
            batch = next(read_batches(mutated(case)))
            assert batch.is_valid == case["isValid"], case


def test_a_batch_turned_into_an_old_message_is_scanned_and_has_a_wrong_checksum() -> None:
    turned = [
        case for case in MUTATIONS if case["set"] in ([[MAGIC_OFFSET, 0]], [[MAGIC_OFFSET, 1]])
    ]
    assert len(turned) == 6
    for case in turned:
        buffer = mutated(case)
        scan = scan_batches(buffer)
        assert (scan.stop, len(scan.table)) == (ScanStop.END, 1)
        assert check_crc(buffer, scan.table) == 0


def test_scanning_has_the_same_outcome_but_refuses_impossible_offsets() -> None:
    # Deliberately stricter than Kafka: headers on which the log builds must not go backwards.
    stricter = []
    for case in MUTATIONS:
        buffer = mutated(case)
        scan = scan_batches(buffer)
        wanted = outcome_of_batches(buffer)
        if scan.stop is ScanStop.BAD_HEADER and wanted != ERROR:
            stricter.append(case)
        elif scan.stop not in (ScanStop.END, ScanStop.PARTIAL):
            assert wanted == ERROR, case
        else:
            assert outcome_of_columns(buffer) == strip(wanted), case
    fields = {position for case in stricter for position, _ in case["set"]}
    assert stricter and fields <= {0, *range(CRC_OFFSET, ATTRIBUTES_OFFSET), *range(23, 27)}


def outcome_of_columns(buffer: bytes) -> Any:
    table = scan_batches(buffer).table
    everything = {"start_offset": -(2**63), "drop_control": False}
    try:
        columns = decode_columns(buffer, table, **everything)
    except CorruptRecordError:
        return ERROR
    return strip([record_facts(record) for record in columns.records()])


def strip(records: Any) -> Any:
    """Remove sequences, which columns do not have."""
    if records == ERROR:
        return ERROR
    return [{key: value for key, value in r.items() if key != "sequence"} for r in records]
