"""Repair: what opening for writing does, tried out first; what it must not do is refused."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog.clock import SystemClock
from streamlog.errors import (
    CorruptRecordError,
    InvalidRequestError,
    LockTimeoutError,
    UnavailableError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.overlay import ChangeKind
from streamlog.health.findings import Finding, FindingKind, Severity
from streamlog.health.repair import Repair, repair
from streamlog.health.verify import verify
from streamlog.partition.reader import LogReader
from streamlog.records.record import IsolationLevel, Record
from streamlog.root.manager import LogManager
from tests.support.child import child_that_stays
from tests.support.commits import Scene
from tests.support.golden import unpack

SEGMENT = f"{137:020}"
LAST = f"{348:020}"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A partition that a broker wrote, in a directory of its own."""
    unpack("C-broker/clean-log.dir.tar.gz", tmp_path, "clean-log.dir/txn-0/")
    return tmp_path / "clean-log.dir" / "txn-0"


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A partition in a root made here, several segments, closed."""
    root = tmp_path / "root"
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 2, {"internal.segment.bytes": "2000"})
        for partition in (0, 1):
            log = manager.log("orders", partition)
            for number in range(30):
                log.append([Record(key=b"%d" % number, value=b"v" * 100)])
    return root / "orders-0"


def digest(path: Path) -> str:
    whole = hashlib.sha256()
    for each in sorted(path.rglob("*")):
        facts = each.stat()
        whole.update(f"{each.relative_to(path)} {facts.st_mtime_ns} {facts.st_ino}".encode())
        if each.is_file():
            whole.update(each.read_bytes())
    return whole.hexdigest()


def run(path: Path, *, fs: FileSystem | None = None, **how: bool) -> list[Repair]:
    how = {"is_dry_run": False, **how}
    done = repair(fs or LocalFileSystem(), SystemClock(), random.Random(0), str(path), **how)
    return list(done)


def findings(path: Path) -> list[Finding]:
    found: list[Finding] = []
    verify(LocalFileSystem(), str(path), found.append)
    return [each for each in found if each.severity is not Severity.NOTE]


def records(path: Path) -> list[tuple[int, bytes | None]]:
    """Return offsets and values, of aborted transactions, too."""
    with LogReader.open(path) as reader:
        found: list[tuple[int, bytes | None]] = []
        at, end = reader.log_start_offset, reader.log_end_offset
        while at < end:
            info = reader.read(at, isolation=IsolationLevel.READ_UNCOMMITTED)
            found += [(record.offset, record.value) for record in info.records()]
            at = info.next_offset
        return found


def truncate(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "torn tail": lambda d: max(d.glob("*.log")).open("ab").write(b"half a batch, and more"),
    "half an index entry": lambda d: sorted(d.glob("*.index"))[1].write_bytes(b"\0\0\0\1\0"),
    "no index": lambda d: sorted(d.glob("*.index"))[1].unlink(),
    "cut time index": lambda d: truncate(sorted(d.glob("*.timeindex"))[1], 0),
    "damaged snapshot": lambda d: truncate(max(d.glob("*.snapshot")), 7),
    "damaged epochs": lambda d: (d / "leader-epoch-checkpoint").write_text("nonsense\n"),
    "wrong epochs": lambda d: (d / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n"),
    "no epochs": lambda d: (d / "leader-epoch-checkpoint").unlink(),
    "index alone": lambda d: (d / f"{99999:020}.index").touch(),
    "half a compaction": lambda d: (d / f"{0:020}.log.cleaned").touch(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_what_can_be_put_right_is_and_no_record_is_lost(
    request: pytest.FixtureRequest, whose: str, damage: Callable[[Path], object]
) -> None:
    directory: Path = request.getfixturevalue(whose)
    before = records(directory)
    damage(directory)
    assert findings(directory) != []
    untouched = digest(directory.parent)
    [planned] = run(directory, is_dry_run=True)
    assert digest(directory.parent) == untouched
    assert planned.error is None and planned.steps
    [done] = run(directory)
    assert done == planned
    assert findings(directory) == []
    assert records(directory) == before
    assert run(directory) == [Repair(partition=planned.partition)]


def test_what_is_cut_is_kept(theirs: Path) -> None:
    path = theirs / f"{LAST}.log"
    sound = path.read_bytes()
    path.write_bytes(sound + b"torn off")
    [done] = run(theirs)
    assert path.read_bytes() == sound
    assert (theirs / f"{LAST}.log.torn-1").read_bytes() == b"torn off"
    cut = next(step for step in done.steps if step.change.kind is ChangeKind.CUT)
    assert (cut.change.path, cut.change.size - cut.change.new_size) == (str(path), 8)
    assert cut.why is not None and "incomplete batch" in cut.why


def test_a_lost_transaction_index_is_made_anew_byte_for_byte(theirs: Path) -> None:
    path = theirs / f"{SEGMENT}.txnindex"
    before = path.read_bytes()
    path.unlink()
    run(theirs)
    assert path.read_bytes() == before


def test_lost_snapshots_are_made_anew(theirs: Path) -> None:
    for path in theirs.glob("*.snapshot"):
        path.unlink()
    assert findings(theirs) != []
    run(theirs)
    assert (theirs / f"{354:020}.snapshot").stat().st_size > 10
    assert findings(theirs) == []


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_damage_is_refused_and_nothing_is_changed(
    request: pytest.FixtureRequest, whose: str
) -> None:
    directory: Path = request.getfixturevalue(whose)
    path = sorted(directory.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    path.with_suffix(".index").unlink()  # so that there is something to be done as well
    before = digest(directory)
    [refused] = run(directory)
    assert isinstance(refused.error, CorruptRecordError) and refused.steps == ()
    assert refused.error.path == str(path)
    assert digest(directory) == before


def test_one_refused_partition_does_not_keep_the_others(ours: Path) -> None:
    path = ours.parent / "orders-1" / min(ours.glob("*.log")).name
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    DAMAGE["half an index entry"](ours)
    path.with_suffix(".index").unlink()
    first, second = run(ours.parent)
    assert first.steps and first.error is None
    assert isinstance(second.error, CorruptRecordError)


def test_synced_records_that_are_gone_are_refused(ours: Path) -> None:
    path = max(each for each in ours.glob("*.log") if each.stat().st_size)
    truncate(path, path.stat().st_size - 5)
    [refused] = run(ours)
    assert isinstance(refused.error, CorruptRecordError)
    assert "synced" in str(refused.error)


def test_a_refused_partition_leaves_nobody_in_the_root(ours: Path) -> None:
    flip(min(ours.glob("*.log")))
    first, second = run(ours.parent)
    assert first.error is not None and second.error is None


# ---- going on without ----------------------------------------------------------------------------
def flip(path: Path, at: int = 70) -> None:
    """Change a byte under the checksum of a batch."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_damaged_records_are_skipped_and_all_others_stay(ours: Path, number: int) -> None:
    path = sorted(each for each in ours.glob("*.log") if each.stat().st_size)[number]
    before, bytes_before = records(ours), path.read_bytes()
    flip(path)
    damaged = path.read_bytes()
    [done] = run(ours, skips_damage=True)
    assert (done.error, done.left) == (None, [])
    base = int(path.stem)
    assert records(ours) == [each for each in before if each[0] != base]
    assert Path(f"{path}.corrupt-1").read_bytes() == damaged
    assert len(path.read_bytes()) < len(bytes_before)
    assert findings(ours) == []
    assert run(ours, skips_damage=True)[0].steps == ()


