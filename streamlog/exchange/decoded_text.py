"""Decoded columns as JSON text, column by column, without a Python object per value.

The text says what `cat --decode` prints: `streamlog/cli/JSON.md` has the table of types. What JSON
has no type for is a string.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from streamlog.arrow.schema import ERROR
from streamlog.errors import LimitExceededError
from streamlog.exchange.text import as_json_lines, bytes_as_text, quoted
from streamlog.topic import TopicPartition

__all__ = ["as_cells", "as_decoded_json_lines", "cell_type", "json_text"]

_US_PER_S = 1_000_000.0


# ---- JSON ------------------------------------------------------------------------------------
def json_text(values: pa.Array) -> pa.Array:
    """Return each value as JSON; null is the text `null`.

    Args:
        values: A column of any type that decoding gives.

    Raises:
        LimitExceededError: The text does not fit into one column.
    """
    try:
        return _or_null(values, _text(values))
    except (pa.ArrowCapacityError, pa.ArrowInvalid) as error:
        raise LimitExceededError(
            "decoded records are too large to write them as text",
            got=str(error)[:200],
            hint="export to Parquet",
        ) from error


def _or_null(values: pa.Array, text: pa.Array) -> pa.Array:
    return text if values.null_count == 0 else pc.if_else(values.is_valid(), text, "null")


def _text(values: pa.Array) -> pa.Array:
    """Return JSON; anything where a value is null."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _of_struct(values)
    if pa.types.is_map(kind):
        offsets, (keys, items) = _within(values, values.keys, values.items)
        names = quoted(keys) if pa.types.is_string(kind.key_type) else _in_quotes(_plain(keys))
        return _joined(offsets, _concat(names, ":", _or_null(items, _text(items))), "{", "}")
    if pa.types.is_list(kind):
        offsets, (elements,) = _within(values, values.values)
        return _joined(offsets, _or_null(elements, _text(elements)), "[", "]")
    if pa.types.is_string(kind):
        return quoted(values)
    if pa.types.is_floating(kind):
        return _of_floats(values, '"')
    if pa.types.is_duration(kind):
        return _of_floats(_seconds(values), '"')
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _plain(values)
    return _in_quotes(_plain(values))


def _of_struct(values: pa.StructArray) -> pa.Array:
    pieces: list[pa.Array | str] = []
    for place, field in enumerate(values.type):
        name = quoted(pa.array([field.name]))[0].as_py()
        pieces.append(("," if place else "{") + name + ":")
        child = values.field(place)
        pieces.append(_or_null(child, _text(child)))
    if not pieces:
        return pa.repeat("{}", len(values))
    return _concat(*pieces, "}")


