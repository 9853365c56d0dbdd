"""Takes a log root back from a Kafka broker, with all changes that the broker made.

Topics that the broker created become topics of the root, deleted ones disappear, and settings are
adopted. The partitions stay as the broker left them: the first writer of each checks it as after a
reboot and starts a new leader epoch.
"""

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from streamlog.config.log_config import LogConfig, is_own_key
from streamlog.errors import (
    InconsistentTopicIdError,
    InvalidConfigError,
    InvalidRequestError,
)
from streamlog.fs.files import make_directories, remove_tree
from streamlog.fs.log_root import LogRoot
from streamlog.handover.cluster_image import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA,
    ClusterImage,
    PartitionImage,
    TopicImage,
    read_cluster_image,
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
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.lock_states import StateFlag
from streamlog.partition.locks import (
    SharedState,
    encode_state,
    write_state,
)
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.meta_properties import MetaProperties, read_meta_properties
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.partition.topic_config import read_server_config, read_topic_properties
from streamlog.root.group_configs import read_group_configs, write_group_configs
from streamlog.root.roots import (
    check_root,
    is_our_root,
    refuse_live_broker,
    refuse_planted,
    registry_locked,
    write_topic_properties,
)
from streamlog.root.topics import list_topics, partition_directories
from streamlog.topic import PUT_ASIDE, parse_partition_directory

__all__ = ["FromKafka"]

# A state of no boot, so that the next writer trusts none of it and starts a leader epoch: readers
# may have seen another tail than the one a killed broker left.
_OF_NO_BOOT: Final = SharedState("", 0, LogOffsets(), 0, 0, 0, StateFlag.EPOCH_DUE)

_logger = logging.getLogger(__name__)


