"""The one door to librdkafka: a Kafka cluster as an end of a copy.

Why librdkafka: `streamlog/decisions/copies-of-a-cluster.md`.
"""

import base64
import contextlib
import itertools
import logging
import random as random_module
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoResultError
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from streamlog.clock import Clock, SystemClock
from streamlog.errors import (
    InvalidConfigError,
    InvalidOptionError,
    InvalidRequestError,
    MessageTooLargeError,
    StreamLogError,
    UnavailableError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem
from streamlog.partition.topic_config import read_properties
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

__all__ = [
    "KAFKA_SCHEME",
    "KafkaClient",
    "KafkaTopic",
    "client_settings",
    "failure_of",
    "is_kafka",
]

_Result = TypeVar("_Result")

KAFKA_SCHEME: Final = "kafka://"
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:/@,\[\]]+):(\d{1,5})")
_PATIENCE_S: Final = 30.0  # for the first answer of a cluster, as Kafka's clients connect
_LOOK_S: Final = 1.0
_ANSWER_S: Final = 60.0
_EXTRA: Final = "pip install 'pyspark-streamlog[kafka]'"
_SILENT: Final = logging.Logger("librdkafka")  # of no tree: failures arrive as errors
_SILENT.addHandler(logging.NullHandler())

# What a copy relies on, and users may not change.
_OWN: Final = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "check.crcs",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "enable.partition.eof",
        "isolation.level",
        "metadata.broker.list",
        "partitioner",
        "request.required.acks",
        "transactional.id",
    }
)
_SECRET: Final = re.compile(r"password|secret|private|assertion|\.pem$|oauthbearer\.config|jaas")


class KafkaTopic(NamedTuple):
    """A topic of a cluster.

    Attributes:
        topic_id: Its id; None if the cluster gives none.
        is_internal: Whether it is the cluster's own.
        configs: Its own settings.
    """

    topic_id: str | None
    is_internal: bool
    configs: Mapping[str, str]


def is_kafka(path: str) -> bool:
    """Return whether a path names a Kafka cluster."""
    return path.startswith(KAFKA_SCHEME)


def client_settings(
    pairs: Sequence[str], command_config: str | None, fs: FileSystem
) -> dict[str, str]:
    """Return librdkafka's settings of a command line.

    Args:
        pairs: `KEY=VALUE` each; secrets are refused, since other users can see a command line.
        command_config: The path of a `.properties` file, whose values are weaker; None: no file.
        fs: Where it is.

    Raises:
        InvalidOptionError: A pair without `=`, a secret among the pairs, or a setting that a copy
            decides on.
        InvalidConfigError: The file is not of that format.
        StorageError: The file cannot be read.
    """
    settings: dict[str, str] = {}
    if command_config is not None:
        found = read_properties(fs, command_config)
        if found is None:
            raise InvalidOptionError("--command-config names no file", path=command_config)
        settings |= found
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InvalidOptionError("-X takes KEY=VALUE", got=repr(key))
        if _SECRET.search(key):
            raise InvalidOptionError(
                f"-X {key}: secrets do not belong on a command line, which others can read",
                hint="put the setting into a file and pass --command-config FILE",
            )
        settings[key] = value
    for key in settings:
        if key in _OWN:
            raise InvalidOptionError(
                f"{key} is decided by the copy", hint="leave out this client setting"
            )
    return settings


def _bootstrap(url: str) -> str:
    addresses = url.removeprefix(KAFKA_SCHEME).rstrip("/").split(",")
    for each in addresses:
        match = _ADDRESS.fullmatch(each)
        if match is None or not 0 < int(match[2]) < 65536:
            raise InvalidOptionError(
                "invalid address of a Kafka cluster",
                got="an empty address" if not each else repr(each.rpartition("@")[2]),
                expected="kafka://HOST:PORT, or several: kafka://HOST:PORT,HOST:PORT",
            )
    return ",".join(addresses)