def test_skipping_is_tried_out_first(ours: Path) -> None:
    flip(min(ours.glob("*.log")))
    before = digest(ours)
    [trial] = run(ours, skips_damage=True, is_dry_run=True)
    assert digest(ours) == before
    [done] = run(ours, skips_damage=True)
    assert trial.steps == done.steps
    assert "corrupt-1" in str([step.change.target for step in done.steps])


def test_what_is_cut_off_below_the_recovery_point_is_given_up(ours: Path) -> None:
    path = max(each for each in ours.glob("*.log") if each.stat().st_size)
    before = records(ours)
    truncate(path, path.stat().st_size - 5)
    [done] = run(ours, skips_damage=True)
    assert done.error is None
    assert records(ours) == before[:-1]
    with LogManager.open(ours.parent) as manager:
        log = manager.log("orders", 0)
        assert log.append([Record(None, b"next")]).base_offset == before[-1][0]
        assert log.leader_epoch > 0  # who has read what is gone can tell


def test_where_all_segments_are_gone_no_offset_is_given_away_twice(ours: Path) -> None:
    end = records(ours)[-1][0] + 1
    for path in ours.glob("0*"):
        path.unlink()
    [found] = findings(ours)
    assert (found.kind, found.offset, found.last_offset) == (FindingKind.LOST_RECORDS, 0, end - 1)
    [refused] = run(ours)
    assert refused.error is not None and "--skip-damage" in str(refused.error.hint)
    [done] = run(ours, skips_damage=True)
    assert done.error is None
    assert findings(ours) == []
    with LogManager.open(ours.parent) as manager:
        log = manager.log("orders", 0)
        assert (log.log_start_offset, log.log_end_offset) == (end, end)


