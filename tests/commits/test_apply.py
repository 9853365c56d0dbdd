"""Applying a decision: which batches, which bytes, and where it stops."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from streamlog.commits import apply
from streamlog.commits.admission import check_part, gather, place_part
from streamlog.commits.apply import apply_part
from streamlog.commits.decisions import DecidedPart, Decision, Standing
from streamlog.commits.extents import ExtentReader
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.identity import CommitIdentity, producer_id_for
from streamlog.commits.staging import StagingArea
from streamlog.config.log_config import LogConfig
from streamlog.errors import CommitMismatchError, CorruptDataError, CorruptRecordError
from streamlog.fs.api import OpenMode
from streamlog.records.batch import read_batches
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from tests.support.batches import message_set
from tests.support.commits import APP, NOW, ROOT, Scene, rows_of


def prepare(
    scene: Scene, *staged: object, standing: Standing | None = None
) -> tuple[PartitionLog, Decision, DecidedPart, Callable[[], ExtentReader]]:
    """Return partition 0 and a decision for it that exists in memory only."""
    files = staged or (scene.stage(0, {0: rows_of(0, 0)}),)
    commit = gather(CommitIdentity(APP, 0), files)

    def new_reader() -> ExtentReader:
        return ExtentReader(StagingArea(scene.log_root), APP, commit.files)

    log = scene.manager.log("t", 0)
    with log.writing():
        check_part(log.config, commit.parts[0], new_reader(), NOW)
        part = place_part(log, commit.parts[0], standing or Standing(), NOW)
    decision = Decision(
        identity=CommitIdentity(APP, 0),
        revision=0,
        fingerprint=Fingerprint(None, 0, 0),
        decided_ms=NOW,
        files=commit.files,
        parts=(part,),
        standing=Standing(number=1),
    )
    return log, decision, part, new_reader


def test_applying_twice_writes_once() -> None:
    scene = Scene()
    log, decision, part, reader = prepare(scene)
    with log.writing():
        assert apply_part(log, decision, part, reader()) == part.size
        assert apply_part(log, decision, part, reader()) == 0
    assert scene.values(0) == rows_of(0, 0)


def test_batches_get_their_place_epoch_producer_and_sequence() -> None:
    scene = Scene()
    scene.append(0, b"before")
    log, decision, part, reader = prepare(scene)
    part = replace(part, leader_epoch=5, base_sequence=2**31 - 2)
    with log.writing():
        apply_part(log, decision, part, reader())
    batches = list(read_batches(log.read(1, 1 << 20).buffer))
    assert len(batches) > 1
    expected_sequence = 2**31 - 2
    offset = 1
    for batch in batches:
        batch.check()
        assert (batch.base_offset, batch.partition_leader_epoch) == (offset, 5)
        assert (batch.producer_id, batch.producer_epoch) == (producer_id_for(APP), 0)
        assert batch.base_sequence == expected_sequence
        offset = batch.next_offset
        expected_sequence = (expected_sequence + batch.count) % 2**31
    assert batches[-1].base_sequence < 10, "it wrapped"


@pytest.mark.parametrize("applied", range(4))
def test_what_is_there_already_is_not_written_again(applied: int) -> None:
    scene = Scene()
    log, decision, part, reader = prepare(scene)
    with log.writing():
        apply_part(log, decision, part, reader())
    whole = log.read(0, 1 << 20)
    assert len(whole.table) >= 2
    at = min(applied, len(whole.table) - 1)
    log.truncate_to(int(whole.table.base_offset[at]))
    with log.writing():
        appended = apply_part(log, decision, part, reader())
    assert appended == int(whole.table.size[at:].sum())
    assert bytes(log.read(0, 1 << 20).buffer) == bytes(whole.buffer)


def test_a_log_that_ends_below_the_decision_stops_loudly() -> None:
    scene = Scene()
    log, decision, part, reader = prepare(scene)
    part = replace(part, base_offset=2, last_offset=part.last_offset + 2)
    with log.writing(), pytest.raises(CorruptDataError, match="below a decided commit"):
        apply_part(log, decision, part, reader())
    assert scene.values(0) == []


def test_a_log_that_ends_inside_a_batch_stops_loudly() -> None:
    scene = Scene()
    log, decision, part, reader = prepare(scene)
    scene.append(0, b"one")
    with log.writing(), pytest.raises(CorruptDataError, match="inside a batch"):
        apply_part(log, decision, part, reader())
    assert scene.values(0) == [b"one"]


def test_other_bytes_where_the_last_applied_batch_should_be_stop_loudly() -> None:
    scene = Scene()
    log, decision, part, reader = prepare(scene)
    first = int(reader().read(part.extents[0])[1].count[0])
    scene.append(0, *(b"other" for _ in range(first)))
    with log.writing(), pytest.raises(CommitMismatchError, match="other records"):
        apply_part(log, decision, part, reader())
    assert scene.values(0) == [b"other"] * first


def test_what_retention_removed_is_applied_all_the_same() -> None:
    """Below the log start nothing can be compared, and nothing needs to be."""
    scene = Scene()
    log, decision, part, reader = prepare(scene)
    with log.writing():
        apply_part(log, decision, part, reader())
    part = replace(part, base_offset=0)
    with log.writing():
        assert apply_part(log, decision, part, reader()) == 0


@pytest.mark.parametrize("excess", [0, 1, 100], ids=["as large", "smaller", "far smaller"])
def test_a_batch_goes_into_a_segment_of_its_own_when_segments_got_smaller(excess: int) -> None:
    scene = Scene()
    staged = scene.stage(0, {0: [b"x" * 50] * 40})
    _log, decision, part, reader = prepare(scene, staged)
    smaller = LogConfig(internal_segment_bytes=int(batch_sizes(reader, part).max()) - excess)
    path = f"{ROOT}/t-0"
    with PartitionLog.open(path, config=smaller, fs=scene.fs, clock=scene.clock) as again:
        with again.writing():
            apply_part(again, decision, part, reader())
        assert len(again.segments) > 5
    assert scene.values(0) == [b"x" * 50] * 40


def batch_sizes(reader: Callable[[], ExtentReader], part: DecidedPart) -> np.ndarray:
    return np.concatenate([reader().read(extent)[1].size for extent in part.extents])


@pytest.mark.parametrize(("gather_size", "append_size"), [(1, 1), (200, 300), (1 << 20, 8 << 20)])
def test_pieces_are_joined_and_cut_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, gather_size: int, append_size: int
) -> None:
    scene = Scene()
    files = [scene.stage(0, {0: [b"%d %d" % (task, n) for n in range(9)]}, task=task)
             for task in range(7)]  # fmt: skip
    log, decision, part, reader = prepare(scene, *files)
    monkeypatch.setattr(apply, "GATHER_SIZE", gather_size)
    monkeypatch.setattr(apply, "APPEND_SIZE", append_size)
    with log.writing():
        assert apply_part(log, decision, part, reader()) == part.size
    assert scene.values(0) == [b"%d %d" % (task, n) for task in range(7) for n in range(9)]
    table = log.read(0, 1 << 20).table
    assert (table.base_offset[1:] == table.last_offset[:-1] + 1).all()


def test_bytes_kept_from_admission_are_used_once_and_then_read_again() -> None:
    scene = Scene()
    log, decision, part, new_reader = prepare(scene)
    reader = new_reader()
    for extent in part.extents:
        reader.read(extent, keep=True)
    with log.writing():
        apply_part(log, decision, part, reader)
    again = reader.read(part.extents[0])[1]
    assert int(again.producer_id[0]) == -1, "what applying patched was its own copy"


def test_staged_bytes_are_checked_again_when_applied() -> None:
    """Patching computes new checksums, which would hide damage that is not detected before."""
    scene = Scene()
    staged = scene.stage(0, {0: rows_of(0, 0)})
    log, decision, part, reader = prepare(scene, staged)
    from streamlog.fs.api import OpenMode

    path = StagingArea(scene.log_root).file_path(APP, staged.name)
    with scene.fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(b"\xff", staged.size - 3)
    with log.writing(), pytest.raises(CorruptRecordError, match="checksum"):
        apply_part(log, decision, part, reader())
    assert len(scene.values(0)) < len(rows_of(0, 0))


def test_a_message_of_an_old_format_is_no_staged_batch() -> None:
    scene = Scene()
    _, _, part, reader = prepare(scene, scene.stage(0, {0: [b"x" * 50]}))
    (extent,) = part.extents
    without_value = len(message_set(1, [Record(None, b"")]))
    old = message_set(1, [Record(None, bytes(extent.size - without_value))])
    with scene.fs.open(reader().path(extent), OpenMode.WRITE) as file:
        file.pwrite(old, extent.position)
    with pytest.raises(CorruptRecordError, match="do not hold the records"):
        reader().read(extent)
