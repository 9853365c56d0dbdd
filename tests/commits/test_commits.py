"""The table of `streamlog/commits/COMMITS.md`, cell by cell: each state, then each event.

Version 0 is committed; a process that has ended brought version 1 to the given state. In every cell
each decided row is in the log exactly once, in order.
"""

import errno
import logging

import pytest

from streamlog.commits.history import CommittedRange
from streamlog.commits.replay import Verdict
from streamlog.errors import (
    CorruptCheckpointError,
    CorruptRecordError,
    DiskFullError,
    InconsistentTopicIdError,
    UnavailableError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, Moment
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition
from tests.support.commits import APP, LOG, ROOT, STATES, Scene, killed, reach, rows_of

OLD = {partition: rows_of(0, partition) for partition in (0, 1)}
BOTH = {partition: OLD[partition] + rows_of(1, partition) for partition in (0, 1)}
DECIDED = ("decided", "partly applied", "applied", "retired")
WAITING = ("decided", "partly applied")
PARTS = tuple(CommittedRange(TopicPartition("t", partition), 6, 11) for partition in (0, 1))


def flip_bit(fs: FileSystem, path: str, position: int) -> None:
    with fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)


def touch(scene: Scene) -> None:
    """Take the locks of both partitions, as any writer does."""
    for partition in (0, 1):
        scene.manager.log("t", partition).catch_up()


# ---- process killed -----------------------------------------------------------------------------
def test_killed_when_staged_leaves_files_that_mean_nothing() -> None:
    scene, _ = reach("staged")
    touch(scene)
    assert [scene.values(p) for p in (0, 1)] == [OLD[0], OLD[1]]


@pytest.mark.parametrize("state", DECIDED)
def test_killed_leaves_a_commit_that_the_next_writer_applies(state: str) -> None:
    scene, _ = reach(state)
    touch(scene)
    assert [scene.values(p) for p in (0, 1)] == [BOTH[0], BOTH[1]]


@pytest.mark.parametrize("state", STATES)
def test_an_unapplied_commit_of_a_killed_writer_shows_whole_batches_in_order(state: str) -> None:
    scene, _ = reach(state)
    for partition in (0, 1):
        found = scene.values(partition)
        assert found == BOTH[partition][: len(found)]
        assert len(found) >= 6


# ---- power cut ----------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("state", DECIDED)
def test_a_power_cut_loses_nothing_decided(state: str, seed: int) -> None:
    before, _ = reach(state)
    scene = before.after_crash(power=True, seed=seed)
    touch(scene)
    assert [scene.values(p) for p in (0, 1)] == [BOTH[0], BOTH[1]]


@pytest.mark.parametrize("seed", range(12))
def test_losing_staged_data_in_a_power_cut_is_harmless(seed: int) -> None:
    before, _ = reach("staged")
    scene = before.after_crash(power=True, seed=seed)
    touch(scene)
    assert scene.commit(1).verdict is Verdict.COMMIT
    assert [scene.values(p) for p in (0, 1)] == [BOTH[0], BOTH[1]]


def test_after_a_power_cut_the_same_bytes_are_written_again() -> None:
    before, _ = reach("applied")
    paths = [f"{ROOT}/t-{partition}/{LOG}" for partition in (0, 1)]
    written = [read_all(before.memory, path) for path in paths]
    for seed in range(8):
        scene = before.after_crash(power=True, seed=seed)
        touch(scene)
        assert [read_all(scene.memory, path) for path in paths] == written


@pytest.mark.parametrize("offset", range(1, 7))
def test_a_power_cut_after_a_deletion_leaves_no_commit_that_cannot_be_applied(offset: int) -> None:
    before = Scene()
    before.commit(0)
    before.manager.log("t", 0).delete_records(offset)  # two of three lie inside a batch
    for seed in range(8):
        scene = before.after_crash(power=True, seed=seed)
        touch(scene)
        assert scene.values(0) == rows_of(0, 0)[offset:]
        assert scene.commit(1).parts[0].base_offset == 6


