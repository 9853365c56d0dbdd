"""Other releases of Kafka, older and newer: they read our files, and we read theirs."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from streamlog.partition.reader import LogReader
from streamlog.records.record import CompressionType, Record
from tests.programs.compat.answers import batches_of
from tests.programs.compat.releases import look_at
from tests.programs.compat.scenarios import SCENARIOS, rows, written
from tests.programs.compat.test_dump import FINDING, RECORD
from tests.support.batches import message_set

pytestmark = pytest.mark.compat

Dumped = Callable[[str, Iterable[Path]], str]
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
CODECS = [codec for codec in CompressionType if codec is not CompressionType.ZSTD]
NAME = "00000000000000000000.log"


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_its_tool_finds_every_record_and_nothing_wrong(
    tmp_path: Path, dumped: Dumped, version: str
) -> None:
    """Gaps are intended, and 4.3 reports one if a segment does not begin with offset 0."""
    expected: Counter[int] = Counter()
    copies = []
    for at, name in enumerate(SCENARIOS):
        path = written(tmp_path / str(at), name)
        with LogReader.open(path) as reader:
            expected.update(r.offset for batch in batches_of(reader) for r in batch.records())
        copies.append(shutil.copytree(path, tmp_path / "copies" / str(at) / path.name))
    files = [each for copy in copies for each in sorted(copy.iterdir()) if each.suffix in SUFFIXES]
    printed = dumped(version, files)
    assert set(FINDING.findall(printed)) <= {"Non-consecutive offsets"}
    assert Counter(map(int, RECORD.findall(printed))) == expected
    assert expected.total() == 878


@pytest.mark.parametrize(("version", "magic"), [("0.8.2.2", 0), ("0.10.2.2", 0), ("0.10.2.2", 1)])
def test_a_contemporary_kafka_reads_the_old_messages_that_we_build(
    tmp_path: Path, dumped: Dumped, version: str, magic: int
) -> None:
    records: list[Record] = []
    messages = b""
    for codec in CODECS:
        some = [each._replace(headers=()) for each in rows(len(records), 20)]
        messages += message_set(magic, some, base_offset=len(records), compression=codec)
        records += some
    (tmp_path / NAME).write_bytes(messages)
    printed = dumped(version, [tmp_path / NAME])
    lines = re.findall(r"^offset: (\d+) position: .* isvalid: true .*?$", printed, re.MULTILINE)
    assert [int(offset) for offset in lines] == [*range(80)]
    sizes = [int(size) for size in re.findall(r" payloadsize: (-?\d+) ", printed)]
    assert sizes == [-1 if each.value is None else len(each.value) for each in records]
    times = [int(time) for time in re.findall(r" CreateTime: (\d+) ", printed)]
    assert times == ([each.timestamp for each in records] if magic else [])


def test_the_disk_of_an_older_broker_is_sound_and_reads_the_same() -> None:
    """One release of many: `python -m tests.programs.compat.releases` checks all of them."""
    look = look_at("3.6.2")
    assert (look.findings, look.differing) == ([], [])
    assert look.records == 5550
