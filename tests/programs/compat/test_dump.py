"""Kafka's dump tool reads directories that we closed and reports nothing wrong."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog.partition.reader import LogReader
from tests.programs.compat.answers import batches_of
from tests.programs.compat.kafka import Kafka
from tests.programs.compat.scenarios import SCENARIOS, written

pytestmark = pytest.mark.compat

# The tool always exits with success, so search its output for complaints.
FINDING = re.compile(
    r"isvalid: false|Found \d+ invalid bytes|Exception|Mismatches in|Found timestamp mismatch"
    r"|Found out of order timestamp|indexed offsets are not found|Non-consecutive offsets"
)
RECORD = re.compile(r"^\| offset: (\d+) ", re.MULTILINE)
# A remote leader compacted it; and a truncation inside a batch removes the batch but keeps the log
# end.
GAPS_ARE_MEANT = {"as follower"}


def dump(kafka: Kafka, path: Path) -> str:
    """Return the tool's output for the files of a directory, which it may change."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = sorted(each for each in path.iterdir() if each.suffix in suffixes)
    answer = kafka.ask("dump", files=",".join(map(str, files)))
    assert "error" not in answer, answer
    printed: str = answer["printed"]
    return printed


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_tool_finds_every_record_and_nothing_wrong(
    kafka: Kafka, tmp_path: Path, copy_of: Callable[[Path], Path], name: str
) -> None:
    path = written(tmp_path / "root", name)
    printed = dump(kafka, copy_of(path))
    findings = set(FINDING.findall(printed))
    assert findings == ({"Non-consecutive offsets"} if name in GAPS_ARE_MEANT else set())
    with LogReader.open(path) as reader:
        ours = [record.offset for batch in batches_of(reader) for record in batch.records()]
    assert [int(offset) for offset in RECORD.findall(printed)] == ours


@pytest.mark.parametrize(
    ("suffix", "at", "finding"),
    [
        (".log", 90, "isvalid: false"),
        (".index", 3, "Mismatches in"),
        (".timeindex", 7, "Found timestamp mismatch"),
    ],
)
def test_the_tool_reports_damage(
    kafka: Kafka, tmp_path: Path, suffix: str, at: int, finding: str
) -> None:
    path = written(tmp_path / "root", "every codec")
    damaged = min(path.glob(f"*{suffix}"))
    data = bytearray(damaged.read_bytes())
    data[at] ^= 1
    damaged.write_bytes(data)
    assert finding in FINDING.findall(dump(kafka, path))
