"""Rows of any kind as an Arrow table, for comparison without loops."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

from streamlog.errors import InvalidRequestError
from streamlog.records.record import Record
from streamlog.testing.frames import hides_helper
from streamlog.testing.topic import Topic

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["Rows", "as_table", "comparable"]
__tracebackhide__ = hides_helper

Rows = Union[Topic, "DataFrame", "pa.Table", "pd.DataFrame", Sequence[Any]]


def as_table(rows: Rows) -> "pa.Table":
    """Return rows as an Arrow table.

    Args:
        rows: A `Topic`, a Spark or pandas DataFrame, an Arrow table, or a list of dicts, Spark
            rows, `Record`s or plain values, which become the column `value`.

    Raises:
        InvalidRequestError: Another type.
    """
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, Topic):
        return rows.arrow()
    if hasattr(rows, "toArrow"):
        return rows.toArrow()
    if hasattr(rows, "to_feather"):  # pandas, which may not be installed
        return pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return pa.Table.from_pylist([_to_fields(row) for row in rows])
    raise InvalidRequestError(
        "not a table of rows",
        got=type(rows).__name__,
        expected="a Topic, a DataFrame, an Arrow table or a list",
    )


def comparable(
    source: "pa.ChunkedArray", sink: "pa.ChunkedArray", *, name: str
) -> "tuple[pa.ChunkedArray, pa.ChunkedArray]":
    """Return two columns in a common type: text if one is text and the other bytes.

    Raises:
        InvalidRequestError: There is no common type.
    """
    import pyarrow as pa

    left, right = _plain(source), _plain(sink)
    if left.type == right.type:
        return left, right
    for target in (left.type, right.type):
        try:
            return left.cast(target), right.cast(target)
        except pa.ArrowException:
            continue
    raise InvalidRequestError(
        f"column {name} has types that cannot be compared",
        got=f"{source.type} in the source, {sink.type} in the sink",
    )


def _to_fields(row: Any) -> dict[str, Any]:
    if isinstance(row, Record):
        return {"key": row.key, "value": row.value}
    if isinstance(row, dict):
        return row
    return row.asDict() if hasattr(row, "asDict") else {"value": row}


def _plain(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Return a column in a type that supports grouping; bytes that are text become text."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        try:
            return column.cast(pa.large_string())
        except pa.ArrowInvalid:
            return column.cast(pa.large_binary())
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column