class KafkaClient:
    """A Kafka cluster, reached through librdkafka.

    Args:
        url: `kafka://HOST:PORT[,HOST:PORT]`.
        settings: Settings of librdkafka's clients, such as `security.protocol`.
        clock: For time limits.

    Attributes:
        name: The URL.
        settings: Those settings.

    Raises:
        InvalidOptionError: The URL is invalid.
        InvalidConfigError: librdkafka does not accept a setting.
        InvalidRequestError: confluent-kafka is not installed, or the cluster refuses the client.
        UnavailableError: No broker answers.
    """

    def __init__(
        self, url: str, settings: Mapping[str, str] | None = None, *, clock: Clock | None = None
    ) -> None:
        self.name, self.settings = url, dict(settings or {})
        self._bootstrap = _bootstrap(url)
        self._clock = clock or SystemClock()
        self._problem: KafkaError | None = None
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise InvalidRequestError(
                "copying from and to a Kafka cluster needs confluent-kafka, which is not installed",
                got=url,
                hint=_EXTRA,
            ) from error
        self._admin: AdminClient = self._made(AdminClient, {})
        self._connect()

    def _made(self, kind: Callable[[dict[str, Any]], _Result], own: Mapping[str, Any]) -> _Result:
        """Return a client of librdkafka; a secret never gets into an error."""
        settings = {
            **self.settings,
            **own,
            "bootstrap.servers": self._bootstrap,
            "error_cb": self._note,
        }
        if "debug" not in self.settings:
            settings["logger"] = _SILENT
        from confluent_kafka import KafkaException

        try:
            return kind(settings)
        except KafkaException as error:
            text = str(error.args[0].str())
        except (TypeError, ValueError) as error:
            text = str(error)
        for key, value in self.settings.items():
            text = text.replace(value, "…") if value and _SECRET.search(key) else text
        raise InvalidConfigError(
            "a setting of the Kafka client is not accepted",
            path=self.name,
            got=text,
            expected="settings of librdkafka, such as security.protocol and sasl.username",
            hint="its names: https://github.com/confluentinc/librdkafka, CONFIGURATION.md",
        )

    def _note(self, error: "KafkaError") -> None:
        """Keep what librdkafka reports beside its answers: the reason, not its consequence."""
        from confluent_kafka import KafkaError

        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._problem is None:
            self._problem = error

    @property
    def problem(self) -> str | None:
        """What librdkafka reported last."""
        return None if self._problem is None else str(self._problem.str())

    def _connect(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        deadline = self._clock.monotonic_ms() + 1000 * _PATIENCE_S
        hopeless = {KafkaError._AUTHENTICATION, KafkaError._SSL}
        for attempt in itertools.count():
            try:
                self._admin.list_topics(timeout=_LOOK_S * 2 ** min(attempt, 3))
            except KafkaException as error:
                self._admin.poll(0)
                seen = self._problem
                is_hopeless = seen is not None and seen.code() in hopeless
                if is_hopeless or self._clock.monotonic_ms() > deadline:
                    raise failure_of(seen or error.args[0], path=self.name) from None
            else:
                return

    # ---- topics ------------------------------------------------------------------------------
    def partitions(self) -> dict[str, tuple[int, ...]]:
        """Return the numbers of the partitions of all topics."""
        from confluent_kafka import KafkaException

        try:
            found = self._admin.list_topics(timeout=_ANSWER_S)
        except KafkaException as error:
            raise self._failure(error) from None
        return {
            name: tuple(sorted(topic.partitions)) for name, topic in sorted(found.topics.items())
        }

    def describe(self, name: str) -> KafkaTopic:
        """Return what a cluster knows of a topic.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidRequestError: The client is not allowed to know.
            UnavailableError: No answer in time.
        """
        from confluent_kafka import TopicCollection

        described = self._admin.describe_topics(TopicCollection([name]))[name]
        topic = self._wait(described)
        configs = {key: each.value for key, each in self._configs(name).items() if each.is_own}
        return KafkaTopic(_id_of(topic.topic_id), bool(topic.is_internal), configs)

    def effective_configs(self, name: str) -> dict[str, str]:
        """Return all settings that apply to a topic."""
        return {key: each.value for key, each in self._configs(name).items()}

    def _configs(self, name: str) -> dict[str, "_Setting"]:
        from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, name)
        found = self._wait(self._admin.describe_configs([resource])[resource])
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            key: _Setting(entry.value or "", _number(entry.source) == own)
            for key, entry in found.items()
        }

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], *, dry_run: bool = False
    ) -> None:
        """Create a topic with the cluster's default replication factor.

        Args:
            name: Its name.
            partitions: Their number.
            configs: Its settings.
            dry_run: Whether only to check.

        Raises:
            InvalidConfigError: The cluster does not accept a setting.
            InvalidRequestError: It refuses the topic.
            UnavailableError: No answer in time.
        """
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=-1, config=dict(configs)
        )
        self._wait(self._admin.create_topics([topic], validate_only=dry_run)[name])

    def add_partitions(self, name: str, count: int) -> None:
        """Give a topic more partitions, `count` in all."""
        from confluent_kafka.admin import NewPartitions

        self._wait(self._admin.create_partitions([NewPartitions(name, count)])[name])

    # ---- offsets -----------------------------------------------------------------------------
    def start_offsets(self, partitions: Sequence[TopicPartition]) -> list[int]:
        """Return the first offset of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return [each[0] for each in self._offsets(partitions, OffsetSpec.earliest())]

    def end_offsets(self, partitions: Sequence[TopicPartition], *, is_stable: bool) -> list[int]:
        """Return the end of each partition: the last stable offset, or the high watermark."""
        from confluent_kafka.admin import OffsetSpec

        found = self._offsets(partitions, OffsetSpec.latest(), is_stable=is_stable)
        return [each[0] for each in found]

    def offset_for_timestamp(
        self, partition: TopicPartition, timestamp: int
    ) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time, or None."""
        from confluent_kafka.admin import OffsetSpec

        found = self._offsets([partition], OffsetSpec.for_timestamp(timestamp))[0]
        return None if found[0] < 0 else found

    def _offsets(
        self, partitions: Sequence[TopicPartition], spec: Any, *, is_stable: bool = True
    ) -> list[tuple[int, int]]:
        from confluent_kafka import IsolationLevel
        from confluent_kafka import TopicPartition as Asked

        committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
        asked = {Asked(each.topic, each.partition): spec for each in partitions}
        found = self._admin.list_offsets(
            asked, isolation_level=committed if is_stable else uncommitted
        )
        answers = {
            (each.topic, each.partition): self._wait(future) for each, future in found.items()
        }
        ordered = [answers[each.topic, each.partition] for each in partitions]
        return [(int(each.offset), int(each.timestamp)) for each in ordered]

    # ---- clients -----------------------------------------------------------------------------
    def consumer(self) -> "Consumer":
        """Return a consumer of committed records, which joins no group."""
        from confluent_kafka import Consumer

        name = f"streamlog-copy-{random_module.SystemRandom().getrandbits(64):016x}"
        own = {
            "auto.offset.reset": "error",
            "check.crcs": True,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": self.settings.get("fetch.queue.backoff.ms", "10"),
            "fetch.wait.max.ms": self.settings.get("fetch.wait.max.ms", "50"),
            "group.id": self.settings.get("group.id", name),
            "isolation.level": "read_committed",
        }
        return self._made(Consumer, own)

    def producer(self, *, max_batch_size: int) -> "Producer":
        """Return an idempotent producer that keeps the order, or fails for good."""
        from confluent_kafka import Producer

        own = {
            "acks": "all",
            "batch.size": self.settings.get("batch.size", str(max_batch_size)),
            "enable.gapless.guarantee": True,
            "enable.idempotence": True,
            # The broker decides which record is too large.
            "message.max.bytes": self.settings.get("message.max.bytes", "1000000000"),
            "queue.buffering.max.kbytes": self.settings.get("queue.buffering.max.kbytes", "65536"),
        }
        return self._made(Producer, own)

    # ---- answers -----------------------------------------------------------------------------
    def _wait(self, future: "Future[Any]") -> Any:
        from confluent_kafka import KafkaException

        try:
            return future.result(_ANSWER_S)
        except KafkaException as error:
            raise self._failure(error) from None
        except NoResultError:
            raise UnavailableError("the cluster does not answer", path=self.name) from None

    def _failure(self, error: Exception) -> StreamLogError:
        with contextlib.suppress(Exception):
            self._admin.poll(0)
        return failure_of(error.args[0], path=self.name)


