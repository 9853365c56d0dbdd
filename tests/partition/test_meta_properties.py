"""`meta.properties` of a log root."""

import random

import pytest

from streamlog.errors import CorruptCheckpointError
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

ROOT = "/logs"


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_directory(ROOT)
    return made


def write(fs: MemoryFileSystem, text: str) -> None:
    with fs.open(f"{ROOT}/meta.properties", OpenMode.CREATE) as file:
        file.pwrite(text.encode(), 0)


def test_missing_file_says_nothing(fs: MemoryFileSystem) -> None:
    assert read_meta_properties(fs, ROOT) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#\n#Sat Nov 21\ncluster.id=abc\nversion=1\ndirectory.id=xyz\nnode.id=7\n",
         MetaProperties(1, "abc", 7, "xyz")),
        ("version=1\ncluster.id=abc\nnode.id=0", MetaProperties(1, "abc", 0, None)),
        ("version=0\nbroker.id=3\ncluster.id=abc", MetaProperties(0, "abc", 3, None)),
        ("version=0", MetaProperties(0, None, None, None)),
    ],
)  # fmt: skip
def test_kafkas_file_is_read(fs: MemoryFileSystem, text: str, expected: MetaProperties) -> None:
    write(fs, text)
    assert read_meta_properties(fs, ROOT) == expected


@pytest.mark.parametrize(
    "text",
    ["", "version=2\ncluster.id=a\nnode.id=1", "version=1\nnode.id=1", "version=1\ncluster.id=a",
     "version=1\ncluster.id=a\nnode.id=-1", "version=1\ncluster.id=a\nnode.id=2147483648",
     "version=one", "version=\\u00zz", "version=\u0661"],
)  # fmt: skip
def test_malformed_file_is_refused_by_name(fs: MemoryFileSystem, text: str) -> None:
    write(fs, text)
    with pytest.raises(CorruptCheckpointError, match=r"meta\.properties"):
        read_meta_properties(fs, ROOT)


@pytest.mark.parametrize(
    "properties", [MetaProperties.fresh(random.Random(1)), MetaProperties(0, None, 4, None)]
)
def test_read_inverts_write(fs: MemoryFileSystem, properties: MetaProperties) -> None:
    write_meta_properties(fs, ROOT, properties)
    assert read_meta_properties(fs, ROOT) == properties
