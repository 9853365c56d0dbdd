"""The columns of an Avro reader's schema.

    Avro                                    Arrow
    null, boolean, int, long                null, bool, int32, int64
    float, double, bytes, string            float, double, binary, string
    fixed, enum                             binary, string
    record, array, map                      struct, list, map<string, …>
    a type and null                         that type; all fields are nullable
    int and long; float and double          int64; double
    another union                           struct<member0, member1, …>, one of them not null
    decimal                                 decimal128, with more than 38 digits decimal256
    date                                    date32
    time-millis, time-micros                time32(ms), time64(us)
    timestamp-millis, timestamp-micros      timestamp(us, UTC)
    local-timestamp-millis, -micros         timestamp(us)
    timestamp-nanos, local-timestamp-nanos  timestamp(ns, UTC), timestamp(ns)
    uuid                                    string

Unions are those of Spark's Avro source. A type that contains itself has no columns.
"""

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from streamlog.decoding.avro_schema import AvroSchema, Schema, decimal_of, kind_of, logical_of
from streamlog.decoding.column_layout import BYTES, FIXED, LIST, STRUCT, WORD
from streamlog.decoding.columns import ColumnNode, ColumnTree, Meaning
from streamlog.errors import InvalidOptionError

__all__ = ["AvroColumns", "UnionNode", "map_entries"]

_MAX_DECIMAL128: Final = 38
_UUID_SIZE: Final = 16
_PRIMITIVES: Final = {
    "null": (WORD, pa.null()),
    "boolean": (WORD, pa.bool_()),
    "int": (WORD, pa.int32()),
    "long": (WORD, pa.int64()),
    "float": (WORD, pa.float32()),
    "double": (WORD, pa.float64()),
    "bytes": (BYTES, pa.binary()),
    "string": (BYTES, pa.string()),
    "fixed": (FIXED, pa.binary()),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "timestamp-nanos": pa.timestamp("ns", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}


@dataclass(frozen=True, slots=True)
class UnionNode:
    """Where the branches of a reader's union go.

    Attributes:
        node: The column of the union: that of its only branch, or a struct of members.
        members: The column of each branch; None for null.
        is_struct: Whether the members are fields of `node`.
    """

    node: ColumnNode
    members: tuple[ColumnNode | None, ...]
    is_struct: bool


@dataclass(slots=True)
class AvroColumns:
    """The columns of a reader's schema.

    Attributes:
        schema: The schema.
        tree: Their nodes; the first one is the value.
        unions: The unions, by the index of their column.
    """

    schema: AvroSchema
    tree: ColumnTree = field(default_factory=ColumnTree)
    unions: dict[int, UnionNode] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, schema: AvroSchema) -> "AvroColumns":
        """Return the columns of a schema.

        Raises:
            InvalidOptionError: It contains itself, or is too large.
        """
        columns = cls(schema)
        columns._add(schema.root, "", None)
        return columns

    def _add(self, schema: Schema, path: str, above: ColumnNode | None) -> ColumnNode:
        found = self.schema.resolved(schema)
        kind = kind_of(found)
        if kind == "union":
            return self._add_union(found, path, above)
        if kind == "record":
            return self._add_record(found, path, above)
        if kind == "array":
            node = self.tree.add(LIST, path, above)
            node.type = pa.list_(self._add(found["items"], f"{path}[]", node).type)
            return node
        if kind == "map":
            node, entries = map_entries(self.tree, path, above)
            self.tree.add(BYTES, f"{path}.key", entries, type=pa.string())
            value = self._add(found["values"], f"{path}[]", entries)
            entries.type = pa.struct(
                [pa.field("key", pa.string(), nullable=False), ("value", value.type)]
            )
            node.type = pa.map_(pa.string(), value.type)
            return node
        return self._add_leaf(found, kind, path, above)

    def _add_leaf(
        self, found: Schema, kind: str, path: str, above: ColumnNode | None
    ) -> ColumnNode:
        logical = logical_of(found)
        if kind == "enum":
            return self.tree.add(
                WORD,
                path,
                above,
                type=pa.string(),
                meaning=Meaning.SYMBOL,
                symbols=found["symbols"],
            )
        if logical == "decimal":
            precision, scale = decimal_of(found)
            is_short = precision <= _MAX_DECIMAL128
            decimal = pa.decimal128 if is_short else pa.decimal256
            return self.tree.add(
                FIXED, path, above, type=decimal(precision, scale), width=16 if is_short else 32
            )
        if kind == "fixed":
            is_uuid = logical == "uuid"
            return self.tree.add(
                FIXED,
                path,
                above,
                type=pa.string() if is_uuid else pa.binary(),
                width=found["size"],
                meaning=Meaning.UUID if is_uuid else Meaning.PLAIN,
            )
        if kind not in _PRIMITIVES:
            raise InvalidOptionError("unknown type in an Avro schema", got=repr(kind))
        storage, plain = _PRIMITIVES[kind]
        meaning = Meaning.FLOAT_BITS if kind == "float" else Meaning.PLAIN
        arrow = _LOGICAL.get(logical or "", plain)
        return self.tree.add(storage, path, above, type=arrow, meaning=meaning)

    def _add_record(self, found: Schema, path: str, above: ColumnNode | None) -> ColumnNode:
        name = found["name"]
        if name in self._open:
            raise InvalidOptionError(
                "the Avro schema contains itself, and columns cannot",
                got=f"{name} in {path or name}",
                hint="give a reader's schema without that field",
            )
        self._open.append(name)
        node = self.tree.add(STRUCT, path, above)
        for each in found["fields"]:
            self._add(each["type"], f"{path}.{each['name']}".lstrip("."), node)
        names = [each["name"] for each in found["fields"]]
        node.type = pa.struct(
            [(each, child.type) for each, child in zip(names, node.children, strict=True)]
        )
        self._open.pop()
        return node

    def _add_union(self, branches: list[Schema], path: str, above: ColumnNode | None) -> ColumnNode:
        kinds = [kind_of(self.schema.resolved(branch)) for branch in branches]
        some = [branch for branch, kind in zip(branches, kinds, strict=True) if kind != "null"]
        is_plain = all(isinstance(branch, str) for branch in some)
        if not some:
            only: Schema | None = "null"
        elif len(some) == 1:
            only = some[0]
        elif is_plain and set(some) == {"int", "long"}:
            only = "long"
        elif is_plain and set(some) == {"float", "double"}:
            only = "double"
        else:
            only = None
        if only is not None:
            node = self._add(only, path, above)
            members = tuple(None if kind == "null" else node for kind in kinds)
            self.unions[node.index] = UnionNode(node, members, is_struct=False)
            return node
        node = self.tree.add(STRUCT, path, above)
        added: list[ColumnNode | None] = []
        for branch, kind in zip(branches, kinds, strict=True):
            place = f"{path}.member{len(node.children)}".lstrip(".")
            added.append(None if kind == "null" else self._add(branch, place, node))
        node.type = pa.struct(
            [(f"member{number}", child.type) for number, child in enumerate(node.children)]
        )
        self.unions[node.index] = UnionNode(node, tuple(added), is_struct=True)
        return node


def map_entries(
    tree: ColumnTree, path: str, above: ColumnNode | None
) -> tuple[ColumnNode, ColumnNode]:
    """Add a map without its key and value; return it and the struct of its entries."""
    node = tree.add(LIST, path, above)
    return node, tree.add(STRUCT, f"{path}[]", node)