def test_a_decision_that_a_power_cut_brings_back_is_known_to_be_retired() -> None:
    before, _ = reach("retired")
    returned = 0
    for seed in range(20):
        scene = before.after_crash(power=True, seed=seed)
        returned += bool(scene.pending_names())
        touch(scene)
        assert [scene.values(p) for p in (0, 1)] == [BOTH[0], BOTH[1]]
        assert scene.commit(2).parts[0].base_offset == 12
        scene.commits.retire()
        assert scene.pending_names() == []
    assert returned, "no seed undid the removal: the test shows nothing"


def read_all(fs: FileSystem, path: str) -> bytes:
    with fs.open(path, OpenMode.READ) as file:
        return file.pread(file.stat().size, 0)


# ---- the same identity again --------------------------------------------------------------------
@pytest.mark.parametrize("state", DECIDED)
def test_the_same_again_answers_with_the_old_offsets_and_drops_the_new_files(state: str) -> None:
    scene, _ = reach(state)
    again = scene.stage(1)
    outcome = scene.commit(1, [again])
    assert (outcome.verdict, outcome.parts, outcome.rows) == (Verdict.REPLAY, PARTS, 12)
    assert [scene.values(p) for p in (0, 1)] == [BOTH[0], BOTH[1]]
    assert again.name not in scene.staged_names()


def test_the_same_again_commits_when_only_staged() -> None:
    scene, staged = reach("staged")
    outcome = scene.commit(1, [staged])
    assert (outcome.verdict, outcome.parts) == (Verdict.COMMIT, PARTS)
    assert [scene.values(p) for p in (0, 1)] == [BOTH[0], BOTH[1]]


@pytest.mark.parametrize("state", DECIDED)
def test_the_same_again_after_a_power_cut_is_a_replay_as_well(state: str) -> None:
    before, _ = reach(state)
    for seed in range(6):
        scene = before.after_crash(power=True, seed=seed)
        assert scene.commit(1).verdict is Verdict.REPLAY
        assert [scene.values(p) for p in (0, 1)] == [BOTH[0], BOTH[1]]


# ---- another writer -----------------------------------------------------------------------------
@pytest.mark.parametrize("state", DECIDED)
def test_another_writer_appends_after_decided_records(state: str) -> None:
    scene, _ = reach(state)
    scene.append(0, b"x")
    assert scene.values(0) == [*BOTH[0], b"x"]
    assert scene.commit(1).verdict is Verdict.REPLAY
    assert scene.values(0) == [*BOTH[0], b"x"]
    assert scene.values(1) == BOTH[1]


def test_another_writer_sees_no_staged_data() -> None:
    scene, staged = reach("staged")
    scene.append(0, b"x")
    scene.commit(1, [staged])
    assert scene.values(0) == [*OLD[0], b"x", *rows_of(1, 0)]


@pytest.mark.parametrize("state", DECIDED)
def test_another_query_commits_after_decided_records(state: str) -> None:
    scene, _ = reach(state)
    scene.commit(40, app="query-2/t")
    assert scene.values(0) == BOTH[0] + rows_of(40, 0, "query-2/t")
    touch(scene)
    assert scene.values(1) == BOTH[1] + rows_of(40, 1, "query-2/t")


@pytest.mark.parametrize("state", WAITING)
def test_another_writer_that_dies_while_applying_leaves_the_rest_to_the_next(state: str) -> None:
    scene, _ = reach(state)
    dying = Fault(operation="pwrite", path_suffix=LOG, moment=Moment.TORN, portion=0.7)
    with killed():
        touch(scene.over(dying))
    scene = scene.after_crash()
    touch(scene)
    assert [scene.values(p) for p in (0, 1)] == [BOTH[0], BOTH[1]]


# ---- topic deleted ------------------------------------------------------------------------------
def test_a_deleted_topic_refuses_staged_data() -> None:
    scene, staged = reach("staged")
    scene.manager.delete_topic("t")
    with pytest.raises(UnknownTopicError):
        scene.commit(1, [staged])


