"""The options of `format("streamlog")`: one table for both directions, batch and streaming.

Spark passes options with lower-cased names and text values. `check_options` looks each one up in
the table, restores its spelling, and refuses options that are unknown or not valid in that place.
Options of Kafka's clients that have no meaning without a broker get one warning per call.
`streamlog.spark.source_options` and the sink interpret the values.
"""

import difflib
import logging
from collections.abc import Iterable, Mapping
from enum import Flag, auto
from typing import Final, NamedTuple

from streamlog.errors import InvalidOptionError

__all__ = [
    "OPTIONS",
    "Option",
    "Use",
    "check_options",
    "parse_boolean",
    "parse_choice",
    "parse_duration_ms",
    "parse_integer",
]

_log = logging.getLogger(__name__)


class Use(Flag):
    """Where an option is valid."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ANY = READ | WRITE


class Option(NamedTuple):
    """One option.

    Attributes:
        name: Its spelling; Spark ignores the case.
        use: Where it is valid.
        default: Its default as text for the documentation; None leaves the cell empty.
        doc: Its description, one or two sentences.
        ignored_in: Where it is ignored with a warning, as Spark's Kafka source does.
    """

    name: str
    use: Use
    default: str | None
    doc: str
    ignored_in: Use = Use(0)


OPTIONS: Final = (
    # ---- both directions ----------------------------------------------------------------------
    Option(
        "path",
        Use.ANY,
        None,
        "Log root: a directory, or a URL such as s3://BUCKET/PATH. Or several log roots of a "
        "replica set, separated by commas: any of them may be unreachable. A reader also accepts a "
        "partition directory or a single file.",
    ),
    # ---- which topics to read -----------------------------------------------------------------
    Option("subscribe", Use.READ, None, "Topics to read, separated by commas."),
    Option(
        "subscribePattern",
        Use.READ,
        None,
        "Java regular expression that must match the whole topic name.",
    ),
    Option("assign", Use.READ, None, 'Partitions to read: {"orders": [0, 1]}.'),
    # ---- from where to where ------------------------------------------------------------------
    Option(
        "startingOffsets",
        Use.READ,
        "latest (stream), earliest (batch)",
        'earliest, latest, or {"orders": {"0": 23, "1": -2}}, where -2 is earliest and -1 '
        "latest. New queries only.",
    ),
    Option(
        "startingTimestamp",
        Use.READ,
        None,
        "Start every partition at its first record with this timestamp (ms) or a later one.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        Use.READ,
        None,
        'The same per partition: {"orders": {"0": 1700000000000}}.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        Use.READ,
        "error",
        "If a partition has no such record: error, or latest to start at its end.",
    ),
    Option(
        "endingOffsets",
        Use.BATCH_READ,
        "latest",
        "Where to stop, in the format of startingOffsets.",
    ),
    Option(
        "endingTimestamp",
        Use.BATCH_READ,
        None,
        "Stop every partition before its first record with this timestamp (ms) or a later one.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        Use.BATCH_READ,
        None,
        "The same per partition, in the format of startingOffsetsByTimestamp.",
    ),
    Option(
        "failOnDataLoss",
        Use.READ,
        "true",
        "true: fail if planned records are gone. false: warn and continue with the rest.",
    ),
    # ---- how much at a time -------------------------------------------------------------------
    Option(
        "maxOffsetsPerTrigger",
        Use.STREAM_READ,
        None,
        "Maximum offsets per trigger, split in proportion to backlog.",
        ignored_in=Use.BATCH_READ,
    ),
    Option(
        "minOffsetsPerTrigger",
        Use.STREAM_READ,
        None,
        "Minimum new offsets per trigger. maxTriggerDelay limits the wait.",
        ignored_in=Use.BATCH_READ,
    ),
    Option(
        "maxTriggerDelay",
        Use.STREAM_READ,
        "15m",
        "Maximum wait for minOffsetsPerTrigger: a number with ms, s, m, h or d.",
        ignored_in=Use.BATCH_READ,
    ),
    Option(
        "maxBytesPerTrigger",
        Use.STREAM_READ,
        None,
        "Approximate maximum of stored bytes per trigger, but at least one batch of records.",
        ignored_in=Use.BATCH_READ,
    ),
    Option("minPartitions", Use.READ, None, "Approximate minimum number of tasks."),
    Option("maxRecordsPerPartition", Use.READ, None, "Maximum offsets per task."),
    Option(
        "parallelism",
        Use.READ,
        "the CPUs of the driver's machine",
        "Number of tasks to split large ranges into when there are fewer partitions.",
    ),
    # ---- decoding -----------------------------------------------------------------------------
    Option(
        "valueFormat",
        Use.READ,
        "none: bytes",
        "json, avro or protobuf: value has the type of the schema, and _error is added.",
    ),
    Option("keyFormat", Use.READ, "none: bytes", "The same for key."),
    Option(
        "schemaRegistry",
        Use.READ,
        None,
        "Where schemas are: the URL of a Confluent-compatible registry, or a directory that all "
        "executors can access. Credentials come from the environment.",
    ),
    Option(
        "valueSchema",
        Use.READ,
        "the latest of valueSubject",
        "The schema of value: its text, or @FILE. Of JSON a JSON Schema, or a DDL: id BIGINT, name "
        "STRING.",
    ),
    Option("keySchema", Use.READ, "the latest of keySubject", "The same for key."),
    Option("valueSubject", Use.READ, "TOPIC-value", "Subject in the registry."),
    Option("keySubject", Use.READ, "TOPIC-key", "The same for key."),
    Option(
        "valueMessage",
        Use.READ,
        "the first in the schema",
        "Protobuf: full name of the message.",
    ),
    Option("keyMessage", Use.READ, "the first in the schema", "The same for key."),
    Option(
        "schemaFraming",
        Use.READ,
        "confluent",
        "confluent: a zero byte and an id in front of a value, or a GUID in a header, name its "
        "schema. none: nothing does.",
    ),
    Option(
        "mode",
        Use.READ,
        "PERMISSIVE",
        "A record that cannot be decoded: PERMISSIVE: null, with the reason in _error. FAILFAST: "
        "an error of the query.",
    ),
    # ---- columns ------------------------------------------------------------------------------
    Option("includeHeaders", Use.READ, "false", "Add the column headers."),
    Option("columns", Use.READ, "all", "Read only the named columns: value,offset."),
    Option(
        "invalidTimestamps",
        Use.READ,
        "error",
        "If a Spark timestamp cannot hold a record's time: error, or null.",
    ),
    Option(
        "maxDecompressedBytes",
        Use.READ,
        "the topic's streamlog.max.decompressed.bytes, at least 64 MiB",
        "Maximum decompressed size of one compressed batch. A larger batch is an error.",
    ),
    Option(
        "kafka.isolation.level",
        Use.READ,
        "read_committed",
        "read_committed, or read_uncommitted to include open and aborted transactions.",
    ),
    Option(
        "kafka.group.id",
        Use.STREAM_READ,
        None,
        "Record the query's finished offsets in <root>/.streamlog/readers/<group>.json, from "
        "its start. Maintenance keeps all records that are not finished. One query per group.",
        ignored_in=Use.BATCH_READ,
    ),
    # ---- writing ------------------------------------------------------------------------------
    Option(
        "topic",
        Use.WRITE,
        None,
        "Topic to write to. Without it, the column topic names the topic of each row.",
    ),
    Option("kafka.compression.type", Use.WRITE, "none", "none, gzip, snappy, lz4 or zstd."),
    Option(
        "kafka.acks",
        Use.WRITE,
        "all",
        "Replicas that must hold the rows before a commit returns: 0, 1 or all. The commit itself"
        " is durable on all roots in sync with any value. all means 1 while a topic has one"
        " replica.",
    ),
    Option("flush.messages", Use.WRITE, "the topic's", "Overrides the topic's flush.messages."),
    Option("flush.ms", Use.WRITE, "the topic's", "Overrides the topic's flush.ms."),
    Option(
        "lock.timeout.ms",
        Use.WRITE,
        "600000",
        "Maximum wait for other writers of a partition. A warning names the holder every 10 s.",
    ),
    Option(
        "txnAppId",
        Use.WRITE,
        "the query's id",
        "Identity of the writer for exactly-once writes. Each topic written under it has "
        "versions of its own.",
    ),
    Option("txnVersion", Use.WRITE, "the batch's id", "Version of this write under txnAppId."),
    Option(
        "onReplayMismatch",
        Use.WRITE,
        "fail",
        "If a repeated write has different rows than the first: fail, skip or append.",
    ),
    Option(
        "maintenance",
        Use.WRITE,
        "off",
        "auto: run retention and compaction between triggers when they are due.",
    ),
    Option(
        "checkpointLocation",
        Use.STREAM_WRITE,
        "below the session's",
        "Spark's own option. The sink syncs the checkpoint and records its commits in the "
        "subdirectory streamlog.",
    ),
    Option("queryName", Use.STREAM_WRITE, None, "Spark's own option."),
)

# Spark's Kafka source accepts these; without a broker they would have no effect.
_WITHOUT_MEANING: Final = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "kafkaconsumer.polltimeoutms",
        "groupidprefix",
    }
)
# KafkaSourceProvider.validateGeneralOptions refuses these; each value names the alternative.
_REFUSED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets to set where a new query starts",
    "kafka.key.deserializer": "keys are binary; cast the column, or set keyFormat",
    "kafka.value.deserializer": "values are binary; cast the column, or set valueFormat",
    "kafka.key.serializer": "provide the column key as string or binary",
    "kafka.value.serializer": "provide the column value as string or binary",
    "kafka.enable.auto.commit": "the query's checkpoint keeps the offsets",
    "kafka.interceptor.classes": "there are no clients to intercept",
}
_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}
_KAFKA: Final = "kafka."
_PLACES: Final = {
    Use.BATCH_READ: "batch queries",
    Use.STREAM_READ: "streaming queries",
    Use.BATCH_WRITE: "batch writes",
    Use.STREAM_WRITE: "streaming writes",
    Use.READ: "the source",
    Use.WRITE: "the sink",
}


def check_options(options: Mapping[str, str], use: Use) -> dict[str, str]:
    """Return the options that are valid in `use`, under the names of the table.

    Args:
        options: The user's options as Spark passes them; names in any case.
        use: The place. A union (`Use.READ`) accepts options that are valid in any of its places,
            and leaves warnings about ignored options to the call for the exact place.

    Raises:
        InvalidOptionError: An option is unknown, or not valid in `use`.
    """
    checked: dict[str, str] = {}
    without_meaning: list[str] = []
    for name, value in options.items():
        key = name.lower()
        option = _BY_KEY.get(key)
        if option is not None:
            if value is not None and _is_meant(option, use):
                checked[option.name] = str(value)
        elif key in _REFUSED:
            raise InvalidOptionError(
                f"Kafka option {name[len(_KAFKA) :]!r} is not supported", hint=_REFUSED[key]
            )
        elif key in _WITHOUT_MEANING or (key.startswith(_KAFKA) and not _nearest(key, 0.9)):
            without_meaning.append(name)
        else:
            raise _unknown(name, use)
    if without_meaning:
        _log.warning(
            "options ignored because there is no broker: %s",
            ", ".join(sorted(without_meaning)),
        )
    return checked


def _is_meant(option: Option, use: Use) -> bool:
    if option.use & use:
        return True
    if option.ignored_in & use:
        _log.warning("option %s is ignored in %s", option.name, _PLACES[use])
        return False
    if option.name.startswith("ending") and use is Use.STREAM_READ:
        raise InvalidOptionError(
            f"option {option.name}: an ending offset is not valid in streaming queries",
            hint="remove it, or use spark.read",
        )
    places = [text for place, text in _PLACES.items() if place is option.use]
    raise InvalidOptionError(
        f"option {option.name} is not valid in {_PLACES[use]}",
        expected=f"it in {places[0]}" if places else None,
    )


def _unknown(name: str, use: Use) -> InvalidOptionError:
    if name.lower() == "paths":
        return InvalidOptionError("load() was given several paths", expected="one log root")
    nearest = _nearest(name.lower(), 0.5, use)
    return InvalidOptionError(
        "unknown option", got=name, hint=f"did you mean {nearest}?" if nearest else None
    )


def _nearest(key: str, cutoff: float, use: Use = Use.ANY) -> str | None:
    known = [other for other, option in _BY_KEY.items() if option.use & use]
    found = difflib.get_close_matches(key, known, n=1, cutoff=cutoff)
    return _BY_KEY[found[0]].name if found else None


def parse_boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return the option `name` as true or false."""
    return parse_choice(options, name, ("true", "false"), default=str(default).lower()) == "true"


