"""JSON values as columns, parsed by pyarrow.

pyarrow parses many documents at once, and fails for all of them if one is bad. So a column in which
some value is bad is halved until the bad ones are alone. Types that pyarrow cannot parse, which are
maps and binary, are converted value by value in Python.
"""

import base64
import json
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from streamlog.decoding import json_schema
from streamlog.decoding.arrays import (
    array_of_errors,
    array_of_ids,
    array_of_integers,
    array_of_texts,
    validity_of,
)
from streamlog.decoding.ddl import type_of_ddl
from streamlog.decoding.decoded import DecodedValues
from streamlog.decoding.framing import NO_ID, data_of, ids_of, spans_of, without_prefixes
from streamlog.decoding.schema_text import SchemaText

__all__ = ["JsonDecoder", "convert_value", "parse_value"]

_OPEN, _CLOSE = np.uint8(ord("{")), np.uint8(ord("}"))
_SPACE: Final = b" \t\r\n"
_BLOCK_BYTES: Final = 16 << 20  # parsed at once
_NEWLINE: Final = array_of_texts(["\n"])[0]
_SHOWN: Final = 40  # characters of a value in an error


class JsonDecoder:
    """Decodes JSON objects into a struct; see `ValueDecoder`.

    Fields that the schema does not have are ignored; missing ones are null. By a JSON Schema,
    values may be other than objects.

    Args:
        schema: The fields as DDL, or in Spark's JSON form; or a JSON Schema.

    Raises:
        InvalidOptionError: It is none of these, or has no form as columns.
    """

    needs_headers = False  # nothing is in front of a value whose schema a header names

    def __init__(self, schema: SchemaText) -> None:
        is_json_schema = json_schema.is_json_schema(schema.text)
        self.arrow_type: pa.DataType = (
            json_schema.type_of_json_schema(schema) if is_json_schema else type_of_ddl(schema.text)
        )
        self._parsed = _parsed_type(self.arrow_type)

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values; see `ValueDecoder.decode`."""
        values = values.cast(pa.binary())
        data, (starts, ends) = data_of(values), spans_of(values)
        is_valid = validity_of(values)
        ids = np.where(is_valid, ids_of(data, starts, ends), NO_ID)
        payloads = without_prefixes(values, ids != NO_ID)
        work = _Work(self.arrow_type, self._parsed, payloads)
        work.decode_all(is_valid)
        return DecodedValues(work.result(), work.errors(), array_of_ids(ids))


def _parsed_type(kind: pa.DataType) -> pa.Schema | None:
    """Return the schema for pyarrow's parser; None if it cannot parse the type."""
    is_object = pa.types.is_struct(kind)
    return pa.schema(list(_parsed(kind))) if is_object and _can_parse(kind) else None