@pytest.mark.parametrize("state", ("decided", "partly applied", "applied"))
def test_a_deleted_topic_drops_its_part_with_a_report(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene, _ = reach(state)
    scene.manager.delete_topic("t")
    report = scene.commits.retire()
    assert report.retired == 2
    assert {part.reason for part in report.dropped} == {"the topic was deleted"}
    assert "dropped" in caplog.text
    assert scene.pending_names() == scene.staged_names() == []


def test_a_deleted_topic_does_not_touch_what_is_retired() -> None:
    scene, _ = reach("retired")
    scene.manager.delete_topic("t")
    assert scene.commits.retire().retired == 0
    assert scene.commits.last_version(APP) == 1


# ---- topic deleted and made anew ----------------------------------------------------------------
def make_anew(scene: Scene) -> None:
    scene.manager.delete_topic("t")
    scene.manager.create_topic("t", 2)


def test_a_recreated_topic_refuses_staged_data() -> None:
    scene, staged = reach("staged")
    make_anew(scene)
    with pytest.raises(InconsistentTopicIdError, match="deleted and recreated"):
        scene.commit(1, [staged])
    assert scene.commit(1).parts[0].base_offset == 0, "staged again, it goes to the new topic"


@pytest.mark.parametrize("state", ("decided", "partly applied", "applied"))
def test_a_recreated_topic_gets_nothing_of_the_old_one(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene, _ = reach(state)
    make_anew(scene)
    scene.append(0, b"x")
    assert scene.values(0) == [b"x"]
    outcome = scene.commit(1)
    assert outcome.verdict is Verdict.REPLAY
    assert [part.reason for part in outcome.dropped] == ["the topic was deleted and recreated"] * 2
    assert outcome.parts == ()
    assert scene.commits.retire().retired == 2
    assert scene.values(0) == [b"x"]
    assert "deleted and recreated" in caplog.text


def test_a_recreated_topic_starts_with_sequence_0_and_offset_0() -> None:
    scene, _ = reach("retired")
    make_anew(scene)
    assert scene.commit(2).parts[0].base_offset == 0
    table = scene.manager.log("t", 0).read(0).table
    assert int(table.base_sequence[0]) == 0


# ---- disk full ----------------------------------------------------------------------------------
def no_space(suffix: str, operation: str = "pwrite", *, is_lasting: bool = True) -> Fault:
    return Fault(operation=operation, path_suffix=suffix, errno=errno.ENOSPC, is_lasting=is_lasting)


def test_a_full_disk_fails_staging_and_leaves_no_file() -> None:
    scene = Scene()
    scene.commit(0)
    before = scene.staged_names()
    full = scene.over(Fault(operation="pwrite", errno=errno.ENOSPC))
    with pytest.raises(DiskFullError):
        full.stage(1)
    assert scene.staged_names() == before


@pytest.mark.parametrize("operation", ("create", "pwrite", "link"))
def test_a_full_disk_fails_deciding_and_nothing_is_decided(operation: str) -> None:
    scene, staged = reach("staged")
    name = "@00000000000000000002"
    suffix = name if operation == "link" else f"{name}.tmp"
    full = scene.over(no_space(suffix, operation, is_lasting=False))
    with pytest.raises(DiskFullError):
        full.commit(1, [staged])
    assert len(scene.pending_names()) == 1
    full.append(0, b"x")
    assert full.commit(1, [staged]).verdict is Verdict.COMMIT
    assert full.values(0) == [*OLD[0], b"x", *rows_of(1, 0)]


def test_a_full_disk_keeps_one_partition_pending_and_applies_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene, staged = reach("staged")
    full = scene.over(no_space(f"t-0/{LOG}"))
    with pytest.raises(UnavailableError):
        full.commit(1, [staged])
    assert "is decided but not applied yet" in caplog.text
    assert (full.values(0), full.values(1)) == (OLD[0], BOTH[1])
    with pytest.raises(UnavailableError):
        full.append(0, b"x")
    full.append(1, b"y")
    assert (full.values(0), full.values(1)) == (OLD[0], [*BOTH[1], b"y"])


@pytest.mark.parametrize("state", WAITING)
def test_a_full_disk_refuses_appends_until_there_is_room(state: str) -> None:
    scene, _ = reach(state)
    full = scene.over(no_space(f"t-0/{LOG}"))
    for _ in range(2):
        with pytest.raises(UnavailableError):
            full.append(0, b"x")
    with pytest.raises(UnavailableError):
        full.commit(2)
    room = full.over()
    room.append(0, b"x")
    touch(room)
    assert (room.values(0), room.values(1)) == ([*BOTH[0], b"x"], BOTH[1])


def test_a_full_disk_is_overcome_by_the_very_handle_that_met_it() -> None:
    scene, staged = reach("staged")
    full = scene.over(no_space(f"t-0/{LOG}", is_lasting=False))
    with pytest.raises(UnavailableError):
        full.commit(1, [staged])
    full.append(0, b"x")
    assert full.values(0) == [*BOTH[0], b"x"]
    assert full.commit(1).verdict is Verdict.REPLAY
    assert full.commit(2).verdict is Verdict.COMMIT


def test_a_full_disk_fails_retirement_and_the_commit_stands() -> None:
    scene, _ = reach("applied")
    full = scene.over(no_space("ledgers/query-1%2Ft.tmp"))
    with pytest.raises(DiskFullError):
        full.commits.retire()
    assert len(scene.pending_names()) == 2
    assert full.commit(1).verdict is Verdict.REPLAY
    room = full.over()
    assert room.commits.retire().retired == 2
    assert [room.values(p) for p in (0, 1)] == [BOTH[0], BOTH[1]]


# ---- damage -------------------------------------------------------------------------------------
def staged_path(name: str) -> str:
    return f"{ROOT}/.streamlog/staging/query-1%2Ft/{name}"


@pytest.mark.parametrize("position", (3, 10, 20, 40, 100), ids=str)
def test_a_damaged_staged_file_is_refused_before_anything_is_decided(position: int) -> None:
    scene, staged = reach("staged")
    flip_bit(scene.fs, staged_path(staged.name), position)
    with pytest.raises(CorruptRecordError, match="staged"):
        scene.commit(1, [staged])
    assert len(scene.pending_names()) == 1
    scene.append(0, b"x")
    assert scene.values(0) == [*OLD[0], b"x"]


@pytest.mark.parametrize("harm", ("flip", "cut", "remove"))
@pytest.mark.parametrize("state", WAITING)
def test_a_damaged_staged_file_stops_the_partitions_that_wait_for_it(state: str, harm: str) -> None:
    scene, staged = reach(state)
    path = staged_path(staged.name)
    if harm == "flip":
        flip_bit(scene.fs, path, staged.extents[0].size - 30)
    elif harm == "cut":
        with scene.fs.open(path, OpenMode.WRITE) as file:
            file.truncate(20)
    else:
        scene.fs.remove(path)
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            scene.append(0, b"x")
    with pytest.raises(CorruptRecordError):
        scene.commit(1)
    found = scene.values(0)
    assert found == BOTH[0][: len(found)]


def test_a_damaged_part_of_one_partition_does_not_stop_another() -> None:
    scene, staged = reach("decided")
    flip_bit(scene.fs, staged_path(staged.name), staged.size - 5)  # partition 1 is staged last
    scene.append(0, b"x")
    assert scene.values(0) == [*BOTH[0], b"x"]
    with pytest.raises(CorruptRecordError):
        scene.append(1, b"y")


def test_a_damaged_staged_file_does_not_matter_once_it_is_applied() -> None:
    scene, staged = reach("applied")
    flip_bit(scene.fs, staged_path(staged.name), 40)
    scene.append(0, b"x")
    assert scene.commit(1).verdict is Verdict.REPLAY
    assert scene.commits.retire().retired == 2
    assert scene.values(0) == [*BOTH[0], b"x"]


def damage(fs: FileSystem, path: str) -> None:
    """Damage both copies in a sealed file."""
    size = fs.stat(path).size  # type: ignore[union-attr]
    for position in (100, size - 100):
        flip_bit(fs, path, position)


def decision_path(scene: Scene, at: int = -1) -> str:
    return f"{ROOT}/.streamlog/commits/pending/{scene.pending_names()[at]}"


@pytest.mark.parametrize("state", WAITING)
@pytest.mark.parametrize("position", [3, 100, 5000], ids=["first line", "first copy", "second"])
def test_one_bad_byte_in_a_decision_is_tolerated(state: str, position: int) -> None:
    scene, _ = reach(state)
    scene = scene.after_crash(power=True, seed=1)
    flip_bit(scene.fs, decision_path(scene), position)
    scene.append(0, b"x")
    assert scene.values(0) == [*BOTH[0], b"x"]
    assert scene.commit(1).verdict is Verdict.REPLAY


@pytest.mark.parametrize("state", WAITING)
def test_a_decision_without_a_whole_copy_stops_the_topics_of_its_app(state: str) -> None:
    scene, _ = reach(state)
    scene.manager.create_topic("other", 1)
    scene = scene.after_crash(power=True, seed=1)
    damage(scene.fs, decision_path(scene))
    for partition in (0, 1):
        with pytest.raises(CorruptCheckpointError, match="damaged") as caught:
            scene.append(partition, b"x")
        assert "streamlog repair" in str(caught.value.hint)
    with pytest.raises(CorruptCheckpointError):
        scene.commit(2)
    with PartitionLog.open(f"{ROOT}/other-0", fs=scene.fs, clock=scene.clock) as log:
        assert log.append([Record(None, b"y")]).base_offset == 0
        log.delete_records(1)
    scene.commits.retire_idle()
    scene.commits.clean()


def test_a_first_decision_without_a_whole_copy_may_name_anything() -> None:
    scene = Scene()
    scene.manager.create_topic("other", 1)
    scene.commit(0)
    scene = scene.after_crash(power=True, seed=1)
    damage(scene.fs, decision_path(scene))
    with pytest.raises(CorruptCheckpointError, match="damaged"):
        PartitionLog.open(f"{ROOT}/other-0", fs=scene.fs, clock=scene.clock)


def test_a_missing_decision_stops_its_app() -> None:
    scene, _ = reach("applied")
    scene.fs.remove(f"{ROOT}/.streamlog/commits/pending/{scene.pending_names()[0]}")
    with pytest.raises(CorruptCheckpointError, match="missing"):
        scene.commit(2)


def test_a_damaged_ledger_stops_only_its_app() -> None:
    scene, _ = reach("retired")
    damage(scene.fs, f"{ROOT}/.streamlog/commits/ledgers/query-1%2Ft")
    with pytest.raises(CorruptCheckpointError, match="ledger"):
        scene.commit(2)
    scene.append(0, b"x")
    scene.commit(0, app="query-2/t")
    assert scene.values(0) == [*BOTH[0], b"x", *rows_of(0, 0, "query-2/t")]


# ---- and otherwise --------------------------------------------------------------------------
def test_nothing_is_logged_as_an_error_in_a_plain_commit(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.WARNING):
        for version in range(3):
            scene.commit(version)
    assert caplog.records == []


@pytest.mark.parametrize("seed", range(6))
def test_decided_records_come_back_with_the_epoch_they_had(seed: int) -> None:
    before, _ = reach("applied")
    scene = before.after_crash(power=True, seed=seed)
    scene.append(0, b"x")
    table = scene.manager.log("t", 0).read(0, 1 << 20).table
    epochs = [tuple(entry) for entry in scene.manager.log("t", 0).leader_epochs.entries]
    assert table.leader_epoch.tolist() == [0, 0, 0, 0, 1]
    assert epochs == [(0, 0), (1, 12)], "nobody who read to offset 12 has lost anything"


@pytest.mark.parametrize("seed", range(6))
def test_an_epoch_whose_records_are_lost_is_never_used_again(seed: int) -> None:
    scene = reach("applied")[0]
    for boot in range(1, 4):
        scene = scene.after_crash(power=True, seed=seed + boot)
        scene.append(0, b"x")
        assert scene.manager.log("t", 0).leader_epoch == boot
    assert scene.values(0)[:12] == BOTH[0]
