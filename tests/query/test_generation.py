"""Another generation of a checkpoint: complete or not at all, and the former one kept."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streamlog.errors import CorruptCheckpointError, InvalidRequestError, StorageError
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.files import read_file
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.query.checkpoint_files import CheckpointDirectory
from streamlog.query.generation import read_state, write_generation
from tests.support.crash import every_crash_point

PATH = "/checkpoints/audit"
SETTINGS = '{"batchWatermarkMs":5,"batchTimestampMs":1}'
OLD, NEW = '{"orders":{"0":7}}', '{"orders":{"0":2}}'
FILES = {
    "metadata": '{"id":"6b1d7f6e-0000-4000-8000-000000000000"}',
    "offsets/0": f'v1\n{SETTINGS}\n{{"orders":{{"0":3}}}}\n-',
    "offsets/1": f"v1\n{SETTINGS}\n{OLD}\n-",
    "offsets/.1.crc": "the checksum of Hadoop",
    "commits/0": 'v1\n{"nextBatchWatermarkMs":4}',
    "commits/1": 'v1\n{"nextBatchWatermarkMs":5}',
    "sources/0/0": "initial offsets",
    "streamlog/audit@0123456789abcdef-0123456789abcdef": "a note that is changed in place",
}
UNFINISHED = {name: text for name, text in FILES.items() if name != "commits/1"}
REPLACED = f"v1\n{SETTINGS}\n{NEW}\n-"


def prepared(files: dict[str, str], fs: FileSystem | None = None, path: str = PATH) -> Any:
    fs = fs or MemoryFileSystem()
    for name, text in files.items():
        parts = f"{path}/{name}".split("/")[1:-1]
        for depth in range(1, len(parts) + 1):
            fs.make_directory("/" + "/".join(parts[:depth]))
        with fs.open(f"{path}/{name}", OpenMode.CREATE) as file:
            file.pwrite(text.encode(), 0)
            file.sync()
        for depth in range(1, len(parts) + 1):
            fs.sync_directory("/" + "/".join(parts[:depth]))
    fs.sync_directory("/")
    return fs


def content(fs: FileSystem, path: str) -> dict[str, str]:
    """Return all files below a directory but for temporary ones."""
    found = {}
    pending = [path]
    while pending:
        directory = pending.pop()
        for name in fs.list(directory):
            inner = os.path.join(directory, name)
            stat = fs.stat(inner)
            if stat is not None and stat.kind is FileKind.DIRECTORY:
                pending.append(inner)
            elif not name.endswith(".tmp"):
                found[inner[len(path) + 1 :]] = read_file(fs, inner, max_size=9999).decode()
    return found


def reset(fs: FileSystem, path: str = PATH, *, skip_unfinished: bool = False) -> str:
    files = CheckpointDirectory(fs, path)
    state = read_state(files)
    return write_generation(files, state, {1: [NEW, "-"]}, skip_unfinished=skip_unfinished)


def test_the_newest_offsets_are_replaced_and_the_former_generation_kept(tmp_path: Path) -> None:
    fs, path = LocalFileSystem(), str(tmp_path / "audit")
    prepared(FILES, fs, path)
    before = content(fs, path)
    assert before == FILES
    assert reset(fs, path) == f"{path}.1"
    assert content(fs, f"{path}.1") == FILES
    now = {name: text for name, text in FILES.items() if name != "offsets/.1.crc"}
    assert content(fs, path) == {**now, "offsets/1": REPLACED}
    assert reset(fs, path) == f"{path}.2"
    note = next(name for name in FILES if name.startswith("streamlog/"))
    assert os.stat(f"{path}/{note}").st_nlink == 1  # it is changed in place: not the copy's
    assert os.stat(f"{path}/metadata").st_nlink == 3
    assert sorted(os.listdir(tmp_path)) == ["audit", "audit.1", "audit.2"]


@pytest.mark.parametrize("files", [FILES, UNFINISHED], ids=["finished", "unfinished"])
def test_a_crash_leaves_the_former_offsets_or_the_new_ones(files: dict[str, str]) -> None:
    skipped = {**files, "commits/1": files.get("commits/1", files["commits/0"])}

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        acknowledged.append(reset(fs, skip_unfinished=True))

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        found = content(fs, PATH)
        checksum = found.pop("offsets/.1.crc", None)
        rest = {name: text for name, text in files.items() if name != "offsets/.1.crc"}
        before = [rest, {**rest, "commits/1": skipped["commits/1"]}]
        after = {**before[1], "offsets/1": REPLACED}
        assert found == after if acknowledged else found in (*before, after)
        assert checksum is None or found["offsets/1"] != REPLACED  # Spark would refuse the file
        kept = [name for name in fs.list("/checkpoints") if name == "audit.1"]
        assert kept or found == before[0]
        assert all(content(fs, f"/checkpoints/{name}") == files for name in kept)
        reset(fs, skip_unfinished=True)  # whatever is left over is in nobody's way
        assert content(fs, PATH) == {name: after[name] for name in after}

    report = every_crash_point(workload, check, prepared=prepared(files))
    assert report.states > 60


def test_a_disk_that_refuses_leaves_the_checkpoint_as_it_is() -> None:
    whole = prepared(FILES)
    counting = FaultyFileSystem(whole.crash_clone(Random(0), power=False))
    reset(counting)
    refused = 0
    for number in range(1, len(counting.operations) + 1):
        inner = whole.crash_clone(Random(0), power=False)
        try:
            reset(FaultyFileSystem(inner, Fault(at=number, errno=errno.ENOSPC, is_lasting=True)))
        except StorageError:
            refused += 1
            found = content(inner, PATH)
            assert found["offsets/1"] in (FILES["offsets/1"], REPLACED)
            assert found.get("offsets/.1.crc") is None or found["offsets/1"] != REPLACED
    assert refused > 20


def test_an_unfinished_batch_is_refused_and_counts_as_finished_on_request() -> None:
    fs = prepared(UNFINISHED)
    with pytest.raises(InvalidRequestError, match="planned but not finished"):
        reset(fs)
    assert content(fs, PATH) == UNFINISHED
    fs.make_directory(f"{PATH}/state")
    with pytest.raises(InvalidRequestError, match="keeps state"):
        reset(fs, skip_unfinished=True)


def test_the_first_batch_may_be_the_unfinished_one() -> None:
    fs = prepared({"metadata": FILES["metadata"], "offsets/0": f"v1\n{SETTINGS}\n{OLD}"})
    state = read_state(CheckpointDirectory(fs, PATH))
    assert (state.planned.batch_id, state.before, state.is_finished) == (0, None, False)
    write_generation(CheckpointDirectory(fs, PATH), state, {0: [NEW]}, skip_unfinished=True)
    state = read_state(CheckpointDirectory(fs, PATH))
    assert (state.is_finished, state.planned.sources) == (True, (NEW,))
    assert read_file(fs, f"{PATH}/commits/0", max_size=99) == b'v1\n{"nextBatchWatermarkMs":0}'


def test_sources_with_names_keep_them() -> None:
    text = f"v2\n{SETTINGS}\nleft:{OLD}\nright_1:-"
    fs = prepared({**FILES, "offsets/1": text})
    state = read_state(CheckpointDirectory(fs, PATH))
    assert state.planned.sources == (OLD, "-")
    write_generation(CheckpointDirectory(fs, PATH), state, {1: [NEW, "-"]})
    assert content(fs, PATH)["offsets/1"] == text.replace(OLD, NEW)


def test_what_is_known_of_a_query() -> None:
    state = read_state(CheckpointDirectory(prepared(FILES), PATH))
    assert (state.has_state, state.watermark_ms, state.changed_ms > 0) == (False, 5, True)
    assert state.before is not None
    assert state.before.data(state.before.sources).decode() == FILES["offsets/0"]


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({}, InvalidRequestError),
        ({"metadata": FILES["metadata"]}, InvalidRequestError),
        ({**FILES, "offsets/4": FILES["offsets/1"]}, CorruptCheckpointError),
        ({**FILES, "commits/2": FILES["commits/1"]}, CorruptCheckpointError),
        *(
            ({**FILES, "offsets/1": text}, CorruptCheckpointError)
            for text in ("", "v1\n{}", "\ufffe", "1\n{}\n-")
        ),
    ],
)
def test_what_is_no_checkpoint_is_refused(files: dict[str, str], error: type[Exception]) -> None:
    fs = prepared(files)
    with pytest.raises(error):
        read_state(CheckpointDirectory(fs, PATH))
