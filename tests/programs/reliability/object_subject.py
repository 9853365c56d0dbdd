"""The system under test in an object store: the operations of `subject`, and a reader.

An append is a commit of an app that commits once. Operations that only a directory has stand for
the maintenance that an object store has instead.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

import numpy as np

from streamlog.bucket.root import BucketRoot
from streamlog.bucket.state import Stretch
from streamlog.clock import ManualClock
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import StagedFile
from streamlog.errors import StreamLogError, UnavailableError
from streamlog.fs.memory import MemoryFileSystem
from streamlog.maintenance.bucket_runner import BucketMaintenance
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder, EncodedBatches
from streamlog.store.api import ObjectStore
from streamlog.topic import TopicPartition
from tests.programs.reliability.content import NOW, identify, record_of
from tests.programs.reliability.history import (
    Batch,
    Began,
    Cleaned,
    History,
    Outcome,
    Retained,
    Seen,
    View,
    Waited,
    Wrote,
)
from tests.programs.reliability.independent import read_batches
from tests.programs.reliability.query_writer import APP, PARTITIONS, QueryWriter
from tests.programs.reliability.subject import ASKED_TIMES, DAY_MS, TOPIC

SETTINGS: Final = {
    "internal.segment.bytes": "700",
    "index.interval.bytes": "150",
    "min.cleanable.dirty.ratio": "0.01",
}
OTHER_SETTINGS: Final = {"internal.segment.bytes": "400"}
SERVER: Final = {"log.cleaner.dedupe.buffer.size": "1048576"}
_LONG_MS: Final = 61_000  # more than file.delete.delay.ms


class Ids:
    """Draws the ids of records in ascending order, after those of a history."""

    def __init__(self, history: History) -> None:
        known = (
            each
            for event in history
            if isinstance(event, Wrote)
            for groups in event.ids.values()
            for ids in groups
            for each in ids
        )
        self._next = 1 + max(known, default=-1)

    def draw(self, count: int) -> tuple[int, ...]:
        """Return the next ids."""
        self._next += count
        return tuple(range(self._next - count, self._next))


class ObjectSubject(QueryWriter):
    """One process that writes to a root in an object store.

    Args:
        store: The objects of the root.
        history: The events so far; this process appends its own.
        life: A number unique among the processes on the same objects: it seeds their names.
        ids: The ids of records; concurrent processes share them.
        is_compacted: Whether the topic is compacted, if this process creates it.
        clock: By default, one that continues where the last process's clock stopped.
    """

    def __init__(
        self,
        store: ObjectStore,
        history: History,
        *,
        life: int,
        ids: "Ids | None" = None,
        is_compacted: bool = False,
        clock: ManualClock | None = None,
    ) -> None:
        self.store, self.history = store, history
        waited = [event.now_ms for event in history if isinstance(event, Waited)]
        self.clock = clock or ManualClock(max([NOW, *waited]))
        self._random = Random(1_000_000_007 + life)
        self._writer = f"plain-{life}"
        self._open(is_compacted)
        self.ids = ids or Ids(history)

    def _open(self, is_compacted: bool = False) -> None:
        self.root = BucketRoot(self.store, clock=self.clock, random=self._random)
        self.root.create(SERVER)
        self.root.refresh()
        if TOPIC not in self.root.state.topics:
            policy = {"cleanup.policy": "compact,delete"} if is_compacted else {}
            self.root.create_topic(TOPIC, partitions=PARTITIONS, configs={**SETTINGS, **policy})

    def _run(self, operation: str) -> None:
        OBJECT_OPERATIONS[operation](self)

    # ---- operations --------------------------------------------------------------------------
    def append(self) -> None:
        self._append(0, (self._draw(2),))

    def append_other(self) -> None:
        """Append one record to the other partition."""
        self._append(1, (self._draw(1),))

    def append_batches(self) -> None:
        """Append three batches at once."""
        self._append(0, tuple(self._draw(size) for size in (2, 1, 3)))

    def reopen(self) -> None:
        """Continue as another process."""
        self._open()

    def maintain(self) -> None:
        """Do all maintenance that is due."""
        self._note_maintenance()
        with BucketMaintenance(
            self.root, fs=MemoryFileSystem(), scratch="/scratch", random=self._random
        ) as maintenance:
            report = maintenance.run()
        self._note_maintenance()
        for error in report.errors:
            raise error

    def maintain_later(self) -> None:
        """Do maintenance, and again when what it replaced may be deleted."""
        self.maintain()
        self._advance(_LONG_MS)
        self.maintain()

    def build(self) -> None:
        """Do maintenance after an hour, when staged extents of any number are built."""
        self._advance(DAY_MS // 24)
        self.maintain()

    def delete_records(self) -> None:
        """Delete the first third of the records."""
        at = self.root.refresh().partitions[TopicPartition(TOPIC, 0)]
        offset = (2 * at.log_start_offset + at.end_offset) // 3
        self.history.append(Began(0, offset))
        self.root.delete_records(TopicPartition(TOPIC, 0), offset)
        self.history.append(Began(0, offset, Outcome.DONE))

    def alter_config(self) -> None:
        """Toggle between two sizes of segments."""
        if self.root.topic_config(TOPIC).internal_segment_bytes == 400:
            self.root.alter_topic(TOPIC, configs=SETTINGS)
        else:
            self.root.alter_topic(TOPIC, configs=OTHER_SETTINGS)

    def wait(self) -> None:
        """Advance the clock by eight days, longer than all retention times."""
        self._advance(8 * DAY_MS)

    # ---- how ---------------------------------------------------------------------------------
    def _advance(self, duration_ms: int) -> None:
        self.history.append(Waited(self.clock.now_ms() + duration_ms))
        self.clock.advance(duration_ms)

    def _draw(self, count: int) -> tuple[int, ...]:
        return self.ids.draw(count)

    def _append(self, partition: int, groups: tuple[tuple[int, ...], ...]) -> None:
        identity = CommitIdentity.anonymous(self._random)
        wrote = Wrote(f"{self._writer}-{partition}", groups[0][0], {partition: groups})
        self._write(identity, wrote)

    def _commit(
        self,
        version: int,
        ids: Mapping[int, tuple[tuple[int, ...], ...]] | None,
        *,
        writer: str = APP,
    ) -> None:
        if ids is None:
            ids = {p: (self._draw(3),) for p in range(PARTITIONS)}
        self._write(CommitIdentity(APP, version), Wrote(writer, version, ids))

    def _write(self, identity: CommitIdentity, wrote: Wrote) -> None:
        self.history.append(wrote)
        try:
            planned = {TOPIC: self.root.topic_config(TOPIC)}
            staged = [self._stage(identity, wrote.ids)]
            outcome = self.root.commits.commit(identity, staged, planned=planned)
        except StreamLogError as error:
            if not isinstance(error, UnavailableError):
                self.history.append(wrote._replace(outcome=Outcome.REFUSED))
            raise
        offsets = {part.topic_partition.partition: part.base_offset for part in outcome.parts}
        self.history.append(
            wrote._replace(outcome=Outcome.DONE, base_offset=offsets, is_durable=True)
        )

    def _stage(
        self, identity: CommitIdentity, ids: Mapping[int, tuple[tuple[int, ...], ...]]
    ) -> StagedFile:
        """Write the staged object of one task, with rows of all partitions."""
        with self.root.stager(identity.app, identity.version, 0) as stager:
            for partition, groups in ids.items():
                data = b"".join(_batch(each, each[0] - groups[0][0]) for each in groups)
                buffer = np.frombuffer(bytearray(data), np.uint8)
                encoded = EncodedBatches(buffer, scan_batches(buffer).table)
                stager.append(TopicPartition(TOPIC, partition), encoded)
            every = [each for groups in ids.values() for some in groups for each in some]
            return stager.finish(rows=len(every), checksum=sum(every))

    def _note_maintenance(self) -> None:
        state, now_ms = self.root.refresh(), self.clock.now_ms()
        for partition in range(PARTITIONS):
            self.history.append(Retained(partition, now_ms))
            if "compact" in self.root.topic_config(TOPIC).cleanup_policy:
                at = state.partitions[TopicPartition(TOPIC, partition)]
                self.history.append(Cleaned(partition, at.end_offset, now_ms))

    # ---- what is there -----------------------------------------------------------------------
    def see(self) -> None:
        """Read all partitions with a fresh reader and with the independent one."""
        fresh = BucketRoot(self.store, clock=self.clock, random=self._random)
        fresh.refresh()
        self.history.append(Seen({p: _look(fresh, p) for p in range(PARTITIONS)}))


def _look(root: BucketRoot, partition: int) -> View:
    """Return what both readers find in a partition."""
    name = TopicPartition(TOPIC, partition)
    reader, at = root.reader(name), root.state.partitions[name]
    rows: list[tuple[int, int | None]] = []
    start, end = reader.log_start_offset, reader.log_end_offset
    offset = start
    while offset < end:
        info = reader.read(offset)
        rows += [
            (each.offset, identify(each.timestamp or 0, each.key, each.value))
            for each in info.records()
            if each.offset >= start
        ]
        if info.next_offset <= offset:
            raise AssertionError(f"the read at offset {offset} makes no progress")
        offset = info.next_offset
    by_time = [(each, reader.offset_for_timestamp(each)) for each in ASKED_TIMES]
    batches: list[Batch] = []
    again: list[tuple[int, int | None]] = []
    torn = 0
    for stretch in at.stretches:
        torn += stretch.size - _read_stretch(root.store, stretch, batches, again)
    return View(
        start,
        end,
        0,
        tuple(rows),
        tuple(each for each in again if each[0] >= start),
        tuple(each for each in batches if start <= each.last_offset < end),
        at.epochs,
        tuple((each, None if hit is None else hit.offset) for each, hit in by_time),
        torn,
    )


def _read_stretch(
    store: ObjectStore,
    stretch: Stretch,
    batches: list[Batch],
    rows: list[tuple[int, int | None]],
) -> int:
    """Add what the independent parser finds in a stretch; return the bytes of whole batches."""
    content = store.get(stretch.key, max_size=1 << 24)
    data = content[stretch.position : stretch.position + stretch.size]
    first, size = None, 0
    for found in read_batches(data):
        first = found.base_offset if first is None else first
        shift = stretch.base_offset - first if stretch.is_staged else 0
        epoch = stretch.leader_epoch if stretch.is_staged else found.leader_epoch
        size += 12 + int.from_bytes(data[size + 8 : size + 12], "big")
        batches.append(
            Batch(found.base_offset + shift, found.last_offset + shift, epoch, found.is_sound)
        )
        rows += [
            (each.offset + shift, identify(each.timestamp, each.key, each.value))
            for each in found.records
        ]
    return size


def _batch(ids: tuple[int, ...], base_offset: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset)
    for each in ids:
        builder.append(record_of(each))
    return builder.build()


OBJECT_OPERATIONS: Final[dict[str, Callable[[ObjectSubject], None]]] = {
    "append": ObjectSubject.append,
    "append other": ObjectSubject.append_other,
    "append batches": ObjectSubject.append_batches,
    "flush": ObjectSubject.maintain,
    "roll": ObjectSubject.build,
    "commit": ObjectSubject.commit,
    "commit again": ObjectSubject.commit_again,
    "retire": ObjectSubject.maintain_later,
    "truncate": ObjectSubject.delete_records,
    "reopen": ObjectSubject.reopen,
    "transaction": ObjectSubject.append_other,
    "repeat": ObjectSubject.append_other,
    "append elsewhere": ObjectSubject.append,
    "commit other": ObjectSubject.commit_other,
    "clean": ObjectSubject.maintain_later,
    "retain": ObjectSubject.maintain_later,
    "delete records": ObjectSubject.delete_records,
    "alter config": ObjectSubject.alter_config,
    "wait": ObjectSubject.wait,
}
