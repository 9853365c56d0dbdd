"""Opening the source and the target of a copy by their paths."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from streamlog.bucket.places import is_bucket, root_paths, shared_store
from streamlog.bucket.root import BucketRoot
from streamlog.errors import InvalidOptionError
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.root.read_roots import ReadRoots
from streamlog.transfer.bucket_source import BucketSource
from streamlog.transfer.bucket_target import BucketTarget
from streamlog.transfer.directory_source import DirectorySource
from streamlog.transfer.directory_target import DirectoryTarget
from streamlog.transfer.ends import CopySource, CopyTarget
from streamlog.transfer.kafka_client import KafkaClient, is_kafka
from streamlog.transfer.kafka_source import KafkaSource
from streamlog.transfer.kafka_target import KafkaTarget
from streamlog.transfer.replica_source import ReplicaSource

__all__ = ["open_kafka_target", "open_source", "open_target"]


def open_source(
    path: str,
    *,
    topics: Sequence[str] = (),
    kafka_settings: Mapping[str, str] = MappingProxyType({}),
) -> CopySource:
    """Open a root, a broker's log.dir or a Kafka cluster to copy from.

    Args:
        path: A directory or a URL; or several directories with commas between them: the roots of a
            replica set, of which one is enough, or a log.dir and its tiered storage.
        topics: The topics that will be copied; empty: all.
        kafka_settings: Settings of librdkafka, for a cluster.

    Raises:
        UnknownTopicError: There is nothing.
        InvalidOptionError: It is no path, or names a store and something else.
        NoReplicaOnlineError: No root of a replica set is reachable.
        InvalidRequestError: A cluster refuses the client, or confluent-kafka is not installed.
        UnavailableError: No broker of a cluster answers.
        StorageError: It cannot be read.
    """
    if is_kafka(path):
        return KafkaSource(KafkaClient(path, kafka_settings), topics)
    places = root_paths(path, LocalFileSystem())
    if not is_bucket(places[0]):
        roots = ReadRoots(places)
        if roots.is_set:
            return ReplicaSource(roots)
        return DirectorySource(LogRoot.at(roots.paths[0], fs=roots.fs))
    (place,) = places
    root = BucketRoot(shared_store(place))
    root.refresh()
    return BucketSource(root)


def open_target(path: str) -> CopyTarget:
    """Open a root to copy to; created if there is none.

    Args:
        path: A directory or a URL.

    Raises:
        InvalidRequestError: The directory is no root and cannot become one.
        StorageError: It cannot be written.
    """
    place = _one(path)
    if not is_bucket(place):
        return DirectoryTarget(LogRoot.at(place))
    root = BucketRoot(shared_store(place))
    root.create()
    root.refresh()
    return BucketTarget(root)


def open_kafka_target(
    path: str, *, kafka_settings: Mapping[str, str] = MappingProxyType({})
) -> KafkaTarget:
    """Open a Kafka cluster to copy to.

    Args:
        path: Its URL.
        kafka_settings: Settings of librdkafka.

    Raises:
        InvalidRequestError: The cluster refuses the client, or confluent-kafka is not installed.
        UnavailableError: No broker answers.
    """
    return KafkaTarget(KafkaClient(path, kafka_settings))


def _one(path: str) -> str:
    places = root_paths(path, LocalFileSystem(), is_new=True)
    if len(places) > 1:
        raise InvalidOptionError(
            "a copy has one target",
            got=f"{len(places)} roots",
            expected="one path or URL",
            hint="copy into one root; to give it replicas, see docs/replicas.md",
        )
    return places[0]