def _within(values: pa.Array, *children: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Return where each list begins, and the parts of its children that it has: it is a slice."""
    offsets = values.offsets
    first = offsets[0].as_py()
    count = offsets[len(offsets) - 1].as_py() - first
    return pc.subtract(offsets, first), [each.slice(first, count) for each in children]


def _joined(offsets: pa.Array, texts: pa.Array, before: str, after: str) -> pa.Array:
    return _concat(before, pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ","), after)


def _concat(*pieces: "pa.Array | str") -> pa.Array:
    scalars = [pa.scalar(each) if isinstance(each, str) else each for each in pieces]
    return pc.binary_join_element_wise(*scalars, "")


def _in_quotes(text: pa.Array) -> pa.Array:
    return _concat('"', text, '"')


# ---- values without parts --------------------------------------------------------------------
def _plain(values: pa.Array) -> pa.Array:
    """Return the text of numbers, times and bytes, without quotes."""
    kind = values.type
    if pa.types.is_binary(kind):
        return bytes_as_text(values, "base64")[0]
    if pa.types.is_time(kind):
        return _short(values.cast(pa.time64("us")).cast(pa.string()))
    if pa.types.is_timestamp(kind):
        return _short(pc.replace_substring(values.cast(pa.string()), " ", "T"))
    return values.cast(pa.string())


def _short(text: pa.Array) -> pa.Array:
    """Remove the part of a second, or its thousandths of microseconds, if it is 0."""
    text = pc.replace_substring_regex(text, r"(\.\d{6})000(Z?)$", r"\1\2")
    return pc.replace_substring_regex(text, r"\.0{6}(Z?)$", r"\1")


def _seconds(values: pa.Array) -> pa.Array:
    return pc.divide(values.cast(pa.duration("us")).cast(pa.int64()).cast(pa.float64()), _US_PER_S)


def _of_floats(values: pa.Array, quote: str) -> pa.Array:
    """Return numbers; JSON has none for infinity and NaN, which become strings."""
    wide = values.cast(pa.float64())
    text = wide.cast(pa.string())
    # A number that looks like an integer would be taken for one where a schema is inferred.
    text = pc.if_else(pc.match_substring_regex(text, r"^-?\d+$"), _concat(text, ".0"), text)
    if pc.all(pc.is_finite(wide)).as_py() is False:
        sign = pc.if_else(
            pc.greater(wide, 0.0), f"{quote}Infinity{quote}", f"{quote}-Infinity{quote}"
        )
        odd = pc.if_else(pc.is_nan(wide), f"{quote}NaN{quote}", sign)
        text = pc.if_else(pc.is_finite(wide), text, odd)
    return text


# ---- CSV -------------------------------------------------------------------------------------
def cell_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of cells for decoded values: numbers stay such, all else is text."""
    return kind if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else pa.string()


def as_cells(batch: pa.RecordBatch, names: list[str]) -> Mapping[str, pa.Array]:
    """Return the cells of CSV for decoded columns: JSON, but text without its quotes.

    Raises:
        LimitExceededError: The text does not fit into one column.
    """
    return {name: _cells(batch.column(name)) for name in names}


def _cells(values: pa.Array) -> pa.Array:
    kind = values.type
    if cell_type(kind) == kind:
        return values
    if pa.types.is_nested(kind):
        nothing = pa.scalar(None, pa.string())
        return pc.if_else(values.is_valid(), json_text(values), nothing)
    if pa.types.is_floating(kind) or pa.types.is_duration(kind):
        return _of_floats(_seconds(values) if pa.types.is_duration(kind) else values, "")
    return _plain(values)


# ---- ndjson ----------------------------------------------------------------------------------
def as_decoded_json_lines(
    batch: pa.RecordBatch, partition: TopicPartition, encoding: str, names: Mapping[str, bool]
) -> memoryview:
    """Return records as the lines that `cat --decode --format ndjson` prints.

    A record that cannot be decoded has its bytes, and the reason in `error`.

    Args:
        batch: Records with all columns of `read_table`, headers included, and `_error`.
        partition: Their partition.
        encoding: `utf8`, `base64` or `hex`, of what is not decoded.
        names: The columns that are decoded, and whether they are JSON text already.

    Raises:
        LimitExceededError: The text does not fit into one column.
    """
    errors = batch.column(ERROR)
    has_errors = errors.null_count < len(errors)
    fields, rest = {}, None
    for name, is_json in names.items():
        column = batch.column(name)
        text = _or_null(column, column) if is_json else json_text(column)
        fields[name] = _concat(f',"{name}":', text)
        if has_errors:
            fields[name] = _with_bytes(fields[name], name, errors, encoding)
    if has_errors:
        reasons = _concat(',"error":', quoted(errors.field("message")))
        rest = pc.if_else(errors.is_valid(), reasons, "")
    rows = batch.drop_columns([ERROR])
    return as_json_lines(rows, partition, encoding, fields, rest)


def _with_bytes(good: pa.Array, name: str, errors: pa.StructArray, encoding: str) -> pa.Array:
    """Return fields with the bytes of those values that cannot be decoded."""
    concerned = pc.match_substring(errors.field("field"), name)
    is_bad = pc.fill_null(pc.and_(errors.is_valid(), concerned), fill_value=False)
    raw = pc.if_else(is_bad, errors.field(name), pa.scalar(None, pa.binary()))
    text, *base64 = bytes_as_text(raw, encoding)
    shown = _concat(f',"{name}":', quoted(text))
    for each in base64:
        shown = pc.coalesce(_concat(f',"{name}Base64":"', each, '"'), shown)
    return pc.if_else(is_bad, shown, good)
