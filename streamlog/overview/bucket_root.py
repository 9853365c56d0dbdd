"""The overview of a root in an object store: the journal has all facts, and no record is read."""

from collections.abc import Callable, Sequence

from streamlog.bucket.read_roots import BucketReadRoots
from streamlog.bucket.readers import BucketReaders
from streamlog.bucket.state import RootState
from streamlog.config.server_config import ServerConfig
from streamlog.errors import StreamLogError
from streamlog.health.bucket import damage_in_bucket
from streamlog.maintenance.bucket_retention import find_dirty, plan_retention
from streamlog.overview.commit_apps import apps_in_bucket
from streamlog.overview.health import (
    by_severity,
    remark_of_error,
    remarks_of_topics,
)
from streamlog.overview.model import (
    HealthRemark,
    PartitionOverview,
    RateWindow,
    RootKind,
    RootOverview,
    TopicOverview,
)
from streamlog.overview.partition import PartitionFacts, compaction_overview
from streamlog.overview.reader_lag import HeldBytes, reader_overviews
from streamlog.overview.segment_facts import segments_in_bucket
from streamlog.overview.timeline import offsets_per_step
from streamlog.overview.topic_settings import RootSettings, changed_root_settings
from streamlog.partition.log_offsets import LogOffsets
from streamlog.root.readers import Holds, Reader
from streamlog.topic import TopicPartition

__all__ = ["overview_of_bucket"]


def overview_of_bucket(
    roots: BucketReadRoots, choose_window: Callable[[int | None], RateWindow], *, is_verified: bool
) -> RootOverview:
    """Return the overview of a root in an object store.

    Args:
        roots: The root.
        choose_window: Returns the times of the rates from the newest timestamp of all topics.
        is_verified: Whether to read and check every batch as well.

    Raises:
        UnknownTopicError: There is no root at the URL.
        StorageError: A request failed.
    """
    state, now_ms = roots.state(), roots.clock.now_ms()
    look = _BucketLook(roots, state, now_ms)
    times = [each.max_timestamp for at in state.partitions.values() for each in at.stretches]
    window = choose_window(max((each for each in times if 0 <= each <= now_ms), default=None))
    topics = tuple(look.topic(name, window) for name in sorted(state.topics))
    readers = reader_overviews(
        roots,
        look.readers,
        look.held,
        now_ms=now_ms,
        retention_minutes=look.settings.server.offsets_retention_minutes,
        remarks=look.remarks,
    )
    damage = [
        remark_of_error(error, str(partition))
        for partition, error in (damage_in_bucket(roots, is_deep=False) if is_verified else ())
    ]
    return RootOverview(
        path=roots.name,
        kind=RootKind.BUCKET,
        taken_ms=now_ms,
        node={},
        window=window,
        topics=topics,
        readers=readers,
        apps=apps_in_bucket(state.apps),
        settings=changed_root_settings(look.settings.server),
        health=by_severity([*look.remarks, *remarks_of_topics(topics, now_ms), *damage]),
        deeds=(),
        is_verified=is_verified,
        has_settings=True,
    )


class _BucketLook:
    """One look at a root."""

    def __init__(self, roots: BucketReadRoots, state: RootState, now_ms: int) -> None:
        self._roots, self._state, self._now_ms = roots, state, now_ms
        self.remarks: list[HealthRemark] = []
        server = ServerConfig.from_properties(state.config)
        own = {name: topic.config for name, topic in state.topics.items()}
        self.settings = RootSettings(server=server, own=own)
        self.readers: Sequence[Reader] = ()
        self._holds: Holds | None = None
        recorded = BucketReaders(roots.root.store, roots.clock)
        try:
            self.readers = [each.reader for each in recorded.recorded()]
            self._holds = recorded.holds(state, recorded.active(state))
        except StreamLogError as error:
            self.remarks.append(remark_of_error(error, "readers"))
        self.held = HeldBytes()

    def topic(self, name: str, window: RateWindow) -> TopicOverview:
        """Return the overview of a topic."""
        topic = self._state.topics[name]
        config, entries = self.settings.of_topic(name)
        return TopicOverview(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name.startswith("__"),
            cleanup_policy=tuple(sorted(config.cleanup_policy)),
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            settings=entries,
            partitions=tuple(
                self._partition(TopicPartition(name, number), window)
                for number in range(topic.partitions)
            ),
        )

    def _partition(self, partition: TopicPartition, window: RateWindow) -> PartitionOverview:
        at = self._state.partitions[partition]
        plan = plan_retention(self._state, partition, self._now_ms, self._holds)
        segments = segments_in_bucket(at)
        facts = PartitionFacts(
            partition=partition,
            topic_id=self._state.topics[partition.topic].topic_id,
            offsets=LogOffsets.of_one_replica(at.log_start_offset, at.end_offset),
            segments=segments,
            held=plan.held,
        )
        self.held.add(plan.held)
        dirty = find_dirty(self._state, partition, self._now_ms, self._holds)
        config, _ = self.settings.of_topic(partition.topic)
        return PartitionOverview(
            partition=partition.partition,
            path=f"{self._roots.name}/{partition}",
            leader_epoch=at.leader_epoch,
            log_start_offset=at.log_start_offset,
            high_watermark=at.end_offset,
            log_end_offset=at.end_offset,
            size_bytes=sum(each.size for each in segments),
            segments=facts.segment_overviews(config, self._now_ms),
            rate=offsets_per_step((each.timeline() for each in segments), window),
            compaction=None if dirty is None else compaction_overview(dirty),
        )