def test_sound_batches_out_of_order_are_not_chosen_from(ours: Path) -> None:
    path = min(ours.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[2] ^= 1  # of the first batch's offset, which no checksum covers
    path.write_bytes(data)
    before = digest(ours)
    [refused] = run(ours, skips_damage=True)
    assert isinstance(refused.error, CorruptRecordError)
    assert digest(ours) == before


def test_what_decisions_can_mend_is_not_skipped(tmp_path: Path) -> None:
    scene = Scene(LocalFileSystem(), root=str(tmp_path / "root"))
    for version in range(2):
        scene.commit(version)
    scene.manager.close()
    path = tmp_path / "root" / "t-0" / f"{0:020}.log"
    before = records(path.parent)
    flip(path)
    [done] = run(path.parent, skips_damage=True)
    assert done.error is None
    assert records(path.parent) == before


def test_nothing_is_skipped_in_a_root_that_is_not_ours(theirs: Path) -> None:
    flip(sorted(theirs.glob("*.log"))[1])
    before = digest(theirs)
    [refused] = run(theirs, skips_damage=True)
    assert isinstance(refused.error, InvalidRequestError)
    assert digest(theirs) == before


def test_never_while_somebody_may_write(ours: Path) -> None:
    DAMAGE["half an index entry"](ours)

    def open_it() -> object:
        manager = LogManager.open(ours.parent)
        return manager, manager.log("orders", 1)

    with child_that_stays(open_it):
        before = digest(ours)
        with pytest.raises(LockTimeoutError, match="open for writing"):
            run(ours)
        assert digest(ours) == before
    assert run(ours)[0].steps


def test_never_under_a_running_broker(theirs: Path) -> None:
    class BrokersDisk(LocalFileSystem):
        def broker_lock_is_held(self, path: str) -> bool:
            return path == f"{theirs.parent}/.lock"

    DAMAGE["half an index entry"](theirs)
    for is_dry_run in (True, False):
        with pytest.raises(UnavailableError, match="running Kafka broker"):
            run(theirs, is_dry_run=is_dry_run, fs=BrokersDisk())


def test_nothing_appears_beside_a_partition_that_is_not_ours(theirs: Path) -> None:
    DAMAGE["torn tail"](theirs)
    run(theirs)
    assert [each.name for each in theirs.parent.iterdir()] == ["txn-0"]


def test_a_repaired_partition_is_written_on(ours: Path) -> None:
    DAMAGE["torn tail"](ours)
    run(ours)
    with LogManager.open(ours.parent) as manager:
        assert manager.log("orders", 0).append([Record(value=b"next")]).base_offset == 30
    assert findings(ours.parent) == []


def test_a_file_is_wrong_use(ours: Path) -> None:
    with pytest.raises(InvalidRequestError, match="only whole partitions"):
        run(min(ours.glob("*.log")))


def test_damage_that_opening_would_not_see_is_refused_too(theirs: Path) -> None:
    path = theirs / f"{SEGMENT}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    before = digest(theirs)
    [refused] = run(theirs)
    assert isinstance(refused.error, CorruptRecordError)
    assert (refused.error.path, refused.error.position) == (str(path), 0)
    assert digest(theirs) == before


def test_what_cannot_be_put_right_is_left_and_told(theirs: Path) -> None:
    (theirs / "partition.metadata").write_text("hello")
    DAMAGE["torn tail"](theirs)
    [done] = run(theirs)
    assert done.error is None and done.steps
    assert [each.kind for each in done.left] == [FindingKind.METADATA]
    assert findings(theirs) == list(done.left)