def _can_parse(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_can_parse(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _can_parse(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_binary(kind))


def _parsed(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _parsed(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_parsed(kind.value_type))
    # The parser expects numbers for dates; texts are cast later.
    return pa.string() if pa.types.is_date(kind) else kind


class _Work:
    """One column being decoded.

    Args:
        kind: The type of the result.
        parsed: The schema for pyarrow's parser, if it can parse the type.
        payloads: The values without headers.
    """

    def __init__(self, kind: pa.DataType, parsed: pa.Schema | None, payloads: Any) -> None:
        self._kind, self._parsed, self._payloads = kind, parsed, payloads
        self._rows: list[NDArray[np.int64]] = []
        self._pieces: list[pa.Array] = []
        self._errors: dict[int, str] = {}

    def decode_all(self, is_valid: NDArray[np.bool_]) -> None:
        """Decode the values that are not null."""
        rows = np.flatnonzero(is_valid)
        if self._parsed is None:
            return self._convert(rows)
        looks_whole = _look_whole(self._payloads)[rows]
        if not looks_whole.all():
            self._payloads = _trimmed(self._payloads)
            looks_whole = _look_whole(self._payloads)[rows]
        for row in rows[~looks_whole]:
            self._refuse(int(row), "")
        rows = rows[looks_whole]
        starts, ends = spans_of(self._payloads)
        blocks = np.cumsum((ends - starts)[rows]) // _BLOCK_BYTES
        cuts = np.flatnonzero(np.diff(blocks)) + 1
        for block in np.split(rows, cuts):
            self._parse(block)
        return None

    def _parse(self, rows: NDArray[np.int64]) -> None:
        """Parse values; halve them until the bad ones are alone."""
        if not len(rows):
            return
        found = self._try(rows)
        if not isinstance(found, str):
            self._rows.append(rows)
            self._pieces.append(found)
        elif len(rows) == 1:
            self._refuse(int(rows[0]), found)
        else:
            middle = len(rows) // 2
            self._parse(rows[:middle])
            self._parse(rows[middle:])

    def _try(self, rows: NDArray[np.int64]) -> pa.Array | str:
        """Return the parsed values, or why some of them cannot be parsed."""
        some = self._payloads.take(array_of_integers(rows))
        try:
            some = some.cast(pa.string())
        except pa.ArrowInvalid:
            return "invalid UTF-8"
        lines = pa.ListArray.from_arrays(
            array_of_integers(np.array([0, len(some)], np.int32)), some
        )
        text = pc.binary_join(lines, _NEWLINE)[0].as_buffer()
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(text),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self._parsed,
                    newlines_in_values=True,
                    unexpected_field_behavior="ignore",
                ),
            )
            if table.num_rows != len(rows):
                return f"expected one object, got {table.num_rows}"
            batch = table.combine_chunks().to_batches()[0]
            return batch.to_struct_array().cast(self._kind)
        except pa.ArrowInvalid as error:
            return " ".join(str(error).split())

    def _convert(self, rows: NDArray[np.int64]) -> None:
        """Convert values one by one."""
        found: list[Any] = []
        good: list[int] = []
        for row in rows.tolist():
            try:
                found.append(convert_value(self._payloads[row].as_py(), self._kind))
                good.append(row)
            except ValueError as error:
                self._errors[row] = str(error)
        self._rows.append(np.array(good, np.int64))
        self._pieces.append(pa.array(found, self._kind))

    def _refuse(self, row: int, reason: str) -> None:
        value = self._payloads[row].as_py()
        try:
            convert_value(value, self._kind)
        except ValueError as error:
            reason = str(error)
        self._errors[row] = reason or f"got {_shown(value)}, expected a JSON object"

    def result(self) -> pa.Array:
        """Return the values in the order of the input."""
        count = len(self._payloads)
        if not self._pieces:
            return pa.nulls(count, self._kind)
        rows = np.concatenate(self._rows)
        values = pa.concat_arrays(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
        if len(rows) == count and bool((np.diff(rows) > 0).all()):
            return values
        places = np.full(count, -1, np.int64)
        places[rows] = np.arange(len(rows))
        return values.take(array_of_integers(places, places >= 0))

    def errors(self) -> pa.StringArray:
        """Return the errors in the order of the input."""
        return array_of_errors(self._errors, len(self._payloads))


def _look_whole(values: pa.BinaryArray) -> NDArray[np.bool_]:
    """Return bool[n]: which values begin with `{` and end with `}`.

    If all documents of a block do, and parsing the block yields as many rows, each document is one
    row: one that ends inside another would have to go on with `{` after `}`.
    """
    data, (starts, ends) = data_of(values), spans_of(values)
    looks = np.zeros(len(values), bool)
    some = np.flatnonzero(ends > starts)
    looks[some] = (data[starts[some]] == _OPEN) & (data[ends[some] - 1] == _CLOSE)
    return looks


def _trimmed(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return values without the white space of JSON around them; unchanged if not UTF-8."""
    try:
        return pc.utf8_trim(values.cast(pa.string()), _SPACE.decode()).cast(pa.binary())
    except pa.ArrowInvalid:
        trimmed = [None if each is None else each.strip(_SPACE) for each in values.to_pylist()]
        return pa.array(trimmed, pa.binary())


# ---- one value in Python -------------------------------------------------------------------------
class _Object(dict[str, Any]):
    """A JSON object and the names that it has twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: frozenset[str] = frozenset()
        if len(self) < len(pairs):
            names = [name for name, _ in pairs]
            self.repeated = frozenset(name for name in names if names.count(name) > 1)


def convert_value(value: bytes, kind: pa.DataType) -> Any:
    """Return one JSON document as the Python value of an Arrow type.

    Args:
        value: The document.
        kind: The type.

    Raises:
        ValueError: It is not JSON, or not of the type; the message says where.
    """
    return _converted(parse_value(value), kind, "")


def parse_value(value: bytes) -> Any:
    """Return one JSON document; other numbers than integers as `Decimal`.

    Raises:
        ValueError: It is not JSON.
    """
    try:
        return json.loads(
            value.decode(), object_pairs_hook=_Object, parse_float=Decimal, parse_constant=Decimal
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"invalid UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"invalid JSON: {error}") from None


def _converted(found: Any, kind: pa.DataType, path: str) -> Any:
    if found is None:
        if path:
            return None
        raise ValueError(f"got null, expected {_expected(kind)}")
    if pa.types.is_struct(kind) and isinstance(found, _Object):
        return _converted_object(found, kind, path)
    if pa.types.is_map(kind) and isinstance(found, _Object):
        return [
            (
                _converted_key(name, kind.key_type, path),
                _converted(item, kind.item_type, f"{path}.{name}".lstrip(".")),
            )
            for name, item in found.items()
        ]
    if pa.types.is_list(kind) and isinstance(found, list):
        return [
            _converted(item, kind.value_type, f"{path}[{index}]")
            for index, item in enumerate(found)
        ]
    return _converted_leaf(found, kind, path)


def _converted_object(found: _Object, kind: pa.StructType, path: str) -> dict[str, Any]:
    values = {}
    for field in kind:
        where = f"{path}.{field.name}".lstrip(".")
        if field.name in found.repeated:
            raise ValueError(f"field {where} appears twice")
        values[field.name] = _converted(found.get(field.name), field.type, where)
    return values


def _converted_key(name: str, kind: pa.DataType, path: str) -> Any:
    if pa.types.is_string(kind):
        return name
    return _converted_leaf(_number(name), kind, f"{path}.{name}")


def _number(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return text


def _converted_leaf(found: Any, kind: pa.DataType, path: str) -> Any:
    try:
        if isinstance(found, bool) and pa.types.is_boolean(kind):
            return found
        if isinstance(found, int | Decimal) and not isinstance(found, bool):
            return _converted_number(found, kind)
        if isinstance(found, str):
            return _converted_text(found, kind)
    except (pa.ArrowInvalid, ValueError, ArithmeticError):
        pass
    where, expected = (f"field {path}: ", kind) if path else ("", _expected(kind))
    raise ValueError(f"{where}got {_shown(found)}, expected {expected}")


def _expected(kind: pa.DataType) -> str:
    """Return what a whole document has to be."""
    return "a JSON object" if pa.types.is_struct(kind) or pa.types.is_map(kind) else str(kind)


def _converted_number(found: int | Decimal, kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        number = float(found)
        if number in (float("inf"), float("-inf")) and Decimal(found).is_finite():
            raise ValueError
        return number
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(found)).cast(kind).as_py()
    if pa.types.is_integer(kind) and isinstance(found, int):
        return pa.scalar(found, kind).as_py()
    raise ValueError


def _converted_text(found: str, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        found.encode()  # half of a surrogate pair is no text
        return found
    if pa.types.is_binary(kind):
        return base64.b64decode(found, validate=True)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(found)).cast(kind).as_py()
    if pa.types.is_temporal(kind):
        plain = pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
        array = pa.array([found])
        try:
            return array.cast(plain).cast(kind)[0]
        except pa.ArrowInvalid:  # a time with a zone
            return array.cast(kind)[0]
    raise ValueError


def _shown(value: Any) -> str:
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    if isinstance(value, str):
        text = json.dumps(value)
    if isinstance(value, dict):
        text = "an object"
    if isinstance(value, list):
        text = "an array"
    if isinstance(value, bool):
        text = json.dumps(value)
    text = text.replace("\n", " ").replace("\r", " ")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
