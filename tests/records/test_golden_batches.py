"""Every batch written by Kafka is read as Kafka reads it."""

from typing import Any

import pytest

from streamlog.records.batch import ScanStop, check_crc, read_batches, scan_batches
from streamlog.records.decode import decode_columns
from tests.support.batches import header_facts, record_facts
from tests.support.golden import GOLDEN, json_lines

FOLDER = GOLDEN / "A-batches"
CASES = sorted(path.parent.name for path in FOLDER.glob("*/batch.bin"))
V2 = [name for name in CASES if "-v2-" in name]  # one of which has v0 and v1, too


def expected(name: str, stem: str = "expect") -> list[dict[str, Any]]:
    path = next(FOLDER.glob(f"{name}/{stem}.jsonl*"))
    return json_lines(str(path.relative_to(GOLDEN)))


def lines(name: str, kind: str) -> list[dict[str, Any]]:
    return [line for line in expected(name) if line["kind"] == kind]


def test_the_golden_folder_has_all_cases_of_format_v2() -> None:
    assert len(V2) == 60


@pytest.mark.parametrize("name", V2)
def test_headers_are_what_kafka_reads(name: str) -> None:
    position = 0
    batches = list(read_batches((FOLDER / name / "batch.bin").read_bytes()))
    for batch, facts in zip(batches, lines(name, "batch"), strict=True):
        batch.check()
        found = header_facts(batch, position)
        assert found == {key: facts[key] for key in found}
        position += batch.size


@pytest.mark.parametrize("name", V2)
def test_records_are_what_kafka_reads(name: str) -> None:
    batches = read_batches((FOLDER / name / "batch.bin").read_bytes())
    found = [
        {"batch": index, **record_facts(record)}
        for index, batch in enumerate(batches)
        for record in batch.records()
    ]
    wanted = lines(name, "record")
    for line in wanted:
        del line["kind"]
        line.pop("control", None)
    assert found == wanted


@pytest.mark.parametrize("name", V2)
def test_columns_of_the_whole_file_are_what_kafka_reads(name: str) -> None:
    buffer = (FOLDER / name / "batch.bin").read_bytes()
    scan = scan_batches(buffer)
    assert scan.stop is ScanStop.END
    assert check_crc(buffer, scan.table) == len(scan.table)
    columns = decode_columns(buffer, scan.table, start_offset=-(2**63), drop_control=False)
    found = [record_facts(record) for record in columns.records()]
    for facts in found:
        del facts["sequence"]  # columns have no such field
    wanted = lines(name, "record")
    assert found == [{key: line[key] for key in found[0]} for line in wanted]
