"""One log root and all that is needed to work on it; the only place that spells its paths.

<root>/
  meta.properties                    cluster, node and directory ids
  recovery-point-offset-checkpoint   one of four checkpoints, see `CHECKPOINTS`
  .kafka_cleanshutdown               all writers closed the root in order
  .lock                              held by a running broker
  orders-0/                          a partition
  .streamlog/
    server.properties                settings of the root
    topics/NAME.properties           settings of a topic, which exists once this file does
    locks/                           see `LogRoot.locks`
    staging/APP/                     staged files of an app
    commits/pending/                 decisions that are not retired
    commits/ledgers/APP              what an app has committed
    readers/NAME.json                recorded readers
    producer-ids                     the first producer id that is not taken
    replicas.json                    the log roots of the replica set
    replication/TOPIC-PARTITION      the state that the replicas of a partition agree on
    replication/prepared/            decisions that another root has made, or may have made
    replication/prepared/epoch       the leader epoch of commits that these files belong to
    copying/                         a root of topics that `copy` has not finished
    kafka/                           the metadata of the last broker, kept after a handover
    abandoned/                       records that replicas gave up after elections
    damaged/                         files that `repair` moved out of the way
    maintenance.jsonl                what maintenance did
<root>.streamlog/                    the same `.streamlog` while a broker has the root

The names of files inside a partition's directory belong to `streamlog.segment.filenames`.
"""

import os
import re
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from streamlog.clock import Clock, SystemClock
from streamlog.errors import InvalidOptionError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.names import fitting_name, temporary_path
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = [
    "CHECKPOINTS",
    "CLEANER_OFFSET_CHECKPOINT",
    "CLEAN_SHUTDOWN",
    "HIGH_WATERMARK_CHECKPOINT",
    "LOG_START_OFFSET_CHECKPOINT",
    "META_PROPERTIES",
    "RECOVERY_POINT_CHECKPOINT",
    "STATE_DIRECTORY",
    "LogRoot",
    "refuse_url",
    "topic_of_properties",
]

STATE_DIRECTORY: Final = ".streamlog"
META_PROPERTIES: Final = "meta.properties"  # MetaPropertiesEnsemble.META_PROPERTIES_NAME
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"  # CleanShutdownFileHandler.CLEAN_SHUTDOWN_FILE_NAME
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"  # LogManager
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"  # LogManager
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"  # ReplicaManager
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"  # LogCleanerManager
CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)

_BROKER_LOCK: Final = ".lock"  # LogManager.LOCK_FILE_NAME
_PROPERTIES: Final = ".properties"
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII | re.IGNORECASE)
_LONGEST_PART: Final = 200  # characters of a topic's name in one file name; NAME_MAX is 255


