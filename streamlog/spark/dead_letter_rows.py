"""Records that cannot be decoded, in a topic of their own.

A DataFrame read with `valueFormat` or `keyFormat` has them in its column `_error`. Three ways lead
from there to a topic of dead letters:

    route_dead_letters   good rows and dead letters in one DataFrame, so in one commit of the sink
    with_dead_letters    around a function for foreachBatch: the dead letters are appended exactly
                         once, then the function gets the good rows
    dead_letters         the rows alone, for anything else

A dead letter has the key, the value and the headers of the record as they were, and more headers
with the names that Kafka Connect gives its dead letters, so that tools for those read it:

    __connect.errors.topic, .partition, .offset    where the record is; decimal text
    __connect.errors.stage                         KEY_CONVERTER, VALUE_CONVERTER, or both
    __connect.errors.exception.message             the reason

Source: org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter (KIP-298).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody does
from pyspark.sql.types import BinaryType, StringType

from streamlog.arrow.schema import ERROR, HEADERS, HEADERS_TYPE
from streamlog.errors import InvalidRequestError
from streamlog.root.read_roots import RootPaths
from streamlog.spark.foreach_batch import BatchAppender, append_batch
from streamlog.topic import check_topic_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["DeadLetterBatches", "dead_letters", "route_dead_letters", "with_dead_letters"]

_PREFIX: Final = "__connect.errors."
_TIME: Final = "timestamp"
_NEEDED: Final = (ERROR, "topic", "partition", "offset")


def dead_letters(df: "DataFrame", topic: str) -> "DataFrame":
    """Return the records that could not be decoded, as rows for a sink.

    Args:
        df: Rows of the source, with `_error`, `topic`, `partition` and `offset`, and with `headers`
            if the dead letters are to keep them.
        topic: The topic for them.

    Returns:
        The columns key, value, headers and topic. Written by a query of its own, or in a union
        with other rows; such a union reads and decodes the topic twice, unlike
        `route_dead_letters`.

    Raises:
        InvalidRequestError: A column is missing.
        InvalidTopicError: Not a valid topic name.
    """
    check_topic_name(topic)
    _check_columns(df, _NEEDED)
    return df.where(F.col(ERROR).isNotNull()).select(
        F.col(ERROR)["key"].alias("key"),
        F.col(ERROR)["value"].alias("value"),
        _headers(df).alias(HEADERS),
        F.lit(topic).alias("topic"),
    )


def route_dead_letters(df: "DataFrame", *, topic: str, dead_letter_topic: str) -> "DataFrame":
    """Return all rows for one sink: good ones for one topic, dead letters for another.

    A sink without the option `topic` writes both in one commit: each record arrives once, in one
    of the two topics, and one commit decides for both.

    Args:
        df: Rows of the source, with `_error`, `topic`, `partition` and `offset`, and with the
            columns key and value as the good rows shall have them: string or binary.
        topic: The topic of rows without an error.
        dead_letter_topic: The topic of the others.

    Returns:
        The columns key, value, headers and topic, and timestamp if the rows have it: good ones
        keep theirs. Dead letters get the time of their batch, or retention would delete those of
        old records at once.

    Raises:
        InvalidRequestError: A column is missing, or key or value have another type.
        InvalidTopicError: Not a valid topic name.
    """
    check_topic_name(topic)
    check_topic_name(dead_letter_topic)
    _check_columns(df, (*_NEEDED, "key", "value"))
    is_good = F.col(ERROR).isNull()
    own = F.col(HEADERS) if HEADERS in df.columns else F.lit(None).cast(HEADERS_TYPE)

    def either(good: "Column", dead: "Column", name: str) -> "Column":
        return F.when(is_good, good).otherwise(dead).alias(name)

    return df.select(
        *(either(_bytes(df, name), F.col(ERROR)[name], name) for name in ("key", "value")),
        either(own, _headers(df), HEADERS),
        either(F.lit(topic), F.lit(dead_letter_topic), "topic"),
        *([F.when(is_good, F.col(_TIME)).alias(_TIME)] if _TIME in df.columns else []),
    )


def with_dead_letters(
    process: Callable[["DataFrame", int], object],
    path: RootPaths,
    topic: str,
    checkpoint: str | None = None,
    **arguments: Any,
) -> "DeadLetterBatches":
    """Return a function for `foreachBatch` that takes dead letters out of each batch.

    The batch's dead letters are appended to a topic first, exactly once by the steps of
    `append_batch`, also if the batch runs again. Then `process` gets the good rows. Both see the
    same rows: the batch is cached while they run.

    If a batch runs again after `process` failed, and its schemas have changed meanwhile, records
    that can be decoded now are good rows, although their dead letters exist. A schema that was
    removed from the registry in between has the opposite effect, so do not remove schemas.

    Args:
        process: A function for foreachBatch. It gets the rows without an error, without the
            column `_error`, and the batch's id.
        path: The log root for the dead letters; or roots of a replica set.
        topic: The topic for the dead letters.
        checkpoint: The query's checkpointLocation; None: that of the running query.
        **arguments: Further arguments of `append_batch`, such as `txn_app_id`.

    Raises:
        InvalidOptionError: An argument is invalid.
        InvalidTopicError: Not a valid topic name.
    """
    append = append_batch(path, topic=topic, checkpoint=checkpoint, **arguments)
    return DeadLetterBatches(process, append, topic)


class DeadLetterBatches:
    """Takes the dead letters out of the micro-batches of one query; see `with_dead_letters`."""

    def __init__(
        self, process: Callable[["DataFrame", int], object], append: BatchAppender, topic: str
    ) -> None:
        self._process, self._append, self._topic = process, append, topic

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        """Append the dead letters of a batch, then process its good rows.

        Args:
            df: The rows of a batch, as the source has them.
            batch_id: The batch's id, as Spark passes it.

        Raises:
            InvalidRequestError: A column is missing; or see `BatchAppender`.
            CommitMismatchError: The batch was appended before, from a different source.
            UnavailableError: A lock or the disk is not available; nothing was decided.
        """
        letters = dead_letters(df, self._topic)
        df.persist()
        try:
            self._append(letters, batch_id)
            self._process(df.where(F.col(ERROR).isNull()).drop(ERROR), batch_id)
        finally:
            df.unpersist()


def _check_columns(df: "DataFrame", needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in df.columns]
    if missing:
        raise InvalidRequestError(
            f"column {', '.join(missing)} is missing for dead letters",
            got=", ".join(df.columns),
            expected=f"at least {', '.join(needed)}",
            hint='.option("valueFormat", …) adds _error; do not drop the source\'s columns',
        )


def _bytes(df: "DataFrame", name: str) -> "Column":
    kind = df.schema[name].dataType
    if not isinstance(kind, StringType | BinaryType):
        raise InvalidRequestError(
            f"{name} attribute unsupported type",
            got=kind.simpleString(),
            expected="string or binary",
            hint=f'df.withColumn("{name}", F.to_json("{name}"))',
        )
    return F.col(name).cast("binary")


def _headers(df: "DataFrame") -> "Column":
    """Return the headers of dead letters: those of the record, then those of the error."""
    error = F.col(ERROR)
    stage = F.concat_ws(
        ", ",
        F.when(error["field"].contains("key"), F.lit("KEY_CONVERTER")),
        F.when(error["field"].contains("value"), F.lit("VALUE_CONVERTER")),
    )
    found = {
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "stage": stage,
        "exception.message": error["message"],
    }
    added = F.array(
        *(
            F.struct(F.lit(_PREFIX + name).alias("key"), text.cast("binary").alias("value"))
            for name, text in found.items()
        )
    ).cast(HEADERS_TYPE)
    if HEADERS not in df.columns:
        return added
    return F.concat(F.coalesce(F.col(HEADERS), F.array().cast(HEADERS_TYPE)), added)
