"""What overlaps in a copy into an object store, what may not, and how much of it is in memory."""

import random
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamlog import LogManager, Record
from streamlog.bucket.root import BucketRoot
from streamlog.clock import ManualClock
from streamlog.errors import CorruptRecordError, StorageError, StreamLogError
from streamlog.fs.log_root import LogRoot
from streamlog.store import remote
from streamlog.store.api import Content, ObjectRange, ObjectStore, Upload
from streamlog.store.faults import FaultyStore, StoreFault
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition
from streamlog.transfer import bucket_target, directory_source, segment_pipeline
from streamlog.transfer.bucket_source import BucketSource
from streamlog.transfer.bucket_target import BucketTarget
from streamlog.transfer.copying import CopyRequest, TopicCopier
from streamlog.transfer.directory_source import DirectorySource
from streamlog.transfer.ends import CopySource
from tests.bucket.staged import commit, stage, values_of

A = TopicPartition("orders", 0)
PATIENCE_S = 20


class WatchedStore:
    """A store with hooks around what a copy asks of it; everything else goes to the real one."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.on_write: Callable[[str, Content], Content] = lambda key, content: content
        self.on_close: Callable[[str], None] = lambda key: None
        self.on_create: Callable[[str, Content], None] = lambda key, content: None
        self.on_compare: Callable[[str], None] = lambda key: None
        self.compared: list[str] = []  # when it is done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def upload(self, key: str) -> Upload:
        return _WatchedUpload(self, self._store.upload(key))

    def create(self, key: str, content: Content) -> None:
        self.on_create(key, content)
        self._store.create(key, content)

    def checksums(self, ranges: Sequence[ObjectRange]) -> list[int]:
        keys = list(dict.fromkeys(each.key for each in ranges))
        for key in keys:
            self.on_compare(key)
        found = self._store.checksums(ranges)
        self.compared += keys
        return found


class _WatchedUpload:
    def __init__(self, store: WatchedStore, upload: Upload) -> None:
        self._store, self._upload, self.key = store, upload, upload.key

    def write(self, content: Content) -> None:
        self._upload.write(self._store.on_write(self.key, content))

    def close(self) -> None:
        self._store.on_close(self.key)
        self._upload.close()

    def abandon(self) -> None:
        self._upload.abandon()

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close() if kind is None else self.abandon()


def made_source(path: Path, *, segments: int, size: int, batches: int = 5) -> CopySource:
    """Return a root with one partition of segments of a size."""
    with LogManager.open(path, create=True) as manager:
        manager.create_topic("orders", configs={"internal.segment.bytes": size})
        log = manager.log("orders", 0)
        values = np.random.default_rng(1)
        for at in range(segments * batches):
            log.append([Record(value=values.bytes(size // batches - 100), timestamp=at)])
    return DirectorySource(LogRoot.at(path))


def rooted(store: Any) -> BucketRoot:
    root = BucketRoot(store, clock=ManualClock(), random=random.Random(0))
    root.create()
    root.refresh()
    return root


def copy(
    source: CopySource, root: BucketRoot, scratch: Path, names: random.Random | None = None
) -> None:
    target = BucketTarget(root, random=names, scratch=str(scratch))
    try:
        list(TopicCopier(source, target, CopyRequest()).run())
    finally:
        target.close()


def logs(store: ObjectStore) -> dict[str, bytes]:
    """Return the content of each log by the name of its file."""
    found = [each for each in store.list("orders-0/") if each.key.endswith(".log")]
    return {each.key.rpartition("/")[2]: store.get(each.key, max_size=each.size) for each in found}


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(root.glob("orders-0/*.log"))}


# ---- overlap ----------------------------------------------------------------------------------
def test_the_next_segment_is_written_while_one_is_read_back(tmp_path: Path) -> None:
    source = made_source(tmp_path / "source", segments=4, size=4000)
    store = WatchedStore(open_store("memory:///"))
    begun: list[str] = []
    has_next = threading.Event()
    met: list[bool] = []

    def written(key: str, content: Content) -> Content:
        if key.endswith(".log") and key not in begun:
            begun.append(key)
            if len(begun) == 2:
                has_next.set()
        return content

    def compared(key: str) -> None:
        if key == begun[0]:
            met.append(has_next.wait(PATIENCE_S))

    store.on_write, store.on_compare = written, compared
    copy(source, rooted(store), tmp_path / "scratch")
    assert met == [True]
    assert logs(store) == files(tmp_path / "source")


@pytest.mark.parametrize("placed", [1, 9000, 1 << 30])
def test_an_entry_names_only_segments_that_were_read_back(
    tmp_path: Path, placed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_target, "PLACED_BYTES", placed)
    source = made_source(tmp_path / "source", segments=9, size=4000)
    store = WatchedStore(open_store("memory:///"))
    named: list[int] = []
    unread: list[str] = []

    def created(key: str, content: Content) -> None:
        text = bytes(content).decode()
        new = [each.key for each in store.list("orders-0/") if each.key.endswith(".log")]
        in_entry = [key for key in new if key.partition("/")[2] in text.replace("\\/", "/")]
        unread.extend(key for key in in_entry if key not in store.compared)
        named.append(len(in_entry))

    store.on_create = created
    root = rooted(store)
    copy(source, root, tmp_path / "scratch")
    assert unread == []
    assert max(named) >= 9  # entries repeat those before them
    bases = [each.base_offset for each in root.state.partitions[A].stretches]
    assert bases == sorted(bases) and len(bases) == 9
    assert root.state.builds == {}


def test_entries_do_not_depend_on_how_fast_the_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_target, "PLACED_BYTES", 9000)
    monkeypatch.setattr(segment_pipeline, "IN_FLIGHT_BYTES", 12_000)
    source = made_source(tmp_path / "source", segments=12, size=4000)
    entries: list[list[tuple[str, bytes]]] = []
    for seed in range(3):
        store, delays = WatchedStore(open_store("memory:///")), random.Random(seed)
        made: list[tuple[str, bytes]] = []

        def wait(key: str, seed: int = seed, delays: random.Random = delays) -> None:
            threading.Event().wait(delays.random() * 0.05 * seed)

        store.on_close = store.on_compare = wait
        store.on_create = lambda key, content, made=made: made.append((key, bytes(content)))
        copy(source, rooted(store), tmp_path / "scratch", random.Random(5))
        entries.append(made)
    assert entries[0] == entries[1] == entries[2] and len(entries[0]) > 5


# ---- memory -----------------------------------------------------------------------------------
def test_a_slow_store_holds_the_copy_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the bound is under way, however slowly segments are finished."""
    monkeypatch.setattr(segment_pipeline, "IN_FLIGHT_BYTES", 12_000)
    source = made_source(tmp_path / "source", segments=16, size=4000)
    store = WatchedStore(open_store("memory:///"))
    lock = threading.Lock()
    sent: dict[str, int] = {}
    most = 0

    def written(key: str, content: Content) -> Content:
        nonlocal most
        if key.endswith(".log"):
            with lock:
                sent[key] = sent.get(key, 0) + memoryview(content).nbytes
                done = [each for each in store.compared if each in sent]
                most = max(most, sum(sent.values()) - sum(sent[each] for each in done))
        return content

    store.on_write = written
    store.on_close = lambda key: threading.Event().wait(0.1) and None
    copy(source, rooted(store), tmp_path / "scratch")
    assert 4000 < most <= 12_000 + 2 * 4000  # and the open one, and the one that waits
    assert logs(store) == files(tmp_path / "source")