@dataclass(frozen=True, slots=True)
class LogRoot:
    """A directory of partitions with the file system, clock and randomness to work on it.

    Attributes:
        path: The directory, absolute.
        fs: The file system it lies in.
        clock: Measures waits and stamps what is written.
        random: For ids and jitter.
    """

    path: str
    fs: FileSystem
    clock: Clock
    random: Random

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str],
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> "LogRoot":
        """Return the root at `path`; what is not passed in is the machine's own.

        Raises:
            InvalidOptionError: `path` is a URL, and no file system was passed in that knows it.
        """
        if fs is None:
            refuse_url(path)
        return cls(
            os.path.abspath(path),
            LocalFileSystem() if fs is None else fs,
            SystemClock() if clock is None else clock,
            Random() if random is None else random,
        )

    # ---- beside the partitions, as Kafka names it ------------------------------------------------
    def partition(self, partition: TopicPartition) -> str:
        """Return the directory of a partition."""
        return f"{self.path}/{partition}"

    def checkpoint(self, name: str) -> str:
        """Return the path of a checkpoint file, one of `CHECKPOINTS`."""
        return f"{self.path}/{name}"

    @property
    def meta_properties(self) -> str:
        """The file with the ids of cluster, node and directory."""
        return f"{self.path}/{META_PROPERTIES}"

    @property
    def clean_shutdown(self) -> str:
        """The marker by which a broker starts without looking at the logs."""
        return f"{self.path}/{CLEAN_SHUTDOWN}"

    @property
    def broker_lock(self) -> str:
        """The lock file that a running broker holds on its log.dir."""
        return f"{self.path}/{_BROKER_LOCK}"

    # ---- settings --------------------------------------------------------------------------------
    @property
    def state(self) -> str:
        """The directory of all that Kafka has no file for."""
        return f"{self.path}/{STATE_DIRECTORY}"

    @property
    def moved_state(self) -> str:
        """Where `state` lies while a broker has the root: in it, the broker would not start."""
        return f"{self.path}{STATE_DIRECTORY}"

    @property
    def server_properties(self) -> str:
        """The root's settings; written last when a root is made, so it tells a finished one."""
        return f"{self.state}/server.properties"

    @property
    def moved_server_properties(self) -> str:
        """The root's settings while a broker has the root."""
        return f"{self.moved_state}/server.properties"

    @property
    def topics(self) -> str:
        """The directory of the settings of topics."""
        return f"{self.state}/topics"

    def topic_properties(self, topic: str) -> str:
        """Return the path of a topic's settings; the topic exists once the file does.

        A name of more than 200 characters is split, since with `.properties` it would be too long
        for a file: the first 200 and a `~` name a directory, the rest the file in it.
        """
        return self._topic_file(topic, _PROPERTIES)

    def deleted_topic(self, topic: str) -> str:
        """Return the path of a topic's settings once the topic is on its way out."""
        return self._topic_file(topic, ".deleted")

    def _topic_file(self, topic: str, suffix: str) -> str:
        head, rest = topic[:_LONGEST_PART], topic[_LONGEST_PART:]
        name = f"{head}~/{rest}{suffix}" if rest else f"{head}{suffix}"
        return f"{self.topics}/{name}"

    # ---- locks -----------------------------------------------------------------------------------
    @property
    def locks(self) -> str:
        """The directory of lock files.

        Names of partitions end in a number and those of the root do not, so they never collide;
        the locks of apps, which may have any name, lie in a directory of their own.
        """
        return f"{self.state}/locks"

    @property
    def moved_locks(self) -> str:
        """The directory of lock files while a broker has the root."""
        return f"{self.moved_state}/locks"

    def partition_lock(self, partition: TopicPartition | str) -> str:
        """Return the lock held for an append or a commit to a partition, or of `commits`."""
        return f"{self.locks}/{fitting_name(str(partition))}"

    def maintenance_lock(self, partition: TopicPartition) -> str:
        """Return the lock held while old segments of a partition are replaced or removed."""
        return f"{self.locks}/{fitting_name(str(partition), '.maintenance')}"

    @property
    def checkpoints_lock(self) -> str:
        """The lock held while checkpoint files are rewritten."""
        return f"{self.locks}/root"

    @property
    def topics_lock(self) -> str:
        """The lock held while topics are created, altered or deleted."""
        return f"{self.locks}/topics"

    @property
    def writers_lock(self) -> str:
        """The lock that every writer holds shared while it has the root open."""
        return f"{self.locks}/open"

    @property
    def moved_writers_lock(self) -> str:
        """`writers_lock` while a broker has the root."""
        return f"{self.moved_locks}/open"

    @property
    def readers_lock(self) -> str:
        """The lock held while recorded readers change."""
        return f"{self.locks}/readers"

    @property
    def producer_ids(self) -> str:
        """The file with the first producer id that is not taken."""
        return f"{self.state}/producer-ids"

    @property
    def producer_ids_lock(self) -> str:
        """The lock held while a block of producer ids is taken."""
        return f"{self.locks}/producer-ids"

    @property
    def maintainer_lock(self) -> str:
        """The lock of the one process that maintains the root."""
        return f"{self.locks}/maintenance"

    @property
    def gateway_lock(self) -> str:
        """The lock of the one process that serves the root to Kafka clients."""
        return f"{self.locks}/gateway"

    @property
    def replica_fetcher_lock(self) -> str:
        """The lock of the one process that copies to replicas for all writers of the root."""
        return f"{self.locks}/replica-fetcher"

    @property
    def app_locks(self) -> str:
        """The directory of the locks of apps."""
        return f"{self.locks}/apps"

    def app_lock(self, key: str) -> str:
        """Return the lock held while an app commits, by its key (`commits.identity.app_key`)."""
        return f"{self.app_locks}/{key}"

    # ---- commits ---------------------------------------------------------------------------------
    @property
    def staging(self) -> str:
        """The directory of staged files, one directory an app."""
        return f"{self.state}/staging"

    def staged_by(self, key: str) -> str:
        """Return the directory of the staged files of an app, by its key."""
        return f"{self.staging}/{key}"

    @property
    def commits(self) -> str:
        """The directory of what was decided."""
        return f"{self.state}/commits"

    @property
    def pending_decisions(self) -> str:
        """The directory of decisions that are not retired."""
        return f"{self.commits}/pending"

    @property
    def ledgers(self) -> str:
        """The directory of the ledgers of apps."""
        return f"{self.commits}/ledgers"

    def ledger(self, key: str) -> str:
        """Return the ledger of an app, by its key."""
        return f"{self.ledgers}/{key}"

    # ---- replicas --------------------------------------------------------------------------------
    @property
    def replica_roots(self) -> str:
        """The list of the log roots of the replica set; missing while there is one root."""
        return f"{self.state}/replicas.json"

    @property
    def replication(self) -> str:
        """The directory of the registers of replicated partitions."""
        return f"{self.state}/replication"

    def partition_register(self, partition: TopicPartition | str) -> str:
        """Return the register of a partition, which is replicated if and only if it exists.

        The pseudo-partition `commits` has one as well.
        """
        return f"{self.replication}/{fitting_name(str(partition))}"

    @property
    def prepared_decisions(self) -> str:
        """The directory of decisions that the leader of commits has made or may make."""
        return f"{self.replication}/prepared"

    @property
    def commits_epoch(self) -> str:
        """The file with the leader epoch of commits that this root's commit files belong to."""
        return f"{self.prepared_decisions}/epoch"

    @property
    def commit_files_lock(self) -> str:
        """The lock held while commit files are copied; shared by the leader's committers."""
        return f"{self.locks}/commit-files"

    @property
    def abandoned(self) -> str:
        """The directory of records that replicas truncated to follow their leaders."""
        return f"{self.state}/abandoned"

    def abandoned_book(self, partition: TopicPartition) -> str:
        """Return the file of all truncations of a replica."""
        return f"{self.abandoned}/{fitting_name(str(partition), '.jsonl')}"

    def abandoned_records(self, partition: TopicPartition, offsets: str) -> str:
        """Return the file of the records of one truncation."""
        return f"{self.abandoned}/{fitting_name(str(partition), f'.{offsets}.log')}"

    # ---- all else --------------------------------------------------------------------------------
    @property
    def readers(self) -> str:
        """The directory of recorded readers."""
        return f"{self.state}/readers"

    def reader(self, name: str) -> str:
        """Return the file of a recorded reader."""
        return f"{self.readers}/{name}.json"

    @property
    def group_configs(self) -> str:
        """The file with the settings of consumer groups."""
        return f"{self.state}/group-configs"

    @property
    def maintenance_book(self) -> str:
        """The file of what maintenance did."""
        return f"{self.state}/maintenance.jsonl"

    @property
    def broker_metadata(self) -> str:
        """The directory where the metadata of the last broker is kept after a handover."""
        return f"{self.state}/kafka"

    @property
    def copying(self) -> str:
        """The root of topics that are being copied here, invisible until they are complete."""
        return f"{self.state}/copying"

    def of_copies(self) -> "LogRoot":
        """Return `copying` as a root."""
        return replace(self, path=self.copying)

    @property
    def damaged(self) -> str:
        """The directory of files that `repair` moved out of the way."""
        return f"{self.state}/damaged"

    def probe(self) -> str:
        """Return the path of a file to try the file system with; each call returns another one."""
        return temporary_path(f"{self.state}/doctor")


def topic_of_properties(directory: str, name: str) -> str | None:
    """Return the topic whose settings a file below `LogRoot.topics` holds, None for other files.

    Args:
        directory: Empty, or the `HEAD~` that the file lies in.
        name: The file's name.
    """
    head = directory.removesuffix("~")
    topic = head + name.removesuffix(_PROPERTIES)
    is_one = name.endswith(_PROPERTIES) and bool(head) == (len(topic) > _LONGEST_PART)
    return topic if is_one and parse_partition_directory(f"{topic}-0") else None


def refuse_url(path: str | os.PathLike[str]) -> None:
    """Refuse the URL of an object store where a directory is meant.

    Taken for a path it would name a directory below the present one.

    Raises:
        InvalidOptionError: `path` is a URL.
    """
    found = _URL.match(os.fspath(path))
    if found is not None:
        raise InvalidOptionError(
            "this interface needs a directory, and got the URL of an object store",
            got=f"{found[0]}…",
            expected="the path of a directory",
            hint=(
                "write_table, read_table and read_arrow take a URL, as do Spark and the command"
                " line: streamlog --path URL topics create NAME"
            ),
        )
