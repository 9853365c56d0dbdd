"""The options of `format("streamlog")`: one table for both directions, batch and streaming.

Spark hands options over with lower-cased names and text values. `check_options` finds each in
the table, gives it its real spelling, refuses what nobody knows or what makes no sense in that
place, and says once which options of Kafka's clients have no meaning without a broker. What the
values mean is read by `streamlog.spark.source_options` and by the sink.
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
    """Where an option may stand."""

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
        use: Where it has a meaning.
        default: What holds without it, as text; None where there is nothing to say.
        doc: What it does, in one sentence.
        ignored_in: Where it is passed over with a warning, as Spark's Kafka source does.
    """

    name: str
    use: Use
    default: str | None
    doc: str
    ignored_in: Use = Use(0)


OPTIONS: Final = (
    # ---- both directions ----------------------------------------------------------------------
    Option("path", Use.ANY, None, "The log root; for reading also a partition directory or file."),
    # ---- which topics to read -----------------------------------------------------------------
    Option("subscribe", Use.READ, None, "Topics to read, separated by commas."),
    Option(
        "subscribePattern",
        Use.READ,
        None,
        "A regular expression of Java's over whole topic names.",
    ),
    Option("assign", Use.READ, None, 'Partitions to read: {"orders": [0, 1]}.'),
    # ---- from where to where ------------------------------------------------------------------
    Option(
        "startingOffsets",
        Use.READ,
        "latest (stream), earliest (batch)",
        'earliest, latest, or {"orders": {"0": 23, "1": -2}} with -2 earliest and -1 latest; '
        "new queries only.",
    ),
    Option(
        "startingTimestamp",
        Use.READ,
        None,
        "Starts every partition at its first record of this time (ms) or later.",
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
        "Where no record is that young: error, or latest to start at the end.",
    ),
    Option("endingOffsets", Use.BATCH_READ, "latest", "Where to end, spelled as startingOffsets."),
    Option(
        "endingTimestamp",
        Use.BATCH_READ,
        None,
        "Ends every partition before its first record of this time (ms) or later.",
    ),
    Option(
        "endingOffsetsByTimestamp", Use.BATCH_READ, None, "The same per partition, as for starting."
    ),
    Option(
        "failOnDataLoss",
        Use.READ,
        "true",
        "Fails when planned records are gone; false warns and goes on with what is there.",
    ),
    # ---- how much at a time -------------------------------------------------------------------
    Option(
        "maxOffsetsPerTrigger",
        Use.STREAM_READ,
        None,
        "At most so many offsets a trigger, shared out by backlog.",
        ignored_in=Use.BATCH_READ,
    ),
    Option(
        "minOffsetsPerTrigger",
        Use.STREAM_READ,
        None,
        "Waits for so many new offsets, but not longer than maxTriggerDelay.",
        ignored_in=Use.BATCH_READ,
    ),
    Option(
        "maxTriggerDelay",
        Use.STREAM_READ,
        "15m",
        "The longest wait for minOffsetsPerTrigger: a number with ms, s, m, h or d.",
        ignored_in=Use.BATCH_READ,
    ),
    Option(
        "maxBytesPerTrigger",
        Use.STREAM_READ,
        None,
        "About so many stored bytes a trigger, at least one batch of records.",
        ignored_in=Use.BATCH_READ,
    ),
    Option("minPartitions", Use.READ, None, "Cuts the work into at least about so many tasks."),
    Option("maxRecordsPerPartition", Use.READ, None, "At most so many offsets for one task."),
    Option(
        "parallelism",
        Use.READ,
        "the CPUs of the driver's machine",
        "Into how many tasks large ranges are cut when there are fewer partitions.",
    ),
    # ---- what to read of a record -------------------------------------------------------------
    Option("includeHeaders", Use.READ, "false", "Adds the column headers."),
    Option("columns", Use.READ, "all", "Reads only the named columns: value,offset."),
    Option(
        "invalidTimestamps",
        Use.READ,
        "error",
        "For times that a Spark timestamp cannot hold: error, or null.",
    ),
    Option(
        "maxDecompressedBytes",
        Use.READ,
        "the topic's streamlog.max.decompressed.bytes, 64 MiB at least",
        "The most bytes that one compressed batch may unfold to; a larger one is an error.",
    ),
    Option(
        "kafka.isolation.level",
        Use.READ,
        "read_committed",
        "read_committed, or read_uncommitted to see open and aborted transactions.",
    ),
    Option(
        "kafka.group.id",
        Use.STREAM_READ,
        None,
        "Records what the query has finished in <root>/.streamlog/readers/<group>.json, from its "
        "start on: maintenance keeps the rest. One query for each group.",
        ignored_in=Use.BATCH_READ,
    ),
    # ---- writing ------------------------------------------------------------------------------
    Option("topic", Use.WRITE, None, "The topic to write to; without it the column topic says."),
    Option("kafka.compression.type", Use.WRITE, "none", "none, gzip, snappy, lz4 or zstd."),
    Option("kafka.acks", Use.WRITE, "all", "0, 1 or all; all is 1 while there is one replica."),
    Option("flush.messages", Use.WRITE, "the topic's", "Overrides flush.messages of the topic."),
    Option("flush.ms", Use.WRITE, "the topic's", "Overrides flush.ms of the topic."),
    Option(
        "lock.timeout.ms",
        Use.WRITE,
        "600000",
        "How long to wait for other writers of a partition; every 10 s a warning names the holder.",
    ),
    Option(
        "txnAppId",
        Use.WRITE,
        "the query's id",
        "Who writes, for exactly once; each topic written under it counts its own versions.",
    ),
    Option("txnVersion", Use.WRITE, "the batch's id", "Which of its writes this is."),
    Option(
        "onReplayMismatch",
        Use.WRITE,
        "fail",
        "When a repeated write has other rows than the first: fail, skip or append.",
    ),
    Option(
        "maintenance",
        Use.WRITE,
        "off",
        "auto keeps the root in bounds between triggers: retention and compaction as they are due.",
    ),
    Option(
        "checkpointLocation",
        Use.STREAM_WRITE,
        "below the session's",
        "Spark's own; the sink syncs it, and notes in its folder streamlog what is committed.",
    ),
    Option("queryName", Use.STREAM_WRITE, None, "Spark's own."),
)

