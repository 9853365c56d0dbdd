"""Decided records missing from a log: holes are filled, and truncated records do not return."""

from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import pytest

from streamlog.clock import ManualClock
from streamlog.commits.apply import batches_from
from streamlog.commits.extents import ExtentReader
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import StagingArea
from streamlog.errors import CorruptRecordError, InvalidRequestError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.batch import scan_batches
from tests.support.commits import LOG, NOW, ROOT, Scene, rows_of
from tests.support.crash import every_crash_point
from tests.support.segments import read_bytes

PATH = f"{ROOT}/t-0/{LOG}"
Loss = Literal["nothing", "everything"]


def written() -> tuple[Scene, int, int]:
    """Return decided records between plain ones, and the file positions of the decided ones."""
    scene = Scene()
    scene.append(0, b"before")
    first = scene.manager.log("t", 0).size
    scene.commit(0)
    stop = scene.manager.log("t", 0).size
    scene.append(0, b"behind")
    return scene, first, stop


def damaged(scene: Scene, position: int, *, power: bool = True) -> Scene:
    memory = scene.memory.crash_clone(Random(0), power=power, loss="nothing")
    with memory.open(PATH, OpenMode.WRITE) as file:
        byte = file.pread(1, position)[0]
        file.pwrite(bytes([byte ^ 1]), position)
        file.sync()
    return Scene(memory, clock=scene.clock)


@pytest.mark.parametrize("at", [30, 150, -1], ids=["first batch", "middle", "last byte"])
def test_decided_records_in_front_of_plain_ones_are_put_back(at: int) -> None:
    scene, first, stop = written()
    before = read_bytes(scene.fs, PATH)
    again = damaged(scene, (first if at >= 0 else stop) + at)
    log = again.manager.log("t", 0)
    assert again.values(0) == [b"before", *rows_of(0, 0), b"behind"]
    assert read_bytes(again.fs, PATH) == before
    again.append(0, b"more")
    assert again.commit(0).is_replay and log.log_end_offset == 9


def test_a_crash_while_a_hole_is_filled_loses_nothing() -> None:
    scene, first, _ = written()
    prepared = damaged(scene, first + 30).memory

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        Scene(fs, clock=ManualClock(NOW), random=Random(1)).manager.log("t", 0).close()

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        again = Scene(fs, random=Random(2))
        again.manager.log("t", 0).catch_up()
        assert again.values(0) == [b"before", *rows_of(0, 0), b"behind"]

    report = every_crash_point(workload, check, prepared=prepared, seeds=range(8))
    assert any(operation.path == PATH for operation in report.operations)


def test_plain_records_in_front_of_sound_ones_are_refused_as_ever() -> None:
    scene, first, _ = written()
    again = damaged(scene, first - 1)
    with pytest.raises(CorruptRecordError):
        again.manager.log("t", 0)


def test_retired_records_are_not_restored() -> None:
    scene, first, _ = written()
    scene.commits.retire()
    with pytest.raises(CorruptRecordError):
        damaged(scene, first + 30).manager.log("t", 0)


def test_batches_are_found_from_any_of_them_on_as_many_as_fit() -> None:
    scene, first, stop = written()
    decided = read_bytes(scene.fs, PATH)[first:stop]
    (decision,) = scene.commits.pending()
    part = decision.parts[0]

    def found(offset: int, size: int) -> bytes:
        area = StagingArea(scene.log_root)
        reader = ExtentReader(area, decision.identity.app, decision.files)
        pieces = batches_from(decision, part, reader, offset=offset, size=size)
        return b"".join(piece.tobytes() for piece in pieces)

    table = scan_batches(decided).table
    last = int(table.position[-1])
    assert len(table) > 1
    for batch in range(len(table)):
        offset, start = int(table.base_offset[batch]), int(table.position[batch])
        assert found(offset, len(decided) - start) == decided[start:]
        assert found(offset, len(decided) - start - 1) == decided[start:last]
        assert found(offset + 1, len(decided)) == b"", "inside a batch"


@pytest.mark.parametrize("offset", [0, 1, 3, 6], ids=["all", "its front", "its middle", "its last"])
def test_truncated_records_do_not_come_back(offset: int) -> None:
    scene = Scene()
    scene.append(0, b"before")
    scene.commit(0)
    log = scene.manager.log("t", 0)
    log.truncate_to(offset)
    assert scene.pending_names() == []
    kept = scene.values(0)
    assert log.log_end_offset == len(kept)
    assert kept == [b"before", *rows_of(0, 0)][: len(kept)] and len(kept) <= offset
    scene.append(0, b"behind")
    again = scene.after_crash(power=True, seed=offset)
    assert again.commit(0).is_replay
    again.append(0, b"more")
    assert again.values(0) in ([*kept, b"more"], [*kept, b"behind", b"more"])
    assert again.values(1) == rows_of(0, 1), "the other partition keeps its part"


@pytest.mark.parametrize("offset", range(1, 7))
@pytest.mark.parametrize("loss", ["nothing", "everything"])
def test_a_commit_decided_where_a_truncation_cut_a_batch_survives_a_power_cut(
    offset: int, loss: Loss
) -> None:
    scene = Scene()
    scene.append(0, *rows_of(7, 0))  # one batch
    log = scene.manager.log("t", 0)
    log.truncate_to(offset)
    assert log.log_end_offset == (6 if offset == 6 else 0)
    scene.commit(0)
    found = Scene(scene.memory.crash_clone(Random(0), power=True, loss=loss))
    found.append(0, b"behind")
    assert found.values(0)[-7:] == [*rows_of(0, 0), b"behind"]


@pytest.mark.parametrize("loss", ["nothing", "everything"])
@pytest.mark.parametrize("retires_first", [False, True])
def test_an_anonymous_commit_that_was_truncated_does_not_come_back_with_a_power_cut(
    loss: Loss, retires_first: bool
) -> None:
    scene = Scene()
    scene.append(0, b"before")
    identity = CommitIdentity.anonymous(Random(1))
    scene.commits.commit(identity, [scene.stage(0, app=identity.app)])
    if retires_first:
        scene.commits.retire()
    scene.manager.log("t", 0).truncate_to(1)
    found = Scene(scene.memory.crash_clone(Random(0), power=True, loss=loss))
    found.append(0, b"behind")
    assert found.values(0) == [b"before", b"behind"]


def test_decisions_below_the_cut_are_left_alone() -> None:
    scene = Scene()
    scene.commit(0)
    scene.append(0, b"behind")
    scene.manager.log("t", 0).truncate_to(6)
    assert len(scene.pending_names()) == 1 and scene.values(0) == rows_of(0, 0)


def test_commits_are_not_retired_by_who_holds_the_lock_they_need() -> None:
    scene = Scene()
    scene.commit(0)
    log = scene.manager.log("t", 0)
    with log.writing(), pytest.raises(InvalidRequestError, match="not retired"):
        log.truncate_to(3)
    assert scene.values(0) == rows_of(0, 0)
    log.truncate_to(3)
    assert log.log_end_offset <= 3
