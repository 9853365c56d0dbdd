"""`BucketRoot`: a log root in an object store, the object that everything above uses."""

import contextlib
import random as random_module
from collections.abc import Mapping, Sequence
from typing import Final

from streamlog.bucket.actions import (
    Action,
    AlterTopic,
    CreateRoot,
    CreateTopic,
    DeleteTopic,
    SetLogStart,
)
from streamlog.bucket.commits import BucketCommits
from streamlog.bucket.journal import RootJournal
from streamlog.bucket.readers import BucketReaders
from streamlog.bucket.reading import BucketReader
from streamlog.bucket.staging import BucketStager
from streamlog.bucket.state import RootState, TopicState
from streamlog.clock import Clock, SystemClock
from streamlog.config.log_config import ConfigValue, LogConfig, check_topic_keys
from streamlog.config.server_config import ServerConfig
from streamlog.config.settings import text_of
from streamlog.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicError,
    command_at,
)
from streamlog.partition.partition_metadata import new_topic_id
from streamlog.root.deleting import check_deletable, check_finished
from streamlog.root.topics import unknown_topic_error
from streamlog.store.api import ObjectStore
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition, check_new_topic_name

__all__ = ["BucketRoot", "check_bucket_configs"]

MAX_PARTITIONS: Final = 10_000  # of one topic; all of them are in every snapshot
_CATCH_UPS: Final = 10  # writers that never pause are not followed forever
_NOT_HERE: Final = ("flush.messages", "flush.ms")


