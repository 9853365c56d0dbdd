"""Random pairs of a writer's and a reader's Avro schema, with values of the first."""

import io
import itertools
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro
from hypothesis import strategies as st

Schema = Any

FLOATS = st.floats(width=32, allow_nan=False)
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(timezone.utc))
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": FLOATS,
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=12),
    "bytes": st.binary(max_size=12),
}
PROMOTED = {
    "int": ["long", "double"],
    "long": ["double"],
    "float": ["double"],
    "bytes": ["bytes"],
}
LOGICAL: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    ({"type": "int", "logicalType": "date"}, st.dates(date(1900, 1, 1))),
    (
        {"type": "int", "logicalType": "time-millis"},
        st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "long", "logicalType": "timestamp-micros"}, TIMES),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        TIMES.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        TIMES.map(lambda t: t.replace(tzinfo=None)),
    ),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 3},
        st.decimals(-9999, 9999, places=3),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2},
        st.integers(-(10**60) + 1, 10**60 - 1).map(lambda n: Decimal(f"{n}E-2")),
    ),
]


class Pair(NamedTuple):
    """A writer's schema, the reader's schema, and values of the writer's."""

    writer: Schema
    reader: Schema
    values: st.SearchStrategy[Any]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """A pair whose root is a record."""
    return _record(draw, itertools.count(), 3)


def encode(schema: Schema, value: Any) -> bytes:
    """Return a value in Avro's binary encoding."""
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


def _any(draw: st.DrawFn, names: "itertools.count[int]", depth: int) -> Pair:
    kinds = ["leaf", "leaf", "logical", "enum", "fixed", "nullable"]
    kind = draw(st.sampled_from(kinds + ["record", "array", "map", "union"] * (depth > 0)))
    if kind == "leaf":
        leaf = draw(st.sampled_from(sorted(LEAVES)))
        reader = draw(st.sampled_from([leaf, *PROMOTED.get(leaf, [])]))
        return Pair(leaf, reader, LEAVES[leaf])
    if kind == "logical":
        schema, values = draw(st.sampled_from(LOGICAL))
        return Pair(schema, schema, values)
    if kind == "enum":
        return _enum(draw, names)
    if kind == "fixed":
        size = draw(st.integers(1, 5))
        schema = {"type": "fixed", "name": f"F{next(names)}", "size": size}
        return Pair(schema, schema, st.binary(min_size=size, max_size=size))
    if kind == "nullable":
        return _nullable(draw, names, depth)
    if kind == "record":
        return _record(draw, names, depth - 1)
    if kind == "union":
        return _union(draw)
    inner = _any(draw, names, depth - 1)
    if kind == "array":
        schemas = [{"type": "array", "items": each} for each in inner[:2]]
        return Pair(*schemas, st.lists(inner.values, max_size=4))
    schemas = [{"type": "map", "values": each} for each in inner[:2]]
    return Pair(*schemas, st.dictionaries(st.text(max_size=3), inner.values, max_size=3))


def _enum(draw: st.DrawFn, names: "itertools.count[int]") -> Pair:
    name = f"E{next(names)}"
    writer = {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}
    symbols = draw(st.sampled_from([["A", "B", "C"], ["C", "B", "A"], ["B", "A", "X", "C"]]))
    return Pair(writer, {**writer, "symbols": symbols}, st.sampled_from(["A", "B", "C"]))


def _nullable(draw: st.DrawFn, names: "itertools.count[int]", depth: int) -> Pair:
    inner = _any(draw, names, depth - 1) if depth > 0 else Pair("int", "int", LEAVES["int"])
    if isinstance(inner.writer, list) or isinstance(inner.reader, list):
        return inner
    if draw(st.booleans()):  # the reader makes it nullable
        return Pair(inner.writer, ["null", inner.reader], inner.values)
    order = draw(st.booleans())
    writer = ["null", inner.writer] if order else [inner.writer, "null"]
    return Pair(writer, ["null", inner.reader], st.none() | inner.values)


def _union(draw: st.DrawFn) -> Pair:
    leaves = draw(st.sampled_from([["long", "string"], ["boolean", "double", "bytes"]]))
    has_null = draw(st.booleans())
    schema = ["null", *leaves] if has_null else leaves
    values = st.one_of([st.none()] * has_null + [LEAVES[each] for each in leaves])
    return Pair(schema, schema, values)


def _record(draw: st.DrawFn, names: "itertools.count[int]", depth: int) -> Pair:
    name = f"R{next(names)}"
    written, read, values = [], [], {}
    for number in range(draw(st.integers(0, 4))):
        inner = _any(draw, names, depth)
        field = f"f{number}"
        written.append({"name": field, "type": inner.writer})
        values[field] = inner.values
        change = draw(st.sampled_from(["same", "same", "gone", "renamed"]))
        if change == "same":
            read.append({"name": field, "type": inner.reader})
        elif change == "renamed":
            read.append({"name": f"n{number}", "type": inner.reader, "aliases": [field]})
    read = draw(st.permutations(read))
    for number, (schema, default) in enumerate(draw(st.lists(st.sampled_from(DEFAULTS)))):
        read = [*read, {"name": f"d{number}", "type": schema, "default": default}]
    return Pair(
        {"type": "record", "name": name, "fields": written},
        {"type": "record", "name": name, "fields": read},
        st.fixed_dictionaries(values),
    )


DEFAULTS: list[tuple[Schema, Any]] = [
    ("int", -5),
    ("long", 1 << 40),
    ("double", 0.25),
    ("float", 1.5),
    ("boolean", True),
    ("string", "ä"),
    ("null", None),
    (["null", "string"], None),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": "long"}, {"k": 7}),
]

__all__ = ["Pair", "encode", "pairs"]