def parse_choice(
    options: Mapping[str, str], name: str, choices: Iterable[str], *, default: str
) -> str:
    """Return the option `name`, which must be one of `choices` in any case."""
    value = options.get(name, default).strip().lower()
    if value not in choices:
        raise InvalidOptionError(
            f"invalid value for option {name}",
            got=repr(options[name]),
            expected=" or ".join(choices),
        )
    return value


def parse_integer(
    options: Mapping[str, str],
    name: str,
    *,
    default: int | None = None,
    minimum: int = 1,
    maximum: int = 2**63 - 1,
) -> int | None:
    """Return the option `name` as an integer from `minimum` to `maximum`, or `default` if unset."""
    text = options.get(name)
    if text is None:
        return default
    try:
        value = int(text.strip())
    except ValueError:
        value = None
    if value is None or not minimum <= value <= maximum:
        raise InvalidOptionError(
            f"invalid value for option {name}",
            got=repr(text),
            expected=f"an integer from {minimum} to {maximum}",
        )
    return value


_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(options: Mapping[str, str], name: str, *, default: str) -> int:
    """Return the option `name`, a duration such as `15m`, in milliseconds.

    Source: org.apache.spark.network.util.JavaUtils.timeStringAs; no unit means milliseconds.
    """
    text = options.get(name, default)
    digits = text.strip().lower()
    number = digits.rstrip("dhimns")
    unit = digits[len(number) :] or "ms"
    if not number.strip().isdecimal() or unit not in _UNITS_MS:
        raise InvalidOptionError(
            f"invalid value for option {name}",
            got=repr(text),
            expected="a number with ms, s, m, h or d, such as 15m",
        )
    return int(number) * _UNITS_MS[unit]
