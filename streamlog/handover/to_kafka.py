"""Hands a log root over to a KRaft broker, which then knows every topic.

The broker gets a `bootstrap.checkpoint` with all topics, their ids, settings and leader epochs: a
controller whose metadata log is empty starts with it. It is the only way to create topics with
the ids in `partition.metadata`, and a broker sets partitions with unknown ids aside. Users, quotas
and settings of a broker that had the root before are included.

Recovery points and the mark of a clean shutdown are removed, so that the broker checks every
segment and rebuilds its indexes and snapshots. A broker deletes data that it finds damaged, so a
damaged root is refused.
"""

import logging
import re
from collections.abc import Callable, Iterator
from typing import Final

from streamlog.commits.identity import PRODUCER_ID_BASE
from streamlog.commits.pending import PendingDecisions
from streamlog.config.log_config import is_own_key
from streamlog.config.server_config import ConfigSource
from streamlog.errors import (
    CorruptRecordError,
    InconsistentTopicIdError,
    InvalidRequestError,
    UnavailableError,
    command_at,
)
from streamlog.fs.api import FileKind
from streamlog.fs.files import make_directories, stat_directory, write_file_atomically
from streamlog.fs.log_root import (
    CLEAN_SHUTDOWN,
    RECOVERY_POINT_CHECKPOINT,
    STATE_DIRECTORY,
    LogRoot,
)
from streamlog.handover.cluster_image import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA,
    ClusterImage,
    PartitionImage,
    encode_bootstrap,
    read_cluster_image,
)
from streamlog.handover.consumer_groups import (
    GROUP_FEATURES,
    group_config_records,
    has_consumer_groups,
)
from streamlog.handover.plan import (
    Direction,
    HandoverPlan,
    HandoverStep,
    PlannedPartition,
    StepKind,
    alone,
    has_cluster_metadata,
    is_handed_over,
    kept_metadata_path,
    meta_of,
    move_state,
    remove_file,
    root_itself,
)
from streamlog.handover.replica_copy import check_copy, is_copy, leave_set
from streamlog.health.findings import Finding, Severity
from streamlog.health.verify import verify
from streamlog.partition.meta_properties import MetaProperties, write_meta_properties
from streamlog.partition.partition_metadata import new_topic_id, read_topic_id
from streamlog.partition.reader import LogReader
from streamlog.protocol.metadata_records import (
    NO_LEADER,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from streamlog.root.manager import LogManager, TopicDescription
from streamlog.root.producer_ids import read_next_producer_id
from streamlog.root.roots import check_root, is_our_root, refuse_live_broker, refuse_planted
from streamlog.root.topics import list_topics, partition_directories
from streamlog.topic import TopicPartition

__all__ = ["ToKafka"]

METADATA_VERSION: Final = "metadata.version"  # MetadataVersion.FEATURE_NAME
OLDEST_BROKER: Final = 21  # 3.9-IV0: every broker since 3.9 takes it and can raise it
_READ_SIZE: Final = 8 << 20
_MOST_TRANSACTIONS: Final = 20  # of a partition, named one by one
_LEAVING: Final = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-delete", re.ASCII)  # a deleted partition

_logger = logging.getLogger(__name__)


class ToKafka:
    """Hands a root over to a broker: make a plan, then apply it.

    Args:
        root: The log root.
    """

    def __init__(self, root: LogRoot) -> None:
        self._root, self._fs = root_itself(root), root.fs

    # ---- planning ----------------------------------------------------------------------------
    def plan(self, on_progress: Callable[[int], None] = lambda size: None) -> HandoverPlan:
        """Check that the root can be handed over, and plan the steps; reads every byte of it.

        Args:
            on_progress: Called with numbers of bytes checked.

        Raises:
            InvalidRequestError: This root cannot be a log.dir.
            CorruptDataError: A file is damaged.
            UnavailableError: A broker or a writer has the root open.
        """
        fs = self._fs
        check_root(self._root)
        if is_handed_over(self._root):
            return self._plan(())
        self._refuse_others()
        is_replica = is_copy(self._root)
        if is_replica:
            check_copy(self._root)
        with alone(fs, self._root.state):
            pass
        partitions = tuple(self._partitions())
        self._refuse_unknown_directories(partitions)
        decisions = PendingDecisions(self._root)
        pending = [decisions.load(name) for name in decisions.names()]
        self._known()  # raises now rather than halfway through the handover
        self._refuse_damage(on_progress)
        notes = [
            f"{each.identity} is decided but not retired yet: the handover retires it first"
            for each in pending
            if each is not None
        ]
        notes += self._undecided()
        steps = (_LEAVE_SET, *_STEPS) if is_replica else _STEPS
        return self._plan(
            steps, partitions, (*notes, *self._expiring(), *self._with_consumer_groups())
        )

    def _plan(
        self,
        steps: tuple[tuple[StepKind, str], ...],
        partitions: tuple[PlannedPartition, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> HandoverPlan:
        return HandoverPlan(
            direction=Direction.TO_KAFKA,
            root=self._root.path,
            meta=meta_of(self._root),
            steps=tuple(
                HandoverStep(kind, f"{self._root.path}/{name}".rstrip("/")) for kind, name in steps
            ),
            partitions=partitions,
            notes=notes,
        )

    def _refuse_others(self) -> None:
        root = self._root.path
        refuse_live_broker(self._root)
        refuse_planted(self._root)
        if not is_our_root(self._root):
            raise InvalidRequestError(
                "this root was not made by streamlog",
                path=root,
                expected="a root with .streamlog in it",
                hint="a broker's log.dir needs no handover: streamlog reads it as it is",
            )
        if has_cluster_metadata(self._root):
            raise InvalidRequestError(
                "this root holds a broker's cluster metadata",
                path=f"{root}/{CLUSTER_METADATA}",
                hint=command_at(root, "handover --from-kafka"),
            )

    def _partitions(self) -> Iterator[PlannedPartition]:
        """Yield all partitions; a topic must be complete and have one id."""
        for topic in list_topics(self._root):
            found = partition_directories(self._root, topic)
            if not found or list(found) != list(range(len(found))):
                raise InvalidRequestError(
                    f"topic {topic} is incomplete: a broker would create empty partitions",
                    path=self._root.path,
                    got=f"partitions {', '.join(map(str, found)) or 'none'}",
                    expected=f"0 to {max(found, default=0)}",
                    hint="restore the directories, or delete the topic",
                )
            ids = {number: read_topic_id(self._fs, path) for number, path in found.items()}
            for number, topic_id in ids.items():
                if topic_id is None or topic_id != ids[0]:
                    raise InconsistentTopicIdError(
                        f"partitions of topic {topic} have different topic ids",
                        path=found[number],
                        got=topic_id,
                        expected=ids[0],
                    )
                yield PlannedPartition(topic, number, topic_id)

    def _refuse_unknown_directories(self, partitions: tuple[PlannedPartition, ...]) -> None:
        known = {str(TopicPartition(each.topic, each.partition)) for each in partitions}
        for name in self._fs.list(self._root.path):
            path = f"{self._root.path}/{name}"
            found = stat_directory(self._fs, path)
            is_directory = found is not None and found.kind is FileKind.DIRECTORY
            if (
                is_directory
                and name not in {*known, STATE_DIRECTORY}
                and not _LEAVING.fullmatch(name)
            ):
                raise InvalidRequestError(
                    "directory is not a partition of a topic: a broker would set it aside, or not "
                    "start",
                    path=path,
                    hint=f"move it away: mv {path} ELSEWHERE",
                )

    def _refuse_damage(self, on_progress: Callable[[int], None]) -> None:
        found: list[Finding] = []
        verify(self._fs, self._root.path, found.append, on_progress=on_progress)
        for finding in found:
            if finding.severity is Severity.DAMAGE:
                raise CorruptRecordError(
                    f"a broker would delete damaged data: {finding.what}",
                    path=finding.path,
                    position=finding.position,
                    offset=finding.offset,
                    got=finding.got,
                    expected=finding.expected,
                    hint=f"list all damage: streamlog verify {self._root.path}",
                )

    def _undecided(self) -> Iterator[str]:
        """Yield notes about open transactions, which have no coordinator in the new cluster."""
        for topic in list_topics(self._root):
            with self._opened() as manager:
                for number in manager.partitions(topic):
                    yield from _how_to_end(manager.reader(topic, number))

    def _expiring(self) -> Iterator[str]:
        """Yield notes about topics whose old segments the broker's retention will delete."""
        for topic in list_topics(self._root):
            with self._opened() as manager:
                config = manager.topic_config(topic)
                if "delete" not in config.cleanup_policy or config.retention_ms < 0:
                    continue
                oldest = self._root.clock.now_ms() - config.retention_ms
                readers = [manager.reader(topic, at) for at in manager.partitions(topic)]
                firsts = [next(iter(reader.segments), None) for reader in readers]
                if any(first and 0 <= first.max_timestamp < oldest for first in firsts):
                    yield (
                        f"topic {topic} has segments older than its retention.ms of "
                        f"{config.retention_ms}: the broker will delete them"
                    )

    # ---- applying ----------------------------------------------------------------------------
    def apply(self, plan: HandoverPlan) -> None:
        """Apply a plan of this root; after an interruption, plan and apply again.

        Raises:
            StreamLogError: A step failed; before the last step the root is still streamlog's.
        """
        if not plan.steps:
            return
        if is_copy(self._root):
            leave_set(self._root)
        self._settle()
        with alone(self._fs, self._root.state):
            if PendingDecisions(self._root).names():
                raise UnavailableError(
                    "a commit was decided during the handover; the root was not handed over",
                    path=self._root.path,
                    hint="stop the queries that write to it, then try again",
                )
            self._describe(plan.meta)
            remove_file(self._fs, self._root.checkpoint(RECOVERY_POINT_CHECKPOINT))
            remove_file(self._fs, self._root.clean_shutdown)
            move_state(self._fs, self._root.state, self._root.moved_state)
        _logger.info("handed %s over to Kafka", self._root.path)

    def _settle(self) -> None:
        """Retire all commits; open and close every partition, which recovers and syncs it."""
        with self._opened() as manager:
            manager.commits.retire()
        for topic in list_topics(self._root):
            with self._opened() as manager:
                for number in manager.partitions(topic):
                    manager.local_log(topic, number)

    def _describe(self, meta: MetaProperties) -> None:
        fs, root = self._fs, self._root.path
        meta = meta._replace(directory_id=meta.directory_id or new_topic_id(self._root.random))
        make_directories(fs, self._root.broker_metadata)
        for directory in (root, self._root.broker_metadata):
            write_meta_properties(fs, directory, meta)
        records = list(self._records(meta))
        data = encode_bootstrap(records, now_ms=self._root.clock.now_ms())
        write_file_atomically(fs, f"{root}/{BOOTSTRAP_CHECKPOINT}", data)

    def _records(self, meta: MetaProperties) -> Iterator[MetadataRecord]:
        known = self._known()
        for name, level in self._features(known).items():
            if level > 0:  # 0: switched off
                yield FeatureLevelRecord(name, level)
        yield from known.carried
        yield from group_config_records(self._root)
        next_producer_id = max(known.next_producer_id, read_next_producer_id(self._root) or 0)
        for topic in list_topics(self._root):
            with self._opened() as manager:
                described = manager.describe(topic)
                yield from _topic_records(described, known, meta)
                for each in described.partitions:
                    highest = _highest_producer_id(manager.reader(topic, each.partition))
                    next_producer_id = max(next_producer_id, highest + 1)
        yield ProducerIdsRecord(next_producer_id)

    def _features(self, known: ClusterImage) -> dict[str, int]:
        """Return the levels of features that the broker starts with.

        Those of the last broker that had the root stay as they are, as far as groups allow.
        """
        features = known.features or {METADATA_VERSION: OLDEST_BROKER}
        with self._opened() as manager:
            if not has_consumer_groups(manager):
                return features
        return {
            name: max(features.get(name, 0), GROUP_FEATURES.get(name, 0))
            for name in {**features, **GROUP_FEATURES}
        }

    def _with_consumer_groups(self) -> Iterator[str]:
        """Yield a note if the root has groups that older brokers cannot serve."""
        with self._opened() as manager:
            if has_consumer_groups(manager):
                yield (
                    "there are consumer groups of KIP-848: the broker has to be Kafka 4.0 or later"
                )

    def _known(self) -> ClusterImage:
        """Return the metadata of the last broker that had the root; empty without one."""
        path = kept_metadata_path(self._root)
        if self._fs.stat(path) is None:
            return ClusterImage()
        return read_cluster_image(self._fs, path)

    def _opened(self) -> LogManager:
        """Open the root; used for one topic at a time, to limit the number of open files."""
        root = self._root
        return LogManager.open(root.path, fs=root.fs, clock=root.clock, random=root.random)


_LEAVE_SET: Final = (StepKind.LEAVE_SET, STATE_DIRECTORY)
_STEPS: Final = (
    (StepKind.SETTLE, ""),
    (StepKind.DESCRIBE, BOOTSTRAP_CHECKPOINT),
    (StepKind.FORGET_RECOVERY_POINTS, RECOVERY_POINT_CHECKPOINT),
    (StepKind.UNMARK, CLEAN_SHUTDOWN),
    (StepKind.MOVE_OUT, STATE_DIRECTORY),
)


def _topic_records(
    topic: TopicDescription, known: ClusterImage, meta: MetaProperties
) -> Iterator[MetadataRecord]:
    """Yield the records of a topic, in the state of a controller after a shutdown.

    No partition has a leader: the broker is elected when it registers, in an epoch above all epochs
    of the log and of earlier brokers.
    """
    assert topic.topic_id is not None and meta.node_id is not None and meta.directory_id is not None
    yield TopicRecord(topic.name, topic.topic_id)
    for entry in topic.configs:
        if entry.source is not ConfigSource.DEFAULT and not is_own_key(entry.key):
            yield ConfigRecord(TOPIC_RESOURCE, topic.name, entry.key, entry.value)
    before = known.topics.get(topic.name)
    for each in topic.partitions:
        seen = PartitionImage(0, ())
        if before is not None and before.topic_id == topic.topic_id:
            seen = before.partitions.get(each.partition, seen)
        yield PartitionRecord(
            topic_id=topic.topic_id,
            partition=each.partition,
            replicas=(meta.node_id,),
            leader=NO_LEADER,
            leader_epoch=max(each.leader_epoch, seen.leader_epoch),
            directories=(meta.directory_id,),
        )


def _how_to_end(reader: LogReader) -> Iterator[str]:
    """Yield notes about open transactions, and the commands that end them.

    The start offset of a transaction that began below the log start is known to the broker only.
    """
    begun, partition = reader.open_transactions, reader.topic_partition
    if not begun:
        return
    what = "an open transaction" if len(begun) == 1 else f"{len(begun)} open transactions"
    yield (
        f"{partition} has {what}: read_committed consumers stop at offset "
        f"{reader.last_stable_offset} until each is aborted:"
    )
    tool = "kafka-transactions.sh --bootstrap-server HOST:PORT"
    which = f"--topic {partition.topic} --partition {partition.partition}"
    named = [start for start in begun if start >= reader.log_start_offset][:_MOST_TRANSACTIONS]
    for start in named:
        yield f"  {tool} abort {which} --start-offset {start}"
    if more := len(begun) - len(named):
        yield f"  and {more} more, listed by: {tool} describe-producers {which}"


def _highest_producer_id(reader: LogReader) -> int:
    """Return the highest id that a broker assigned to a producer of this log, -1 without any.

    The new broker must not assign it again: the new producer's first batches would be taken for
    duplicates.
    """
    highest, at = -1, reader.log_start_offset
    while at < reader.log_end_offset:
        info = reader.read(at, _READ_SIZE)
        given = info.table.producer_id[info.table.producer_id < PRODUCER_ID_BASE]
        highest = max(highest, int(given.max(initial=-1)))
        at = info.next_offset
    return highest