# Spark's Kafka source takes these; without a broker there is nothing that they could change.
_WITHOUT_MEANING: Final = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "kafkaconsumer.polltimeoutms",
        "groupidprefix",
    }
)
# KafkaSourceProvider.validateGeneralOptions refuses these: another option says it, or Spark does it
_REFUSED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets, which says where a new query starts",
    "kafka.key.deserializer": "keys come as binary; cast the column",
    "kafka.value.deserializer": "values come as binary; cast the column",
    "kafka.key.serializer": "give the column key as string or binary",
    "kafka.value.serializer": "give the column value as string or binary",
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
    """Return the options that have a meaning here, by their real names.

    Args:
        options: What the user set, as Spark hands it over; names in any case.
        use: Where. A union (`Use.READ`) lets pass what has a meaning in any of its places, and
            leaves the warnings about ignored options to the call that knows the place.

    Returns:
        Text values by the names of the table.

    Raises:
        InvalidOptionError: Nobody knows the option, or it makes no sense here.
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
            "options without a meaning here, as there is no broker to talk to: %s",
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
            hint="leave it out, or use spark.read",
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
    """Return the option `name` as true or false.

    Raises:
        InvalidOptionError: It is neither.
    """
    return parse_choice(options, name, ("true", "false"), default=str(default).lower()) == "true"


def parse_choice(
    options: Mapping[str, str], name: str, choices: Iterable[str], *, default: str
) -> str:
    """Return the option `name`, which must be one of `choices` in any case.

    Raises:
        InvalidOptionError: It is none of them.
    """
    value = options.get(name, default).strip().lower()
    if value not in choices:
        raise InvalidOptionError(
            f"option {name} has an impossible value",
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
    """Return the option `name` as an integer, or `default` where it is not set.

    Raises:
        InvalidOptionError: It is no integer, or outside of `minimum` to `maximum`.
    """
    text = options.get(name)
    if text is None:
        return default
    try:
        value = int(text.strip())
    except ValueError:
        value = None
    if value is None or not minimum <= value <= maximum:
        raise InvalidOptionError(
            f"option {name} has an impossible value",
            got=repr(text),
            expected=f"an integer from {minimum} to {maximum}",
        )
    return value


_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(options: Mapping[str, str], name: str, *, default: str) -> int:
    """Return the option `name`, a duration such as `15m`, in milliseconds.

    Raises:
        InvalidOptionError: It is no duration.

    Source: org.apache.spark.network.util.JavaUtils.timeStringAs; no unit means milliseconds.
    """
    text = options.get(name, default)
    digits = text.strip().lower()
    number = digits.rstrip("dhimns")
    unit = digits[len(number) :] or "ms"
    if not number.strip().isdecimal() or unit not in _UNITS_MS:
        raise InvalidOptionError(
            f"option {name} has an impossible value",
            got=repr(text),
            expected="a number with ms, s, m, h or d, such as 15m",
        )
    return int(number) * _UNITS_MS[unit]
