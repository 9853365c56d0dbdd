"""`streamlog dump --format table` prints the same lines as Kafka's own tool."""

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
    """Contents are omitted, because a line break in a key or value splits a line."""
    unpack("C-broker/clean-log.dir.tar.gz", tmp_path, f"clean-log.dir/{partition}/")
    directory = tmp_path / "clean-log.dir" / partition
    files = sorted(each for each in directory.iterdir() if each.suffix in SUFFIXES)
    answer = kafka.ask("dump", files=",".join(map(str, files)))
    theirs = _lines(answer["printed"])
    ours = _lines(ok("dump", *files, "--format", "table", "--print-data-log").out.decode())
    assert ours == theirs
    assert len(ours) > len(files)


def _lines(printed: str) -> list[str]:
    """Return the printed lines without contents.

    Other lines are the rest of a value, or output of the tool on stderr.
    """
    known = re.compile(
        r"\||Dumping |Log starting|baseOffset: |offset: \d+ position: |timestamp: \d+ offset: "
        r"|version: \d+ producerId: |producerId: \d+ producerEpoch: |.*\.index is empty\.$"
    )
    lines = re.split(r"\n|\r", printed)
    return [CONTENT.sub("", line) for line in lines if known.match(line)]
