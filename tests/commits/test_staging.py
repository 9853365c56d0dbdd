"""The output of tasks: files, extents, names."""

import pickle
from random import Random

import pytest

from streamlog.commits.staging import (
    BUFFER_SIZE,
    PIECE_SIZE,
    StagedFile,
    Stager,
    StagingArea,
    is_staged_name,
    staged_version,
)
from streamlog.errors import (
    FileMissingError,
    InvalidRequestError,
    StorageError,
    UnknownTopicError,
)
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.records.batch import check_crc, scan_batches
from streamlog.records.decode import decode_columns
from streamlog.topic import TopicPartition
from tests.support.commits import APP, ROOT, Scene, batches_of


def read_extents(scene: Scene, staged: StagedFile) -> dict[int, list[bytes | None]]:
    """Return the values of each partition, reading only the extents."""
    found: dict[int, list[bytes | None]] = {}
    path = StagingArea(scene.log_root).file_path(APP, staged.name)
    with scene.fs.open(path, OpenMode.READ) as file:
        for extent in staged.extents:
            buffer = file.pread(extent.size, extent.position)
            table = scan_batches(buffer).table
            assert len(table) == extent.batches == check_crc(buffer, table)
            assert int(table.count.sum()) == extent.records
            values = [record.value for record in decode_columns(buffer, table).records()]
            found.setdefault(extent.partition, []).extend(values)
    return found


def test_partitions_that_come_mixed_are_kept_apart_and_in_order() -> None:
    scene = Scene()
    with Stager(scene.log_root, APP, 3, 1) as stager:
        for number in range(7):
            for partition in (1, 0):
                value = f"{partition} {number}".encode()
                stager.append(TopicPartition("t", partition), batches_of([value] * 3))
        staged = stager.finish(rows=42, checksum=5)
    assert (staged.app, staged.version, staged.task) == (APP, 3, 1)
    assert (staged.rows, staged.checksum) == (42, 5)
    expected = {p: [f"{p} {n}".encode() for n in range(7) for _ in range(3)] for p in (0, 1)}
    assert read_extents(scene, staged) == expected
    assert staged.size == sum(extent.size for extent in staged.extents)


def test_offsets_run_on_over_all_extents_of_a_partition() -> None:
    scene = Scene()
    big = batches_of([b"x" * 1000] * 5000, batch_size=1 << 20)
    with Stager(scene.log_root, APP, 0, 0) as stager:
        stager.append(TopicPartition("t", 0), big)
        assert big.buffer.size > PIECE_SIZE
        stager.append(TopicPartition("t", 0), batches_of([b"y"] * 4))
        staged = stager.finish(rows=5004, checksum=0)
    assert len(staged.extents) == 2
    path = StagingArea(scene.log_root).file_path(APP, staged.name)
    with scene.fs.open(path, OpenMode.READ) as file:
        table = scan_batches(file.pread(staged.size, 0)).table
    assert table.base_offset[0] == 0 and table.last_offset[-1] == 5003
    assert (table.base_offset[1:] == table.last_offset[:-1] + 1).all()


def test_what_waits_is_bounded_for_many_partitions() -> None:
    scene = Scene()
    scene.manager.create_topic("wide", 40)
    part = Random(1).randbytes(100_000)
    with Stager(scene.log_root, APP, 0, 0) as stager:
        for number in range(400):
            stager.append(TopicPartition("wide", number % 40), batches_of([part]))
            assert stager._extents._waiting_size < BUFFER_SIZE
        staged = stager.finish(rows=400, checksum=0)
    assert len(staged.extents) < 200
    assert sum(extent.records for extent in staged.extents) == 400


def test_a_staged_file_is_a_small_picklable_value() -> None:
    staged = Scene().stage(0)
    assert pickle.loads(pickle.dumps(staged)) == staged
    for value in (*staged[:5], *staged[6:], *staged.extents[0]):
        assert type(value) in (str, int)


def test_finish_makes_the_bytes_durable_and_syncs_once() -> None:
    scene = Scene()
    fs = FaultyFileSystem(scene.memory)
    with Stager(LogRoot.at(ROOT, fs=fs), APP, 0, 0) as stager:
        for _ in range(5):
            stager.append(TopicPartition("t", 0), batches_of([b"x"] * 9))
        staged = stager.finish(rows=45, checksum=0)
    assert [each.name for each in fs.operations if "sync" in each.name] == ["sync"]
    StagingArea(scene.log_root).sync(APP)
    after = scene.after_crash(power=True, seed=1)
    assert read_extents(after, staged) == {0: [b"x"] * 45}


