"""Rows for a log, given as Arrow data of any kind: the columns of a sink, in the types Spark sends.

`write_table` and the appends of partitions and producers accept tables and record batches of
pyarrow, and everything that exports an Arrow stream (pandas, Polars, DuckDB).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamlog.arrow.schema import SinkSchema
from streamlog.errors import InvalidRequestError

__all__ = ["Rows", "open_rows"]

_PIECE_BYTES: Final = 16 << 20  # encoded at a time
_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_READ_ONLY: Final = frozenset({"offset", "timestampType"})  # of `read_table`; ignored


class Rows(NamedTuple):
    """Rows to write.

    Attributes:
        schema: Positions of the columns of a sink.
        pieces: The rows, at most about 16 MiB at a time; they can be iterated once.
    """

    schema: SinkSchema
    pieces: Iterator[pa.RecordBatch]


def open_rows(data: Any, topic: str | None) -> Rows:
    """Return the rows of Arrow data; none is read yet, apart from the first batch of an iterable.

    Args:
        data: A pyarrow Table, RecordBatch or RecordBatchReader, an iterable of record batches, or
            any object with `__arrow_c_stream__`.
        topic: The topic of all rows; None: there is a column of that name.

    Raises:
        InvalidRequestError: It is none of these, or has a column that a sink does not accept. A
            value that does not fit raises it while the rows are iterated.
    """
    batches, schema = _stream(data)
    columns = _schema_of(schema, topic)
    return Rows(columns, (piece for batch in batches for piece in _pieces(_as_sink_takes(batch))))


def _schema_of(schema: pa.Schema, topic: str | None) -> SinkSchema:
    """Find the sink's columns; refuse unknown columns and unsupported types."""
    names = list(schema.names)
    twice = sorted({name for name in names if names.count(name) > 1})
    unknown = sorted(set(names) - _TYPES.keys() - _READ_ONLY)
    if twice or unknown or "value" not in names or (topic is None and "topic" not in names):
        if twice:
            what = f"column {twice[0]!r} appears {names.count(twice[0])} times"
        elif unknown:
            what = f"unknown column {unknown[0]!r}"
        else:
            what = f"column {'topic' if 'value' in names else 'value'!r} is missing"
        raise InvalidRequestError(
            what,
            got=f"columns {', '.join(names) or '(none)'}",
            expected=f"value, and any of {', '.join(name for name in _TYPES if name != 'value')}",
            hint="select columns with data.select([…]), rename them with rename_columns",
        )
    for field in schema:
        is_taken, expected = _TYPES.get(field.name, (_is_anything, ""))
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not is_taken(kind):
            raise InvalidRequestError(
                f"column {field.name}: unsupported type",
                got=str(field.type),
                expected=expected,
            )
    places = {name: place for place, name in enumerate(names)}
    return SinkSchema(
        value=places["value"],
        key=places.get("key"),
        headers=places.get("headers"),
        topic=None if topic is not None else places["topic"],
        partition=places.get("partition"),
        timestamp=places.get("timestamp"),
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    )


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(is_bytes or _is_text(kind) or kind == pa.binary_view() or pa.types.is_null(kind))


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    pair = kind.value_type
    names = [field.name for field in pair] if pa.types.is_struct(pair) else []
    return names == ["key", "value"]


def _is_anything(kind: pa.DataType) -> bool:
    return kind is not None


_TYPES: Final[dict[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "value": (_is_text_or_bytes, "text or bytes"),
    "key": (_is_text_or_bytes, "text or bytes"),
    "headers": (_is_headers, "a list of structs of key (text) and value (bytes)"),
    "topic": (_is_text, "text"),
    "partition": (pa.types.is_integer, "an integer"),
    "timestamp": (_is_instant, "a timestamp with a time zone"),
}


# ---- Arrow ------------------------------------------------------------------------------------
def _stream(data: Any) -> tuple[Iterable[pa.RecordBatch], pa.Schema]:
    if isinstance(data, pa.RecordBatch):
        return [data], data.schema
    if isinstance(data, pa.Table):
        return data.to_batches(), data.schema
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader, reader.schema
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        batches = iter(data)
        first = next(batches, None)
        if isinstance(first, pa.RecordBatch):
            return _chained(first, batches), first.schema
    raise InvalidRequestError(
        "data has no Arrow columns",
        got=type(data).__name__,
        expected="a pyarrow Table, RecordBatch or RecordBatchReader, an iterable of at least one"
        " record batch, or a DataFrame of pandas or Polars",
        hint="pyarrow.Table.from_pylist([{'key': b'k', 'value': b'v'}])",
    )


def _chained(first: pa.RecordBatch, others: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    yield first
    for number, batch in enumerate(others, 2):
        if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(first.schema):
            raise InvalidRequestError(
                f"record batch {number} has different columns than the first one",
                got=str(batch.schema) if isinstance(batch, pa.RecordBatch) else repr(batch)[:80],
                expected=str(first.schema),
            )
        yield batch


def _as_sink_takes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Cast the columns of a batch to the types that Spark sends."""
    arrays = [_cast(name, batch.column(at)) for at, name in enumerate(batch.schema.names)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _cast(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    wanted = {"partition": pa.int32(), "headers": _HEADERS, "timestamp": _TIMESTAMP}.get(name)
    if kind in (pa.string_view(), pa.binary_view()):
        wanted = pa.large_string() if kind == pa.string_view() else pa.large_binary()
    if pa.types.is_null(kind) and name in ("key", "value"):
        wanted = pa.binary()
    if wanted is None or kind == wanted:
        return column
    if name == "timestamp" and pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(
            f"column {name}: value out of range", got=str(error), expected=str(wanted)
        ) from None


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch for encoding; nothing is copied."""
    count = max(1, -(-batch.nbytes // _PIECE_BYTES))
    rows = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
