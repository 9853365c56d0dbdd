"""The overview of a directory: a log root, a broker's log.dir, a partition, or one segment file.

Nothing there is changed, created or locked. What it costs: a listing of each directory; the header
of the first batch and the index files of each segment, half a percent of the log; segments of at
most 1 MiB whole; in compacted topics the producer snapshot and the batches after it; of
`__consumer_offsets` the newest 8 MiB.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from streamlog.cleaner.choosing import find_cleanable
from streamlog.config.log_config import LogConfig
from streamlog.errors import InvalidConfigError, StreamLogError
from streamlog.fs.log_root import LogRoot
from streamlog.overview.commit_apps import committing_apps
from streamlog.overview.consumer_groups import group_overviews
from streamlog.overview.health import (
    by_severity,
    remark_of_error,
    remarks_of_replicas,
    remarks_of_root,
    remarks_of_topics,
    remarks_of_verify,
)
from streamlog.overview.model import (
    CompactionOverview,
    HealthRemark,
    PartitionOverview,
    RateWindow,
    RootKind,
    RootOverview,
    TopicOverview,
)
from streamlog.overview.partition import PartitionFacts, compaction_overview
from streamlog.overview.reader_lag import HeldBytes, reader_overviews
from streamlog.overview.segment_facts import segments_of
from streamlog.overview.timeline import offsets_per_step
from streamlog.overview.topic_settings import RootSettings, changed_root_settings
from streamlog.partition.checkpoints import read_cleaner_offsets
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.partition.reader import LogReader
from streamlog.root.deeds import read_deeds
from streamlog.root.read_roots import Directories, ReadRoots
from streamlog.root.readers import Holds, Reader
from streamlog.root.roots import is_our_root
from streamlog.segment.filenames import parse_log_file_name
from streamlog.topic import TopicPartition

__all__ = ["overview_of_directory"]

_DEEDS: Final = 20
_TAIL_READ: Final = 1 << 16
ChooseWindow = Callable[[int | None], RateWindow]


def overview_of_directory(
    roots: ReadRoots, choose_window: ChooseWindow, *, is_verified: bool
) -> RootOverview:
    """Return the overview of a directory.

    Args:
        roots: The directory, or the roots of a replica set: each partition is then looked at in
            the root of its leader, else in the first one that is there.
        choose_window: Returns the times of the rates from the newest timestamp of all topics.
        is_verified: Whether to check every byte as well.

    Raises:
        UnknownTopicError: There is no log at the path.
        InvalidConfigError: The root's own settings are invalid.
    """
    found = roots.find()
    look = _Look(roots, found)
    window = choose_window(look.newest_ms())
    topics = tuple(look.topic(name, window) for name in found)
    readers = reader_overviews(
        roots,
        look.readers,
        look.held,
        now_ms=look.now_ms,
        retention_minutes=look.settings.server.offsets_retention_minutes,
        remarks=look.remarks,
    )
    node = look.node()
    groups = group_overviews({each.name: each for each in topics}, look.open, look.remarks)
    remarks = [
        *look.remarks,
        *remarks_of_root(look.root, look.kind, found),
        *remarks_of_replicas(roots),
        *remarks_of_topics(topics, look.now_ms),
    ]
    if is_verified:
        remarks += [each for path in roots.paths for each in remarks_of_verify(look.root, path)]
    is_ours = look.kind is RootKind.ROOT
    return RootOverview(
        path=roots.name,
        kind=look.kind,
        taken_ms=look.now_ms,
        node=node,
        window=window,
        topics=topics,
        readers=readers,
        apps=committing_apps(look.root) if is_ours else (),
        settings=changed_root_settings(look.settings.server),
        health=by_severity(dict.fromkeys(remarks)),
        deeds=tuple(reversed(read_deeds(look.root)[-_DEEDS:])) if is_ours else (),
        is_verified=is_verified,
        has_settings=look.settings.are_known,
        groups=groups,
    )


class _Look:
    """One look at a directory.

    Args:
        roots: Where to look.
        found: The directories of its partitions.

    Attributes:
        root: The log root, or the one of a set that was named first.
        kind: What lies there.
        settings: Its settings and those of its topics.
        readers: The recorded readers.
        held: What is kept for them; complete once all topics were looked at.
        remarks: What could not be read.
    """

    def __init__(self, roots: ReadRoots, found: Directories) -> None:
        self._roots, self._found = roots, found
        self.now_ms = roots.clock.now_ms()
        self.root, self.kind = _root_and_kind(roots, found)
        self.remarks: list[HealthRemark] = []
        self.settings = RootSettings.of(self.root)
        if self.settings.problem is not None:
            self.remarks.append(remark_of_error(self.settings.problem, "cluster metadata"))
        self.readers: Sequence[Reader] = ()
        self._holds: Holds | None = None
        try:
            self.readers = roots.recorded_readers()
            self._holds = Holds.read(self.root)
        except StreamLogError as error:
            self.remarks.append(remark_of_error(error, self.root.readers))
        try:
            self._cleaned = read_cleaner_offsets(self.root)
        except StreamLogError as error:
            self._cleaned = {}
            self.remarks.append(remark_of_error(error, self.root.path))
        self.held = HeldBytes()

    def _partitions(self) -> Iterator[tuple[TopicPartition, tuple[str, ...]]]:
        for topic, numbers in self._found.items():
            for number, directories in numbers.items():
                yield TopicPartition(topic, number), tuple(directories)

    def _open(self, partition: TopicPartition, directories: Sequence[str]) -> LogReader:
        """Open the leader's replica of a partition, else the first one that is there."""
        places = list(directories)
        if self._roots.is_set:
            leader = self._roots.leader_and_isr(partition, directories).leader
            places.sort(key=lambda each: each != leader)
            places = [each for each in places if self._roots.is_reachable(each)] or places
        return LogReader.open(places[0], fs=self._roots.fs)

    def open(self, partition: TopicPartition) -> LogReader:
        """Open a partition that was found."""
        return self._open(partition, self._found[partition.topic][partition.partition])

    def newest_ms(self) -> int | None:
        """Return the newest timestamp that is not in the future, from the ends of the logs."""
        newest = None
        for partition, directories in self._partitions():
            try:
                with self._open(partition, directories) as log:
                    last = [each.max_timestamp for each in log.segments][-2:]
            except StreamLogError:  # reported by the closer look
                continue
            dated = [each for each in last if 0 <= each <= self.now_ms]
            newest = max([*dated, *([] if newest is None else [newest])], default=None)
        return newest

    # ---- topics ------------------------------------------------------------------------------
    def topic(self, name: str, window: RateWindow) -> TopicOverview:
        """Return the overview of a topic."""
        try:
            config, entries = self.settings.of_topic(name)
        except InvalidConfigError as error:
            config, entries = LogConfig(), ()
            self.remarks.append(remark_of_error(error, name))
        topic_id = None
        partitions = []
        for number, directories in self._found[name].items():
            partition = TopicPartition(name, number)
            try:
                with self._open(partition, directories) as log:
                    topic_id = topic_id or log.topic_id
                    partitions.append(self._partition(log, config, window))
            except StreamLogError as error:
                path, what = directories[0], error.sentence
                partitions.append(PartitionOverview(partition=number, path=path, problem=what))
                self.remarks.append(remark_of_error(error, str(partition)))
        return TopicOverview(
            name=name,
            topic_id=topic_id,
            is_internal=name.startswith("__"),
            cleanup_policy=tuple(sorted(config.cleanup_policy)),
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            settings=entries,
            partitions=tuple(partitions),
        )

    def _partition(
        self, log: LogReader, config: LogConfig, window: RateWindow
    ) -> PartitionOverview:
        partition, offsets = log.topic_partition, log.offsets
        segments = segments_of(log)
        bases, sizes = [each.base_offset for each in segments], [each.size for each in segments]
        held = [] if self._holds is None else self._holds.of(partition, log.path, bases, sizes)
        facts = PartitionFacts(
            partition=partition,
            topic_id=log.topic_id,
            offsets=offsets,
            segments=segments,
            held=held,
        )
        self.held.add(held)
        recent = [
            each.timeline()
            for each in segments
            if (each.last_ms or 0) >= window.start_ms and (each.first_ms or 0) < window.end_ms
        ]
        return PartitionOverview(
            partition=partition.partition,
            path=log.path,
            leader_epoch=log.leader_epoch,
            log_start_offset=offsets.start,
            high_watermark=offsets.high_watermark,
            log_end_offset=offsets.end,
            size_bytes=sum(sizes),
            segments=facts.segment_overviews(config, self.now_ms),
            rate=offsets_per_step(recent, window),
            compaction=self._compaction(log, facts, config),
            problem=self._end_problem(log),
        )

    def _compaction(
        self, log: LogReader, facts: PartitionFacts, config: LogConfig
    ) -> CompactionOverview | None:
        if "compact" not in config.cleanup_policy or not facts.segments:
            return None
        try:
            cleanable = find_cleanable(
                log,
                self._cleaned.get(facts.partition),
                config=config,
                now_ms=self.now_ms,
                held_from=facts.held_from,
            )
        except StreamLogError as error:
            self.remarks.append(remark_of_error(error, str(facts.partition)))
            return None
        return compaction_overview(cleanable)

    def _end_problem(self, log: LogReader) -> str | None:
        """Return what lies after the last sound batch, and remark on it."""
        active = log.segments.active if len(log.segments) else None
        tail = 0 if active is None else active.tail_size
        if active is None or not any(active.file.pread(min(tail, _TAIL_READ), active.size)):
            return None  # nothing, or zeros: space that was allocated in advance
        what = f"{tail} bytes after offset {log.log_end_offset} are no sound batch"
        self.remarks.append(
            HealthRemark(
                severity="repairable",
                where=str(log.topic_partition),
                what=f"{what}: an append in progress, or one that a crash has torn",
                cure=f"streamlog verify {log.path}",
            )
        )
        return what

    def node(self) -> dict[str, str]:
        """Return the ids of `meta.properties`."""
        try:
            meta = read_meta_properties(self.root.fs, self.root.path)
        except StreamLogError as error:
            self.remarks.append(remark_of_error(error, self.root.meta_properties))
            return {}
        if meta is None:
            return {}
        ids = {"node.id": meta.node_id, "cluster.id": meta.cluster_id}
        return {key: str(value) for key, value in ids.items() if value is not None}


def _root_and_kind(roots: ReadRoots, found: Directories) -> tuple[LogRoot, RootKind]:
    """Return the log root that a path lies in or is, and what lies at the path."""
    path = roots.paths[0]
    places = {place for numbers in found.values() for at in numbers.values() for place in at}
    if path in places:
        is_file = parse_log_file_name(os.path.basename(path)) is not None
        directory = os.path.dirname(path) if is_file else path
        parent = LogRoot.at(os.path.dirname(directory), fs=roots.fs, clock=roots.clock)
        return parent, RootKind.PARTITION
    reachable = [each for each in roots.roots if each.fs.stat(each.path) is not None]
    root = (reachable or roots.roots)[0]
    return root, RootKind.ROOT if is_our_root(root) else RootKind.BROKER