class _Setting(NamedTuple):
    value: str
    is_own: bool


def _number(source: Any) -> int:
    return int(getattr(source, "value", source))


def _id_of(found: Any) -> str | None:
    """Return the id as Kafka writes it; librdkafka's own text is not for URLs."""
    if found is None:
        return None
    halves = found.get_most_significant_bits(), found.get_least_significant_bits()
    raw = b"".join((half % (1 << 64)).to_bytes(8, "big") for half in halves)
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=") if any(raw) else None


def failure_of(error: "KafkaError", *, path: str) -> StreamLogError:
    """Return an error of librdkafka, or of a broker, as ours.

    Args:
        error: The error.
        path: The URL of the cluster, or of a partition in it.
    """
    code, text = error.name(), error.str()
    if code == _GIVEN_UP:  # the text has the reason, of a broker
        code = next((name for words, name in _REASONS if words in text), code)
    for names, make in _FAILURES:
        if code in names:
            return make(text, path)
    return UnavailableError("the Kafka client failed", path=path, got=f"{code}: {text}")


_GIVEN_UP: Final = "_GAPLESS_GUARANTEE"
_REASONS: Final = (
    ("size too large", "MSG_SIZE_TOO_LARGE"),
    ("larger than configured server segment size", "RECORD_LIST_TOO_LARGE"),
    ("imed out", "_MSG_TIMED_OUT"),
)