class BucketRoot:
    """A log root in an object store. Not for use by two threads at once.

    Args:
        store: Its objects.
        clock: The clock; the machine's own by default.
        random: Makes ids and names; `SystemRandom` by default, as workers may be forked.

    Attributes:
        store: Its objects.
        clock: The clock.
        journal: Its journal.
        commits: Its commits.
        readers: Its recorded readers.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock | None = None,
        random: random_module.Random | None = None,
    ) -> None:
        self.store = store
        self.clock = clock or SystemClock()
        self._random = random or random_module.SystemRandom()
        self.journal = RootJournal(store, self.clock, random=self._random)
        self.commits = BucketCommits(store, self.journal, self.clock)
        self.readers = BucketReaders(store, self.clock)

    @classmethod
    def open(cls, url: str, *, create: bool = False) -> "BucketRoot":
        """Open the root at a URL.

        Args:
            url: `s3://BUCKET/PATH`, `gs://…`, `az://…` or `file:///PATH`.
            create: Create the root if there is none.

        Raises:
            InvalidRequestError: The URL is invalid, or obstore is not installed.
            UnknownTopicError: There is no root at the URL.
            StorageError: The store cannot be reached.
        """
        root = cls(open_store(url))
        if create:
            root.create()
        root.refresh()
        return root

    @property
    def url(self) -> str:
        """The URL of the root, without credentials."""
        return self.store.url

    @property
    def state(self) -> RootState:
        """The root as of the last `refresh` or change."""
        return self.journal.state

    def refresh(self) -> RootState:
        """Read what other processes changed before this call; see `RootJournal.refresh`.

        Raises:
            UnknownTopicError: There is no root at the URL.
        """
        state = self.journal.refresh()
        for _ in range(_CATCH_UPS):
            if not self.journal.is_behind:
                break
            state = self.journal.refresh()  # the hint was older than two entries
        if state.number == 0:
            raise UnknownTopicError(
                "no log root",
                path=self.url,
                hint=f"{command_at(self.url, 'topics create NAME')} creates a topic and the root",
            )
        return state

    def create(self, config: Mapping[str, str] | None = None) -> None:
        """Create the root unless it exists.

        Args:
            config: The settings of its server, by Kafka's keys.

        Raises:
            InvalidConfigError: Unknown key or invalid value.
        """
        settings = dict(config or {})
        ServerConfig.from_properties(settings)
        root_id = new_topic_id(self._random)

        def decide(state: RootState) -> tuple[Sequence[Action], None]:
            is_new = state.number == 0
            return ([CreateRoot(root_id=root_id, config=settings)] if is_new else []), None

        self.journal.change(decide)

    # ---- topics ------------------------------------------------------------------------------
    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, ConfigValue] | None = None,
    ) -> str:
        """Create a topic with empty partitions; return its id.

        Args:
            name: The name of the new topic.
            partitions: Its number of partitions; the root's `num.partitions` by default.
            configs: Its own settings, by Kafka's topic keys.

        Raises:
            InvalidTopicError: The name is invalid, or collides with that of another topic.
            InvalidPartitionsError: The number of partitions is out of range.
            InvalidConfigError: Unknown key or invalid value, or one without a meaning here.
            TopicExistsError: The topic exists.
        """
        given = check_bucket_configs(configs or {})
        topic_id = new_topic_id(self._random)

        def decide(state: RootState) -> tuple[Sequence[Action], str]:
            if name in state.topics:
                raise TopicExistsError(f"topic {name} already exists", path=self.url)
            if name in state.arriving:
                raise TopicExistsError(
                    f"topic {name} is being copied here",
                    path=self.url,
                    hint=f"finish the copy, or {command_at(self.url, f'topics delete {name}')}",
                )
            check_new_topic_name(name)
            server = ServerConfig.from_properties(state.config)
            server.log_config(given)
            count = server.num_partitions if partitions is None else partitions
            _check_count(count, 1)
            create = CreateTopic(topic=name, topic_id=topic_id, partitions=count, config=given)
            return [create], topic_id

        return self.journal.change(decide)

    def ensure_topic(self, name: str) -> None:
        """Create a topic if it is missing and `auto.create.topics.enable` is true.

        Raises:
            UnknownTopicError: It is missing, and that setting is false.
            InvalidTopicError: The name is invalid.
        """
        if name in self.state.topics:
            return
        self.refresh()
        if name not in self.state.topics:
            if not ServerConfig.from_properties(self.state.config).auto_create_topics_enable:
                raise unknown_topic_error(self.url, name, sorted(self.state.topics))
            with contextlib.suppress(TopicExistsError):  # another process created it
                self.create_topic(name)

    def alter_topic(
        self,
        name: str,
        *,
        configs: Mapping[str, ConfigValue] | None = None,
        delete_configs: Sequence[str] = (),
        partitions: int | None = None,
    ) -> None:
        """Change a topic's own settings, and add partitions.

        Args:
            name: The topic.
            configs: Settings to set.
            delete_configs: Keys that return to the root's value.
            partitions: The new number of partitions.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidConfigError: Unknown key or invalid value, or one without a meaning here.
            InvalidPartitionsError: Fewer partitions than there are, or too many.
        """
        given = check_bucket_configs(configs or {})
        check_topic_keys(delete_configs)

        def decide(state: RootState) -> tuple[Sequence[Action], None]:
            old = self._topic(state, name)
            config = {k: v for k, v in old.config.items() if k not in delete_configs} | given
            ServerConfig.from_properties(state.config).log_config(config)
            count = old.partitions if partitions is None else partitions
            _check_count(count, old.partitions)
            if (count, config) == (old.partitions, old.config):
                return [], None
            alter = AlterTopic(topic=name, topic_id=old.topic_id, partitions=count, config=config)
            return [alter], None

        self.journal.change(decide)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all records, also one that is being copied here.

        Its objects are collected later.

        Raises:
            UnknownTopicError: There is no such topic.
        """

        def decide(state: RootState) -> tuple[Sequence[Action], None]:
            arriving = state.arriving.get(name)
            topic = self._topic(state, name) if arriving is None else arriving.topic
            return [DeleteTopic(topic=name, topic_id=topic.topic_id)], None

        self.journal.change(decide)

    def topic_config(self, name: str) -> LogConfig:
        """Return the settings of a topic: its own override the root's, these Kafka's defaults.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        self._topic(self.state, name)
        return self.state.config_of(name)

    # ---- records -----------------------------------------------------------------------------
    def reader(self, partition: TopicPartition) -> BucketReader:
        """Return a reader of a partition, as of the current state.

        Raises:
            UnknownTopicError: There is no such partition.
        """
        self._topic(self.state, partition.topic)
        state = self.state.partitions.get(partition)
        if state is None:
            raise UnknownTopicError("no such partition", path=self.url, got=str(partition))
        limit = self.state.config_of(partition.topic).readable_decompressed_bytes
        return BucketReader(self.store, partition, state, max_decompressed_bytes=limit)

    def stager(self, app: str, version: int, task: int) -> BucketStager:
        """Return a writer of one task's batches; see `BucketStager`."""
        return BucketStager(
            self.store,
            app,
            version,
            task,
            find_topic_id=lambda partition: self._topic(self.state, partition.topic).topic_id,
            now_ms=self.clock.now_ms(),
            random=self._random,
        )

    def delete_records(self, partition: TopicPartition, offset: int, *, force: bool = False) -> int:
        """Raise a partition's log start offset; return the new one.

        Args:
            partition: The partition.
            offset: The first offset to keep; -1 for the end.
            force: Also delete records that a recorded reader has not finished.

        Raises:
            UnknownTopicError: There is no such partition.
            OffsetOutOfRangeError: The offset is above the log end.
            PolicyViolationError: The topic's `cleanup.policy` is compact alone, or a recorded
                reader has not finished the records.
        """
        path = f"{self.url}/{partition}"

        def decide(state: RootState) -> tuple[Sequence[Action], int]:
            topic = self._topic(state, partition.topic)
            at = state.partitions.get(partition)
            if at is None:
                raise UnknownTopicError("no such partition", path=self.url, got=str(partition))
            check_deletable(partition, state.config_of(partition.topic), path)
            wanted = at.end_offset if offset == -1 else offset
            if not 0 <= wanted <= at.end_offset:
                raise OffsetOutOfRangeError(
                    "offset is outside the log",
                    path=path,
                    got=offset,
                    expected=f"-1, or 0 to {at.end_offset}",
                )
            if wanted <= at.log_start_offset:
                return [], at.log_start_offset
            if not force:
                held = self.readers.held(state, partition)
                first = at.log_start_offset
                check_finished(held, wanted, log_start_offset=first, path=path, root=self.url)
            start = SetLogStart(topic_partition=partition, topic_id=topic.topic_id, offset=wanted)
            return [start], wanted

        return self.journal.change(decide)

    def _topic(self, state: RootState, name: str) -> TopicState:
        found = state.topics.get(name)
        if found is None:
            raise UnknownTopicError(
                f"no topic {name}",
                path=self.url,
                hint=command_at(self.url, f"topics create {name}"),
            )
        return found


def check_bucket_configs(configs: Mapping[str, ConfigValue]) -> dict[str, str]:
    """Return settings as text, after checking that they have a meaning in an object store.

    Raises:
        InvalidConfigError: Unknown key, or one without a meaning here.
    """
    check_topic_keys(configs)
    for key in _NOT_HERE:
        if key in configs:
            raise InvalidConfigError(
                f"{key} has no meaning in an object store",
                expected="no such setting: every commit is durable when it is made",
            )
    return {key: text_of(value) for key, value in configs.items()}


def _check_count(count: int, least: int) -> None:
    if not least <= count <= MAX_PARTITIONS:
        raise InvalidPartitionsError(
            "invalid number of partitions", got=count, expected=f"{least} to {MAX_PARTITIONS}"
        )