class FromKafka:
    """Takes a root back from a broker: make a plan, then apply it.

    Args:
        root: The log root.
    """

    def __init__(self, root: LogRoot) -> None:
        self._root, self._fs = root_itself(root), root.fs

    # ---- planning ----------------------------------------------------------------------------
    def plan(self) -> HandoverPlan:
        """Check that the root can be taken back, and plan the steps.

        Raises:
            InvalidRequestError: The directory is not the one that was handed over.
            InconsistentTopicIdError: A partition has another topic id than the broker's metadata.
            CorruptDataError: The broker's metadata is damaged.
            UnavailableError: A broker or a writer has the root open.
        """
        fs = self._fs
        check_root(self._root)
        is_moved = is_handed_over(self._root)
        steps = tuple(self._steps(is_moved=is_moved))
        if is_our_root(self._root) and not steps:
            return self._plan(meta_of(self._root), ())
        refuse_live_broker(self._root)
        refuse_planted(self._root)
        state = self._root.moved_state if is_moved else self._root.state
        if not is_moved and not is_our_root(self._root):
            raise InvalidRequestError(
                "streamlog's state of this root is missing",
                path=self._root.moved_state,
                got="no such directory",
                hint=f"restore {self._root.moved_state}; it alone records the commits made",
            )
        with alone(fs, state):
            pass
        meta = self._meta(state)
        self._refuse_put_aside()
        image = self._image()
        partitions = tuple(self._partitions(image, meta))
        absent = (
            f"topic {topic} has no directory here: it is not adopted"
            for topic, known in image.topics.items()
            if known.partitions and not partition_directories(self._root, topic)
        )
        return self._plan(meta, steps, partitions, (*_left_out(image), *absent))

    def _steps(self, *, is_moved: bool) -> Iterator[HandoverStep]:
        fs, root = self._fs, self._root.path
        if is_moved:
            yield HandoverStep(StepKind.START_EPOCHS, self._root.moved_locks)
            yield HandoverStep(StepKind.MOVE_IN, self._root.moved_state)
        if has_cluster_metadata(self._root):
            yield HandoverStep(StepKind.ADOPT_TOPICS, self._root.topics)
            yield HandoverStep(StepKind.KEEP_METADATA, f"{root}/{CLUSTER_METADATA}")
        if fs.stat(f"{root}/{BOOTSTRAP_CHECKPOINT}") is not None:
            yield HandoverStep(StepKind.FORGET_FIRST_START, f"{root}/{BOOTSTRAP_CHECKPOINT}")

    def _plan(
        self,
        meta: MetaProperties,
        steps: tuple[HandoverStep, ...],
        partitions: tuple[PlannedPartition, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> HandoverPlan:
        return HandoverPlan(
            direction=Direction.FROM_KAFKA,
            root=self._root.path,
            meta=meta,
            steps=steps,
            partitions=partitions,
            notes=notes,
        )

    def _meta(self, state: str) -> MetaProperties:
        """Return the ids of the log.dir, which must be those of the handover."""
        found = meta_of(self._root)
        wanted = read_meta_properties(self._fs, f"{state}/kafka")
        if wanted is not None and wanted != found:
            raise InvalidRequestError(
                "this log.dir is of another cluster, node or directory than was handed over",
                path=self._root.meta_properties,
                got=_named(found),
                expected=_named(wanted),
                hint="restore the log.dir that belongs to this state, or the other way round",
            )
        return found

    def _refuse_put_aside(self) -> None:
        for name in self._fs.list(self._root.path):
            if name.endswith(PUT_ASIDE):
                path = f"{self._root.path}/{name}"
                raise InvalidRequestError(
                    "the broker has set a partition aside: its records would be missing",
                    path=path,
                    hint=f"rename it back or move it away: mv {path} ELSEWHERE",
                )

    def _image(self) -> ClusterImage:
        """Return the broker's metadata; empty if no broker was started."""
        if not has_cluster_metadata(self._root):
            return ClusterImage()
        return read_cluster_image(self._fs, f"{self._root.path}/{CLUSTER_METADATA}")

    def _partitions(self, image: ClusterImage, meta: MetaProperties) -> Iterator[PlannedPartition]:
        for topic, known in image.topics.items():
            found = partition_directories(self._root, topic)
            self._refuse_missing(topic, known.partitions.keys() - found.keys() if found else ())
            for number, path in found.items():
                partition = known.partitions.get(number)
                if partition is not None:
                    self._check_partition(path, known, partition, meta)
                    yield PlannedPartition(topic, number, known.topic_id)

    def _refuse_missing(self, topic: str, missing: Collection[int]) -> None:
        """Refuse a root without some of the broker's partitions."""
        if missing:
            name = f"{topic}-{min(missing)}"
            raise InvalidRequestError(
                "the broker has a partition that is not in this root: its records would be missing",
                path=f"{self._root.path}/{name}",
                got="no such directory",
                expected="a directory for each partition of a topic",
                hint=f"if it is in another of its log.dirs: mv LOG_DIR/{name} {self._root.path}; "
                "if the broker stopped before it created it, start and stop the broker again",
            )

    def _check_partition(
        self, path: str, topic: TopicImage, known: PartitionImage, meta: MetaProperties
    ) -> None:
        topic_id = read_topic_id(self._fs, path)
        if topic_id != topic.topic_id:
            raise InconsistentTopicIdError(
                "partition has another topic id than in the broker's metadata",
                path=path,
                got=topic_id,
                expected=topic.topic_id,
                hint=f"move it away: mv {path} ELSEWHERE",
            )
        if known.replicas != (meta.node_id,):
            raise InvalidRequestError(
                "other brokers hold replicas of this partition, and may have its last records",
                path=path,
                got=f"replicas {', '.join(map(str, known.replicas))}",
                expected=f"{meta.node_id} only",
                hint="move the partition to this broker only: kafka-reassign-partitions.sh",
            )
        latest = LeaderEpochCache.load(self._fs, path).latest_epoch
        if latest is not None and latest > known.leader_epoch:
            raise InvalidRequestError(
                "partition has a later leader epoch than the broker's metadata",
                path=path,
                got=latest,
                expected=f"at most {known.leader_epoch}",
                hint="restore the directory that the broker wrote",
            )

    # ---- applying ----------------------------------------------------------------------------
    def apply(self, plan: HandoverPlan) -> None:
        """Apply a plan of this root; after an interruption, plan and apply again.

        Raises:
            StreamLogError: A step failed.
        """
        if not plan.steps:
            return
        refuse_live_broker(self._root)
        is_moved = is_handed_over(self._root)
        with alone(self._fs, self._root.moved_state if is_moved else self._root.state):
            for step in plan.steps:
                self._apply(step)
        _logger.info("took %s back from Kafka", self._root.path)

    def _apply(self, step: HandoverStep) -> None:
        match step.kind:
            case StepKind.START_EPOCHS:
                self._start_epochs(step.path)
            case StepKind.MOVE_IN:
                move_state(self._fs, step.path, self._root.state)
            case StepKind.ADOPT_TOPICS:
                self._adopt_topics(self._image())
            case StepKind.KEEP_METADATA:
                self._keep_metadata(step.path)
            case StepKind.FORGET_FIRST_START:
                remove_file(self._fs, step.path)

    def _start_epochs(self, directory: str) -> None:
        """Replace the states of the last writers: the broker has changed the logs since."""
        names = {*self._fs.list(self._root.path), *self._fs.list(directory)} - {CLUSTER_METADATA}
        for name in filter(parse_partition_directory, names):
            lock = self._fs.try_lock(f"{directory}/{name}", shared=False)
            assert lock is not None, "no other process has the root open, so each lock is free"
            try:
                write_state(lock, encode_state(_OF_NO_BOOT))
                lock.file.sync()
            finally:
                lock.release()
        self._fs.sync_directory(directory)

    def _adopt_topics(self, image: ClusterImage) -> None:
        fs = self._fs
        defaults = read_server_config(self._root).topic_defaults
        with registry_locked(self._root):
            for topic, known in image.topics.items():
                if partition_directories(self._root, topic):
                    own = read_topic_properties(self._root, topic)
                    write_topic_properties(self._root, topic, _own_configs(known, own, defaults))
            for topic in list_topics(self._root):
                # An unknown topic that has partitions was created here after the handover.
                if topic not in image.topics and not partition_directories(self._root, topic):
                    path = self._root.topic_properties(topic)
                    fs.remove(path)
                    fs.sync_directory(os.path.dirname(path))
        if image.groups or read_group_configs(self._root):
            write_group_configs(self._root, image.groups)

    def _keep_metadata(self, metadata: str) -> None:
        kept = kept_metadata_path(self._root)
        make_directories(self._fs, os.path.dirname(kept))
        if self._fs.stat(kept) is not None:
            remove_tree(self._fs, kept)
        self._fs.rename(metadata, kept)
        self._fs.sync_directory(os.path.dirname(kept))
        self._fs.sync_directory(self._root.path)


def _named(meta: MetaProperties) -> str:
    return f"cluster {meta.cluster_id}, node {meta.node_id}, directory {meta.directory_id}"


def _is_supported(key: str, value: str) -> bool:
    try:
        LogConfig.from_properties({key: value})
    except InvalidConfigError:
        return False
    return True


def _own_configs(
    known: TopicImage, own: Mapping[str, str], defaults: Mapping[str, str]
) -> dict[str, str]:
    """Return a topic's settings, without those that the handover copied from the root's.

    streamlog's own settings were not handed over; they stay unchanged.

    Args:
        known: The topic in the broker's metadata.
        own: The topic's settings before the handover.
        defaults: The root's settings.
    """
    kept = {key: value for key, value in own.items() if is_own_key(key)}
    return kept | {
        key: value
        for key, value in known.configs.items()
        if _is_supported(key, value) and (key in own or defaults.get(key) != value)
    }


def _left_out(image: ClusterImage) -> Iterator[str]:
    for topic, known in image.topics.items():
        for key, value in known.configs.items():
            if not _is_supported(key, value):
                yield f"topic {topic} has {key}={value}, which is not supported here: not adopted"
