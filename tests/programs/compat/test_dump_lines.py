"""`streamlog dump --format table` beside Kafka's own tool, line for line."""

import re
from pathlib import Path

import pytest

from tests.programs.compat.kafka import Kafka
from tests.support.cli import ok
from tests.support.golden import unpack

pytestmark = pytest.mark.compat

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
CONTENT = re.compile(r" (key|payload): .*")


@pytest.mark.parametrize("partition", ["txn-0", "codec-producer-0", "compacted-txn-0", "empty-0"])
def test_every_line_is_the_same(kafka: Kafka, tmp_path: Path, partition: str) -> None:
    """What keys and values are made of is left out: a line break in one makes two of a line."""
    unpack("C-broker/clean-log.dir.tar.gz", tmp_path, f"clean-log.dir/{partition}/")
    directory = tmp_path / "clean-log.dir" / partition
    files = sorted(each for each in directory.iterdir() if each.suffix in SUFFIXES)
    answer = kafka.ask("dump", files=",".join(map(str, files)))
    theirs = _lines(answer["printed"])
    ours = _lines(ok("dump", *files, "--format", "table", "--print-data-log").out.decode())
    assert ours == theirs
    assert len(ours) > len(files)


def _lines(printed: str) -> list[str]:
    """Return the lines of what was printed, contents left out.

    What is none is the rest of a value, or what the tool says on stderr.
    """
    known = re.compile(
        r"\||Dumping |Log starting|baseOffset: |offset: \d+ position: |timestamp: \d+ offset: "
        r"|version: \d+ producerId: |producerId: \d+ producerEpoch: |.*\.index is empty\.$"
    )
    lines = re.split(r"\n|\r", printed)
    return [CONTENT.sub("", line) for line in lines if known.match(line)]