def test_a_task_without_rows_makes_no_file() -> None:
    scene = Scene()
    staged = scene.stage(0, {})
    assert (staged.name, staged.size, staged.extents) == ("", 0, ())
    assert scene.staged_names() == []
    assert scene.stage(0, {0: []}).name == ""


def test_no_two_attempts_share_a_name() -> None:
    scene = Scene()
    names = {scene.stage(0).name for _ in range(20)}
    assert len(names) == 20
    assert all(is_staged_name(name) and staged_version(name) == 0 for name in names)


def test_names_of_forked_workers_differ_by_default() -> None:
    scene = Scene()
    names = set()
    for _ in range(2):
        with Stager(scene.log_root, APP, 0, 0) as stager:
            stager.append(TopicPartition("t", 0), batches_of([b"x"]))
            names.add(stager.finish(rows=1, checksum=0).name)
    assert len(names) == 2


@pytest.mark.parametrize(
    "name",
    ["", "x", "../../etc/passwd", "0-0-0", "00000000000000000000-0000000000-0123456789ABCDEF"],
)
def test_other_names_are_no_staged_files(name: str) -> None:
    assert not is_staged_name(name)
    assert staged_version(name) is None


def test_leaving_without_finish_removes_the_file() -> None:
    scene = Scene()
    with (
        pytest.raises(ZeroDivisionError),
        Stager(scene.log_root, APP, 0, 0) as stager,
    ):
        stager.append(TopicPartition("t", 0), batches_of([b"x" * 5_000_000], batch_size=1 << 23))
        assert len(scene.staged_names()) == 1
        raise ZeroDivisionError
    assert scene.staged_names() == []
    with pytest.raises(InvalidRequestError, match="finished"):
        stager.append(TopicPartition("t", 0), batches_of([b"x"]))


def test_an_error_while_removing_does_not_hide_the_first(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    fs = FaultyFileSystem(scene.memory, Fault(operation="remove", errno=5))
    with pytest.raises(ZeroDivisionError), Stager(LogRoot.at(ROOT, fs=fs), APP, 0, 0) as stager:
        stager.append(TopicPartition("t", 0), batches_of([b"x" * 5_000_000], batch_size=1 << 23))
        raise ZeroDivisionError
    assert "`clean` will do it later" in caplog.text


def test_a_failed_sync_fails_the_task() -> None:
    scene = Scene()
    fs = FaultyFileSystem(scene.memory, Fault(operation="sync", errno=5))
    with pytest.raises(StorageError), Stager(LogRoot.at(ROOT, fs=fs), APP, 0, 0) as stager:
        stager.append(TopicPartition("t", 0), batches_of([b"x"]))
        stager.finish(rows=1, checksum=0)
    assert scene.staged_names() == []


def test_rows_that_got_lost_on_the_way_are_noticed() -> None:
    scene = Scene()
    with (
        pytest.raises(InvalidRequestError, match="number of staged records differs"),
        Stager(scene.log_root, APP, 0, 0) as stager,
    ):
        stager.append(TopicPartition("t", 0), batches_of([b"x"]))
        stager.finish(rows=2, checksum=0)


def test_an_unknown_partition_is_refused_with_the_command_to_type() -> None:
    scene = Scene()
    with Stager(scene.log_root, APP, 0, 0) as stager:
        for partition in (TopicPartition("t", 2), TopicPartition("nothing", 0)):
            with pytest.raises(UnknownTopicError) as caught:
                stager.append(partition, batches_of([b"x"]))
            assert "streamlog topics" in (caught.value.hint or "")


@pytest.mark.parametrize(("version", "task"), [(-1, 0), (0, -1), (0, 2**31)])
def test_an_impossible_version_or_task_is_refused(version: int, task: int) -> None:
    with pytest.raises(InvalidRequestError):
        Stager(Scene().log_root, APP, version, task)


def test_a_directory_that_a_cleaner_removed_is_made_again() -> None:
    scene = Scene()
    scene.stage(0)
    area = StagingArea(scene.log_root)
    area.remove(APP, scene.staged_names())
    area.remove_directory(area.directory(APP))
    with pytest.raises(FileMissingError):
        scene.fs.list(area.directory(APP))
    assert read_extents(scene, scene.stage(0))


def test_the_area_lists_and_removes_nothing_but_staged_files() -> None:
    scene = Scene()
    staged = scene.stage(4)
    area = StagingArea(scene.log_root)
    with scene.fs.open(f"{area.directory(APP)}/README", OpenMode.CREATE):
        pass
    assert area.names(APP) == [staged.name]
    assert area.names("nobody") == []
    assert [name for _, name in area.older_than(2**60)] == [staged.name]
    assert area.older_than(0) == []
    area.remove_directory(area.directory(APP))
    assert area.names(APP) == [staged.name], "a directory with something in it stays"