def _no_answer(text: str, path: str) -> StreamLogError:
    return UnavailableError(
        "no broker answers",
        path=path,
        got=text,
        hint="check the address, and security.protocol (-X, --command-config)",
    )


def _refused(text: str, path: str) -> StreamLogError:
    return InvalidRequestError(
        "the broker refuses the connection",
        path=path,
        got=text,
        hint="pass the client's settings: --command-config FILE",
    )


def _forbidden(text: str, path: str) -> StreamLogError:
    return InvalidRequestError("the client lacks a permission", path=path, got=text)


_FAILURES: Final[tuple[tuple[frozenset[str], Callable[[str, str], StreamLogError]], ...]] = (
    (
        frozenset(
            {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE"}
            | {"_MSG_TIMED_OUT", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"}
        ),
        _no_answer,
    ),
    (frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"}), _refused),
    (
        frozenset({f"{kind}_AUTHORIZATION_FAILED" for kind in ("TOPIC", "CLUSTER", "GROUP")}),
        _forbidden,
    ),
    (
        frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}),
        lambda text, path: UnknownTopicError("no such topic or partition", path=path, got=text),
    ),
    (
        frozenset({"INVALID_CONFIG"}),
        lambda text, path: InvalidConfigError(
            "the cluster does not accept a setting", path=path, got=text
        ),
    ),
    (
        frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"}),
        lambda text, path: MessageTooLargeError(
            "a record is larger than the topic takes",
            path=path,
            got=text,
            hint="raise the topic's max.message.bytes",
        ),
    ),
    (
        frozenset(
            {"POLICY_VIOLATION", "INVALID_REQUEST", "TOPIC_EXCEPTION", "INVALID_PARTITIONS"}
            | {"INVALID_REPLICATION_FACTOR", "INVALID_RECORD", "INVALID_TIMESTAMP"}
            | {"TOPIC_ALREADY_EXISTS", _GIVEN_UP}
        ),
        lambda text, path: InvalidRequestError("the cluster refuses it", path=path, got=text),
    ),
)
