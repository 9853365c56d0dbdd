"""A schema for JSON values from a sample of them."""

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamlog.decoding.ddl import ddl_of_type
from streamlog.decoding.framing import NO_ID, data_of, ids_of, spans_of, without_prefixes
from streamlog.decoding.json_values import parse_value
from streamlog.errors import InvalidRequestError

__all__ = ["infer_json_schema"]

_MAX_DEPTH: Final = 50  # below, objects and arrays become text
_INT64: Final = 1 << 63
_TIME: Final = pa.timestamp("us", tz="UTC")
_UNKNOWN: Final = pa.null()
_SHORTEST_TIME: Final = len("2000-01-01 00:00:00")


def infer_json_schema(values: pa.BinaryArray) -> str:
    """Return a schema, as DDL, that fits the JSON objects of a sample.

    Integers become BIGINT, other numbers DOUBLE, ISO 8601 times with a zone TIMESTAMP. A field that
    is null everywhere becomes STRING. Values that are no objects are left out: a decoder reports
    them. A field whose values have several kinds gets the type of most of them.

    Args:
        values: pa.BinaryArray[n], the sample, with or without Confluent's header.

    Raises:
        InvalidRequestError: No value is a JSON object with a field.
    """
    values = pc.drop_null(values.cast(pa.binary()))
    framed = ids_of(data_of(values), *spans_of(values)) != NO_ID
    root = _Seen()
    for value in without_prefixes(values, framed).to_pylist():
        try:
            found = parse_value(value)
        except ValueError:
            continue
        if isinstance(found, dict):
            root.add(found, 0)
    if not root.fields:
        raise InvalidRequestError(
            "no schema can be inferred",
            got=f"{len(values)} values, none of them a JSON object with fields",
            hint="give a schema, such as: id BIGINT, name STRING",
        )
    return ddl_of_type(root.type())


class _Seen:
    """What was seen in one place of all documents."""

    def __init__(self) -> None:
        self.fields: dict[str, _Seen] = {}
        self._items: _Seen | None = None
        self._counts: dict[pa.DataType | str, int] = {}

    def add(self, found: Any, depth: int) -> None:
        """Count a value."""
        if found is None:
            return
        kind: pa.DataType | str = _leaf_type(found)
        if isinstance(found, dict) and depth < _MAX_DEPTH:
            kind = "object"
            for name, value in found.items():
                self.fields.setdefault(name, _Seen()).add(value, depth + 1)
        elif isinstance(found, list) and depth < _MAX_DEPTH:
            kind = "array"
            self._items = self._items or _Seen()
            for item in found:
                self._items.add(item, depth + 1)
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def type(self) -> pa.DataType:
        """Return the type that fits most values."""
        counts = dict(self._counts)
        if pa.float64() in counts:  # integers fit as well
            counts[pa.float64()] += counts.pop(pa.int64(), 0)
        if pa.string() in counts:
            counts[pa.string()] += counts.pop(_TIME, 0)
        if not counts:
            return pa.string()
        most = max(counts, key=lambda kind: counts[kind])
        if most == "array":
            return pa.list_(self._items.type() if self._items else pa.string())
        if most == "object":
            inside = pa.struct([(name, seen.type()) for name, seen in self.fields.items()])
            return inside if inside.num_fields else pa.map_(pa.string(), pa.string())
        return most


def _leaf_type(found: Any) -> pa.DataType:
    if isinstance(found, bool):
        return pa.bool_()
    if isinstance(found, int) and -_INT64 <= found < _INT64:
        return pa.int64()
    if isinstance(found, int | Decimal):
        return pa.float64()
    return _TIME if isinstance(found, str) and _is_time(found) else pa.string()


def _is_time(text: str) -> bool:
    if len(text) < _SHORTEST_TIME or not text[:4].isdecimal() or text[4] != "-":
        return False
    try:
        pa.array([text]).cast(_TIME)
    except pa.ArrowInvalid:
        return False
    return True