def test_what_was_sent_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = 64 << 10
    monkeypatch.setattr(remote, "PART_SIZE", part)
    monkeypatch.setattr(directory_source, "COPY_BYTES", part)
    monkeypatch.setattr(segment_pipeline, "IN_FLIGHT_BYTES", 8 * part)
    monkeypatch.setattr(segment_pipeline, "UPLOAD_BYTES", 6 * part)
    source = made_source(tmp_path / "source", segments=10, size=1 << 20, batches=40)
    store = WatchedStore(open_store(f"file://{tmp_path}/bucket"))
    alive: dict[int, int] = {}
    most = 0

    def written(key: str, content: Content) -> Content:
        nonlocal most
        memory = memoryview(content).obj
        while isinstance(memory, np.ndarray) and memory.base is not None:
            memory = memory.base
        if isinstance(memory, np.ndarray) and id(memory) not in alive:
            alive[id(memory)] = memory.nbytes
            weakref.finalize(memory, alive.pop, id(memory))
            most = max(most, sum(alive.values()))
        return content

    store.on_write = written
    copy(source, rooted(store), tmp_path / "scratch")
    assert logs(store) == files(tmp_path / "source")
    bound = segment_pipeline.IN_FLIGHT_BYTES + segment_pipeline.UPLOAD_BYTES
    assert part < most <= bound + 4 * part  # of more than 10 MB: that, and what was just read


