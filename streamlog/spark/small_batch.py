"""Collects a batch on the driver if it is small, which is unknown until the batch runs.

The executors decide row by row. A row is sent to the driver whole only if

    rank * max(bytes, MAX_BYTES / MAX_ROWS) <= MAX_BYTES,    rank = (row + 1) * (partition + 1)

where `row` counts within the partition. With rows and partitions of equal size, all rows pass
exactly if the batch has at most `MAX_ROWS` rows and `MAX_BYTES` bytes. In any other batch a
partition sends at most about `MAX_BYTES * ln(MAX_ROWS)`, eleven times as much, because the sum is
bounded by the harmonic series. This needs no aggregation, no shuffle and no Python worker. A row
that does not pass is sent without its bytes, as a mark; rows after the first one above `MAX_ROWS`
are not sent. A batch with a mark is not small: its collected rows are discarded, and a second run
stages it in tasks.

Staging every batch in tasks would be simpler, and as fast for a batch with few partitions. But
after an aggregation a batch has as many partitions as Spark's shuffle, and each of them would start
a Python worker for a few rows.
"""

import logging
from typing import TYPE_CHECKING, Final

from streamlog.arrow.schema import SinkSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["MAX_BYTES", "MAX_ROWS", "collect_small"]

MAX_ROWS: Final = 50_000
_LEAST: Final = 336
# 16 MiB, in whole rows: the first row above MAX_ROWS must not pass, because nothing else reveals
# the rows after it.
MAX_BYTES: Final = MAX_ROWS * _LEAST

_ROW_SIZE: Final = 64  # of a row without its bytes
_HEADER_SIZE: Final = 16
_IS_WHOLE: Final = "__streamlog_is_whole"
# The partition in the upper bits, the row within it in the lower 33. Each use of the expression
# has a counter of its own, so none may stand where a condition could skip it.
_ID: Final = "monotonically_increasing_id()"
_PLACE: Final = f"(shiftright({_ID}, 33) + 1)"
_ROW: Final = f"({_ID} & {(1 << 33) - 1})"
_TOO_LARGE_TO_COLLECT: Final = "spark.driver.maxResultSize"

_logger = logging.getLogger(__name__)


def collect_small(df: "DataFrame", schema: SinkSchema) -> "pa.Table | None":
    """Return the sink's columns of a batch, in the order of `SinkSchema.packed`, if it is small.

    Args:
        df: The batch; it is computed once.
        schema: Positions of the sink's columns in it.

    Returns:
        All rows; None for a batch that is not small.
    """
    is_whole = f"{_PLACE} * ({_ROW} + 1) * greatest({_row_size(schema)}, {_LEAST}) <= {MAX_BYTES}"
    sized = (schema.value, schema.key, schema.headers)
    columns = [
        f"IF({is_whole}, {df.columns[index]}, NULL) AS {df.columns[index]}"
        if index in sized
        else df.columns[index]
        for index in schema.indices()
    ]
    marked = df.where(f"{_PLACE} * {_ROW} <= {MAX_ROWS}").selectExpr(
        *columns, f"{is_whole} AS {_IS_WHOLE}"
    )
    try:
        table = marked.toArrow()
    except Exception as error:  # py4j and Spark raise several types
        if _TOO_LARGE_TO_COLLECT not in str(error):
            raise
        _logger.warning("the batch is too large to collect; its tasks stage it instead")
        return None
    whole = sum(chunk.true_count for chunk in table.column(_IS_WHOLE).chunks)
    if whole < table.num_rows:
        _logger.info("the batch is not small; its tasks stage it")
        return None
    return table.drop_columns([_IS_WHOLE])


def _row_size(schema: SinkSchema) -> str:
    """Return the SQL expression for the size of a row: its key, value and headers."""
    sizes = [str(_ROW_SIZE), "coalesce(octet_length(value), 0)"]
    if schema.key is not None:
        sizes.append("coalesce(octet_length(key), 0)")
    if schema.headers is not None:
        fields = " + ".join(f"coalesce(octet_length(h.{name}), 0)" for name in ("key", "value"))
        size = f"{_HEADER_SIZE}L + {fields}"
        sizes.append(f"coalesce(aggregate(headers, 0L, (n, h) -> n + {size}), 0L)")
    return " + ".join(sizes)
