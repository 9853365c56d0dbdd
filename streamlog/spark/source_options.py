"""The options of a read as parsed values.

The rules are those of Spark's Kafka source (`KafkaSourceProvider`): exactly one of `subscribe`,
`subscribePattern` and `assign`; a timestamp for all partitions takes precedence over timestamps by
partition, and those over offsets.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from streamlog.arrow.log_view import EARLIEST, LATEST, TopicChoice
from streamlog.arrow.schema import choose_columns
from streamlog.bucket.places import is_bucket, root_paths
from streamlog.config.settings import MAX_INT
from streamlog.errors import InvalidOptionError
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint import local_path
from streamlog.query.offsets import parse_partition_numbers
from streamlog.records.record import IsolationLevel
from streamlog.segment.filenames import parse_log_file_name
from streamlog.spark.decoding_options import DecodingOptions
from streamlog.spark.options import (
    Use,
    check_options,
    parse_boolean,
    parse_choice,
    parse_duration_ms,
    parse_integer,
)
from streamlog.topic import TopicPartition, check_topic_name, parse_partition_directory

__all__ = ["OffsetRule", "SourceOptions", "TriggerLimits"]

_NAMED: Final = {"latest": LATEST, "earliest": EARLIEST}
_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_GROUP: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRule:
    """Start or end of a read, independent of the state of the log.

    Attributes:
        option: The option that set it, for errors.
        everywhere: For all partitions: an offset (`EARLIEST`, `LATEST`) or a timestamp.
        partitions: By partition; together with `topics` they must cover all partitions.
        topics: By topic.
        is_timestamp: The numbers are timestamps in milliseconds.
        without_match: Result for a timestamp later than all records: `error` or `latest`.
    """

    option: str
    everywhere: int | None = None
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    is_timestamp: bool = False
    without_match: str = "latest"

    def number_for(self, partition: TopicPartition) -> int | None:
        """Return the offset or timestamp for a partition; None if the option does not name it."""
        if self.everywhere is not None:
            return self.everywhere
        return self.partitions.get(partition, self.topics.get(partition.topic))


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """How much one trigger of a streaming query reads.

    Attributes:
        max_offsets: `maxOffsetsPerTrigger`.
        max_bytes: `maxBytesPerTrigger`.
        min_offsets: `minOffsetsPerTrigger`.
        max_delay_ms: `maxTriggerDelay`: maximum wait for `min_offsets`.
    """

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one read; the attributes have their names.

    Attributes:
        paths: The log root, or the log roots of a replica set.
        starting: Start of a new query.
        ending: End of a batch query.
        parallelism: Number of tasks into which large ranges are split.
        max_decompressed_bytes: Limit of one decompressed batch; None: that of its topic.
        group_id: Name under which finished offsets are recorded; None: they are not.
        decoding: What is decoded; None: keys and values are bytes.
    """

    paths: tuple[str, ...]
    choice: TopicChoice
    starting: OffsetRule
    ending: OffsetRule
    fail_on_data_loss: bool
    limits: TriggerLimits
    min_partitions: int | None
    max_records_per_partition: int | None
    parallelism: int
    columns: tuple[str, ...]
    invalid_timestamps: str
    isolation: IsolationLevel
    max_decompressed_bytes: int | None
    group_id: str | None
    decoding: DecodingOptions | None

    @classmethod
    def parse(cls, options: Mapping[str, str], use: Use) -> "SourceOptions":
        """Parse and check the options.

        Args:
            options: The options as Spark passes them.
            use: `Use.BATCH_READ`, `Use.STREAM_READ`, or `Use.READ` if it is not known yet.

        Raises:
            InvalidOptionError: An option is unknown, does not apply, or is invalid.
        """
        given = check_options(options, use)
        starting = "latest" if use is Use.STREAM_READ else "earliest"
        paths = _parse_paths(given)
        choice = _parse_choice_of_topics(given, paths)
        decoding = DecodingOptions.parse(given, choice)
        parsed = cls(
            paths=paths,
            choice=choice,
            starting=_parse_rule(given, "starting", default=starting),
            ending=_parse_rule(given, "ending", default="latest"),
            fail_on_data_loss=parse_boolean(given, "failOnDataLoss", default=True),
            limits=_parse_limits(given),
            min_partitions=parse_integer(given, "minPartitions", maximum=1_000_000),
            max_records_per_partition=parse_integer(given, "maxRecordsPerPartition"),
            parallelism=parse_integer(given, "parallelism", maximum=1_000_000) or _usable_cpus(),
            columns=choose_columns(
                given.get("columns"),
                include_headers=parse_boolean(given, "includeHeaders", default=False),
                has_errors=decoding is not None,
            ),
            invalid_timestamps=parse_choice(
                given, "invalidTimestamps", ("error", "null"), default="error"
            ),
            isolation=IsolationLevel(
                parse_choice(
                    given,
                    "kafka.isolation.level",
                    [level.value for level in IsolationLevel],
                    default=IsolationLevel.READ_COMMITTED.value,
                )
            ),
            max_decompressed_bytes=parse_integer(given, "maxDecompressedBytes", maximum=MAX_INT),
            group_id=_parse_group(given),
            decoding=decoding,
        )
        if use is Use.BATCH_READ:
            _check_batch(parsed)
        return parsed


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0))