# ---- failures ---------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", [".log", ".timeindex"])
def test_a_store_that_keeps_other_bytes_is_found_before_anything_is_shown(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_target, "PLACED_BYTES", 1)
    source = made_source(tmp_path / "source", segments=3, size=4000)
    store = WatchedStore(open_store("memory:///"))

    def written(key: str, content: Content) -> Content:
        if not key.endswith(f"00005{suffix}"):
            return content
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        return changed

    store.on_write = written
    root = rooted(store)
    with pytest.raises(CorruptRecordError, match="does not hold what was written") as raised:
        copy(source, root, tmp_path / "scratch")
    assert raised.value.path is not None and raised.value.path.endswith(f"00005{suffix}")
    assert root.state.topics == {}
    assert not (tmp_path / "scratch").exists()
    store.on_write = lambda key, content: content
    copy(source, root, tmp_path / "scratch")
    assert {key: each for key, each in logs(store).items() if each} == files(tmp_path / "source")


def test_no_request_follows_a_failed_copy(tmp_path: Path) -> None:
    source = made_source(tmp_path / "source", segments=6, size=4000)
    store = open_store("memory:///")
    before = set(threading.enumerate())  # tests of crashes leave some
    for number in range(1, 16):
        faulty = FaultyStore(store, [StoreFault(operation="upload", first=number)])
        with pytest.raises(StorageError) as raised:
            copy(source, rooted(faulty), tmp_path / "scratch")
        assert raised.value.operation == "upload"
        count = len(faulty.requests)
        new = set(threading.enumerate()) - before
        assert [each for each in new if "pipeline" in each.name] == []
        assert len(faulty.requests) == count
        left = [each.key for each in store.list("orders-0/")]
        assert left == []  # what was uploaded in vain is deleted at once
    copy(source, rooted(store), tmp_path / "scratch")
    assert logs(store) == files(tmp_path / "source")


def test_a_copy_of_staged_rows_goes_on_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that the target's settings divide are put in place by and by, as others are."""
    monkeypatch.setattr(bucket_target, "PLACED_BYTES", 1)
    here = BucketRoot(open_store("memory:///"), clock=ManualClock(), random=random.Random(0))
    here.create()
    here.create_topic("orders", configs={"internal.segment.bytes": 2000})
    for version in range(8):
        values = [b"%d.%d" % (version, number) for number in range(60)]
        commit(here, "q", version, stage(here, "q", version, {A: values}))
    store = open_store("memory:///")
    fault = StoreFault(operation="upload", key=".log", first=5)
    root = rooted(FaultyStore(store, [fault]))
    with pytest.raises(StreamLogError):
        copy(BucketSource(here), root, tmp_path / "scratch")
    arrived = root.state.arriving["orders"].partitions[0].end_offset
    assert 0 < arrived < 480
    again = rooted(store)
    with closing(BucketTarget(again, scratch=str(tmp_path / "more"))) as target:
        (copied,) = TopicCopier(BucketSource(here), target, CopyRequest()).run()
    assert (copied.start_offset, copied.end_offset) == (arrived, 480)
    assert values_of(again, A) == values_of(here, A)
