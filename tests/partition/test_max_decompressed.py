"""One limit for what a batch may decompress to: what could be written can be read.

A record of 65 MiB of one byte takes some kilobytes as zstd, and is above the limit that holds
where nothing else is said.
"""

import os
import shutil
from pathlib import Path

import pytest

from streamlog.errors import InvalidOptionError, LimitExceededError, MessageTooLargeError
from streamlog.fs.local import LocalFileSystem
from streamlog.health.findings import Finding, FindingKind
from streamlog.health.verify import verify
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.manager import LogManager

SIZE = 65 << 20
KEY = "streamlog.max.decompressed.bytes"
ROOMY = {KEY: 66 << 20}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose topic `t` holds a batch that decompresses to 65 MiB, and a small one."""
    path = tmp_path_factory.mktemp("limits") / "root"
    with LogManager.open(str(path), create=True) as manager:
        manager.create_topic("t", 1, configs=ROOMY)
        log = manager.log("t", 0)
        log.append([Record(b"large", bytes(SIZE), timestamp=5)], compression="zstd")
        log.append([Record(b"small", b"v", timestamp=9)], compression="zstd")
    return path


@pytest.fixture
def foreign(root: Path, tmp_path: Path) -> str:
    """The same partition as a directory that has no settings."""
    shutil.copytree(root / "t-0", tmp_path / "t-0")
    return str(tmp_path / "t-0")


def keys_of(reader: LogReader) -> list[bytes | None]:
    with reader:
        return [record.key for record in reader.read(0).records()]


def test_append_refuses_what_its_topic_would_not_read(tmp_path: Path) -> None:
    with LogManager.open(str(tmp_path / "root"), create=True) as manager:
        manager.create_topic("t", 1)
        with pytest.raises(MessageTooLargeError, match=KEY):
            manager.log("t", 0).append([Record(value=bytes(SIZE))], compression="zstd")
        assert manager.log("t", 0).log_end_offset == 0


def test_what_a_topic_allows_to_write_is_read_without_asking(root: Path) -> None:
    assert keys_of(LogReader.open(root / "t-0")) == [b"large", b"small"]
    with LogManager.open(str(root)) as manager:
        assert next(manager.log("t", 0).read(0).records()).key == b"large"
    with LogReader.open(root / "t-0") as reader:
        found = reader.offset_for_timestamp(5)
        assert found is not None and found.offset == 0
    assert findings_of(str(root)) == []


def test_a_foreign_log_is_read_where_the_limit_is_raised(foreign: str) -> None:
    with pytest.raises(LimitExceededError) as caught:
        keys_of(LogReader.open(foreign))
    hint = caught.value.hint or ""
    assert KEY in hint and "max_decompressed_bytes" in hint
    reader = LogReader.open(foreign, max_decompressed_bytes=66 << 20)
    found = reader.offset_for_timestamp(5)
    assert found is not None and found.offset == 0
    assert keys_of(reader) == [b"large", b"small"]


def test_a_reader_may_ask_for_less_than_the_topic(root: Path) -> None:
    with pytest.raises(LimitExceededError):
        keys_of(LogReader.open(root / "t-0", max_decompressed_bytes=1000))


@pytest.mark.parametrize("limit", [0, -1, 1 << 31])
def test_an_impossible_limit_is_refused(root: Path, limit: int) -> None:
    with pytest.raises(InvalidOptionError):
        LogReader.open(root / "t-0", max_decompressed_bytes=limit)


def findings_of(path: str, limit: int | None = None) -> list[Finding]:
    found: list[Finding] = []
    verify(LocalFileSystem(), path, found.append, is_deep=True, max_decompressed_bytes=limit)
    return found


def test_verify_takes_the_limit_too(foreign: str) -> None:
    assert [each.kind for each in findings_of(foreign)] == [FindingKind.BAD_RECORD]
    assert findings_of(foreign, 66 << 20) == []
    segment = os.path.join(foreign, "00000000000000000000.log")
    assert [each.kind for each in findings_of(segment)] == [FindingKind.BAD_RECORD]
    assert findings_of(segment, 66 << 20) == []