def _parse_paths(given: Mapping[str, str]) -> tuple[str, ...]:
    path = given.get("path", "").strip()
    if not path:
        raise InvalidOptionError(
            "option path is missing",
            expected="the log root",
            hint='.option("path", "/data/log")',
        )
    return root_paths(path, LocalFileSystem(), resolve=_local)


def _local(path: str) -> str:
    local = local_path(path)
    if local is None:
        raise InvalidOptionError(
            "option path is not a local path",
            got=path,
            expected="a directory that driver and executors reach as files, or an object store: "
            "s3://, gs://, az://",
        )
    return local


def _parse_choice_of_topics(given: Mapping[str, str], paths: tuple[str, ...]) -> TopicChoice:
    named = [name for name in _STRATEGIES if name in given]
    is_directory = len(paths) == 1 and not is_bucket(paths[0])
    partition = _partition_at(paths[0]) if is_directory else None
    if not named and partition is not None:
        return TopicChoice(partitions=(partition,))
    if not named:
        raise InvalidOptionError(
            "no option selects topics", expected=f"one of {', '.join(_STRATEGIES)}"
        )
    if len(named) > 1:
        raise InvalidOptionError(
            "more than one option selects topics",
            got=" and ".join(named),
            expected=f"one of {', '.join(_STRATEGIES)}",
        )
    text = given[named[0]].strip()
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise InvalidOptionError("option subscribe names no topic", got=repr(text))
        return TopicChoice(topics=tuple(check_topic_name(topic) for topic in topics))
    if named[0] == "assign":
        return TopicChoice(partitions=_parse_assign(text))
    from streamlog.arrow.java_pattern import JavaPattern

    JavaPattern.parse(text)
    return TopicChoice(pattern=text)


def _partition_at(path: str) -> TopicPartition | None:
    """Return the partition of a path to a partition directory or to a `.log` file in one."""
    is_file = parse_log_file_name(os.path.basename(path)) is not None
    directory = os.path.dirname(path) if is_file else path
    return parse_partition_directory(os.path.basename(directory))


def _parse_assign(text: str) -> tuple[TopicPartition, ...]:
    try:
        document = json.loads(text)
        partitions = {
            topic: dict.fromkeys([str(number) for number in numbers if type(number) is int], 0)
            for topic, numbers in document.items()
        }
        complete = all(
            len(set(numbers)) == len(partitions[topic]) for topic, numbers in document.items()
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        complete, partitions = False, {}
    if not complete or not any(partitions.values()):
        raise InvalidOptionError(
            "option assign names no partitions",
            got=repr(text[:200]),
            expected='JSON such as {"orders": [0, 1]}',
        )
    return tuple(sorted(parse_partition_numbers(partitions, "option assign")))


def _parse_rule(given: Mapping[str, str], side: str, *, default: str) -> OffsetRule:
    """Return the start or end; `side` is `starting` or `ending`.

    Source: KafkaSourceProvider.getKafkaOffsetRangeLimit.
    """
    strategy = "latest"
    if side == "starting":
        strategy = parse_choice(
            given, "startingOffsetsByTimestampStrategy", ("error", "latest"), default="error"
        )
    option = f"{side}Timestamp"
    if option in given:
        timestamp = parse_integer(given, option, minimum=0)
        return OffsetRule(
            option=option, everywhere=timestamp, is_timestamp=True, without_match=strategy
        )
    option = f"{side}OffsetsByTimestamp"
    if option in given:
        return OffsetRule(
            option=option,
            partitions=parse_partition_numbers(given[option], f"option {option}"),
            is_timestamp=True,
            without_match=strategy,
        )
    option = f"{side}Offsets"
    text = given.get(option, default).strip()
    if text.lower() in _NAMED:
        return OffsetRule(option=option, everywhere=_NAMED[text.lower()])
    return _parse_offsets(option, text)


def _parse_offsets(option: str, text: str) -> OffsetRule:
    """Return the rule of `{"orders": {"0": 23}, "clicks": "earliest"}`."""
    if not text.startswith("{"):
        raise InvalidOptionError(
            f"invalid value for option {option}",
            got=repr(text[:200]),
            expected='earliest, latest, or JSON such as {"orders": {"0": 23, "1": -2}}',
        )
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = text  # the parser below reports the error
    topics: dict[str, int] = {}
    if isinstance(document, dict):
        topics = {
            topic: _NAMED[value.lower()]
            for topic, value in document.items()
            if isinstance(value, str) and value.lower() in _NAMED
        }
        document = {topic: value for topic, value in document.items() if topic not in topics}
    return OffsetRule(
        option=option,
        partitions=parse_partition_numbers(document, f"option {option}", minimum=EARLIEST),
        topics=topics,
    )


def _parse_limits(given: Mapping[str, str]) -> TriggerLimits:
    limits = TriggerLimits(
        max_offsets=parse_integer(given, "maxOffsetsPerTrigger"),
        max_bytes=parse_integer(given, "maxBytesPerTrigger"),
        min_offsets=parse_integer(given, "minOffsetsPerTrigger"),
        max_delay_ms=parse_duration_ms(given, "maxTriggerDelay", default="15m"),
    )
    if limits.max_offsets and limits.min_offsets and limits.min_offsets > limits.max_offsets:
        raise InvalidOptionError(
            "minOffsetsPerTrigger is above maxOffsetsPerTrigger",
            got=str(limits.min_offsets),
            expected=f"at most {limits.max_offsets}",
        )
    return limits


def _parse_group(given: Mapping[str, str]) -> str | None:
    group = given.get("kafka.group.id")
    if group is not None and not _GROUP.fullmatch(group):
        raise InvalidOptionError(
            "option kafka.group.id is not a valid file name",
            got=repr(group),
            expected="letters, digits, '.', '_' and '-', not starting with '.' or '-'",
        )
    return group


def _check_batch(options: SourceOptions) -> None:
    """Refuse a batch that starts at the end or ends at the beginning.

    Source: KafkaSourceProvider.validateBatchOptions.
    """
    for rule, wrong, side in (
        (options.starting, LATEST, "starting offset can't be latest"),
        (options.ending, EARLIEST, "ending offset can't be earliest"),
    ):
        if rule.is_timestamp:
            continue
        if rule.everywhere == wrong or wrong in rule.topics.values():
            raise InvalidOptionError(f"option {rule.option}: {side} for batch queries")
        for partition, offset in rule.partitions.items():
            if offset == wrong:
                raise InvalidOptionError(
                    f"option {rule.option}: {side} for batch queries, as for {partition}"
                )
